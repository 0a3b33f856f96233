"""Tests of the learner's page: what it says, and that nothing of a submission becomes a part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from parsed_page import Page
from sample_marks import REFUSAL, days, marks

from coursekit.errors import CourseError
from coursekit.task_state import TaskState
from grading.marks import Marks, Student
from grading.reports.book import Book
from grading.reports.learner_pages import learner_html, learner_markdown
from grading.reports.learner_view import view_of

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
BOOK = Book("https://example.org/book/")


def page(given: Marks, book: Book | None = None) -> Page:
    return Page(learner_html(given, book or Book(), "tiny-llm"))


def changed(given: Marks, day: int, task: int, **changes: object) -> Marks:
    """The marks with another task in the place of one."""
    made = list(given.days)
    tasks = list(made[day].tasks)
    tasks[task] = replace(tasks[task], **changes)  # type: ignore[arg-type]
    made[day] = replace(made[day], tasks=tuple(tasks))
    return replace(given, days=tuple(made))


def test_the_page_has_the_board_of_each_day_with_states_points_and_notes() -> None:
    shown = page(marks("PPWNPPCPNS"))
    assert shown.table == [
        ["State", "Task", "Points"],
        ["✓ passed", "1.1.1 Softmax", "10 of 10"],
        ["✓ passed", "1.1.2 Linear", "5 of 5"],
        ["✗ wrong", "1.1.3 Scaled dot-product 4 of 9 tests pass", "0 of 15"],
        ["○ not started", "1.1.4 Multi-head attention", "0 of 20"],
        ["Day 1.1", "15 of 50"],
        ["State", "Task", "Points"],
        ["✓ passed", "1.2.1 Frequencies", "10 of 10"],
        ["✓ passed", "1.2.2 Split halves", "20 of 20"],
        ["! crashed", "1.2.3 Interleaved pairs 4 of 9 tests pass", "0 of 20"],
        ["Day 1.2", "30 of 50"],
        ["State", "Task", "Points"],
        ["✓ passed", "1.3.1 Causal mask", "15 of 15"],
        ["○ not started", "1.3.2 Grouped queries", "0 of 25"],
        ["– skipped", "1.3.3 Causal attention can't run where it was graded; costs no points", "– of 10"],
        ["Day 1.3", "15 of 50"],
    ]
    assert "60 of 150 points" in shown.text
    assert shown.attributes("span", "style") == ["width:40%"]
    assert "ada.lovelace.zip · handed in 2026-11-19 03:12 UTC · graded 2026-11-20 03:12 UTC" in shown.text
    assert "Isolation while grading: sandlock." in shown.text


def test_the_first_thing_is_the_first_failing_task_with_its_test_and_what_to_do() -> None:
    shown = page(marks("PPNWPPCPPP"), BOOK)
    text = shown.text
    assert "The first thing to look at 1.1.4 Multi-head attention" in text
    assert "The test checks: keeps the shape of its input [L=3] tests/week_1/test_day_1.py:103" in text
    assert shown.pres == [
        "the result differs from the expected one at [3, 0, 1]: 0.3213 instead of 0.5\n"
        "3 of 42 values differ. Likely cause: the mask is aligned at the wrong corner."
    ]
    assert "Task 4: Multi-head attention, or pdm run book --open 1.1 book/src/week_1/day_1.md" in text
    assert shown.attributes("a", "href") == [
        "https://example.org/book/week_1/day_1.html#task-4-multi-head-attention"
    ]
    assert "pdm run test 1.1.4 when you have changed it pdm run hint 1.1.4 for a hint" in text


def test_a_crash_comes_first_where_it_stands_first() -> None:
    view = view_of(marks("PCPWPPPPPP"), Book())
    assert view.first is not None
    assert (view.first.task, view.first.look.state) == ("1.1.2 Linear", TaskState.CRASHED)


def test_without_a_published_book_there_is_no_link() -> None:
    shown = page(marks("PPWPPPPPPP"))
    assert shown.attributes("a", "href") == []
    assert "Task 3: Scaled dot-product: pdm run book --open 1.1" in shown.text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "book", "//x", "file:///etc", "https://"]
)
def test_a_book_is_on_the_web(url: str) -> None:
    with pytest.raises(CourseError, match="is no address of a book"):
        Book(url)


def test_the_address_of_a_section_is_the_one_that_mdbook_makes() -> None:
    given = changed(marks("PPWPPPPPPP"), 0, 2, title="Decode attention, compiled (4-bit)")
    [link] = page(given, Book("http://localhost:8000")).attributes("a", "href")
    assert link == "http://localhost:8000/week_1/day_1.html#task-3-decode-attention-compiled-4-bit"


def test_where_nothing_fails_the_next_task_to_write_comes_first() -> None:
    shown = page(marks("PPPPPPPPNN"))
    assert "Next to write 1.3.2 Grouped queries" in shown.text
    assert "The test checks" not in shown.text
    assert "Task 2: Grouped queries: pdm run book --open 1.3" in shown.text
    assert "pdm run test 1.3.2 to test it pdm run hint 1.3.2 for a hint" in shown.text
    assert shown.pres == []


def test_a_task_that_waits_for_an_earlier_one_names_it() -> None:
    given = changed(marks("PPPPPPPPNN"), 2, 1, needs="1.1.2 Linear")
    shown = page(given)
    assert "1.3.2 Grouped queries needs 1.1.2 Linear first" in shown.text
    assert "Next to write 1.1.2 Linear" in shown.text
    assert "pdm run test 1.1.2" in shown.text
    assert "Task 2: Linear: pdm run book --open 1.1" in shown.text


def test_an_earlier_task_may_be_of_a_day_that_is_not_graded() -> None:
    shown = page(changed(marks("PPPPPPPPNN"), 2, 1, needs="2.10.3 Pages"))
    assert "Next to write 2.10.3 Pages" in shown.text
    assert "Read again pdm run book --open 2.10 Type pdm run test 2.10.3 to test it" in shown.text


@pytest.mark.parametrize("needs", ["1.1.2; rm -rf /", "x", "1.1", "1.1.2.3 x", "٣.1.1 x"])
def test_only_the_name_of_a_task_gets_into_a_command(needs: str) -> None:
    shown = page(changed(marks("PPPPPPPPNN"), 2, 1, needs=needs))
    assert "pdm run test 1.3.2 to test it" in shown.text


def test_a_forbidden_call_is_named_and_comes_before_what_is_not_written() -> None:
    given = changed(
        marks("PPPPPPPPPN"), 0, 2, earned=0, shortcuts=("torch.softmax", "torch.exp", "mlx.softmax")
    )
    shown = page(given)
    called = "torch.softmax, torch.exp and mlx.softmax"
    said = f"calls {called}, which may not do this task's work: no points"
    assert ["✓ passed", f"1.1.3 Scaled dot-product {said}", "0 of 15"] in shown.table
    assert shown.pres == [
        f"Your code calls {called}, which may not do this task's work, so it earns no points."
    ]
    assert "The first thing to look at 1.1.3" in shown.text


def test_a_call_that_cost_nothing_is_only_a_note() -> None:
    shown = page(changed(marks(), 0, 2, shortcuts=("torch.softmax",)))
    assert ["✓ passed", "1.1.3 Scaled dot-product calls torch.softmax", "15 of 15"] in shown.table
    assert "Nothing is left to mend" in shown.text


def test_a_failing_task_comes_before_a_forbidden_call() -> None:
    given = changed(marks("PPPPPPPPPW"), 0, 2, earned=0, shortcuts=("torch.softmax",))
    view = view_of(given, Book())
    assert view.first is not None
    assert view.first.task == "1.3.3 Causal attention"


def test_many_forbidden_calls_are_shortened() -> None:
    calls = tuple(f"torch.f{number}" for number in range(7))
    shown = page(changed(marks(), 0, 0, shortcuts=calls))
    assert "calls torch.f0, torch.f1, torch.f2, torch.f3, torch.f4 and 2 more" in shown.text


def test_lateness_says_what_it_cost() -> None:
    shown = page(marks(days=days("PPPPPPPPPN", late=2)))
    assert "2 days late: −8 points" in shown.text
    assert ["Day 1.3", "32 of 50"] in shown.table
    assert "132 of 150 points" in shown.text
    assert "late" not in page(marks()).text


def test_lateness_may_cost_nothing() -> None:
    given = marks(days=days("PPPPPPPNNN", late=1))
    assert "1 day late: costs nothing" in page(given).text


def test_a_weight_changes_the_points_of_a_day_and_is_said() -> None:
    given = marks(days=tuple(replace(day, weight=0.5) for day in days("PPPPPPPPPN", late=5)))
    shown = page(given)
    assert "counts 0.5 times · 5 days late: −10 points" in shown.text
    assert ["Day 1.1", "25 of 25"] in shown.table
    assert ["Day 1.3", "10 of 25"] in shown.table
    assert "60 of 75 points" in shown.text


def test_everything_passed_leaves_nothing_to_mend() -> None:
    shown = page(marks())
    assert "Nothing is left to mend" in shown.text
    assert "first thing" not in shown.text


def test_a_refusal_stands_alone() -> None:
    shown = page(marks(days=days("PPPPPPPPPP"), refusal=REFUSAL))
    assert "Your submission could not be graded" in shown.text
    assert shown.pres == [REFUSAL]
    assert "points" not in shown.text.replace("earns its points", "")
    assert shown.table == []


def test_notes_for_the_instructor_are_not_on_the_page() -> None:
    given = marks(notes=("looks copied",))
    assert b"copied" not in learner_html(given, BOOK, "c") + learner_markdown(given, BOOK, "c")


def test_a_learner_without_a_name_is_called_by_the_id() -> None:
    assert b"<h1>folder-7</h1>" in learner_html(replace(marks(), student=Student("folder-7")), Book(), "c")
    assert b"<h1>(no name)</h1>" in learner_html(replace(marks(), student=Student("", " ")), Book(), "c")


def test_no_submission_time_is_no_hole() -> None:
    assert "handed in" not in page(marks(submitted=None)).text
    assert b"handed in" not in learner_markdown(marks(submitted=None), Book(), "c")


def test_the_markdown_page_says_the_same() -> None:
    text = learner_markdown(marks("PPWNPPPPPN", days=days("PPWNPPPPPN", late=1)), BOOK, "tiny-llm").decode()
    for line in (
        "# Report: Ada Lovelace",
        "**101 of 150 points** (67 %)",
        "## The first thing to look at",
        "Task 1.1.3 Scaled dot-product: wrong",
        "The test checks: `keeps the shape of its input [L=3]` (`tests/week_1/test_day_1.py:103`)",
        "- Type `pdm run test 1.1.3` when you have changed it",
        "- Type `pdm run hint 1.1.3` for a hint",
        "## Day 1.3: Masks and grouped heads",
        "| ✗ | wrong | 1.1.3 Scaled dot-product (4 of 9 tests pass) | 0 of 15 |",
        "| | | **Day 1.3** | **36 of 50** |",
        "Note: 1 day late: −4 points",
    ):
        assert line in text.splitlines(), line
    link = "https://example.org/book/week_1/day_1.html#task-3-scaled-dot-product"
    assert f"- Read again: [Task 3: Scaled dot-product]({link}), or `pdm run book --open 1.1`" in text
    tables = [token for token in MARKDOWN.parse(text) if token.type == "table_open"]
    assert len(tables) == 3


def test_the_markdown_page_of_a_refusal_and_of_a_perfect_learner() -> None:
    refused = learner_markdown(marks(refusal="no\n```\nfolder"), Book(), "c").decode()
    assert "````text\nno\n```\nfolder\n````" in refused
    assert "points**" not in refused
    assert "Day" not in refused
    assert "Nothing is left to mend" in learner_markdown(marks(), Book(), "c").decode()
    missing = learner_markdown(marks("PPPPPPPPPN"), Book(), "c").decode()
    assert (
        "## Next to write\n\nTask 1.3.3 Causal attention: not started\n\n- Read again: Task 3: Causal"
        in missing
    )
