"""How much of the disk a confined process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confinement import EVERY, run, usable

from grading.sandbox.bubblewrap import Bubblewrap
from grading.sandbox.ending import Cause
from grading.sandbox.isolation import Isolation

every = pytest.mark.parametrize("kind", EVERY)


@every
def test_a_file_cannot_become_larger_than_the_folder_may(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
with open("big", "wb") as file:
    try:
        for _ in range(100):
            file.write(bytes(1 << 20))
    except OSError as error:
        print("refused")
    else:
        print("all of it")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert confined.output() == "refused\n" or confined.ending.cause == Cause.SCRATCH  # type: ignore[union-attr]


@every
def test_many_large_files_end_the_process(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import time
for number in range(10):
    open(f"f{number}", "wb").write(bytes(10 << 20))
time.sleep(5)
print("all of it")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert "all of it" not in confined.output()
    if kind is Bubblewrap:
        assert "No space left on device" in confined.output()
    else:
        assert confined.why_ended() == "was ended: it wrote more than 50 MiB into its folder"


@every
def test_deleted_files_that_are_open_count(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import os, time
held = []
for number in range(10):
    held.append(open("f", "wb", buffering=0))
    os.unlink("f")
    held[-1].write(bytes(10 << 20))
time.sleep(5)
print("all of it")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert "all of it" not in confined.output()
    if kind is not Bubblewrap:
        assert confined.why_ended() == "was ended: it wrote more than 50 MiB into its folder"


@every
def test_deleted_files_that_are_mapped_count(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import ctypes, os, time
library = ctypes.CDLL(None)
library.mmap.restype = ctypes.c_void_p
for number in range(10):
    with open("f", "w+b", buffering=0) as file:
        os.unlink("f")
        file.write(bytes(10 << 20))
        library.mmap(None, ctypes.c_size_t(10 << 20), 1, 1, file.fileno(), ctypes.c_long(0))
time.sleep(5)
print("all of it")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert "all of it" not in confined.output()
    if kind is not Bubblewrap:
        assert confined.why_ended() == "was ended: it wrote more than 50 MiB into its folder"


@every
def test_many_small_files_end_the_process(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import time
for number in range(1000):
    open(f"f{number}", "w")
time.sleep(5)
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert confined.why_ended() == "was ended: it had more than 300 files in its folder"


@every
@pytest.mark.parametrize("way", ["a folder without leave to read", "a path that is too long"])
def test_files_cannot_be_hidden(way: str, kind: type[Isolation], tmp_path: Path) -> None:
    make = {
        "a folder without leave to read": "os.mkdir('d', 0o300); os.chdir('d')",
        "a path that is too long": "for _ in range(20): os.mkdir('x' * 250); os.chdir('x' * 250)",
    }[way]
    code = f"""
import os, time
{make}
for number in range(10):
    open(f"f{{number}}", "wb").write(bytes(10 << 20))
time.sleep(5)
print("all of it")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert "all of it" not in confined.output()
    if kind is not Bubblewrap and (way == "a path that is too long" or os.geteuid() != 0):
        assert confined.why_ended() == "was ended: it made a folder that can't be looked into"
