"""Tests fold into the state of their task, and a report survives the way through its file."""

import pytest

from coursekit.running.results import Report, Result, fold, read_report
from coursekit.task_state import TaskState

STATES = [TaskState.CRASHED, TaskState.NOT_STARTED, TaskState.PASSED, TaskState.SKIPPED]


@pytest.mark.parametrize("first", range(len(STATES)))
def test_the_state_to_see_to_first_is_the_tasks(first):
    assert fold(reversed(STATES[first:])) == STATES[first]


def test_the_first_failure_is_told_whether_wrong_or_crashed():
    assert fold([TaskState.PASSED, TaskState.WRONG, TaskState.CRASHED]) == "wrong"
    assert fold([TaskState.NOT_STARTED, TaskState.CRASHED, TaskState.WRONG]) == "crashed"
    report = Report("learner", "torch", "cpu", {"1.1.1": 3})
    for state in (TaskState.PASSED, TaskState.WRONG, TaskState.CRASHED):
        report.add(Result(state, "1.1.1", "", state, message=state))
    first = report.tasks["1.1.1"].first_failure
    assert first is not None
    assert first.message == "wrong"


def test_a_report_reads_as_it_was_written(tmp_path):
    report = Report("learner", "mlx", "cpu", {"1.1.1": 3}, deselected=1, interrupted=True)
    report.add(Result("a", "1.1.1", "says √D", TaskState.PASSED, 0.5))
    report.add(Result("b", "1.1.1", "says more", TaskState.WRONG, 0.25, "two\nlines", "tests/x.py:3"))
    report.add(Result("c", None, "outside", TaskState.NOT_STARTED, needs="1.1.1 Softmax"))
    report.write(tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == report


def test_a_task_counts_its_tests_and_knows_whether_all_ran():
    report = Report("learner", "torch", "cpu", {"1.1.1": 3, "1.1.2": 1})
    report.add(Result("a", "1.1.1", "", TaskState.PASSED))
    report.add(Result("b", "1.1.1", "", TaskState.WRONG, message="first"))
    report.add(Result("c", "1.1.2", "", TaskState.PASSED))
    first, second = report.tasks["1.1.1"], report.tasks["1.1.2"]
    assert (first.state, first.complete, first.count(TaskState.PASSED, TaskState.WRONG)) == (
        "wrong",
        False,
        2,
    )
    assert first.first_failure is not None
    assert first.first_failure.message == "first"
    assert (second.state, second.complete, second.first_failure) == ("passed", True, None)
