"""Kernels that are kept on disk, in processes one after the other: when they are found, and when compiled anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from courses import write

from coursekit.paths import Course

INLINED = """
from tiny_llm.kernels.compiling import inlined

@inlined
def twice(x):
    return x + x
"""

CALLER = """
from tiny_llm.kernels.compiling import kernel
from tiny_llm.kernels.inlined import twice

@kernel
def four_times(x):
    return twice(twice(x))
"""

RUN = """
from tiny_llm.kernels.caller import four_times
print(four_times(3), sum(four_times.stats.cache_hits.values()))
"""

PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    first: int
"""

OF_PAIR = """
from tiny_llm.kernels.compiling import kernel

@kernel
def four_times(pair):
    return 4 * pair.first
"""

RUN_WITH_PAIR = """
from tiny_llm.kernels.caller import four_times
from tiny_llm.pairs import Pair
print(four_times(Pair(3)), sum(four_times.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a kernel that calls a function of another file."""
    reference, root = Course.find().root / "solutions" / "tiny_llm", tmp_path / "tiny_llm"
    (root / "kernels").mkdir(parents=True)
    for name in ("cache_folder.py", "kernels/__init__.py", "kernels/compiling.py", "kernels/kept.py"):
        shutil.copy(reference / name, root / name)
    write(root / "__init__.py", "")
    write(root / "kernels" / "inlined.py", INLINED)
    write(root / "kernels" / "caller.py", CALLER)
    return root


def run(package: Path, cache: Path | str, program: str = RUN) -> list[str]:
    """What the kernel gives for 3, and how often its machine code was found on disk."""
    own = {"PYTHONPATH": str(package.parent), "TINY_LLM_CACHE": str(cache), "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | own, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_kernel_is_kept_until_a_function_that_it_inlines_from_another_file_changes(package, tmp_path):
    cache = tmp_path / "cache"
    assert run(package, cache) == ["12", "0"]
    assert run(package, cache) == ["12", "1"]
    write(package / "kernels" / "inlined.py", INLINED.replace("x + x", "x - x"))
    assert run(package, cache) == ["0", "0"]
    write(package / "kernels" / "inlined.py", INLINED)
    assert run(package, cache) == ["12", "1"]


def test_a_kernel_runs_also_where_no_folder_can_be_written_to(package, tmp_path):
    (tmp_path / "a file").write_text("in the way")
    assert run(package, tmp_path / "a file") == ["12", "0"]


def test_a_kernel_is_compiled_anew_when_the_class_of_an_argument_has_moved(package, tmp_path):
    cache, moved = tmp_path / "cache", RUN_WITH_PAIR.replace("tiny_llm.pairs", "tiny_llm.moved")
    write(package / "kernels" / "caller.py", OF_PAIR)
    write(package / "pairs.py", PAIR)
    assert run(package, cache, RUN_WITH_PAIR) == ["12", "0"]
    assert run(package, cache, RUN_WITH_PAIR) == ["12", "1"]
    write(package / "moved.py", PAIR)
    write(package / "pairs.py", "")
    assert run(package, cache, moved) == ["12", "0"]
    assert run(package, cache, moved) == ["12", "1"]


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_kernel_is_compiled_anew_when_what_is_kept_of_it_can_not_be_read(package, tmp_path, kind):
    cache = tmp_path / "cache"
    assert run(package, cache) == ["12", "0"]
    kept = [*cache.rglob(f"*four_times*.{kind}")]
    assert len(kept) == 1
    kept[0].write_bytes(b"")
    assert run(package, cache) == ["12", "0"]
    assert run(package, cache) == ["12", "1"]
