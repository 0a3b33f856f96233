"""Gate: the reference passes every test."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from rich.console import Console

from authoring.gates.gate import Context, Findings
from coursekit.paths import ROOT_VARIABLE, Course

# "245 passed, 2 skipped in 31.52s"; libraries may say more after it.
CLOSING_LINE = re.compile(r"\d+ \w+.* in \d+\.\d+s")


def reference(context: Context) -> Findings:
    """Run the whole suite as `pdm run test-solution` does."""
    code, closing = _run_suite(context.course, context.console)
    problems = [f"`pdm run test-solution` fails: {closing}"] if code else []
    return Findings(closing, problems)


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
