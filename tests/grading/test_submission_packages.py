"""Where in a submission the learner's package is found, and which entries of a folder are submissions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from class_folders import as_folder, as_zip

from coursekit.errors import CourseError
from grading.submissions.choosing import find_files, strangers
from grading.submissions.entries import Entry, archive_ending, list_entries
from grading.submissions.layout import Layout
from grading.submissions.members import Refused

LAYOUT = Layout(
    "tiny_llm",
    {"a.py": b"", "given.py": b"", "deep/b.py": b"", "deep/a.py": b"", "deep/given.py": b""},
    frozenset({"a.py", "deep/b.py", "deep/a.py"}),
)


@pytest.mark.parametrize(
    "around", ["", "src/", "clone/", "clone/src/", "learner/clone/src/", "learner/clone/", "a b/ü/"]
)
def test_the_package_is_found_up_to_two_folders_deeper(around: str) -> None:
    paths = [f"{around}tiny_llm/a.py", f"{around}tiny_llm/deep/b.py", f"{around}tiny_llm/own.py", "README.md"]
    assert find_files(paths, LAYOUT) == {
        "a.py": paths[0],
        "deep/b.py": paths[1],
        "own.py": paths[2],
    }


def test_a_package_that_lies_deeper_is_not_taken() -> None:
    assert find_files(["x/y/z/tiny_llm/a.py", "README.md"], LAYOUT) == {}
    assert find_files(["x/y/z/src/tiny_llm/a.py", "README.md"], LAYOUT) == {}


def test_a_clone_has_the_reference_too_which_is_not_taken() -> None:
    paths = ["clone/solutions/tiny_llm/a.py", "clone/src/tiny_llm/a.py"]
    assert find_files(paths, LAYOUT) == {"a.py": paths[1]}
    assert find_files([paths[0], "README.md"], LAYOUT) == {}


def test_the_package_in_src_comes_before_one_beside_it_and_the_upper_before_the_deeper() -> None:
    assert find_files(["tiny_llm/a.py", "src/tiny_llm/a.py"], LAYOUT) == {"a.py": "src/tiny_llm/a.py"}
    assert find_files(["tiny_llm/a.py", "x/src/tiny_llm/a.py"], LAYOUT) == {"a.py": "tiny_llm/a.py"}


def test_two_packages_that_are_as_good_as_each_other_are_refused() -> None:
    with pytest.raises(Refused, match=r"holds tiny_llm twice: x/src/tiny_llm and y/src/tiny_llm"):
        find_files(["y/src/tiny_llm/a.py", "x/src/tiny_llm/a.py"], LAYOUT)


def test_a_folder_of_the_name_without_a_file_that_counts_is_no_package() -> None:
    paths = ["src/tiny_llm/given.py", "x/src/tiny_llm/deep/b.py"]
    assert find_files(paths, LAYOUT) == {"deep/b.py": paths[1]}
    assert find_files(["src/tiny_llm/given.py"], LAYOUT) == {}


@pytest.mark.parametrize("around", ["", "day 1/", "x/y/z/"])
def test_loose_files_are_found_at_the_top_or_in_the_only_folder(around: str) -> None:
    paths = [f"{around}a.py", f"{around}deep/b.py", f"{around}given.py", f"{around}notes.txt"]
    assert find_files(paths, LAYOUT) == {
        "a.py": paths[0],
        "deep/b.py": paths[1],
        "given.py": paths[2],
    }


def test_a_loose_file_whose_folder_is_gone_is_known_by_its_name_if_there_is_one_of_that_name() -> None:
    assert find_files(["b.py", "notes.txt"], LAYOUT) == {"deep/b.py": "b.py"}
    assert find_files(["b.py", "deep/b.py"], LAYOUT) == {"deep/b.py": "deep/b.py"}
    assert find_files(["a.py"], LAYOUT) == {"a.py": "a.py"}
    assert LAYOUT.by_name == {"b.py": "deep/b.py"}


def test_loose_given_files_alone_are_nothing() -> None:
    assert find_files(["given.py", "notes.txt"], LAYOUT) == {}
    assert find_files([], LAYOUT) == {}


def test_loose_files_in_several_folders_are_nothing() -> None:
    assert find_files(["x/a.py", "y/deep/b.py"], LAYOUT) == {}


def test_files_of_the_other_track_are_not_taken_for_loose_ones() -> None:
    assert find_files(["src/tiny_llm_mlx/a.py"], LAYOUT) == {}
    assert find_files(["tiny_llm_mlx/a.py"], LAYOUT) == {}


def test_loose_files_are_not_looked_at_where_they_can_not_be_meant() -> None:
    assert find_files(["a.py"], LAYOUT, may_be_loose=False) == {}
    assert find_files(["src/tiny_llm/a.py"], LAYOUT, may_be_loose=False)


def test_strangers_are_python_files_that_the_course_does_not_know() -> None:
    assert strangers(["z.py", "a.py", "deep/z.py", "notes.txt", "given.py"], LAYOUT) == ["deep/z.py", "z.py"]


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("a.zip", ".zip"),
        ("a.TAR.GZ", ".tar.gz"),
        ("a.b.tgz", ".tgz"),
        ("a.tar", ".tar"),
        ("a.gz", ""),
        ("a.py", ""),
    ],
)
def test_an_archive_is_known_by_its_ending(name: str, ending: str) -> None:
    assert archive_ending(name) == ending


@pytest.mark.parametrize(
    ("name", "stem"), [("a.tar.gz", "a"), ("a.b.ZIP", "a.b"), (".zip", ".zip"), ("ä b.7z", "ä b")]
)
def test_the_stem_of_an_archive_is_its_name_without_the_ending(name: str, stem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    assert Entry(tmp_path / name).stem == stem


def test_the_stem_of_a_folder_is_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.zip").mkdir()
    assert Entry(tmp_path / "a.zip").stem == "a.zip"


def test_folders_and_archives_are_submissions_and_other_files_are_named(tmp_path: Path) -> None:
    as_folder(tmp_path / "b")
    as_zip(tmp_path / "a.zip")
    (tmp_path / "c.RAR").write_bytes(b"")
    (tmp_path / "link.zip").symlink_to("nowhere")
    for name in ("notes.txt", ".DS_Store", "course.toml", "roster.csv"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".git").mkdir()
    entries, others = list_entries(tmp_path, [tmp_path / "x/../course.toml", tmp_path / "roster.csv"])
    assert [entry.name for entry in entries] == ["a.zip", "b", "c.RAR", "link.zip"]
    assert others == ["notes.txt"]


def test_a_folder_without_submissions_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    with pytest.raises(CourseError, match="holds no submission"):
        list_entries(tmp_path, [])
    with pytest.raises(CourseError, match="can't read the folder"):
        list_entries(tmp_path / "nowhere", [])
    with pytest.raises(CourseError, match="can't read the folder"):
        list_entries(tmp_path / "notes.txt", [])


@pytest.mark.parametrize("package", ["tiny_llm", "src/tiny_llm", "src/tiny_llm_mlx"])
def test_one_submission_is_not_taken_for_a_class(package: str, tmp_path: Path) -> None:
    os.makedirs(tmp_path / package)
    with pytest.raises(CourseError, match="looks like one submission"):
        list_entries(tmp_path, [])
