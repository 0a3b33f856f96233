"""Tests of the list of similar submissions, as a page and as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from parsed_page import Page
from sample_marks import HOSTILE
from similar_code import REFS, body, module, package, starter, written

from coursekit.errors import CourseError
from grading.similarity import Similarity, Unread, find_similar, write_similar, writing
from grading.similarity.writing import similar_csv, similar_html


@pytest.fixture
def found(tmp_path: Path) -> Similarity:
    """Two that are alike in one function, and one of their own."""
    common = body("common", 30)
    other = common.replace("x = ", "x = '<b>' + ", 1)
    packages = {
        "=ada": package(tmp_path / "a", module({"softmax": common, "linear": body("a")})),
        "bea": package(tmp_path / "b", module({"softmax": other, "linear": body("b")})),
        "cleo": package(tmp_path / "c", module(written("c"))),
        "dora": package(tmp_path / "d", "def ("),
    }
    return find_similar(packages, starter(tmp_path / "starter"), REFS)


def page(similarity: Similarity) -> Page:
    return Page(similar_html(similarity, "LLM"))


def test_the_page_lists_the_pairs_and_what_was_not_compared(found: Similarity) -> None:
    [pair] = found.pairs
    shown = page(found)
    shares = f"{100 * pair.first_share:.0f} % and {100 * pair.second_share:.0f} %{pair.shared} fingerprints"
    assert shown.table == [["Submissions", "Shared", "Functions"], ["=ada and bea", shares, "softmax"]]
    assert "a list to look at, not a verdict" in shown.text
    assert "Of 4 submissions" in shown.text
    assert "Not compared dora: attention.py attention.py:1: syntax error" in shown.text
    assert shown.attributes("a", "href") == ["#pair-1"]
    assert ("section", {"id": "pair-1"}) in shown.elements


def test_the_code_stands_side_by_side_with_the_shared_lines_marked(found: Similarity) -> None:
    [function] = found.pairs[0].functions
    shown = page(found)
    assert len(shown.pres) == 2
    assert "'<b>' +" in shown.pres[1]
    kinds = [attributes.get("class") for tag, attributes in shown.elements if tag == "span"]
    assert kinds.count("shared") == len(function.first_lines) + len(function.second_lines)
    first = [line.strip() for line in shown.pres[0].split("\n") if line.strip()]
    assert first[0].startswith(str(min(function.first_lines) - 2))
    assert kinds.count("number") == kinds.count("shared") + kinds.count("other")


def test_long_functions_and_many_pairs_are_shortened(
    found: Similarity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LINES_SHOWN", 4)
    shown = page(found)
    assert all(len(each.strip().split("\n")) == 4 for each in shown.pres)
    assert "more lines" in shown.text
    monkeypatch.setattr(writing, "FUNCTIONS_SHOWN", 0)
    assert page(found).pres == []
    monkeypatch.setattr(writing, "FUNCTIONS_SHOWN", 1)
    monkeypatch.setattr(writing, "WITH_CODE", 0)
    assert page(found).pres == []
    left = page(Similarity(found.pairs, 7, found.own, ()))
    assert "7 more pairs share less" in left.text


def test_no_pairs_are_said_to_be_none() -> None:
    shown = page(Similarity((), 0, {"a": 3}, ()))
    assert "No two submissions share enough to be listed." in shown.text
    assert "Not compared" not in shown.text


def test_the_table_has_a_row_per_pair_and_no_formulas(found: Similarity) -> None:
    [pair] = found.pairs
    [row] = csv.DictReader(io.StringIO(similar_csv(found).decode("utf-8-sig"), newline=""))
    assert row == {
        "first": "'=ada",
        "second": "bea",
        "shared fingerprints": str(pair.shared),
        "% of the first": f"{100 * pair.first_share:.2f}".rstrip("0").rstrip("."),
        "% of the second": f"{100 * pair.second_share:.2f}".rstrip("0").rstrip("."),
        "functions": "attention.py::softmax",
    }


def test_nothing_of_a_submission_becomes_a_part_of_the_page(tmp_path: Path) -> None:
    source = module(
        {
            "softmax": body(1, 20)
            + "\n'''</pre><script>x</script>\x1b\u202e"
            + "x" * 100_000
            + "'''\n"
            + body(2)
        }
    )
    packages = {HOSTILE + end: package(tmp_path / end, source) for end in "ab"}
    similar = find_similar(packages, starter(tmp_path / "starter"), REFS)
    hostile = Similarity(similar.pairs, 0, similar.own, (Unread(HOSTILE, HOSTILE, HOSTILE),))
    assert len(hostile.pairs) == 1
    shown = page(hostile)
    assert not {"script", "img", "iframe", "b"} & {tag for tag, _ in shown.elements}
    assert not {"\x00", "\x1b", "\u202e"} & set("".join(shown.words))
    assert len(similar_html(hostile, "c")) < 100_000
    similar_csv(hostile)


def test_both_files_are_written_or_none(found: Similarity, tmp_path: Path) -> None:
    page_path, table_path = write_similar(found, tmp_path / "out", "LLM")
    assert page_path == tmp_path / "out" / "similar.html"
    assert page_path.read_bytes() == similar_html(found, "LLM")
    assert table_path.read_bytes() == similar_csv(found)
    assert b"tiny-llm" in write_similar(found, tmp_path / "out")[0].read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(CourseError, match="can't write"):
        write_similar(found, tmp_path / "file")
