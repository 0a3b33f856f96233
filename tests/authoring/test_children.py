"""When the gates fork a child, and when they start one anew."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from courses import write

from authoring.gates.children import Command, start

forking = pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin", reason="nothing is forked on this system"
)

KERNEL = """
import numba
import numpy as np
from authoring.gates.children import can_fork

@numba.njit(parallel={parallel})
def double(x):
    for i in numba.prange(len(x)):
        x[i] *= 2

before = can_fork()
double(np.ones(8))
print(before, can_fork())
"""


def forks_before_and_after_a_kernel(parallel: bool) -> str:
    command = [sys.executable, "-c", KERNEL.format(parallel=parallel)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@forking
def test_no_child_is_forked_after_a_parallel_kernel_ran():
    assert forks_before_and_after_a_kernel(parallel=True) == "True False"


@forking
def test_importing_numba_and_running_on_one_thread_leaves_forks_alone():
    assert forks_before_and_after_a_kernel(parallel=False) == "True True"


PRELOAD = """
import os
import sys
from pathlib import Path

from authoring.gates.children import preload
from coursekit.paths import Course

preload(Course(Path(sys.argv[1])))
import triton
import triton.language as tl

print(type(tl.sum).__name__)
"""


def test_what_is_imported_before_the_fork_has_triton_interpret_kernels(tmp_path):
    """Triton's own functions are made when it is imported; the children can't choose any more."""
    pytest.importorskip("triton", reason="Triton exists for Linux only")
    write(tmp_path / "solutions/tiny_llm/kernel.py", "import triton\nimport triton.language as tl\n")
    command = [sys.executable, "-c", PRELOAD, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "InterpretedFunction"


KEPT_KERNEL = """
import numba

@numba.njit(cache=True)
def double(x):
    return 2 * x

def test_double():
    assert double(3) == 6
    print("found again:", sum(double.stats.cache_hits.values()))
"""


def test_a_kernel_that_one_child_compiled_the_next_finds_again(tmp_path):
    """In another folder, with the same text."""
    said = []
    for name in ("first", "second"):
        folder = tmp_path / name
        write(folder / "test_kernel.py", KEPT_KERNEL)
        arguments = ["-s", "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", os.devnull, str(folder)]
        child = start(Command(arguments, folder, folder, folder / "output.txt", tmp_path / "kernels"))
        while (code := child.poll()) is None:
            time.sleep(0.05)
        said.append((folder / "output.txt").read_text(encoding="utf-8"))
        assert code == 0, said
    assert "found again: 0" in said[0]
    assert "found again: 1" in said[1]
