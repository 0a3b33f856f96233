"""`pdm run test` chooses the right days, keeps their results and leaves with the right code."""

import json
import signal
import subprocess
import sys
import time

import pytest
from courses import make_course, solve, write
from runs import change, course_command, environment

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.learner.catch_up import catch_up
from coursekit.manifest import load_manifest
from coursekit.running.import_path import Impl
from coursekit.running.selection import select


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path)


def progress(course):
    path = course.state / "progress.json"
    return json.loads(path.read_text(encoding="utf-8"))["results"] if path.is_file() else {}


def chosen(course, *arguments):
    return [lesson.name for lesson in select(course, load_manifest(course), *arguments)]


def test_a_fresh_learner_is_given_the_first_day(course):
    assert chosen(course, None, None) == ["1.1"]


def test_days_begun_are_chosen_and_the_one_after(course):
    solve(course, "1.1.2")
    assert chosen(course, None, None) == ["1.1", "1.2"]
    solve(course, "1.1.2", "2.1")
    assert chosen(course, None, None) == ["1.1", "2.1"]


def test_a_day_stays_begun_while_its_file_has_a_slip_of_syntax(course):
    solve(course, "1.1.1")
    change(course, "return size.width *", "return * size.width *")
    assert chosen(course, None, None) == ["1.1", "1.2"]


def test_borrowed_days_are_left_out_and_the_day_caught_up_to_is_the_next(course, monkeypatch):
    monkeypatch.setenv("TINY_LLM_ROOT", str(course.root))
    lesson = course.lessons / "week_2" / "day_1" / "lesson.toml"
    write(lesson, 'needs = ["1.1"]\n' + lesson.read_text(encoding="utf-8"))
    catch_up(to="2.1")
    assert chosen(course, None, None) == ["2.1"]
    change(course, "return size.width * size.height  # metres squared", "return size.height * size.width")
    assert chosen(course, None, None) == ["1.1", "2.1"]


def test_records_that_cannot_be_read_do_not_hide_the_days_begun(course):
    solve(course, "1.1")
    write(course.state, "a file in the place of the folder")
    assert chosen(course, None, None) == ["1.1", "1.2"]


def test_a_week_a_day_and_the_whole_reference_can_be_named(course):
    assert chosen(course, 1, None) == ["1.1", "1.2"]
    assert chosen(course, 2, 1) == ["2.1"]
    assert chosen(course, None, None, Impl.SOLUTION) == ["1.1", "1.2", "2.1"]


