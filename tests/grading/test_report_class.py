"""Tests of the class page: the numbers, the groups, the figure."""

from __future__ import annotations

import re
from dataclasses import replace

from markdown_it import MarkdownIt
from parsed_page import Page
from sample_marks import REFUSAL, days, marks, task

from coursekit.task_state import TaskState
from grading.marks import Marks, Student
from grading.reports.class_pages import class_html, class_markdown
from grading.reports.class_view import view_of
from grading.reports.failures import group_failures, without_numbers
from grading.reports.heat_map import panels

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")


def page(given: list[Marks]) -> Page:
    return Page(class_html(given, "tiny-llm"))


def failing(name: str, failure: str, day: int = 0, index: int = 0) -> Marks:
    """A learner of whom one task is wrong, with this message."""
    made = list(days("PPPPPPPPPP"))
    tasks = list(made[day].tasks)
    tasks[index] = replace(task(tasks[index].name, tasks[index].title, 10, TaskState.WRONG), failure=failure)
    made[day] = replace(made[day], tasks=tuple(tasks))
    return marks(name=name, days=tuple(made))


def test_the_tasks_are_counted_by_state() -> None:
    view = view_of(
        [marks("PWCNSPPPPP", "A"), marks("PWWNPPPPPP", "B"), marks("PPPPPPPPPP", "C", refusal="no")]
    )
    assert [(row.name, row.counts) for row in view.tasks[:5]] == [
        ("1.1.1", (2, 0, 0, 0, 0)),
        ("1.1.2", (0, 2, 0, 0, 0)),
        ("1.1.3", (0, 1, 1, 0, 0)),
        ("1.1.4", (0, 0, 0, 2, 0)),
        ("1.2.1", (1, 0, 0, 0, 1)),
    ]
    assert view.tasks[0].title == "Softmax"
    assert view.graded == 2


def test_a_class_is_stuck_at_the_first_task_that_is_not_passed() -> None:
    given = [
        marks("PPNNNNNNNN", "A"),
        marks("PPWPPPPPPP", "B"),
        marks("PPPPSPPPPC", "C"),
        marks("PPPPPPPPPP", "D"),
    ]
    view = view_of(given)
    assert [(row.name, row.stuck) for row in view.stuck] == [("1.1.3", 2), ("1.3.3", 1)]
    shown = page(given).text
    assert "2 1.1.3 Scaled dot-product 2 passed, 1 wrong, 1 not started" in shown


def test_only_the_first_five_places_are_listed_where_a_class_is_stuck() -> None:
    given = [marks("P" * count + "N" * (10 - count), f"L{count}") for count in range(8)]
    assert [row.name for row in view_of(given).stuck] == ["1.1.1", "1.1.2", "1.1.3", "1.1.4", "1.2.1"]


def test_points_are_spread_over_ten_bars() -> None:
    states = {"A": "NNNNNNNNNN", "B": "PPPPPPPPPP", "C": "PPPPPPPPPN", "D": "PPPNNNNNNN"}
    view = view_of([marks(each, name) for name, each in states.items()])
    assert [each.count for each in view.bins] == [1, 0, 1, 0, 0, 0, 0, 0, 0, 2]
    assert [each.share for each in view.bins] == [50, 0, 50, 0, 0, 0, 0, 0, 0, 100]
    assert [each.label for each in view.bins][::3] == ["0–9", "30–39", "60–69", "90–100"]
    assert (view.median, view.complete) == ("57", 1)


def test_messages_that_differ_only_in_numbers_are_one_group() -> None:
    given = [
        failing("A", "at [3, 0]: 0.25 instead of -1.5e-3, 12 of 1,200 differ"),
        failing("B", "at [7, 1]: .5 instead of 4, 1,000 of 9 differ"),
        failing("C", "at [7, 1]: shape differs"),
        failing("D", "at [9, 9]:  0.25 instead of 2,\n 3 of 4 differ"),
        failing("E", "at [3, 0]: 0.25 instead of 1, 1 of 2 differ", day=1),
    ]
    found = group_failures(given)
    assert [(group.task, group.count) for group in found] == [("1.1.1", 3), ("1.1.1", 1), ("1.2.1", 1)]
    assert found[0].message == "at [3, 0]: 0.25 instead of -1.5e-3, 12 of 1,200 differ"
    assert found[0].checks == "keeps the shape of its input [L=3]"
    assert found[0].where == "tests/week_1/test_day_1.py:103"


def test_shapes_of_different_ranks_and_not_a_number_are_not_the_same() -> None:
    assert without_numbers("shape [2, 3]") == "shape [#, #]" != without_numbers("shape [2, 3, 4]")
    assert without_numbers("nan at 0x7f3a") == "nan at #"


def test_only_the_most_frequent_failures_are_shown_and_passed_tasks_have_none() -> None:
    letters = "abcdefghijklmnop"
    given = [failing(letter, f"message {letter}") for letter in letters] + [failing("z", "message p")]
    found = group_failures(given)
    assert len(found) == 12
    assert (found[0].message, found[0].count) == ("message p", 2)
    assert group_failures([marks("PNSPPPPPPP")]) == ()
    assert group_failures([failing("a", "")])[0].message == "(no message)"


