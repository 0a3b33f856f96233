"""`pdm run book --open 3.2` opens a page of the built book, and builds it only where that is needed."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import pytest
from books import MANIFEST, make_book

from authoring.book import command
from authoring.book.command import book
from coursekit.errors import CourseError
from coursekit.paths import Course


class Desk:
    """A book in a folder, with an mdBook that writes the page of Day 1.3 and a browser that remembers."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.page = course.book / "build" / "week_1" / "day_3.html"
        self.runs: list[list[str]] = []
        self.opened: list[str] = []
        self.has_browser = True

    def run(self, arguments: list[str]) -> None:
        self.runs.append(arguments[1:])
        self.page.parent.mkdir(parents=True, exist_ok=True)
        self.page.write_text("<html/>", encoding="utf-8")

    def open(self, url: str) -> bool:
        self.opened += [url] if self.has_browser else []
        return self.has_browser


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(make_book(tmp_path))
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setattr(command, "run_mdbook", desk.run)
    monkeypatch.setattr(command, "find_mdbook", lambda: "mdbook")
    monkeypatch.setattr(command, "load_manifest", lambda course: MANIFEST)
    monkeypatch.setattr(command, "require_free_port", lambda port: None)
    monkeypatch.setattr(webbrowser, "open", desk.open)
    return desk


def test_a_day_is_built_and_opened_in_the_browser(desk, capsys):
    book(page="1.3", open_browser=True)
    assert desk.runs == [["build", str(desk.course.book)]]
    assert desk.opened == [desk.page.as_uri()]
    assert str(desk.page) in capsys.readouterr().out


def test_a_page_that_is_built_is_not_built_again(desk):
    for _ in range(2):
        book(page="1.3", open_browser=True)
    assert len(desk.runs) == 1
    assert len(desk.opened) == 2


@pytest.mark.parametrize("changed", ["book/src/week_1/day_3.md", "lessons/week_1/day_3/lesson.toml"])
def test_a_change_of_a_chapter_or_a_lesson_builds_it_again(desk, changed):
    book(page="1.3", open_browser=True)
    path = desk.course.root / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed", encoding="utf-8")
    later = desk.page.stat().st_mtime + 5
    os.utime(path, (later, later))
    book(page="1.3", open_browser=True)
    assert len(desk.runs) == 2


def test_without_a_browser_the_pages_address_is_printed(desk, capsys):
    desk.has_browser = False
    book(page="1.3", open_browser=True)
    assert f"no browser was found here; the page is {desk.page.as_uri()}" in capsys.readouterr().out


def test_a_page_that_is_no_day_goes_by_its_name(desk, capsys):
    book(page="notation", open_browser=True)
    assert desk.opened == [(desk.course.book / "build" / "notation.html").as_uri()]


def test_without_open_the_book_is_served_and_the_pages_address_named(desk, capsys):
    book(page="1.3")
    assert desk.runs[0][0] == "serve"
    assert "http://127.0.0.1:3000/week_1/day_3.html" in capsys.readouterr().out
    assert desk.opened == []


@pytest.mark.parametrize(
    ("name", "says"),
    [("1.9", "there is no Day 1.9"), ("nothing", "there is no page 'nothing'.* and: notation")],
)
def test_a_page_that_is_not_there_is_refused_before_anything_is_built(desk, name, says):
    with pytest.raises(CourseError, match=says):
        book(page=name, open_browser=True)
    assert desk.runs == []
