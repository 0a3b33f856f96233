"""The manifest: what it gives, and what it refuses, with file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from courses import LESSONS, make_course, write, write_solution

from coursekit.errors import CourseError
from coursekit.manifest import FunctionRef, ManifestError, load_manifest
from coursekit.paths import Course

DAY_1 = "lessons/week_1/day_1/lesson.toml"


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def change(course: Course, old: str, new: str, day: str = "week_1/day_1") -> None:
    """Replace a piece of a day's lesson.toml that must be there."""
    path = course.lessons / day / "lesson.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    write(path, text.replace(old, new, 1))


def problems(course: Course) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load_manifest(course)
    return str(caught.value).splitlines()


def test_days_and_tasks_come_in_order(course):
    manifest = load_manifest(course)
    assert [lesson.name for lesson in manifest.lessons] == ["1.1", "1.2", "2.1"]
    assert [task.name for task in manifest.tasks()] == ["1.1.1", "1.1.2", "1.2.1", "2.1.1", "2.1.2"]


def test_day_ten_comes_after_day_nine(course):
    for day in (10, 9):
        text = LESSONS["week_1/day_2"].replace("shapes.py::Circle.area", f"more.py::f{day}")
        text = text.replace(', "shapes.py::Circle.__call__"', "")
        write(course.lessons / f"week_1/day_{day}/lesson.toml", text)
    write_solution(course, "more.py", "def f9(): pass\n\ndef f10(): pass\n")
    assert [lesson.name for lesson in load_manifest(course).lessons] == ["1.1", "1.2", "1.9", "1.10", "2.1"]


def test_a_task_knows_its_names_and_commands(course):
    task = load_manifest(course).task("1.1.2")
    assert (task.name, task.label) == ("1.1.2", "Week 1 Day 1 Task 2")
    assert task.stub_message == "Week 1 Day 1 Task 2: Perimeter"
    assert task.test_command == "pdm run test 1.1.2"
    assert [str(ref) for ref in task.implements] == ["shapes.py::perimeter"]
    assert len(task.hints) == 3


def test_a_lesson_carries_what_the_file_says(course):
    lesson = load_manifest(course).lesson("1.2")
    assert (lesson.title, lesson.goal, lesson.chapter) == ("Circles", "Measure circles.", "week_1/day_2.md")
    assert lesson.stage == "S0 round"
    assert lesson.points == 20
    assert load_manifest(course).lesson("1.1").stage is None


def test_owner_is_the_task_that_claims_a_function(course):
    manifest = load_manifest(course)
    owner = manifest.owner(FunctionRef("shapes.py", "Circle.__call__"))
    assert owner is not None
    assert owner.name == "1.2.1"
    assert manifest.owner(FunctionRef("shapes.py", "square")) is None


def test_up_to_includes_the_day_and_before_does_not(course):
    manifest = load_manifest(course)
    assert [lesson.name for lesson in manifest.up_to("1.2")] == ["1.1", "1.2"]
    assert [lesson.name for lesson in manifest.before("1.2")] == ["1.1"]
    assert manifest.before("1.1") == ()


def need(course, day, names):
    """Let a day's file say which days it needs."""
    path = course.lessons / f"week_{day[0]}" / f"day_{day[2]}" / "lesson.toml"
    path.write_text(f"needs = {names}\n" + path.read_text(encoding="utf-8"), encoding="utf-8")


def test_a_day_that_does_not_say_so_needs_all_days_before_it(course):
    assert [lesson.name for lesson in load_manifest(course).needed("2.1")] == ["1.1", "1.2"]


def test_a_day_needs_only_the_days_that_it_names(course):
    need(course, "2.1", '["1.1"]')
    need(course, "1.2", "[]")
    manifest = load_manifest(course)
    assert [lesson.name for lesson in manifest.needed("2.1")] == ["1.1"]
    assert manifest.needed("1.2") == ()


