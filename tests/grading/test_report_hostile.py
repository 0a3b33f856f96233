"""Tests that nothing of a submission becomes a part of the learner's page."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from parsed_page import Page
from sample_marks import HOSTILE, hostile, marks

from grading.marks import Marks
from grading.reports.book import Book
from grading.reports.learner_pages import learner_html, learner_markdown

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
BOOK = Book("https://example.org/book/")


def page(given: Marks, book: Book | None = None) -> Page:
    return Page(learner_html(given, book or Book(), "tiny-llm"))


CASES = [
    hostile(),
    hostile("NNNNNNNNNN"),
    hostile("SSSSSSSSSS"),
    hostile(refusal=HOSTILE),
    hostile(text=HOSTILE * 10_000),
    hostile(text="\n".join(["# x", "| a |", "---", "- y", "<b>", "    z"] * 500)),
    hostile("PPPPPPPPPP", text="</script>"),
]


@pytest.mark.parametrize("given", CASES)
def test_nothing_of_a_submission_becomes_html(given: Marks) -> None:
    plain = page(marks("PWCNPPPPPP"), BOOK)
    shown = page(given, BOOK)
    assert {tag for tag, _ in shown.elements} <= {tag for tag, _ in plain.elements} | {"pre"}
    assert not any(key.startswith("on") for _, attributes in shown.elements for key in attributes)
    assert all(link.startswith("https://example.org/book/") for link in shown.attributes("a", "href"))
    assert not {"\x00", "\x1b", "\u202e", "\ufffe"} & set("".join(shown.words))


@pytest.mark.parametrize("given", CASES)
def test_nothing_of_a_submission_becomes_markdown(given: Marks) -> None:
    tokens = MARKDOWN.parse(learner_markdown(given, BOOK, "tiny-llm").decode())
    inner = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in tokens} | {child.type for child in inner}
    assert not kinds & {
        "html_block",
        "html_inline",
        "image",
        "code_block",
        "hr",
        "blockquote_open",
        "ordered_list_open",
    }
    links = [str(child.attrs["href"]) for child in inner if child.type == "link_open"]
    assert all(link.startswith("https://example.org/book/") for link in links)
    assert sum(token.type == "heading_open" for token in tokens) <= 5


@pytest.mark.parametrize("given", CASES)
def test_a_page_is_bounded_whatever_a_submission_holds(given: Marks) -> None:
    assert len(learner_html(given, BOOK, "c")) < 60_000
    assert len(learner_markdown(given, BOOK, "c")) < 40_000


def test_the_page_needs_nothing_but_itself() -> None:
    shown = page(marks("PWCNPPPPPP"))
    tags = {tag for tag, _ in shown.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "form"}
    assert b"@import" not in learner_html(marks(), Book(), "c")
    assert b"url(" not in learner_html(marks(), Book(), "c")
    assert any(value.startswith("default-src 'none'") for value in shown.attributes("meta", "content"))
    assert ("html", {"lang": "en"}) in shown.elements
    assert tags >= {"title", "h1", "h2", "main"}
