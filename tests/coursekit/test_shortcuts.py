"""A call that does a task's work is noticed where the learner makes it, and only there; the task stays passed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from courses import make_course, solve, write
from runs import change, course_command

from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.noticed_calls import NoticedCalls, find

BODY = "return size.width * size.height  # metres squared"
NOTE = "Note: in 1.1.1 your code calls math.prod, which can do this task's work."


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """The first task's shortcuts are math.prod and a class of Python's; its test calls math.prod itself."""
    course = make_course(tmp_path)
    path = course.lessons / "week_1/day_1/lesson.toml"
    text = path.read_text(encoding="utf-8")
    names = 'shortcuts = ["math.prod", "collections.Counter", "fractions.Fraction", "math.not_there"]'
    write(path, text.replace("points = 10", f"points = 10\n{names}"))
    test = course.tests / "week_1/test_day_1.py"
    text = test.read_text(encoding="utf-8")
    write(test, "import math\n\n\n" + text.replace("== 6", "== math.prod([2, 3])"))
    solve(course, "1.1")
    return course


def board(course: Course) -> str:
    ran = course_command(course, "test", "1.1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "15 of 15 points" in ran.stdout
    return " ".join(ran.stdout.split())


def test_a_test_that_makes_the_call_itself_is_not_meant(course):
    assert "Note" not in board(course)


@pytest.mark.parametrize(
    ("body", "top"),
    [
        ("return math.prod(size)", ""),
        ("return own(size)", "from math import prod as own\n"),
        ("return sum(map(math.prod, [size]))", ""),
    ],
    ids=["by its module", "imported by name", "handed on"],
)
def test_the_learners_call_is_noted_and_the_task_stays_passed(course, body, top):
    change(course, BODY, body)
    change(course, "import math\n", f"import math\n{top}")
    assert NOTE in board(course)


def test_a_class_is_a_shortcut_too(course):
    change(
        course, BODY, "from collections import Counter\n    return size.width * Counter(a=size.height)['a']"
    )
    assert "your code calls collections.Counter, which" in board(course)


def test_a_class_that_cannot_be_watched_works_as_before(course):
    change(course, BODY, "from fractions import Fraction\n    return size.width * Fraction(size.height)")
    assert "Note" not in board(course)


def test_the_same_call_in_another_task_is_nobodys_business(course):
    change(course, "return 2 * (size.width + size.height)", "return 2 * sum(size) * math.prod([1])")
    assert "Note" not in board(course)


def test_code_of_python_that_makes_the_call_for_the_learner_is_not_meant(course):
    write(
        course.root / "src" / "helper.py", "import math\n\n\ndef product(size):\n    return math.prod(size)\n"
    )
    change(course, BODY, "import helper\n    return helper.product(size)")
    assert "Note" not in board(course)


NAMES = sorted({name for task in load_manifest(Course.find()).tasks() for name in task.shortcuts})


@pytest.mark.parametrize("name", NAMES)
def test_every_shortcut_of_the_course_is_a_call_that_there_is(name):
    if name.startswith("mlx.") and sys.platform == "win32":
        pytest.skip("there is no MLX for Windows")
    assert find(name) is not None


def test_a_name_that_is_not_there_is_left_out():
    assert find("torch.nn.nothing") is None
    assert find("no_such_package.call") is None


def test_torchs_inner_names_are_noticed_where_that_is_asked():
    told: list[str] = []
    name, x = "torch.nn.functional.scaled_dot_product_attention", torch.ones(1, 1, 2, 4)
    calls = NoticedCalls(lambda file: file == __file__, told.append)
    calls.install([name, "torch.softmax", "math.prod"], deep=True)
    try:
        torch._C._nn.scaled_dot_product_attention(x, x, x)
        torch.ops.aten.scaled_dot_product_attention(x, x, x)
        torch.ops.aten.scaled_dot_product_attention.default(x, x, x)
        torch.ops.aten.softmax.int(x, -1)
        assert "int" in torch.ops.aten.softmax.overloads()
    finally:
        calls.remove()
    torch.nn.functional.scaled_dot_product_attention(x, x, x)
    torch.ops.aten.softmax(x, -1)
    assert told == [name] * 3 + ["torch.softmax"]


def test_inner_names_are_left_alone_otherwise():
    told: list[str] = []
    calls, x = NoticedCalls(lambda file: True, told.append), torch.ones(1, 1, 2, 4)
    calls.install(["torch.nn.functional.scaled_dot_product_attention"])
    try:
        torch._C._nn.scaled_dot_product_attention(x, x, x)
    finally:
        calls.remove()
    assert told == []
