"""The children in which the gates run tests: what they have before they start, and what is left when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from courses import make_course, write

from authoring.gates import children
from authoring.gates.children import Command, end, start
from coursekit.paths import ROOT_VARIABLE

PRELOAD = """
import authoring.gates.preloaded
import triton
import triton.language as tl

print(type(tl.sum).__name__)
"""


def test_what_is_imported_before_the_fork_has_triton_interpret_kernels(tmp_path):
    """Triton's own functions are made when it is imported; the children can't choose any more."""
    pytest.importorskip("triton", reason="Triton exists for Linux only")
    write(tmp_path / "solutions/tiny_llm/kernel.py", "import triton\nimport triton.language as tl\n")
    command = [sys.executable, "-c", PRELOAD]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment[ROOT_VARIABLE] = str(make_course(tmp_path).root)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "InterpretedFunction"


KEPT_KERNEL = """
from tiny_llm.kernels.compiling import kernel

@kernel
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
        child.join()
        said.append((folder / "output.txt").read_text(encoding="utf-8"))
        assert child.exitcode == 0, said
    assert "found again: 0" in said[0]
    assert "found again: 1" in said[1]


STARTS_A_PROCESS = """
import subprocess
import sys

WRITES = "while True: open('alive.txt', 'a').write('.')"

def test_that_does_not_end():
    subprocess.run([sys.executable, "-c", WRITES])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups to end")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_what_a_child_started_ends_with_it(tmp_path, monkeypatch, method):
    monkeypatch.setattr(children, "METHOD", method)
    write(tmp_path / "test_loop.py", STARTS_A_PROCESS)
    arguments = ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)]
    child = start(Command(arguments, tmp_path, tmp_path, tmp_path / "output.txt", tmp_path / "kernels"))
    alive = tmp_path / "alive.txt"
    while not alive.is_file():
        assert child.exitcode is None, (tmp_path / "output.txt").read_text(encoding="utf-8")
        time.sleep(0.05)
    end(child)
    assert child.exitcode == -signal.SIGKILL
    size = alive.stat().st_size
    time.sleep(0.2)
    assert alive.stat().st_size == size
