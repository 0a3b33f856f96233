"""What `pdm run test` is asked to run can be named in one word; what can't be meant is refused in one line."""

from __future__ import annotations

import pytest
from courses import make_course, solve
from runs import change, course_command

from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.running.selection import Asked, read_arguments


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path)


def read(course, *words, **options):
    return read_arguments(course, load_manifest(course), words, **options)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], Asked(None, None)),
        (["1"], Asked(1, None)),
        (["1.2"], Asked(1, 2)),
        (["1.1.2"], Asked(1, 1, ("-k", "task_2_"))),
        (["1.1", "-x", "--tb=short"], Asked(1, 1, ("-x", "--tb=short"))),
        (["-k", "task_2"], Asked(None, None, ("-k", "task_2"))),
        (["tests/week_1/test_day_1.py::test_x"], Asked(None, None, ("tests/week_1/test_day_1.py::test_x",))),
    ],
)
def test_a_week_a_day_and_a_task_are_named_in_one_word(course, words, asked):
    assert read(course, *words) == asked


def test_a_keyword_chooses_among_the_tests_of_the_task(course):
    assert read(course, "1.1.2", keyword="a or b") == Asked(1, 1, ("-k", "task_2_ and (a or b)"))
    assert read(course, "1.1", keyword="a or b") == Asked(1, 1, ("-k", "a or b"))
    assert read(course, week=1, day=1, keyword="a") == Asked(1, 1, ("-k", "a"))


@pytest.mark.parametrize(
    ("words", "options", "says"),
    [
        (["area"], {}, "'area' names no day and no task: write it with dots, for example 1.3 or 1.3.2"),
        (["1.1.1.1"], {}, "names no day and no task"),
        (["1.1", "1.2"], {}, "one day or one task at a time"),
        (["1.1"], {"week": 1}, "name the day once: 1.1, or --week and --day"),
        (["1.1.9"], {}, "Day 1.1 has no task 9; it has: 1.1.1 Area; 1.1.2 Perimeter"),
        (["1.9.1"], {}, "there is no Day 1.9; there are: 1.1, 1.2, 2.1"),
        (["1.1.1", "-k", "a"], {}, "give -k once, before the --"),
    ],
)
def test_what_cannot_be_meant_is_refused(course, words, options, says):
    with pytest.raises(CourseError) as refused:
        read(course, *words, **options)
    assert says in str(refused.value)


def test_a_task_named_in_one_word_is_tested_alone(course):
    solve(course, "1.1")
    ran = course_command(course, "test", "1.1.2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 of 5 points" in ran.stdout
    assert "1.1.1" not in ran.stdout


def test_a_keyword_and_a_day_choose_one_test(course):
    solve(course, "1.2")
    ran = course_command(course, "test", "1.2", "-k", "x_axis")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of its 2 tests ran" in ran.stdout


def test_all_failing_tests_are_shown_on_request(course):
    solve(course, "1.1")
    change(course, "return size.width * size.height  # metres squared", "return 1")
    change(course, "return 2 * (size.width + size.height)", "return 1")
    short, long = course_command(course, "test", "1.1"), course_command(course, "test", "1.1", "--all")
    assert "Also failing:\n  1.1.2  goes all the way round" in short.stdout
    assert short.stdout.count("assert 1 == ") == 1
    assert long.stdout.count("assert 1 == ") == 2


def test_what_a_failing_test_prints_is_on_the_board_and_what_others_print_is_not(course):
    solve(course, "1.1")
    change(course, "return 2 *", 'print("all sides:", size)\n    return 3 *')
    change(course, "return size.width *", 'print("unseen")\n    return size.width *')
    ran = course_command(course, "test", "1.1")
    assert "    it printed:\n      all sides: Size(width=2, height=3)\n" in ran.stdout
    assert "unseen" not in ran.stdout


def test_a_flood_of_prints_is_shortened_to_its_last_lines(course):
    solve(course, "1.1")
    flood = "for i in range(1000):\n        print('line', i, 5000 * 'x')\n    return 3 *"
    change(course, "return 2 *", flood)
    ran = course_command(course, "test", "1.1.2")
    assert "… 980 lines before these" in ran.stdout
    assert "line 999 xxx" in ran.stdout
    assert "line 979 xxx" not in ran.stdout
    assert len(ran.stdout) < 8000
