"""Tests of submissions that can't be read, or not whole: they stop nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from similar_code import (
    REFS,
    module,
    package,
    starter,
    written,
)

from coursekit.errors import CourseError
from coursekit.manifest import FunctionRef
from grading.similarity import Similarity, find_similar


def find(tmp_path: Path, sources: Mapping[str, str | bytes], **options: object) -> Similarity:
    """What is found among packages with these files."""
    packages = {name: package(tmp_path / "in" / name, source) for name, source in sources.items()}
    return find_similar(packages, starter(tmp_path / "starter"), REFS, **options)  # type: ignore[arg-type]


def named(found: Similarity) -> list[tuple[str, str]]:
    return [(pair.first, pair.second) for pair in found.pairs]


def test_a_file_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    sources: dict[str, str | bytes] = {
        "a": module(written(1)),
        "b": module(written(1)),
        "broken": "def softmax(x:\n",
        "latin": "# é".encode("latin-1"),
        "null": "x = 1\0",
        "deep": "def softmax(x):\n    return " + "(" * 5_000 + "x" + ")" * 5_000,
        "long": "def softmax(x):\n    return " + "-" * 50_000 + "x",
        "branches": "if x:\n    pass\n" + "elif x:\n    pass\n" * 3_000,
        "large": "#" * 1_000_001,
    }
    found = find(tmp_path, sources)
    assert named(found) == [("a", "b")]
    assert {each.submission for each in found.unread} == set(sources) - {"a", "b"}
    why = {each.submission: each.why for each in found.unread}
    assert why["broken"].startswith("attention.py:1: syntax error")
    assert why["latin"] == "attention.py is not UTF-8 text: save it as UTF-8"
    assert why["large"] == "attention.py is larger than 1,000,000 bytes"
    assert {each.file for each in found.unread} == {"attention.py"}


def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    other = package(tmp_path / "other", module(written(1)))
    for name in ("file", "folder", "pipe", "inside"):
        (tmp_path / name).mkdir()
    (tmp_path / "file" / "attention.py").symlink_to(other / "attention.py")
    (tmp_path / "folder" / "attention.py").mkdir()
    os.mkfifo(tmp_path / "pipe" / "attention.py")
    (tmp_path / "inside" / "sub").symlink_to(other)
    refs = [*REFS, FunctionRef("sub/attention.py", "softmax")]
    packages = {name: tmp_path / name for name in ("other", "file", "folder", "pipe", "inside")}
    found = find_similar(packages, starter(tmp_path / "starter"), refs)
    assert {(each.submission, each.why) for each in found.unread} == {
        ("file", "attention.py is a link, which isn't followed"),
        ("folder", "attention.py is not a file"),
        ("pipe", "attention.py is not a file"),
        ("inside", "sub/attention.py is a link, which isn't followed"),
    }


def test_a_broken_starter_is_an_error(tmp_path: Path) -> None:
    broken = package(tmp_path / "broken", "def (")
    with pytest.raises(CourseError, match=r"attention\.py:1: syntax error"):
        find_similar({"a": broken}, broken, REFS)


def test_no_submissions_and_one_have_no_pairs(tmp_path: Path) -> None:
    assert find_similar({}, starter(tmp_path / "s"), REFS) == Similarity((), 0, {}, ())
    assert find(tmp_path, {"a": module(written(1))}).pairs == ()
    assert find_similar({"a": tmp_path / "in" / "a"}, tmp_path / "no starter", []).own == {"a": 0}