def test_a_day_needs_what_the_days_that_it_names_need(course):
    need(course, "2.1", '["1.2"]')
    assert [lesson.name for lesson in load_manifest(course).needed("2.1")] == ["1.1", "1.2"]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda m: m.lesson("3.1"), "there is no Day 3.1; there are: 1.1, 1.2, 2.1"),
        (lambda m: m.lesson("1"), "'1' names no day"),
        (lambda m: m.task("1.1.3"), "Day 1.1 has no task 3; it has: 1.1.1 Area; 1.1.2 Perimeter"),
        (lambda m: m.task("1.3.1"), "there is no Day 1.3"),
        (lambda m: m.task("one"), "'one' names no task"),
        (lambda m: m.task("1.1.²"), "names no task"),
        (lambda m: m.up_to("9.9"), "there is no Day 9.9"),
    ],
)
def test_unknown_names_are_answered_with_what_there_is(course, ask, says):
    with pytest.raises(CourseError, match=says.replace(".", r"\.")):
        ask(load_manifest(course))


@pytest.mark.parametrize(
    "text",
    ["shapes.py", "shapes.py::", "::area", "shapes::area", "../shapes.py::area", "a.py::1x", "a.py::f()"],
)
def test_a_function_is_named_by_file_and_dotted_name(text):
    with pytest.raises(CourseError, match="names no function"):
        FunctionRef.parse(text)


def test_functions_in_folders_can_be_named():
    ref = FunctionRef.parse("paged/pool.py::Pool.Slot.take")
    assert (ref.file, ref.qualname, str(ref)) == (
        "paged/pool.py",
        "Pool.Slot.take",
        "paged/pool.py::Pool.Slot.take",
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "shapes.py::perimeter",
            "shapes.py::perimetre",
            f"{DAY_1}:16: shapes.py::perimetre: solutions/tiny_llm/shapes.py defines no such function; "
            "is it perimeter?",
        ),
        (
            "shapes.py::perimeter",
            "shape.py::perimeter",
            f"{DAY_1}:16: shape.py::perimeter: there is no file solutions/tiny_llm/shape.py",
        ),
        (
            "shapes.py::perimeter",
            "shapes.py::Circle",
            f"{DAY_1}:16: shapes.py::Circle is a class: name its methods, such as shapes.py::Circle.__call__",
        ),
        (
            "shapes.py::perimeter",
            "shapes.py::area",
            f"{DAY_1}:16: shapes.py::area is claimed already at {DAY_1}:9",
        ),
        (
            "shapes.py::perimeter",
            "perimeter",
            f"{DAY_1}:16: 'perimeter' names no function: write it as file.py::Class.method or file.py::function",
        ),
        ('"All four sides."', '" "', f"{DAY_1}:17: hint 2 is empty"),
        ('"All four sides.", ', "", f"{DAY_1}:17: has 2 hints: a task has exactly 3"),
        ("points = 5", "points = 0", f"{DAY_1}:15: points is 0: give a whole number above 0"),
        ("points = 5", "points = true", f"{DAY_1}:15: points is True: give a whole number above 0"),
        ("points = 5\n", "", f"{DAY_1}:12: points is missing"),
        ('title = "Perimeter"\n', "", f"{DAY_1}:12: title is missing"),
        ('title = "Rectangles"\n', "", f"{DAY_1}:1: title is missing"),
        ('goal = "Measure rectangles."', 'goal = ""', f"{DAY_1}:2: goal must be text, not empty"),
        (
            '"week_1/day_1.md"',
            '"week_1/day_1"',
            f"{DAY_1}:3: chapter is 'week_1/day_1': give a path under book/src, such as week_1/day_3.md",
        ),
        ('"task_2"', '"task_3"', f"{DAY_1}:13: id is 'task_3': tasks are numbered in order, so task_2"),
        (
            "points = 5",
            "point = 5\npoints = 5",
            f"{DAY_1}:15: unknown key 'point'; known here: hints, id, implements, mlx, mlx_hints, "
            "points, seconds, shortcuts, title",
        ),
        (
            'goal = "',
            'goals = ["x"]\ngoal = "',
            f"{DAY_1}:2: unknown key 'goals'; known here: chapter, goal, needs, seconds, stage, task, title",
        ),
        (
            'implements = ["shapes.py::perimeter"]',
            "implements = []",
            f"{DAY_1}:16: implements must be a list of strings, not empty",
        ),
        (
            'hints = ["Look at Size.", "All',
            'hints = [1, "All',
            f"{DAY_1}:17: hints must be a list of strings, not empty",
        ),
        (
            "points = 5\n",
            'points = 5\nshortcuts = ["torch.sum", "sum"]\n',
            f"{DAY_1}:16: 'sum' names no call: write it with its module, such as torch.softmax",
        ),
        ('goal = "', 'needs = "1.1"\ngoal = "', f"{DAY_1}:2: needs must be a list of strings"),
        (
            'goal = "',
            'needs = ["1.1"]\ngoal = "',
            f"{DAY_1}:2: needs '1.1': name an earlier day, for example 1.1",
        ),
        (
            'goal = "',
            'needs = ["0.9"]\ngoal = "',
            f"{DAY_1}:2: needs '0.9': there is no such day",
        ),
    ],
)
def test_each_mistake_is_named_with_file_and_line(course, old, new, expected):
    change(course, old, new)
    assert problems(course) == [expected]


