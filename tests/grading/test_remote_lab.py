"""The lab of the grader: a worker for each start, and nothing of the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from confinement import EVERY, usable
from courses import make_course, write

from coursekit import lab as lab_module
from coursekit.beside import beside
from coursekit.checking import objects
from coursekit.errors import CourseError
from coursekit.lab import Lab
from grading.remote_lab import RemoteLab, attribute_names, libraries, module_names
from grading.sandbox.isolation import Isolation
from grading.sandbox.limits_only import LimitsOnly
from grading.worker import Configuration, _is_in

CODE = """
import math, os, sys
from dataclasses import dataclass, field

@dataclass
class Pages:
    free: int = 3
    owners: list = field(default_factory=list)

class Odd:
    def __eq__(self, other): return True
    def __hash__(self): return id(self)

def inner_softmax(x):
    import torch
    return torch.ops.aten.softmax.int(x, -1)
def shout(): print("my last words", flush=True); os._exit(4)
def product(values): return math.prod(values)
def largest(values): return max(values)
def folders(): return sys.path[:2], sorted(name for name in os.listdir(sys.path[0]))
def read(thing, name): return getattr(thing, name)
def ask(thing, operation): return thing._link.call(operation, thing)
def mark(): math.marked = True
def marked(): return hasattr(math, "marked")
"""
BESIDE = "def total(values, *, more=0):\n    return sum(values) + more\n"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RemoteLab]:
    """A lab of the tiny course, with a module of the learner's and one beside it."""
    yield from make_lab(tmp_path, usable(LimitsOnly))


def make_lab(folder: Path, isolation: Isolation) -> Iterator[RemoteLab]:
    course = make_course(folder / "course")
    write(course.solution() / "pages.py", "import numpy as np\n\n\ndef read(pages):\n    return pages.free\n")
    package, beside = folder / "package", folder / "beside"
    write(package / "tiny_llm" / "__init__.py", "")
    write(package / "tiny_llm" / "pages.py", CODE)
    write(beside / "week_1" / "beside_totals.py", BESIDE)
    lab = RemoteLab(course, "torch", "cpu", (package, beside), isolation)
    try:
        yield lab
    finally:
        lab.stop()


@pytest.mark.parametrize("kind", EVERY)
def test_a_start_ends_the_worker_before_and_removes_what_it_had(tmp_path, kind):
    for lab in make_lab(tmp_path, usable(kind)):
        lab.start()
        first, end = lab._process, lab.end
        lab.pages.mark()
        assert lab.pages.marked()
        lab.start()
        assert first is not None
        assert first.poll()
        assert end.gone
        assert lab._process is not first
        assert not lab.pages.marked()
        second = lab._process
        lab.stop()
        assert second is not None
        assert second.poll()


