"""A stub that Triton's compiler comes upon is a stub, although it is never run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton exists for Linux only")

KERNELS = '''
import triton
import triton.language as tl

@triton.jit
def double(x):
    """Twice as much."""
    raise NotImplementedError("Week 9 Day 4 Task 2: Twice")

@triton.jit
def wrong(x):
    return x.no_such_thing

@triton.jit
def calls_double(pointer):
    tl.store(pointer, double(tl.load(pointer)))

@triton.jit
def calls_wrong(pointer):
    tl.store(pointer, wrong(tl.load(pointer)))
'''
COMPILE = """
import json, kernels, triton
from coursekit.running.stubs import reached_stub
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

found = []
for kernel in (kernels.calls_double, kernels.calls_wrong):
    try:
        triton.compile(ASTSource(kernel, {"pointer": "*fp32"}), target=GPUTarget("cuda", 80, 32))
    except Exception as error:
        stub = reached_stub(error)
        found.append([type(error).__name__, stub and stub.message])
print(json.dumps(found))
"""


def test_a_stub_is_recognised_in_what_the_compiler_cites(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["CompilationError", "Week 9 Day 4 Task 2: Twice"],
        ["CompilationError", None],
    ]
