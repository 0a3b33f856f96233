"""Tests of the figure on the class page, and that nothing of a submission becomes a part of that page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from parsed_page import Page
from sample_marks import HOSTILE, a_class, hostile, large_class, marks

from grading.marks import Marks, Student
from grading.reports.class_pages import class_html, class_markdown
from grading.reports.class_view import by_name, by_points
from grading.reports.heat_map import LEGEND_SIDE, legend, panels

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")


def page(given: list[Marks]) -> Page:
    return Page(class_html(given, "tiny-llm"))


def test_the_order_is_by_name_whatever_the_case_and_by_points_in_the_figure() -> None:
    given = [marks("NNNNNNNNNN", "bob"), marks("PPPPPPPPPP", "Cleo"), marks("PPPPPPPPPP", "Ada")]
    assert [each.student.name for each in by_name(given)] == ["Ada", "bob", "Cleo"]
    assert [each.student.name for each in by_points(given)] == ["Ada", "Cleo", "bob"]
    same = [replace(marks(name="X"), student=Student(identity, "X")) for identity in ("2", "1")]
    assert [each.student.id for each in by_name(same)] == ["1", "2"]


CELL = {
    "passed": "M{x} {y}h15v15h-15z",
    "wrong": "M{x} {y}v15h15z",
    "crashed": "M{x} {y}h15l-15 15h15z",
    "not started": "M{x5} {y5}h5v5h-5z",
    "skipped": "M{x} {y6}h15v3h-15z",
}


def test_the_figure_names_the_days_the_tasks_and_the_learners_of_a_small_class() -> None:
    [panel] = panels([marks("NNNNNNNNNN", "Ada"), marks("PPPPPPPPPP", "Bea with a name that is very long")])
    texts = [label.text for label in panel.labels]
    assert texts == [
        *("1.1", "1", "2", "3", "4", "1.2", "1", "2", "3", "1.3", "1", "2", "3"),
        *("Bea with a name that…", "Ada"),
    ]
    assert [label.text for label in panel.labels if label.strong] == ["1.1", "1.2", "1.3"]
    assert [row.said for row in panel.rows] == ["1. Bea with a name that is very long: 100 %", "2. Ada: 0 %"]
    assert panel.height == 42 + 2 * 20 + 2
    assert panel.rows[1].y - panel.rows[0].y == 20


def test_a_large_class_is_drawn_in_panels_with_every_learner_once() -> None:
    drawn = panels(large_class(500))
    assert [len(panel.rows) for panel in drawn] == [125, 125, 125, 125]
    said = [row.said for panel in drawn for row in panel.rows]
    assert [int(text.partition(".")[0]) for text in said] == list(range(1, 501))
    assert len({text.partition(". ")[2] for text in said}) == 500
    sides = [label.text for label in drawn[1].labels if label.anchor == "end"]
    assert sides[:3] == ["126", "130", "135"]
    assert drawn[1].summary == "Learners 126 to 250, most points first, and the state of each of 10 tasks"
    assert sum(path.count("M") for panel in drawn for _, path in panel.paths) == 5_000


@pytest.mark.parametrize(("size", "count"), [(40, 1), (41, 1), (125, 1), (126, 2)])
def test_the_size_of_a_class_decides_on_names_and_panels(size: int, count: int) -> None:
    drawn = panels(large_class(size))
    assert len(drawn) == count
    assert any(label.text.startswith("Learner") for label in drawn[0].labels) == (size <= 40)


def test_the_legend_shows_each_state_with_its_shape() -> None:
    assert len({sample.path for sample in legend()}) == 5
    shown = page([marks()])
    sizes = shown.attributes("svg", "viewbox")[:5]
    assert sizes == [f"0 0 {LEGEND_SIDE} {LEGEND_SIDE}"] * 5
    assert "passed wrong crashed not started skipped" in re.sub(r"\s+", " ", shown.text)


def test_the_figure_is_named_for_those_who_cannot_see_it() -> None:
    shown = page(a_class())
    summary = "Learners 1 to 19, most points first, and the state of each of 10 tasks"
    assert shown.attributes("svg", "aria-label") == [summary]
    assert shown.attributes("svg", "role") == ["img"]


CLASSES = [
    [hostile(), hostile(refusal=HOSTILE)],
    [hostile(text=HOSTILE * 5_000)],
    [hostile("WWWWWWWWWW", text="\n| a | b |\n# x\n- y\n1. z\n<b>\n")],
]


@pytest.mark.parametrize("given", CLASSES)
def test_nothing_of_a_submission_becomes_a_part_of_the_class_page(given: list[Marks]) -> None:
    shown = page(given)
    plain = page([*a_class(), marks(notes=("x",))])
    assert {tag for tag, _ in shown.elements} <= {tag for tag, _ in plain.elements}
    assert not any(key.startswith("on") for _, attributes in shown.elements for key in attributes)
    assert all(re.fullmatch(r"learners/[a-z0-9_.-]+\.html", link) for link in shown.attributes("a", "href"))
    assert len(class_html(given, "c")) < 80_000
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in shown.elements}


@pytest.mark.parametrize("given", CLASSES)
def test_nothing_of_a_submission_becomes_a_part_of_the_markdown_of_a_class(given: list[Marks]) -> None:
    tokens = MARKDOWN.parse(class_markdown(given, "tiny-llm").decode())
    kinds = {token.type for token in tokens} | {
        child.type for token in tokens for child in token.children or []
    }
    assert not kinds & {
        "html_block",
        "html_inline",
        "image",
        "link_open",
        "code_block",
        "hr",
        "ordered_list_open",
    }
    assert {token.tag for token in tokens if token.type == "heading_open"} <= {"h1", "h2"}


def test_each_state_has_a_shape_of_its_own_in_its_place() -> None:
    [panel] = panels([marks("PWCNSPPPPP")])
    y = 42
    assert panel.rows[0].y == y
    paths = {look.state.value: path for look, path in panel.paths}
    for index, state in enumerate(("passed", "wrong", "crashed", "not started")):
        x = 170 + 20 * index
        assert CELL[state].format(x=x, x5=x + 5, y=y, y5=y + 5) in paths[state]
    # A new day stands a little apart.
    assert paths["skipped"] == CELL["skipped"].format(x=170 + 80 + 12, y6=y + 6)
    assert paths["passed"].count("M") == 6


def test_labels_stand_above_their_columns_and_beside_their_rows() -> None:
    [panel] = panels([marks("NNNNNNNNNN", "Ada"), marks("PPPPPPPPPP", "Bea")])
    places = [(label.text, label.x, label.anchor) for label in panel.labels]
    assert places[:3] == [("1.1", 170, "start"), ("1", 177.5, "middle"), ("2", 197.5, "middle")]
    assert places[5:7] == [("1.2", 262, "start"), ("1", 269.5, "middle")]
    assert places[-2:] == [("Bea", 162, "end"), ("Ada", 162, "end")]
    rows = [label.y for label in panel.labels if label.anchor == "end"]
    assert [42 < rows[0] < 57, 62 < rows[1] < 77] == [True, True]
    assert (panel.width, panel.height) == (396, 84)