def test_nothing_of_a_worker_is_left_behind(lab, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, pipes = set(tmp_path.iterdir()), len(os.listdir("/proc/self/fd"))
    lab.start()
    assert set(tmp_path.iterdir()) > before
    lab.stop()
    lab.stop()  # a second time does nothing
    assert set(tmp_path.iterdir()) == before
    assert len(os.listdir("/proc/self/fd")) == pipes


def test_a_lab_is_gone_before_its_start_after_its_end_and_when_the_code_has_left(lab):
    assert lab.gone
    lab.start()
    assert not lab.gone
    with pytest.raises(Exception, match="the other side has ended"):
        lab.pages.shout()
    assert lab.gone
    assert lab.why_ended() == "ended itself with exit code 4\nmy last words"
    lab.start()
    assert not lab.gone
    lab.stop()
    assert lab.gone


def test_a_worker_that_cannot_start_is_the_courses_error(lab, monkeypatch):
    monkeypatch.setattr(Configuration, "text", lambda self: "no configuration")
    with pytest.raises(
        CourseError, match=r"(?s)^the worker did not start: it ended itself with exit code 1\n.*JSON"
    ):
        lab.start()
    assert lab.gone


class Fake:
    """An object of a test's."""

    free = 3
    secret = "the expected value"


def test_the_code_reads_what_the_reference_reads_of_a_tests_object_and_nothing_else(lab):
    lab.start()
    assert lab.pages.read(Fake(), "free") == 3
    with pytest.raises(AttributeError, match="no attribute 'secret'"):
        lab.pages.read(Fake(), "secret")
    for operation in ("names", "to_numpy", "issubclass", "lab", "beside"):
        with pytest.raises(TypeError, match="there is no operation"):
            lab.pages.ask(Fake(), operation)


def test_forbidden_calls_are_told_once_and_only_those(lab):
    lab.start(("math.prod", "builtins.max"))
    assert lab.forbidden_calls() == ()
    assert lab.pages.product([2, 3]) == 6
    assert lab.pages.largest([2, 3]) == 3
    for name in ("math.sqrt", 5, None, ["math.prod"]):
        lab._note(name)
    assert lab.forbidden_calls() == ("builtins.max", "math.prod")
    assert lab.forbidden_calls() == ()
    lab.pages.product([2])
    lab.start()
    assert lab.forbidden_calls() == ()
    lab.pages.product([2])
    assert lab.forbidden_calls() == ()


def test_what_runs_beside_the_code_gets_its_arguments(lab):
    lab.start()
    assert lab.run_beside("week_1.beside_totals:total", ([1, 2],), {"more": 4}) == 7


def test_arrays_are_made_there_of_numbers_and_of_arrays(lab):
    pytest.importorskip("torch")
    lab.start(("torch.softmax",))
    ones = lab.array([[1, 2]], "float32")
    lab.pages.inner_softmax(ones)
    assert lab.forbidden_calls() == ("torch.softmax",)
    assert (lab.dtype(ones), lab.is_array(ones)) == ("float32", True)
    np.testing.assert_array_equal(lab.numpy(lab.array(ones, "int64")), [[1, 2]])
    assert lab.numpy(lab.array((), None)).shape == (0,)
    result, size = lab.largest_array(lab.pages.product, [ones[0, 0], ones[0, 1]])
    assert (float(result), size) == (2.0, 1)


@pytest.fixture
def active(lab):
    own = lab_module.active_or_none()
    lab_module.set_active(lab)
    lab.start()
    yield lab
    lab_module.set_active(own)


def test_questions_about_objects_are_answered_where_they_live(active):
    pages = active.pages.Pages(2, [[1], [2]])
    other = objects.replaced(pages, free=9)
    assert (other.free, pages.free) == (9, 2)
    twin = objects.copied(pages)
    assert twin is not pages
    twin.owners.append([3])
    assert pages.owners == [[1], [2], [3]]
    assert objects.values_of([pages, other], "free", "owners") == [(2, pages.owners), (9, pages.owners)]
    ((owners,),) = objects.values_of([pages], "owners")
    pages.owners.append([4])
    assert owners == [[1], [2], [3]]
    assert objects.found_under((1, 2), (1, 2))
    assert not objects.found_under(active.pages.Odd(), active.pages.Odd())
    assert objects.copies(None, [1.5]) == (None, [1.5])
    held = objects.weak(pages)
    assert held() is pages
    del pages
    objects.collect_garbage()
    assert held() is None


def test_a_function_beside_the_code_crosses_as_its_place_and_arguments():
    seen = []

    class Elsewhere(Lab):
        def run_beside(self, *what):
            seen.append(what)
            return "there"

    def inner(a, *, b=1):
        """Its words."""
        return a + b

    run = beside(inner)
    own = lab_module.active_or_none()
    try:
        lab_module.set_active(Elsewhere())
        assert run(1, b=2) == "there"
        lab_module.set_active(None)
        assert run(1, b=2) == 3
    finally:
        lab_module.set_active(own)
    assert seen == [(f"{__name__}:{inner.__qualname__}", (1,), {"b": 2})]
    assert run.__doc__ == "Its words."


def test_what_a_package_is_made_of(tmp_path):
    write(tmp_path / "paged" / "pool.py", "import torch.nn\nself.pages.free_count = other._hidden.x1\n")
    write(
        tmp_path / "__init__.py",
        "from numpy import array\n# import numba\n  import mlx.core\nimport torchless\n",
    )
    assert module_names(tmp_path) == ["__init__", "paged", "paged.pool"]
    assert libraries(tmp_path) == ["numpy", "torch"]
    assert attribute_names(tmp_path) == {"nn", "pages", "free_count", "_hidden", "x1", "core"}


def test_a_function_of_a_folder_that_begins_like_the_learners_is_not_the_learners():
    is_learners = _is_in("/folder/package")
    assert is_learners("/folder/package/tiny_llm/a.py")
    assert not is_learners("/folder/package_2/a.py")
