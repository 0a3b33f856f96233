"""Gate: the reference passes every test, and its MLX track the days that it covers."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from rich.console import Console

from coursekit.gates.gate import DAY_SECONDS, Context, Findings, count, day_problems
from coursekit.gates.tracks import OTHER_BACKENDS, jobs_of_tracks, missing_tracks
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.results import PASSED

# "245 passed, 2 skipped in 31.52s"; libraries may say more after it.
CLOSING_LINE = re.compile(r"\d+ \w+.* in \d+\.\d+s")


def reference(context: Context) -> Findings:
    """Run the whole suite as `pdm run test-solution` does, then the days of the MLX track."""
    code, closing = _run_suite(context.course, context.console)
    problems = [f"`pdm run test-solution` fails: {closing}"] if code else []
    jobs = jobs_of_tracks(context, "the reference", context.reference, DAY_SECONDS, OTHER_BACKENDS)
    problems += day_problems(context.run("reference (MLX)", jobs), PASSED)
    return Findings(f"{closing}; MLX: {count(len(jobs), 'day')}", problems, missing_tracks(context))


def _run_suite(course: Course, console: Console) -> tuple[int, str]:
    """Run it, showing what it prints; its exit code and pytest's closing line."""
    command = [sys.executable, "-u", "-m", "coursekit", "test-solution"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", ROOT_VARIABLE: str(course.root)}
    closing = ""
    with subprocess.Popen(
        command,
        cwd=course.root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                console.print(f"  {line.rstrip()}", markup=False, soft_wrap=True)
                if CLOSING_LINE.search(line):
                    closing = line.strip(" =\r\n")
        except BaseException:
            process.terminate()
            raise
    return process.returncode, closing or f"exit code {process.returncode}"
