"""Runs the course's commands on a tiny course, each in a process of its own as a learner's terminal does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from coursekit.paths import Course


def change(course: Course, old: str, new: str, file: str = "shapes.py") -> None:
    """Edit the learner's file; what is to be replaced must stand there once."""
    path = course.starter() / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def course_command(course: Course, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m coursekit …` in the course's folder."""
    return _run(course, ["-m", "coursekit", *arguments])


def run_plugin(course: Course, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """pytest with the plugin; gives the process and the report (empty if none was written)."""
    report = course.root / "report.json"
    report.unlink(missing_ok=True)
    ran = _run(
        course, ["-m", "pytest", "-p", "coursekit.plugin", "--coursekit-report", str(report), *arguments]
    )
    return ran, json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}


def environment(course: Course) -> dict[str, str]:
    """A plain terminal of 80 columns, without what this test run has set for its own children."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "COLUMNS", "FORCE_COLOR")
    }
    tool = str(Path(__file__).parents[2] / "src")
    # Other pytest plugins take a third of a second to load in each of many short runs.
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout"}
    if (
        sys.dont_write_bytecode
    ):  # then it stays so: bytecode of courses that are gone would fill the user's cache
        quick["PYTHONPYCACHEPREFIX"] = os.devnull
    return kept | quick | {"TINY_LLM_ROOT": str(course.root), "PYTHONPATH": tool, "PYTHONIOENCODING": "utf-8"}


def _run(course: Course, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=course.root,
        env=environment(course),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
