"""Gate: ruff's rules, ruff's layout and mypy's types hold for all that is written by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from authoring.gates.gate import Context, Findings, indented
from authoring.progress import count
from authoring.rooms import ROOMS

# What is written by hand; the starter is generated. Whichever of these is not there, or has no Python, is left out.
HANDWRITTEN = (
    "solutions",
    *(f"src/{room}" for room in ROOMS),
    "tests",
    "book/figures",
    "benches",
    "examples",
    "lessons",
)
TOOLS = {
    "ruff check": ("ruff", "check", "--output-format=concise"),
    "ruff format": ("ruff", "format", "--check", "--output-format=concise"),
    "mypy": ("mypy",),
}


def lint(context: Context) -> Findings:
    """Run the three tools on every Python file that is written by hand."""
    root = context.course.root
    places = [place for place in HANDWRITTEN if any((root / place).rglob("*.py"))]
    problems = [problem for name in TOOLS if (problem := _problem(root, name, places))]
    files = sum(1 for place in places for _ in (root / place).rglob("*.py"))
    return Findings(f"{count(files, 'file')}: {', '.join(TOOLS)}", problems)


def _problem(root: Path, name: str, places: Sequence[str]) -> str | None:
    done = subprocess.run(
        [sys.executable, "-m", *TOOLS[name], *places],
        cwd=root,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    said = (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
    return f"{name}{indented(said)}"
