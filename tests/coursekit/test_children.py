"""When the gates fork a child, and when they start one anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

forking = pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin", reason="nothing is forked on this system"
)

KERNEL = """
import numba
import numpy as np
from coursekit.gates.children import can_fork

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