@pytest.mark.parametrize(
    ("week", "day", "says"),
    [
        (3, None, "no Week 3; there are: Week 1 .Days 1, 2.; Week 2 .Day 1."),
        (1, 9, "no Day 1.9; there are: 1.1, 1.2, 2.1"),
        (None, 2, "--day 2 of which week"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(course, week, day, says):
    with pytest.raises(CourseError, match=says):
        select(course, load_manifest(course), week, day)


def test_the_mlx_track_refuses_the_days_that_it_lacks(course):
    text = (course.solution() / "counting.py").read_text(encoding="utf-8")
    write(course.solution("tiny_llm_mlx") / "counting.py", text)
    assert chosen(course, 2, None, Impl.LEARNER, Backend.MLX) == ["2.1"]
    with pytest.raises(CourseError, match=r"the MLX track covers days 2\.1: leave --backend mlx out"):
        select(course, load_manifest(course), 1, 1, Impl.LEARNER, Backend.MLX)


def test_days_of_a_week_that_the_mlx_track_lacks_are_not_left_out_silently(course):
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    lesson = (course.lessons / "week_2" / "day_1" / "lesson.toml").read_text(encoding="utf-8")
    second = (
        lesson.partition("[[task]]")[0]
        + "[[task]]"
        + lesson.rpartition("[[task]]")[2].replace("task_2", "task_1")
    )
    write(course.lessons / "week_2" / "day_1" / "lesson.toml", lesson.rpartition("[[task]]")[0])
    write(course.lessons / "week_2" / "day_2" / "lesson.toml", second)
    write(
        course.tests / "week_2" / "test_day_1.py", "def test_task_1_is_there(lab):\n    assert lab.counting\n"
    )
    ran = course_command(course, "test", "--week", "2", "--backend", "mlx", "--impl", "solution")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2.1.1" in ran.stdout
    assert "Left out: the MLX track covers days 2.1: leave --backend mlx out for the others" in ran.stdout


def test_a_passing_day_leaves_with_zero_and_is_remembered(course):
    solve(course, "1.1")
    ran = course_command(course, "test", "--week", "1", "--day", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "15 of 15 points" in ran.stdout
    assert "pdm run test 1.2" in ran.stdout
    results = progress(course)["tiny_llm"]
    assert {name: (result["state"], result["points"]) for name, result in results.items()} == {
        "1.1.1": ("passed", 10),
        "1.1.2": ("passed", 5),
    }


def test_where_nothing_can_be_recorded_the_board_is_shown_all_the_same(course):
    solve(course, "1.1")
    write(course.state, "a file in the place of the folder")
    ran = course_command(course, "test", "1.1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "15 of 15 points" in ran.stdout
    (note,) = ran.stderr.splitlines()
    assert "these results are not recorded" in note


def test_what_is_not_written_yet_leaves_with_one_and_is_no_error(course):
    ran = course_command(course, "test")
    assert ran.returncode == 1
    assert ran.stderr == ""
    assert "not started" in ran.stdout
    assert not any(word in ran.stdout for word in ("error", "Error", "Traceback", "wrong", "crashed"))
    assert "open src/tiny_llm/shapes.py: area" in ran.stdout
    assert "pdm run hint 1.1.1" in ran.stdout


def test_only_tasks_of_which_every_test_ran_are_remembered(course):
    solve(course, "1.2")
    ran = course_command(course, "test", "--week", "1", "--day", "2", "--", "-k", "x_axis")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of its 2 tests ran" in ran.stdout
    assert progress(course) == {}


def test_the_reference_leaves_no_trace_in_the_learners_progress(course):
    ran = course_command(course, "test", "--impl", "solution")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "60 of 60 points" in ran.stdout
    assert progress(course) == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--week", "1", "--day", "1", "--", "-k", "task_9"),
            "-k task_9 matches no test of Day 1.1; there are: task_1",
        ),
        (("--week", "1", "--", "-k", "("), "Wrong expression passed to '-k'"),
        (("--week", "1", "--", "--unknown=1"), "unrecognized arguments: --unknown=1"),
        (("--week", "7"), "there is no Week 7"),
    ],
)
def test_a_selection_that_matches_nothing_is_one_line_and_code_two(course, arguments, says):
    ran = course_command(course, "test", *arguments)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1
    assert says in ran.stderr


def test_pytests_own_output_is_there_when_asked_for(course):
    solve(course, "1.1")
    quiet = course_command(course, "test", "--week", "1", "--day", "1")
    loud = course_command(course, "test", "--week", "1", "--day", "1", "--", "-v")
    assert "PASSED" not in quiet.stdout
    assert loud.stdout.count("PASSED") == 2
    assert "15 of 15 points" in loud.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_code_that_takes_python_down_is_told_as_a_crash_of_its_task(course):
    solve(course, "1.1", "1.2")
    change(
        course, "return 2 *", "import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)\n    return 2 *"
    )
    ran = course_command(course, "test", "--week", "1")
    assert ran.returncode == 1
    assert "passed       10/10  1.1.1" in ran.stdout
    assert "1.1.2 Perimeter: crashed" in ran.stdout
    assert "Python itself stopped (Segmentation fault)" in ran.stdout
    assert "src/tiny_llm/shapes.py:" in ran.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_ctrl_c_shows_what_ran_so_far(course):
    solve(course, "1.1", "1.2")
    sleep = "open('asleep', 'w').close()\n        import time; time.sleep(60)\n        "
    change(course, "return x, y", f"{sleep}return x, y")
    running = subprocess.Popen(
        [sys.executable, "-m", "coursekit", "test", "--week", "1"],
        cwd=course.root,
        env=environment(course),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    until = time.monotonic() + 30
    while not (course.root / "asleep").exists() and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "passed       10/10  1.1.1" in out
    assert "1.2.1  A circle  (1 of its 2 tests ran)" in out
    assert "interrupted: the rest did not run" in out
    assert sorted(progress(course)["tiny_llm"]) == ["1.1.1", "1.1.2"]
    assert "Traceback" not in out + err


def test_the_whole_suite_runs_on_the_reference_and_ends_as_pytest_does(course):
    write(course.tests / "coursekit" / "test_tool.py", "def test_the_tool_works():\n    pass\n")
    ran = course_command(course, "test-solution")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "7 passed in " in ran.stdout.splitlines()[-1]
    write(course.tests / "coursekit" / "test_tool.py", "def test_the_tool_works():\n    assert False\n")
    assert course_command(course, "test-solution").returncode == 1
