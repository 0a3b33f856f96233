"""What the gates keep of compiled kernels: kernels of the same text, wherever it lies, and no others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from courses import write

from authoring.gates.kernel_cache import fingerprint

SHARED = """
from numba.extending import overload

def widened(x):
    return float(x)

@overload(widened, inline="always")
def _widened(x):
    return lambda x: x + 0.0
"""

KERNELS = """
from tiny_llm.shared import widened

TILE = 64

@kernel
def attend(x):
    return fold(x) + TILE

@kernel
def other(x):
    return x

@inlined
def fold(x):
    return widened(x)

def from_python(x):
    return attend(x)
"""


@pytest.fixture
def of_attend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The fingerprint of `attend`, with one change in one of the two files, each time in another folder."""
    folders = (tmp_path / str(number) for number in range(10))

    def of(old: str = "", new: str = "") -> str:
        folder = next(folders)
        for name, text in (("shared", SHARED), ("kernels", KERNELS)):
            write(folder / f"{name}.py", text.replace(old, new) if old else text)
        module = ModuleType("tiny_llm.shared")
        module.__file__ = str(folder / "shared.py")
        monkeypatch.setitem(sys.modules, "tiny_llm.shared", module)
        return fingerprint(folder / "kernels.py", "attend")

    return of


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
