"""Twenty submissions on Day 1.1, made from parts of the reference and from mistakes, get exactly their points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import pytest
from class_folders import as_folder, as_repository, as_tar, as_zip
from confinement import no_isolation

from authoring.gates.mutant_file import MutantFile
from coursekit.editing.assembly import assemble_file
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.judging import judge
from grading.marks import Marks
from grading.running.asking import Asked, run_grade

pytestmark = pytest.mark.skipif(bool(no_isolation()), reason=no_isolation())

FILE = "attention.py"
FORMS: dict[str, Callable[..., Path]] = {
    "": as_folder,
    ".zip": as_zip,
    ".tar.gz": as_tar,
    ".git": as_repository,
}
# Softmax is worth 10 points, linear 5, attention 15 (it calls softmax), the layer 20 (it calls all of them).
# Parts of the reference, by the numbers of the tasks that are done; and the points.
PARTS: dict[str, tuple[tuple[int, ...], int]] = {
    "nothing": ((), 0),
    "all": ((1, 2, 3, 4), 50),
    "first": ((1,), 10),
    "second": ((2,), 5),
    "two": ((1, 2), 15),
    "three": ((1, 2, 3), 30),
    "no_linear": ((1, 3), 25),
    "no_softmax": ((2, 3, 4), 5),
    "only_the_layer": ((4,), 0),
    "no_attention": ((1, 2, 4), 15),
}
# The whole reference with one of the day's mutants. A task that calls a wrong one fails where its own tests show it:
# the layer's have masks, but no query that sees no key.
MUTANTS = {
    "along_the_wrong_axis": ("the sum goes along the last axis instead of the given axis", 40),
    "nan": ("a row that is all −inf gives NaN: 0/0", 25),
    "no_bias": ("the bias is forgotten", 45),
    "not_scaled": ("the scores are not divided by √D", 15),
    "mask_first": ("the mask is added before scaling", 15),
}
# The whole reference, changed: this in place of that.
CHANGES = {
    "leaves_at_once": ("import math\n", "import math\nimport os\n\nos._exit(0)\n", 0),
    "cannot_be_read": ("def softmax(x", "def softmax(:x", 0),
    "says_yes": (
        "    scores = x.to(",
        "    return type('Yes', (), {'__eq__': lambda *_: True, '__getattr__': lambda *_: x})()\n    scores = x.to(",
        5,
    ),
    "borrows": ("    scores = x.to(", "    return torch.softmax(x, axis)\n    scores = x.to(", 25),
    "more_than_asked": ("def softmax(x", "def unused() -> None: ...\n\n\ndef softmax(x", 50),
}


@pytest.mark.timeout(900)
def test_each_gets_exactly_its_points(tmp_path):
    course = Course.find()
    texts = {**parts(course), **mutants(course), **changes(course)}
    for (name, text), ending in zip(texts.items(), cycle(FORMS)):
        FORMS[ending](tmp_path / "class" / f"{name}{ending}", {f"src/tiny_llm/{FILE}": text})
    found: dict[str, Marks] = {}

    def keep(marks: Sequence[Marks], out: Path) -> None:
        found.update({each.student.id: each for each in marks})

    asked = Asked(tmp_path / "class", week=1, day=1, seed="a class of twenty", jobs=2)
    assert run_grade(course, asked, judge, keep) == 0
    wanted = {name: points for group in (PARTS, MUTANTS, CHANGES) for name, (*_, points) in group.items()}
    assert len(wanted) == 20
    assert {name: marks.earned for name, marks in found.items()} == wanted
    assert {marks.points for marks in found.values()} == {50}
    assert not any(marks.refusal for marks in found.values())


def parts(course: Course) -> dict[str, bytes]:
    """The reference with stubs for all but some tasks."""
    manifest = load_manifest(course)
    tasks = {task.number: task for task in manifest.lesson("1.1").tasks}
    return {
        name: assemble_file(
            course,
            manifest,
            "tiny_llm",
            FILE,
            {ref for number in done for ref in tasks[number].implements},
        )
        for name, (done, _) in PARTS.items()
    }


def mutants(course: Course) -> dict[str, bytes]:
    lesson = load_manifest(course).lesson("1.1")
    whole = {"tiny_llm": {FILE: (course.solution() / FILE).read_bytes()}}
    by_why = {mutant.why: mutant.content for mutant in MutantFile(course, lesson, whole).read()}
    return {name: by_why[why] for name, (why, _) in MUTANTS.items()}


def changes(course: Course) -> dict[str, bytes]:
    text = (course.solution() / FILE).read_text(encoding="utf-8")
    for old, _, _ in CHANGES.values():
        assert text.count(old) == 1
    return {name: text.replace(old, new).encode() for name, (old, new, _) in CHANGES.items()}
