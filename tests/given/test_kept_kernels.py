"""What is kept of compiled kernels: kernels of the same text, wherever it lies, and no others."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from courses import write

from tiny_llm.kernels import kept
from tiny_llm.kernels.kept import fingerprint

STARRED = """
def starry(x):
    return x
"""

SHARED = """
from numba.extending import overload

def widened(x):
    return float(x)

def narrowed(x):
    return int(x)

@overload(widened, inline="always")
def _widened(x):
    return lambda x: x + 0.0
"""

COMPILED = """
from numba.extending import overload
from tiny_llm.shared import narrowed, widened as renamed

STEP = 1

@overload(narrowed)
def _narrowed(x):
    return lambda x: x - STEP

@compiled(renamed, result=float)
def _renamed(x):
    return lambda x: x - 0.0

@overload(renamed_elsewhere)
def _unknown(x):
    return lambda x: -0.0
"""

KERNELS = """
from tiny_llm.shared import widened
from tiny_llm import shared as common
from .shared import narrowed
from tiny_llm.starred import *

TILE = 64

@kernel
def attend(x):
    return fold(x) + TILE

@kernel
def other(x):
    return x

@kernel
def by_module(x):
    return common.widened(x)

@kernel
def by_dots(x):
    return narrowed(x)

@kernel
def by_star(x):
    return starry(x)

@inlined
def fold(x):
    return widened(x)

def from_python(x):
    return attend(x)
"""


FILES = {"shared": SHARED, "starred": STARRED, "compiled": COMPILED, "kernels": KERNELS}


@pytest.fixture
def of_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The fingerprint of a kernel, with one change in one of the files, each time in another folder."""
    folders = (tmp_path / str(number) for number in range(10))

    def of(kernel: str, old: str = "", new: str = "") -> str:
        folder = next(folders)
        for name, text in FILES.items():
            write(folder / f"{name}.py", text.replace(old, new) if old else text)
            module = ModuleType(f"tiny_llm.{name}")
            module.__file__, module.__package__ = str(folder / f"{name}.py"), "tiny_llm"
            monkeypatch.setitem(sys.modules, f"tiny_llm.{name}", module)
        return fingerprint(folder / "kernels.py", kernel)

    return of


@pytest.fixture
def of_attend(of_kernel: Callable[..., str]) -> Callable[..., str]:
    return functools.partial(of_kernel, "attend")


def test_it_does_not_matter_where_the_files_lie(of_attend):
    assert of_attend() == of_attend()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x\n", "return -x\n"),
        ("attend(x)\n", "attend(-x)\n"),
        ("def other", "# A comment\n\ndef other"),
    ],
    ids=["another kernel", "what calls the kernel", "a comment"],
)
def test_what_the_kernel_does_not_need_does_not_matter(of_attend, old, new):
    assert of_attend(old, new) == of_attend()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fold(x) + TILE", "fold(x) - TILE"),
        ("TILE = 64", "TILE = 32"),
        ("return widened(x)", "return widened(-x)"),
        ("return float(x)", "return float(-x)"),
        ("x + 0.0", "x + 1.0"),
        ("@kernel\ndef attend", "@inlined\ndef attend"),
    ],
    ids=["itself", "a constant", "what it calls", "another file", "a compiled form", "how it is compiled"],
)
def test_all_that_the_kernel_needs_matters(of_attend, old, new):
    assert of_attend(old, new) != of_attend()


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("by_module", "return float(x)", "return float(-x)"),
        ("by_dots", "return int(x)", "return int(-x)"),
        ("by_star", "def starry(x):\n    return x", "def starry(x):\n    return -x"),
    ],
)
def test_it_does_not_matter_how_a_function_is_imported(of_kernel, kernel, old, new):
    assert of_kernel(kernel) == of_kernel(kernel)
    assert of_kernel(kernel, old, new) != of_kernel(kernel)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("by_dots", "x - STEP", "x - 2 * STEP"),
        ("by_dots", "STEP = 1", "STEP = 2"),
        ("attend", "x - 0.0", "x - 1.0"),
        ("attend", "@compiled(renamed, result=float)", "@compiled(renamed, result=int)"),
        ("by_module", "x - 0.0", "x - 1.0"),
    ],
    ids=["a form", "what it uses", "under another name", "how it is tied", "of a module's function"],
)
def test_compiled_forms_in_files_that_the_kernel_does_not_import_matter(of_kernel, kernel, old, new):
    assert of_kernel(kernel) == of_kernel(kernel)
    assert of_kernel(kernel, old, new) != of_kernel(kernel)


@pytest.mark.parametrize(("old", "new"), [("x - STEP", "x - 2 * STEP"), ("-0.0", "-1.0")])
def test_compiled_forms_of_other_functions_do_not_matter(of_attend, old, new):
    assert of_attend(old, new) == of_attend()


def test_a_kernel_that_was_not_used_for_long_is_removed(tmp_path):
    for name, days in (("old", 31), ("young", 29)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, times=(time.time() - days * 24 * 3600,) * 2)
    kept._prepared(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]