def test_lines_are_right_among_multi_line_strings_and_comments(course):
    change(course, 'goal = "Measure rectangles."', 'goal = """\n[[task]]\npoints = 1\n"""  # [[task]]')
    change(
        course,
        'hints = ["Look at Size.", "All four sides.",',
        'hints = [\n  "Look: \\" # at",  # "no"\n\n  "",',
    )
    assert problems(course) == [f"{DAY_1}:23: hint 2 is empty"]


def test_every_problem_of_every_file_is_reported_at_once(course):
    change(course, "points = 10", "points = -1")
    change(course, "shapes.py::area", "shapes.py::aria")
    change(course, '"Add up what it yields."', '""', "week_2/day_1")
    write(course.lessons / "week_1/day_2/lesson.toml", "title = \n")
    assert [problem.rpartition(":")[0].split(": ")[0] for problem in problems(course)] == [
        f"{DAY_1}:8",
        f"{DAY_1}:9",
        "lessons/week_1/day_2/lesson.toml:1",
        "lessons/week_2/day_1/lesson.toml:17",
    ]


def test_a_function_claimed_in_two_days_names_both_places(course):
    change(course, "counting.py::total", "shapes.py::area", "week_2/day_1")
    assert problems(course) == [
        f"lessons/week_2/day_1/lesson.toml:16: shapes.py::area is claimed already at {DAY_1}:9"
    ]


def test_a_day_without_tasks_is_refused(course):
    write(course.lessons / "week_1/day_2/lesson.toml", LESSONS["week_1/day_2"].partition("[[task]]")[0])
    assert problems(course) == ["lessons/week_1/day_2/lesson.toml:1: has no tasks: add a [[task]]"]


def test_a_function_defined_twice_in_the_reference_is_refused(course):
    write_solution(course, "counting.py", "def count_up(): pass\ndef total(): pass\ndef total(): pass\n")
    assert problems(course) == [
        "lessons/week_2/day_1/lesson.toml:16: counting.py::total: solutions/tiny_llm/counting.py defines it "
        "2 times; a task needs one definition"
    ]


def test_a_reference_that_is_not_python_is_reported(course):
    write_solution(course, "counting.py", "def count_up(:\n")
    assert all("solutions/tiny_llm/counting.py:1: syntax error" in problem for problem in problems(course))


def test_crlf_files_read_the_same(course):
    path = course.lessons / "week_1/day_1/lesson.toml"
    write(path, LESSONS["week_1/day_1"].replace("\n", "\r\n"))
    assert load_manifest(course).task("1.1.2").title == "Perimeter"


def test_a_day_without_a_lesson_file_is_not_there_yet(course):
    (course.lessons / "week_1/day_3").mkdir()
    (course.lessons / "notes").mkdir()
    assert len(load_manifest(course).lessons) == 3


def test_loading_imports_neither_torch_nor_libcst():
    modules = "coursekit.manifest, coursekit.learner.hint, coursekit.learner.progress"
    code = f"import sys, {modules}; print({{'torch', 'libcst'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
