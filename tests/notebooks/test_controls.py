"""Controls with a picture: plain, as widgets, and where a task is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import make_course, solve
from notebook_cells import run_cells

from coursekit.paths import Course
from notebooks import choice, slider, switch
from notebooks.settings import PLAIN

DRAW = """from notebooks import Picture, choice, explore, lab, new_figure, slider
def draw(last):
    figure, axes = new_figure(width=2, height=1)
    return Picture(figure, f"the sum is {lab.counting.total(last)}")
control = slider(1, 9, 4)
"""
# A widget's output area keeps what is shown in it only where there is a notebook around it.
CAUGHT = """import contextlib, ipywidgets
shown = []
class Area:
    def __init__(self, show, controls):
        def answer(change=None):
            show(**{name: control.value for name, control in controls.items()})
        for control in controls.values():
            control.observe(answer, "value")
        answer()
ipywidgets.interactive_output = lambda show, controls: Area(show, controls) and ipywidgets.Label("")
"""


@pytest.fixture
def course(tmp_path: Path) -> Course:
    course = make_course(tmp_path)
    solve(course, "2.1")
    return course


def test_a_plain_run_shows_the_picture_for_the_first_values(course):
    printed = run_cells(course, DRAW + "explore(draw, last=control)", **{PLAIN: "1"})
    assert "the sum is 10" in printed
    assert "Slider" not in printed


def test_a_control_that_is_moved_draws_anew(course):
    cells = [CAUGHT, DRAW + "explore(draw, last=control)", "control.value = 6"]
    printed = run_cells(course, *cells)
    assert printed.index("the sum is 10") < printed.index("the sum is 21")
    assert "VBox(children=(HBox(children=(IntSlider(" in printed


def test_a_file_that_changes_is_read_anew_before_a_control_that_is_moved_draws(course):
    edit = (
        "import os, pathlib\n"
        "file = pathlib.Path(os.environ['TINY_LLM_ROOT']) / 'src/tiny_llm/counting.py'\n"
        "_ = file.write_text(file.read_text().replace('return sum(count_up(last))', 'return -last'))\n"
    )
    printed = run_cells(course, CAUGHT, DRAW + "explore(draw, last=control)", edit + "control.value = 6")
    assert "the sum is -6" in printed


def test_the_controls_are_shown_under_their_names(course):
    cell = (
        DRAW + "other, third = slider(0, 1, 0, title='to that'), slider(0, 1, 0)\n"
        "explore(lambda last, to, the_third: draw(last), last=control, to=other, the_third=third)\n"
        "print([each.description for each in (control, other, third)])"
    )
    assert "['last', 'to that', 'the third']" in run_cells(course, CAUGHT, cell)


def test_a_task_that_is_missing_is_told_in_one_line_while_a_control_is_moved(tmp_path):
    course = make_course(tmp_path)
    printed = run_cells(course, CAUGHT, DRAW + "explore(draw, last=control)", "control.value = 6")
    assert printed.count("Task 2.1.2 (A sum) is still missing.") == 2
    assert "Traceback" not in printed


def test_an_error_of_the_drawing_itself_is_shown(course):
    printed = run_cells(course, "from notebooks import explore\nexplore(lambda: 1 / 0)", **{PLAIN: "1"})
    assert "ZeroDivisionError" in printed


def test_a_drawing_that_prints_needs_no_picture(course):
    cell = "from notebooks import explore, slider\nexplore(lambda n: print('n is', n), n=slider(1, 3, 2))"
    assert run_cells(course, cell, **{PLAIN: "1"}).splitlines()[1:] == ["n is 2"]


def test_a_slider_of_whole_numbers_gives_whole_numbers():
    whole, other = slider(0, 10, 3, 2), slider(0, 1.0, 0.5, 0.1)
    assert (type(whole.value), whole.value, whole.min, whole.max, whole.step) == (int, 3, 0, 10, 2)
    assert (type(other.value), other.value, other.max, other.step) == (float, 0.5, 1.0, 0.1)
    assert slider(0, 10, 3).step == 1


def test_a_slider_answers_when_it_is_let_go():
    assert [slider(0, last, 0).continuous_update for last in (1, 1.5)] == [False, False]


def test_a_choice_starts_with_its_first_value_or_the_one_given():
    assert choice(["a", "b"]).value == "a"
    assert choice(["a", "b"], "b").value == "b"
    assert choice([0, 1], 0).value == 0
    assert choice(["a"], title="which").description == "which"


def test_a_switch_is_off_unless_it_is_on():
    assert switch().value is False
    assert switch(True, "all").value is True
    assert switch(True, "all").description == "all"
