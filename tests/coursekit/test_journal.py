"""What a run found outlives its process, and the last test is told with the reason why Python ended."""

import sys

import pytest

from coursekit.interrupts import INTERRUPTED
from coursekit.running.journal import Journal, faults_of, journal_of, load_report
from coursekit.running.last_words import last_words
from coursekit.running.results import Report, Result
from coursekit.task_state import TaskState

FRAMES = """Thread 0x00007f (most recent call first):
  File "/lib/threading.py", line 320 in wait
  File "{root}/src/tiny_llm/shapes.py", line 27 in perimeter
  File "{root}/tests/week_1/test_day_1.py", line 9 in test_task_2
"""


@pytest.fixture
def report_file(tmp_path):
    """Of a run that ended in its second test."""
    file = tmp_path / "report.json"
    journal = Journal(journal_of(file))
    journal.begin(Report("learner", "torch", "cpu", {"1.1.1": 2}))
    journal.start(Result("a", "1.1.1", "says a", TaskState.PASSED))
    journal.add(Result("a", "1.1.1", "says a", TaskState.WRONG, 0.5, "no"))
    journal.start(Result("b", "1.1.1", "says b", TaskState.PASSED, where="tests/x.py:3"))
    journal.close()
    return file


def test_the_test_in_which_python_ended_has_crashed(report_file, tmp_path):
    faults_of(report_file).write_text(FRAMES.format(root=tmp_path), encoding="utf-8")
    report = load_report(report_file, -11, tmp_path)
    assert report is not None
    assert not report.finished
    assert not report.passed
    assert [(test.id, test.state) for test in report.results] == [("a", "wrong"), ("b", "crashed")]
    assert report.results[1].where == "tests/x.py:3"
    assert "  src/tiny_llm/shapes.py:27, in perimeter" in report.results[1].message


def test_after_ctrl_c_it_has_not_run(report_file, tmp_path):
    report = load_report(report_file, INTERRUPTED, tmp_path)
    assert report is not None
    assert [test.id for test in report.results] == ["a"]


def test_a_line_that_was_not_written_to_its_end_counts_for_nothing(report_file, tmp_path):
    with open(journal_of(report_file), "ab") as journal:
        journal.write(b'["result", {"id": "b", "ta')
    report = load_report(report_file, 1, tmp_path)
    assert report is not None
    assert [test.state for test in report.results] == ["wrong", "crashed"]


def test_the_report_of_a_run_that_came_to_its_end_goes_before_its_journal(report_file, tmp_path):
    Report("learner", "torch", "cpu", finished=True).write(report_file)
    report = load_report(report_file, 0, tmp_path)
    assert report is not None
    assert report.passed
    assert report.results == []


def test_a_run_that_never_began_has_no_report(tmp_path):
    assert load_report(tmp_path / "report.json", 0, tmp_path) is None


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (1, "Timeout (0:01:05)!\n", "ran for 65 s and could not be interrupted"),
        (
            1,
            "used more than the 8 GiB of memory that the tests may take: why?\nThread",
            "used more than the 8 GiB",
        ),
        (0, "", "the code ended Python itself, with exit code 0 (os._exit?)"),
        pytest.param(
            *(-9, "", "was the memory used up?"),
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal"),
        ),
    ],
)
def test_the_reason_is_told_in_plain_words(tmp_path, code, said, expected):
    message = last_words(code, said, tmp_path)
    assert expected in message
    assert "the tests after it did not run" in message
