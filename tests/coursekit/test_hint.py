"""Hints come one at a time, and stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from courses import LESSONS, make_course, write
from runs import environment

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.learner.hint import hint
from coursekit.learner.state import State
from coursekit.paths import Course

HINTS = ["Look at Size.", "Width times height.", "return size.width * size.height"]


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    return make_course(tmp_path)


def test_each_call_gives_the_next_hint_then_all_three(course, capsys):
    for number, text in enumerate(HINTS, 1):
        hint("1.1.1")
        out = capsys.readouterr().out
        assert [other in out for other in HINTS] == [other == text for other in HINTS]
        assert f"Hint {number} of 3" in out
        assert "Week 1 Day 1 Task 1: Area" in out
        assert "pdm run test 1.1.1" in out
        assert ("pdm run hint 1.1.1" in out) == (number < 3)
    for _ in range(2):
        hint("1.1.1")
        out = capsys.readouterr().out
        assert "seen all three" in out
        assert all(text in out for text in HINTS)


def test_hints_of_one_task_do_not_use_up_those_of_another(course, capsys):
    hint("1.1.1")
    hint("1.1.2")
    assert "Hint 1 of 3" in capsys.readouterr().out.partition("Perimeter")[2]
    assert State.load(course).hints == {"1.1.1": 1, "1.1.2": 1}


def test_a_level_gives_that_hint_and_no_step_back(course, capsys):
    hint("1.1.1", level=2)
    out = capsys.readouterr().out
    assert HINTS[1] in out
    assert HINTS[0] not in out
    hint("1.1.1", level=1)
    assert HINTS[0] in capsys.readouterr().out
    hint("1.1.1")
    assert HINTS[2] in capsys.readouterr().out


def test_a_day_of_several_tasks_is_answered_with_the_tasks(course):
    with pytest.raises(
        CourseError, match=r"1\.1 is a day; name one of its tasks: 1\.1\.1 Area; 1\.1\.2 Perimeter"
    ):
        hint("1.1")


def test_a_day_of_one_task_will_do(course, capsys):
    hint("1.2")
    assert "Week 1 Day 2 Task 1: A circle" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "1", "area", "1.1.9", "7.7.7", "1.1.1.1"])
def test_an_unknown_task_is_a_clear_error_and_uses_up_nothing(course, name):
    with pytest.raises(CourseError):
        hint(name)
    assert State.load(course).hints == {}


def test_the_commands_to_type_next_name_the_track(course, capsys):
    for number in range(1, 4):
        hint("1.1.1", backend=Backend.MLX)
        out = capsys.readouterr().out
        assert "pdm run test 1.1.1 --backend mlx\n" in out
        assert ("pdm run hint 1.1.1 --backend mlx\n" in out) == (number < 3)
    hint("1.1.2")
    assert "--backend" not in capsys.readouterr().out


def test_brackets_in_titles_and_hints_are_printed_as_they_are(course, capsys):
    text = LESSONS["week_1/day_1"].replace('title = "Area"', 'title = "Area [bold] of [B, L]"')
    text = text.replace("Look at Size.", "Mind `x[None]` and [B, L, H, D] and __call__.", 1)
    write(course.lessons / "week_1/day_1/lesson.toml", text.replace("and __call__", "and `__call__`"))
    hint("1.1.1")
    out = capsys.readouterr().out
    assert "Area [bold] of [B, L]" in out
    assert "Mind x[None] and [B, L, H, D] and __call__." in out


def test_where_nothing_can_be_recorded_the_hint_is_shown_all_the_same(course, capsys):
    write(course.state, "a file in the place of the folder")
    hint("1.1.1")
    said = capsys.readouterr()
    assert HINTS[0] in said.out
    assert "that you saw this hint is not recorded" in said.err
    hint("1.1.1", level=3)
    assert HINTS[2] in capsys.readouterr().out


def test_six_hints_at_once_are_all_remembered(course):
    program = "import sys; from coursekit.learner.hint import hint; hint(sys.argv[1])"
    names = ["1.1.1", "1.1.2", "1.2.1", "2.1.1", "2.1.2", "1.1.1"]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, name],
            env=environment(course),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for name in names
    ]
    assert [process.communicate()[1] for process in running] == [b""] * len(names)
    assert State.load(course).hints == {"1.1.1": 2, "1.1.2": 1, "1.2.1": 1, "2.1.1": 1, "2.1.2": 1}
