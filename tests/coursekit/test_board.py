"""The board says how every task stands, what to look at first and what to type next, in 80 columns."""

import io
from dataclasses import replace

import pytest
from courses import make_course, solve
from rich.console import Console

from coursekit.manifest import load_manifest
from coursekit.running.board import Board
from coursekit.running.results import Report, Result

MESSAGE = "the area: 1 of 4 values differ\n  the worst at [B=1, H=2]: 0.25 expected, 0.5 found, and so on"


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path)


def result(task, state, message="", needs=""):
    return Result(f"tests/x.py::{task}{state}", task, "says so", state, 0.1, message, "tests/x.py:3", needs)


def board(
    course,
    *results,
    options="",
    encoding="utf-8",
    interrupted=False,
    errors=(),
    borrowed=(),
    every=False,
    backend="torch",
):
    """What the board of these results looks like."""
    planned = {task: sum(r.task == task for r in results) for task in {r.task for r in results}}
    report = Report("learner", backend, "cpu", planned, list(results), list(errors), 0, interrupted, True)
    manifest = load_manifest(course)
    days = {r.task.rpartition(".")[0] for r in results}
    lessons = tuple(lesson for lesson in manifest.lessons if lesson.name in days)
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Console(file=file, width=80, highlight=False)
    Board(course, manifest, lessons, report, options, console, frozenset(borrowed), every).show()
    file.seek(0)
    return file.read()


def test_every_task_has_a_line_with_state_points_and_title(course):
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "not started"))
    assert "Week 1 Day 1  Rectangles" in text
    assert "✓ passed       10/10  1.1.1  Area" in text
    assert "○ not started    0/5  1.1.2  Perimeter" in text
    assert "10 of 15 points" in text


def test_the_first_failure_is_told_before_what_is_not_written(course):
    text = board(
        course, result("1.1.1", "not started"), result("1.1.2", "wrong", MESSAGE), result("1.2.1", "crashed")
    )
    assert "1.1.2 Perimeter: wrong\n  says so  (tests/x.py:3)\n\n    the area: 1 of 4 values differ" in text
    assert "pdm run test 1.1.2" in text
    assert "pdm run hint 1.1.2" in text
    assert "Next to write" not in text


def failures(course, count, task="1.1.2", **options):
    """The board of a task of which `count` tests are wrong, called "the first one", "number 1", and so on."""
    wrong = [result(task, "wrong", f"message {number}\n" * 8) for number in range(count)]
    wrong = [
        replace(test, id=f"{number}", sentence=f"number {number}" if number else "the first one")
        for number, test in enumerate(wrong)
    ]
    return board(course, *wrong, **options)


def test_further_failing_tests_of_the_day_are_named_in_a_line_each(course):
    text = failures(course, 3)
    assert "Also failing:\n  1.1.2  number 1\n  1.1.2  number 2\n" in text
    assert "message 1" not in text
    assert "more" not in text


def test_a_single_failing_test_has_no_list_of_others(course):
    assert "Also failing" not in failures(course, 1)


def test_of_many_failing_tests_five_are_named_and_the_rest_are_counted(course):
    text = failures(course, 9)
    assert "number 5" in text
    assert "number 6" not in text
    assert "and 3 more: pdm run test 1.1.2 --all" in text


def test_the_cases_of_one_test_are_one_title(course):
    cases = [replace(result("1.1.2", "wrong", MESSAGE), sentence=f"adds up [{case}]") for case in range(9)]
    text = board(course, result("1.1.1", "wrong", MESSAGE), *cases)
    assert "Also failing:\n  1.1.2  adds up  (9 cases)\n" in text
    assert "more" not in text


def test_the_command_for_all_failures_is_that_of_the_day_where_several_tasks_ran(course):
    titles = [replace(result("1.1.2", "wrong", MESSAGE), sentence=f"test {number}") for number in range(9)]
    text = board(course, result("1.1.1", "wrong", MESSAGE), *titles)
    assert "and 4 more: pdm run test 1.1 --all" in text


def test_the_command_for_all_failures_repeats_the_options_of_the_run(course):
    assert "pdm run test 1.1.2 --all --backend mlx" in failures(course, 9, options="--backend mlx")


def test_failing_tests_of_another_day_are_not_named(course):
    text = board(course, result("1.1.1", "wrong", MESSAGE), result("1.2.1", "wrong", MESSAGE))
    assert "Also failing" not in text


def test_on_request_every_failing_test_is_shown_with_the_first_lines_of_its_message(course):
    text = failures(course, 9, every=True)
    for number in range(9):
        assert text.count(f"message {number}\n") == 6
    assert "number 8  (tests/x.py:3)" in text
    assert "… 2 more lines" in text
    assert "Also failing" not in text
    assert "Next  pdm run test 1.1.2" in text


def test_what_the_failing_test_printed_is_shown_below_its_message(course):
    failed = replace(result("1.1.1", "wrong", MESSAGE), printed="a = 1\n" + 200 * "b")
    text = board(course, failed)
    assert "    it printed:\n      a = 1\n      bbb" in text
    assert text.index("values differ") < text.index("it printed")
    assert max(map(len, text.splitlines())) <= 80


