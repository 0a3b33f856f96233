"""The documents of `pdm run ask-documents`: which files are read, in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from coursekit.errors import CourseError
from programs import document_files
from programs.document_files import natural, read_documents


def make(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_", " ").replace(" dot ", ".")).write_text(text, encoding="utf-8")
    return folder


def test_a_folder_stands_for_its_text_files_in_the_natural_order_of_their_names(tmp_path: Path) -> None:
    folder = make(
        tmp_path / "notes",
        note_10_dot_md="ten",
        note_2_dot_txt="two",
        Note_3_dot_MARKDOWN="three",
        note_1_dot_pdf="left out",
    )
    (folder / ".hidden.txt").write_text("left out")
    make(folder / "inner.txt", a_dot_txt="left out")
    assert [each.text for each in read_documents([folder])] == ["two", "three", "ten"]


def test_files_stay_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    folder = make(tmp_path / "notes", b_dot_txt="b", a_dot_txt="a", c="c")
    paths = [folder / "c", folder / "b.txt", folder, folder / "b.txt"]
    read = read_documents(paths)
    assert [each.text for each in read] == ["c", "b", "a", "b", "b"]
    assert read[0].name == str(folder / "c")


def test_names_with_and_without_numbers_can_be_sorted_together() -> None:
    names = ["b", "10", "2b", "a10", "a9", "", "2", "A9", "a09"]
    ordered = sorted(names, key=natural)
    assert ordered.index("2") < ordered.index("2b") < ordered.index("10") < ordered.index("a9")
    assert ordered.index("a9") < ordered.index("a10") < ordered.index("b")
    names.reverse()
    assert sorted(names, key=natural) == ordered, "the order is the same, however the files come"


def test_a_mark_at_the_start_line_ends_of_windows_and_space_around_the_text_are_left_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf\r\none\r\ntwo\r\n \r\n")
    assert read_documents([path])[0].text == "one\ntwo"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "{} is empty"),
        (b" \n\t\n", "{} is empty"),
        (b"abc\xff", "{} is not text in UTF-8: byte 4 has no meaning there"),
        (b"PK\0\1", "{} is not text: it has bytes that are 0"),
    ],
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for given in (path, tmp_path):
        with pytest.raises(CourseError) as refused:
            read_documents([given])
        assert str(refused.value) == message.format(path)


def test_what_is_not_there_and_a_folder_without_text_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"there is no file or folder .*none\.txt"):
        read_documents([tmp_path / "none.txt"])
    with pytest.raises(CourseError, match=r"has no text files \(\.txt, \.md, \.markdown\)"):
        read_documents([tmp_path])
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(CourseError, match=r"can't read x+: .*too long"):
        read_documents([Path("x" * 5000)])
    with pytest.raises(CourseError, match=r"can't read .*Not a directory"):
        read_documents([tmp_path / "a.txt" / "b.txt"])


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_files, "MOST_BYTES", 3)
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "b.txt").write_text("abcd")
    assert read_documents([tmp_path / "a.txt"])[0].text == "abc"
    with pytest.raises(CourseError, match=r"b\.txt is larger than"):
        read_documents([tmp_path])
