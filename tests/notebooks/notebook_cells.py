"""Cells in a real IPython shell, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from coursekit.paths import ROOT_VARIABLE, Course

PROGRAM = """import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
for cell in sys.argv[1:]:
    shell.run_cell(cell)
"""


def run_cells(course: Course, *cells: str, **variables: str) -> str:
    """What a notebook of these cells prints, after `%load_ext notebooks`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TINY_LLM_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "%load_ext notebooks", *cells],
        env={**environment, ROOT_VARIABLE: str(course.root), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
