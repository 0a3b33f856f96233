"""Tests of how text of a submission is made fit for pages, file names and tables."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from grading.reports.markdown import code, fence, inline, linked
from grading.reports.names import file_name, in_order
from grading.reports.spreadsheet import table
from grading.reports.text import block, counted, line, number, visible, when

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
SPECIAL = st.text(st.sampled_from("`*_[]()<>&|\\!#~ -+.:=\n\tab1"), max_size=40)


def kinds(text: str) -> set[str]:
    """What a Markdown program finds in a paragraph."""
    tokens = MARKDOWN.parse(text)
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    return {child.type for child in tokens[1].children or []}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("a\u202eb\u2066c\u200fd", "a\\u202eb\\u2066c\\u200fd"),
        ("\ud800\udcff", "\\ud800\\udcff"),
        ("\u2028\ufffe\uffff", "\\u2028\\ufffe\\uffff"),
        ("\r", "\\x0d"),
        ("Édouard 李 🙂", "Édouard 李 🙂"),
    ],
)
def test_what_cannot_be_shown_is_shown_as_python_writes_it(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_has_single_spaces_and_a_bounded_length() -> None:
    assert line("  a\n\n b\t c ") == "a b c"
    assert line("x" * 120) == "x" * 120
    assert line("x" * 121) == "x" * 119 + "…"
    assert line("x" * 10_000_000) == "x" * 119 + "…"
    assert line("ab", 2) == "ab"
    assert line("abc", 2) == "a…"
    assert line("a" + " " * 1000 + "b", 5) == "a…"
    assert line("") == ""


def test_a_block_keeps_its_lines_and_says_where_it_was_cut() -> None:
    assert block("a\n  b\n") == "a\n  b"
    assert block("abcdef", 3) == "abc\n… (cut here)"
    assert block("abc", 3) == "abc"
    assert block("a\nb\nc", 10, 2) == "a\nb\n… (cut here)"
    assert block("a\nb", 10, 2) == "a\nb"
    assert block("\x1b") == "\\x1b"
    assert len(block("x\n" * 10_000_000).split("\n")) == 61


@given(ANY_TEXT)
def test_lines_and_blocks_can_be_written_as_utf_8_and_are_one_line_or_few(text: str) -> None:
    line(text).encode("utf-8")
    block(text).encode("utf-8")
    assert "\n" not in line(text)
    assert len(line(text)) <= 120


@pytest.mark.parametrize(
    ("value", "shown"),
    [(3, "3"), (3.0, "3"), (2.5, "2.5"), (0.30000000000000004, "0.3"), (100, "100"), (1.239, "1.24")],
)
def test_points_have_no_more_decimals_than_they_need(value: float, shown: str) -> None:
    assert number(value) == shown


def test_counts_agree_with_their_nouns() -> None:
    assert [counted(count, "day") for count in (0, 1, 2)] == ["0 days", "1 day", "2 days"]
    assert counted(2, "child", "children") == "2 children"


def test_a_time_names_its_zone_where_it_is_known() -> None:
    assert when(datetime(2026, 1, 2, 3, 4, 59, tzinfo=UTC)) == "2026-01-02 03:04 UTC"
    assert when(datetime(2026, 1, 2, 3, 4)) == "2026-01-02 03:04"


@pytest.mark.parametrize("identity", ["ada", "a.b-c_d", "x" * 60, "7", "ada-lovelace"])
def test_a_harmless_id_is_the_name_of_its_file(identity: str) -> None:
    assert file_name(identity) == identity


STRANGE = (
    *(
        "Ada",
        "ada ",
        "ädä",
        "..",
        ".",
        "",
        ".hidden",
        "a/b",
        "a\\b",
        "C:\\x",
        "a\nb",
        "con",
        "nul.txt",
        "LPT1",
        "a.",
        "a:b",
    ),
    *("x" * 61, "y" * 255, "ü" * 255, "\ud800", "\x00", "李", "a*b?", "-a", "ada-0123456789"),
)


def test_strange_ids_have_harmless_names_of_their_own() -> None:
    names = [file_name(identity) for identity in STRANGE]
    assert len(set(names)) == len(STRANGE)
    for name in names:
        assert name.isascii()
        assert name == name.lower()
        assert len(name) <= 72
        assert name[0] not in ".-"
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        assert name.split(".")[0] not in ("con", "nul", "lpt1")
    assert file_name("Ada").startswith("ada-")
    assert file_name("ädä").startswith("ada-")
    assert file_name("李").startswith("learner-")


def test_no_id_can_be_made_that_takes_the_file_of_another() -> None:
    assert file_name(file_name("Ada")) != file_name("Ada")


def test_tasks_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["1.10", "1.9", "other", "1.9.2", "2.1"], key=in_order) == [
        "1.9",
        "1.9.2",
        "1.10",
        "2.1",
        "other",
    ]


@given(st.one_of(ANY_TEXT, SPECIAL))
def test_a_line_in_markdown_is_words_or_code_and_nothing_else(text: str) -> None:
    shown = line(text)
    written = inline(shown)
    assert kinds(f"So: {written}") <= {"text", "code_inline"}
    [*_, token] = [each for each in MARKDOWN.parse(f"So: {written}") if each.type == "inline"]
    said = "".join(child.content for child in token.children or [])
    assert said == f"So: {shown.replace('|', chr(92) + '|')}".strip()


def test_plain_names_and_numbers_stay_words_in_markdown() -> None:
    for words in (
        "Ada Lovelace",
        "J. R. Tolkien",
        "Jean-Luc",
        "O'Neill",
        "1.3.2 Masks",
        "a day (late): −4.5",
        "李",
    ):
        assert inline(words) == words


@pytest.mark.parametrize(
    "words", ["a_b", "www.evil.example", "a@b", "<b>", "`", "x.y", "[a]", "a|b", "http://x", "a&amp;b"]
)
def test_anything_else_is_code_in_markdown(words: str) -> None:
    assert kinds(f"So: {inline(words)}") == {"text", "code_inline"}


def test_what_is_written_already_is_not_escaped_again() -> None:
    assert inline(code("a_b")) == "`a_b`"
    assert inline(3) == "3"


@given(st.lists(SPECIAL, min_size=2, max_size=4))
def test_no_cell_of_a_table_ends_early_in_markdown(cells: list[str]) -> None:
    head = "|" + " a |" * len(cells)
    rule = "|" + "---|" * len(cells)
    row = "| " + " | ".join(inline(line(cell)) for cell in cells) + " |"
    tokens = MARKDOWN.parse(f"{head}\n{rule}\n{row}\n")
    assert sum(token.type == "td_open" for token in tokens) == len(cells)
    assert not {"html_inline", "html_block", "image", "link_open"} & {
        child.type for token in tokens for child in token.children or []
    }


@given(st.one_of(SPECIAL, st.text("`~\n a", max_size=40)))
def test_nothing_in_a_block_of_code_ends_it_in_markdown(text: str) -> None:
    shown = block(text)
    tokens = MARKDOWN.parse(f"{fence(shown)}\n")
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == f"{shown}\n"


def test_a_link_in_markdown_leads_where_it_should() -> None:
    [token] = [
        each for each in MARKDOWN.parse(linked("a](b", "https://x.example/y")) if each.type == "inline"
    ]
    children = token.children or []
    assert [child.attrs.get("href") for child in children if child.type == "link_open"] == [
        "https://x.example/y"
    ]
    assert "".join(child.content for child in children) == "a](b"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"])
def test_no_cell_of_a_table_is_a_formula(start: str) -> None:
    [row] = table([[f"{start}1+1", "a=b", f" {start}x"]], mark=False).decode().splitlines()
    cells = row.split(",")
    assert cells[0].startswith("'")
    assert cells[1] == "a=b"
    assert cells[2].startswith("'") or start in "\t\r"


def test_numbers_in_a_table_are_numbers_and_nothing_is_an_empty_cell() -> None:
    assert table([[-1.5, 2, 3.0, None, "", 1 / 3]], mark=False) == b"-1.5,2,3,,,0.33\r\n"


def test_a_table_is_utf_8_with_a_mark_where_a_spreadsheet_opens_it() -> None:
    assert (
        table([["é", 'a"b', "a,b", "a\nb", "\ud800"]], mark=True)
        == '\ufeffé,"a""b","a,b",a b,\\ud800\r\n'.encode()
    )
    assert table([["é"]], mark=False) == "é\r\n".encode()
    assert len(table([["x" * 10_000_000]], mark=False)) < 4_000