def test_groups_of_one_size_are_in_the_order_of_the_course() -> None:
    made = days("PPPPPPPPPP")[0]
    late = replace(made, name="1.10", tasks=(task("1.10.1", "Late", 5, TaskState.WRONG),))
    early = replace(made, name="1.9", tasks=(task("1.9.1", "Early", 5, TaskState.WRONG),))
    assert [group.task for group in group_failures([marks(days=(late, early))])] == ["1.9.1", "1.10.1"]


def test_learners_are_sorted_by_name_and_say_their_points() -> None:
    cleo = marks(name="Cleo", days=days("PPPPPPPPPP", late=2))
    shown = page([marks("PPPPPPPPPN", "bob"), marks("NNNNNNNNNN", "Ada"), cleo])
    header = ["Name", "Row", "Points", "%", "Day 1.1", "Day 1.2", "Day 1.3"]
    assert shown.table[shown.table.index(header) + 1 :] == [
        ["Ada ada", "3", "0 of 150", "0", "0 of 50 ○○○○", "0 of 50 ○○○", "0 of 50 ○○○"],
        ["bob", "1", "140 of 150", "93", "50 of 50 ✓✓✓✓", "50 of 50 ✓✓✓", "40 of 50 ✓✓○"],
        ["Cleo cleo", "2", "140 of 150", "93", "50 of 50 ✓✓✓✓", "50 of 50 ✓✓✓", "40 of 50 ✓✓✓ 2 days late"],
    ]


def test_each_name_leads_to_the_learners_own_page() -> None:
    given = [marks(name="Ada"), replace(marks(), student=Student("../../etc", "Eve"))]
    links = page(given).attributes("a", "href")
    assert links[0] == "learners/ada.html"
    assert re.fullmatch(r"learners/etc-[0-9a-f]{10}\.html", links[1])


def test_a_learner_without_one_of_the_days_has_a_dash_there() -> None:
    given = [marks(name="Ada"), marks(name="Bea", days=days("PPPPPPPPPP")[:2])]
    [row] = [row for row in page(given).table if row[0].startswith("Bea")]
    assert row[-3:] == ["50 of 50 ✓✓✓✓", "50 of 50 ✓✓✓", "–"]


def test_what_could_not_be_graded_comes_first_and_counts_nowhere() -> None:
    given = [marks(name="Ada"), marks(name="Zoe", days=(), refusal=REFUSAL, notes=("a bomb",))]
    shown = page(given)
    assert shown.table[1] == ["Zoe zoe", f"{REFUSAL} a bomb"]
    assert shown.text.index("could not be graded") < shown.text.index("How the points are spread")
    assert "graded 1 not graded 1 median 100 % all points 1" in shown.text
    assert [row.counts for row in view_of(given).tasks] == [(1, 0, 0, 0, 0)] * 10
    assert [row.name for row in view_of(given).learners] == ["Ada"]


def test_notes_are_listed_for_the_instructor() -> None:
    shown = page([marks(name="Ada", notes=("one", "two")), marks(name="Bea")]).text
    assert shown.endswith("Notes for you These aren't on the learners' pages. Ada one two")


def test_an_empty_class_and_one_without_any_graded_submission_have_a_page() -> None:
    assert "There are no submissions." in page([]).text
    assert b"There are no submissions." in class_markdown([], "c")
    refused = page([marks(days=(), refusal="no")]).text
    assert "graded 0 not graded 1 median –" in refused
    assert "spread" not in refused
    assert "There are no submissions" not in refused
    assert panels([]) == ()
    assert panels([marks(days=())]) == ()


def test_the_markdown_of_a_class_has_the_same_tables() -> None:
    given = [marks("PWPPPPPPPN", "Ada", notes=("note",)), marks(name="B_b", days=(), refusal="no")]
    text = class_markdown(given, "c").decode()
    for line in (
        "- graded: 1",
        "- not graded: 1",
        "- median: 90 %",
        "- all points: 0",
        "| `B_b` (`b_b`) | no |",
        "| 90–100 | 1 |",
        "| 1 | 1.1.2 Linear |",
        "| Task | ✓ passed | ✗ wrong | ! crashed | ○ not started | – skipped |",
        "| 1.1.2 Linear | 0 | 1 | 0 | 0 | 0 |",
        "**1 × 1.1.2 Linear**: wrong; `keeps the shape of its input [L=3]` (`tests/week_1/test_day_1.py:103`)",
        "| Name | Points | Share | Day 1.1 | Day 1.2 | Day 1.3 |",
        "| Ada | 135 of 150 | 90 % | 45 of 50 ✓✗✓✓ | 50 of 50 ✓✓✓ | 40 of 50 ✓✓○ |",
        "- Learner Ada: note",
    ):
        assert line in text.splitlines(), line
    assert sum(token.type == "table_open" for token in MARKDOWN.parse(text)) == 5


def test_days_come_in_the_order_of_their_numbers() -> None:
    made = days("PPPPPPPPPP")
    given = marks(days=(replace(made[0], name="1.10"), replace(made[1], name="1.9")))
    assert [name for name, _ in view_of([given]).days] == ["1.9", "1.10"]