def test_a_task_that_needs_another_sends_the_learner_there(course):
    text = board(course, result("2.1.2", "not started", needs="2.1.1 Counting up"))
    assert "(needs 2.1.1 Counting up first)" in text
    assert "Next to write: 2.1.1 Counting up\n  open src/tiny_llm/counting.py: count_up" in text


def test_only_the_functions_still_to_write_are_named(course):
    solve(course, "1.2")
    path = course.starter() / "shapes.py"
    text = path.read_text(encoding="utf-8")
    stub = 'raise NotImplementedError("Week 1 Day 2 Task 1: A circle")'
    path.write_text(text.replace("return TURN / 2 * square(self.radius)", stub), encoding="utf-8")
    shown = board(course, result("1.2.1", "passed"), result("1.2.1", "not started"))
    assert "(1 of 2 tests pass)" in shown
    assert "open src/tiny_llm/shapes.py: Circle.area\n" in shown


def test_a_borrowed_task_says_so_and_earns_nothing(course):
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "passed"), borrowed=["1.1.2"])
    (line,) = [line for line in text.splitlines() if "1.1.2" in line]
    assert "borrowed from the reference" in line
    assert " 0/" in line
    whole, own = (int(part) for part in reversed(text.split(" points")[0].split()[-3::2]))
    assert 0 < own < whole


def test_a_day_of_borrowed_code_offers_its_stubs_in_place_of_done(course):
    results = result("1.1.1", "passed"), result("1.1.2", "passed")
    text = board(course, *results, borrowed=["1.1.2"], options="--backend mlx")
    assert "All tests pass; Day 1.1 with borrowed code." in text
    assert "Next  pdm run reset 1.1 --borrowed --backend mlx" in text
    assert "pdm run test 1.2" in text
    assert "Done" not in text


def test_a_skipped_task_says_why_and_costs_no_points(course):
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "skipped", "needs a GPU"))
    assert "– skipped        –/5  1.1.2  Perimeter  (needs a GPU)" in text
    assert "10 of 10 points" in text
    assert "Done: Day 1.1." in text


def test_a_finished_day_leads_to_the_next_one(course):
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "passed"))
    assert (
        "Done: Day 1.1.\nNext is Day 1.2, Circles: Measure circles.\n"
        "  read pdm run book --open 1.2  (book/src/week_1/day_2.md)" in text
    )
    assert "Next  pdm run test 1.2" in text


def test_a_finished_day_leads_past_days_that_the_track_does_not_cover(course, monkeypatch):
    asked = []

    def covers(course, package, lesson):
        asked.append(package)
        return lesson.name == "2.1"

    monkeypatch.setattr("coursekit.running.board.covers", covers)
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "passed"), backend="mlx")
    assert "Next is Day 2.1" in text
    assert set(asked) == {"tiny_llm_mlx"}
    monkeypatch.setattr("coursekit.running.board.covers", lambda *_: False)
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "passed"), backend="mlx")
    assert "There is no further day in the course yet." in text


def test_a_part_of_a_day_leads_to_the_rest_of_it(course):
    text = board(course, result("1.1.1", "passed"))
    assert "Next  pdm run test 1.1   for the rest of the day" in text


def test_the_last_day_says_that_it_is_the_last(course):
    text = board(course, result("2.1.1", "passed"), result("2.1.2", "passed"))
    assert "There is no further day in the course yet." in text


def test_commands_repeat_the_options_of_the_run(course):
    text = board(course, result("1.1.1", "wrong", MESSAGE), options="--backend mlx")
    assert "pdm run test 1.1.1 --backend mlx" in text


def test_lines_fit_80_columns_without_colour(course):
    long = "the worst: " + "word " * 40
    text = board(course, result("1.1.1", "wrong", long), result("1.1.2", "crashed", long))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_a_long_note_goes_below_its_task(course):
    text = board(
        course, result("1.1.1", "skipped", "needs a GPU: run with --device cuda on a machine that has one")
    )
    assert "1.1.1  Area\n" in text
    assert "\n                               (needs a GPU: run with" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_without_unicode_still_shows_everything(course):
    text = board(course, result("1.1.1", "passed"), result("1.1.2", "wrong", "−1 ≠ √D"), encoding="ascii")
    assert "+ passed" in text
    assert "x wrong" in text
    assert "?1 ? ?D" in text


def test_a_test_file_that_cannot_be_read_is_shown(course):
    errors = [{"where": "tests/week_1/test_day_1.py", "message": "E   SyntaxError: invalid syntax"}]
    text = board(course, result("1.1.1", "passed"), errors=errors)
    assert "tests/week_1/test_day_1.py can't be read:" in text
    assert "SyntaxError" in text


def test_an_interrupted_run_says_so(course):
    assert "interrupted: the rest did not run" in board(course, result("1.1.1", "passed"), interrupted=True)
