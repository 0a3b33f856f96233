"""Reads submissions in every form: folders, zip and tar files, git repositories; and what is refused of each."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from class_folders import COUNTING, FILES, as_folder, as_repository, as_tar, as_zip, git, torch_layout
from courses import make_course

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from grading.submissions import git_program
from grading.submissions.entries import Entry
from grading.submissions.layout import Layout
from grading.submissions.members import MIB, Bounds, Refused
from grading.submissions.reading import Clock, HandedIn, read_submission
from grading.submissions.starter import make_layouts
from grading.submissions.tars import XZ, ZSTANDARD
from grading.submissions.zips import DIRECTORY

FORMS: dict[str, Callable[[Path, dict[str, bytes]], Path]] = {
    "folder": as_folder,
    "zip": lambda path, files: as_zip(path.with_suffix(".zip"), files),
    "ZIP": lambda path, files: as_zip(path.with_suffix(".ZIP"), files),
    "tar": lambda path, files: as_tar(path.with_suffix(".tar"), files, how=""),
    "tar.gz": lambda path, files: as_tar(path.with_suffix(".tar.gz"), files, how="gz"),
    "tgz": lambda path, files: as_tar(path.with_suffix(".tgz"), files, how="gz"),
    "tar.bz2": lambda path, files: as_tar(path.with_suffix(".tar.bz2"), files, how="bz2"),
    "tar.xz": lambda path, files: as_tar(path.with_suffix(".tar.xz"), files, how="xz"),
    "git": as_repository,
    "git, SHA-256": lambda path, files: as_repository(path, files, "--object-format=sha256"),
}
ARCHIVES = ("zip", "tar", "tar.gz", "tar.xz")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return torch_layout(make_course(tmp_path / "course"))


def read(path: Path, layout: Layout, bounds: Bounds | None = None) -> HandedIn:
    return read_submission(Entry(path), [layout], bounds)


def refusal(path: Path, layout: Layout, bounds: Bounds | None = None) -> str:
    with pytest.raises(Refused) as caught:
        read(path, layout, bounds)
    return str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_files_that_count(form: str, tmp_path: Path, layout: Layout) -> None:
    files = {**FILES, "README.md": b"hello", "src/tiny_llm/shapes.py": b"x = 1\r\n", "tests/test_x.py": b""}
    handed = read(FORMS[form](tmp_path / "Jo Änn", files), layout)
    assert handed.files == {"tiny_llm/counting.py": COUNTING, "tiny_llm/shapes.py": b"x = 1\r\n"}
    assert handed.notes == ()


@pytest.mark.parametrize("form", FORMS)
def test_a_submission_without_a_file_that_counts_is_refused(
    form: str, tmp_path: Path, layout: Layout
) -> None:
    assert (
        refusal(FORMS[form](tmp_path / "a", {"x.txt": b"x"}), layout)
        == "it holds no file of tiny_llm that counts"
    )


@pytest.mark.parametrize("form", [form for form in FORMS if "git" not in form])
def test_an_empty_submission_is_refused(form: str, tmp_path: Path, layout: Layout) -> None:
    assert "holds no file" in refusal(FORMS[form](tmp_path / "a", {}), layout)


def test_an_empty_commit_is_refused(tmp_path: Path, layout: Layout) -> None:
    assert "holds no file" in refusal(as_repository(tmp_path / "a", {}), layout)


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_bounded_at_the_edge(form: str, tmp_path: Path, layout: Layout) -> None:
    path = FORMS[form](tmp_path / "a", FILES)
    assert read(path, layout, Bounds(size=len(COUNTING))).files
    assert "holds more than the" in refusal(path, layout, Bounds(size=len(COUNTING) - 1))


@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_of_several_files_are_added_up(form: str, tmp_path: Path, layout: Layout) -> None:
    path = FORMS[form](tmp_path / "a", {**FILES, "src/tiny_llm/shapes.py": b"x" * 100})
    assert "holds more than the" in refusal(path, layout, Bounds(size=len(COUNTING) + 99))


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_read_costs_nothing_of_the_bytes(form: str, tmp_path: Path, layout: Layout) -> None:
    path = FORMS[form](tmp_path / "a", {**FILES, "book/figure.svg": b"x" * 1000})
    assert read(path, layout, Bounds(size=len(COUNTING))).files


@pytest.mark.parametrize("form", FORMS)
def test_entries_are_bounded(form: str, tmp_path: Path, layout: Layout) -> None:
    path = FORMS[form](tmp_path / "a", {**FILES, **{f"x{n}": b"" for n in range(20)}})
    assert "more than 20 files and folders" in refusal(path, layout, Bounds(entries=20))


def test_the_second_track_needs_its_own_package_and_takes_the_first_as_well(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    layouts = make_layouts(course, load_manifest(course), Backend.MLX)
    mlx = {"src/tiny_llm_mlx/counting.py": b"y"}
    both = read_submission(Entry(as_folder(tmp_path / "a", {**FILES, **mlx})), layouts)
    assert both.files == {"tiny_llm/counting.py": COUNTING, "tiny_llm_mlx/counting.py": b"y"}
    assert read_submission(Entry(as_folder(tmp_path / "b", mlx)), layouts).files == {
        "tiny_llm_mlx/counting.py": b"y"
    }
    with pytest.raises(Refused, match="no file of tiny_llm_mlx that counts"):
        read_submission(Entry(as_folder(tmp_path / "c")), layouts)


def test_a_starter_is_made_from_the_reference_and_not_from_the_checkout(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    (course.starter() / "counting.py").write_text("edited", encoding="utf-8")
    layout = torch_layout(course)
    assert b"NotImplementedError" in layout.starter["counting.py"]
    assert layout.counted == {"counting.py", "shapes.py"}
    assert layout.given == {"__init__.py"}


def test_bombs_are_stopped_while_they_unpack(tmp_path: Path, layout: Layout) -> None:
    bomb = {"src/tiny_llm/counting.py": bytes(8 * MIB)}
    small = Bounds(size=MIB, unpacked=2 * MIB)
    assert "more than the 1 MiB" in refusal(as_zip(tmp_path / "a.zip", bomb), layout, small)
    assert "more than 2 MiB" in refusal(as_tar(tmp_path / "a.tar.gz", bomb), layout, small)
    assert "more than 2 MiB" in refusal(as_tar(tmp_path / "b.tar.gz", {"x": bytes(8 * MIB)}), layout, small)
    assert "more than the 1 MiB" in refusal(as_folder(tmp_path / "f", bomb), layout, small)


def test_a_zip_file_whose_header_lies_about_the_size_is_counted_as_it_unpacks(
    tmp_path: Path, layout: Layout
) -> None:
    path = as_zip(tmp_path / "a.zip", {"src/tiny_llm/counting.py": bytes(MIB)})
    content = bytearray(path.read_bytes())
    start = content.rindex(b"PK\x01\x02")
    content[start + 24 : start + 28] = struct.pack("<I", 10)  # what the list says of its size
    path.write_bytes(content)
    assert refusal(path, layout, Bounds(size=MIB - 1))


def test_a_zip_file_with_an_endless_list_is_refused_before_it_is_read(tmp_path: Path, layout: Layout) -> None:
    path = tmp_path / "a.zip"
    with open(path, "wb") as file:
        file.truncate(DIRECTORY + MIB)
        file.seek(0, io.SEEK_END)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, DIRECTORY + MIB, 0, 0))
    assert "list of files takes more than 16 MiB" in refusal(path, layout)


def test_an_encrypted_zip_file_is_refused(tmp_path: Path, layout: Layout) -> None:
    path = as_zip(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    start = content.rindex(b"PK\x01\x02")
    content[start + 8] |= 1
    path.write_bytes(content)
    assert refusal(path, layout) == "src/tiny_llm/counting.py is encrypted"


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o020644, 0o060644, 0o140644])
def test_links_and_devices_in_a_zip_file_are_refused(mode: int, tmp_path: Path, layout: Layout) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("src/tiny_llm/shapes.py")
        info.external_attr = mode << 16
        archive.writestr(info, "/etc/passwd")
        archive.writestr("src/tiny_llm/counting.py", COUNTING)
    expected = "a link" if mode == 0o120777 else "neither a file nor a folder"
    assert refusal(tmp_path / "a.zip", layout) == f"src/tiny_llm/shapes.py is {expected}"


def test_a_zip_file_may_list_folders_and_modes(tmp_path: Path, layout: Layout) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("src/", "")
        info = zipfile.ZipInfo("src\\tiny_llm\\counting.py")
        info.external_attr = 0o100755 << 16
        archive.writestr(info, COUNTING)
    assert read(tmp_path / "a.zip", layout).files == {"tiny_llm/counting.py": COUNTING}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_file_are_refused(kind: bytes, tmp_path: Path, layout: Layout) -> None:
    info = tarfile.TarInfo("src/tiny_llm/shapes.py")
    info.type, info.linkname = kind, "/etc/passwd"
    expected = "a link" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "neither a file nor a folder"
    assert (
        refusal(as_tar(tmp_path / "a.tar.gz", FILES, info), layout) == f"src/tiny_llm/shapes.py is {expected}"
    )


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "C:\\x"])
@pytest.mark.parametrize("form", ARCHIVES)
def test_an_archive_with_a_path_that_leads_out_is_refused(
    form: str, name: str, tmp_path: Path, layout: Layout
) -> None:
    path = FORMS[form](tmp_path / "a", {**FILES, name: b"x"})
    assert "absolute path" in refusal(path, layout) or "leads out" in refusal(path, layout)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([path.name, "course"])


@pytest.mark.parametrize("form", [*ARCHIVES, "git"])
def test_names_that_differ_only_in_case_are_refused(form: str, tmp_path: Path, layout: Layout) -> None:
    files = {**FILES, "src/tiny_llm/COUNTING.py": b"other"}
    assert "the same name for some systems" in refusal(FORMS[form](tmp_path / "a", files), layout)


@pytest.mark.parametrize("form", ["zip", "tar.gz", "tar.bz2", "tar.xz", "tar"])
def test_a_damaged_archive_is_refused(form: str, tmp_path: Path, layout: Layout) -> None:
    path = FORMS[form](tmp_path / "a", {**FILES, "src/tiny_llm/shapes.py": os.urandom(20_000)})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refusal(path, layout)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    if form != "tar":  # which has no sums over contents
        assert "can't be read" in refusal(path, layout)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.xz"])
@pytest.mark.parametrize("content", [b"", b"hello", gzip.compress(b"hello"), XZ, b"BZh"])
def test_a_file_that_is_no_archive_is_refused(
    name: str, content: bytes, tmp_path: Path, layout: Layout
) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path / name, layout)


@pytest.mark.parametrize("name", ["a.rar", "a.7Z", "a.tar.zst"])
def test_archives_that_nothing_here_reads_are_refused_with_advice(
    name: str, tmp_path: Path, layout: Layout
) -> None:
    (tmp_path / name).write_bytes(ZSTANDARD + b"xxxx")
    assert "pack it as .zip or .tar.gz" in refusal(tmp_path / name, layout)


def test_a_sum_that_does_not_fit_is_refused(tmp_path: Path, layout: Layout) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("src/tiny_llm/counting.py", COUNTING)
    content = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(content.replace(b"count_up", b"count_xx", 1))
    assert "can't be read: Bad CRC" in refusal(tmp_path / "a.zip", layout)


def test_links_and_pipes_in_a_folder_are_refused(tmp_path: Path, layout: Layout) -> None:
    secret = as_folder(tmp_path / "secret", {"counting.py": b"the reference"})
    for number, (name, target) in enumerate(
        [
            ("src/tiny_llm/shapes.py", secret / "counting.py"),
            ("src/other", secret),
            ("gone", tmp_path / "nowhere"),
        ]
    ):
        path = as_folder(tmp_path / f"a{number}")
        (path / name).symlink_to(target)
        assert refusal(path, layout) == f"{name} is a link"
    path = as_folder(tmp_path / "pipe")
    os.mkfifo(path / "src/tiny_llm/shapes.py")
    assert "is neither a file nor a folder" in refusal(path, layout)


def test_a_submission_that_is_a_link_is_refused(tmp_path: Path, layout: Layout) -> None:
    (tmp_path / "a").symlink_to(as_folder(tmp_path / "b"))
    (tmp_path / "a.zip").symlink_to(as_zip(tmp_path / "b.zip"))
    assert refusal(tmp_path / "a", layout) == refusal(tmp_path / "a.zip", layout) == "it is a link"


def test_folders_that_are_passed_over_are_not_entered(tmp_path: Path, layout: Layout) -> None:
    path = as_folder(tmp_path / "a", {**FILES, **{f".venv/lib/{n}": b"" for n in range(50)}})
    (path / ".venv/python").symlink_to("/usr/bin/python3")
    assert read(path, layout, Bounds(entries=10)).files == {"tiny_llm/counting.py": COUNTING}


def test_names_in_a_folder_may_be_strange(tmp_path: Path, layout: Layout) -> None:
    path = as_folder(tmp_path / "Ä\nb  [red]", {**FILES, "x\n\u202e.py": b"", "ü" * 127: b""})
    (Path(os.fsencode(path).decode("utf-8", "surrogateescape")) / "\udcff.py").write_bytes(b"")
    assert read(path, layout).files == {"tiny_llm/counting.py": COUNTING}


def test_the_only_archive_in_a_folder_is_the_submission(tmp_path: Path, layout: Layout) -> None:
    path = as_folder(tmp_path / "Jo_1_assignsubmission_file_", {"readme.txt": b""})
    as_zip(path / "tiny llm.zip")
    assert read(path, layout).files == {"tiny_llm/counting.py": COUNTING}
    as_zip(path / "second.zip")
    assert "holds no file" in refusal(path, layout)


def test_an_archive_in_an_archive_is_not_opened(tmp_path: Path, layout: Layout) -> None:
    inner = as_zip(tmp_path / "inner.zip").read_bytes()
    assert "holds no file" in refusal(as_zip(tmp_path / "a.zip", {"inner.zip": inner}), layout)


def test_a_bomb_in_a_folder_is_bounded_as_others_are(tmp_path: Path, layout: Layout) -> None:
    path = as_folder(tmp_path / "a", {})
    as_zip(path / "b.zip", {"src/tiny_llm/counting.py": bytes(2 * MIB)})
    assert "more than the 1 MiB" in refusal(path, layout, Bounds(size=MIB))


def test_a_changed_given_file_is_noted_and_not_taken(tmp_path: Path, layout: Layout) -> None:
    files = {**FILES, "src/tiny_llm/__init__.py": b"import os\n"}
    handed = read(as_folder(tmp_path / "a", files), layout)
    assert "tiny_llm/__init__.py" not in handed.files
    assert handed.notes == (
        "tiny_llm: given files that were changed, so the course's are taken: __init__.py",
    )


def test_line_ends_of_given_files_are_no_change(tmp_path: Path) -> None:
    layout = Layout("tiny_llm", {"a.py": b"", "b.py": b"x\ny\n"}, frozenset({"a.py"}))
    path = as_folder(tmp_path / "a", {"tiny_llm/a.py": b"", "tiny_llm/b.py": b"x\r\ny\r\n"})
    assert read(path, layout).notes == ()


def test_files_of_the_learners_own_are_noted_and_not_taken(tmp_path: Path, layout: Layout) -> None:
    own = {f"src/tiny_llm/own{n}.py": b"" for n in range(7)}
    handed = read(as_folder(tmp_path / "a", {**FILES, **own, "src/tiny_llm/notes.txt": b""}), layout)
    assert list(handed.files) == ["tiny_llm/counting.py"]
    assert handed.notes == (
        "tiny_llm: not files of the course, so not taken: own0.py, own1.py, own2.py, own3.py, own4.py and 2 more",
    )


def test_what_is_broken_but_text_is_taken_as_it_is(tmp_path: Path, layout: Layout) -> None:
    for content in (b"def f(:\n", b"# caf\xe9\n", b"x" * MIB, b"", b"\xef\xbb\xbfx = 1\r\n"):
        path = as_folder(tmp_path / sha256(content).hexdigest(), {"tiny_llm/counting.py": content})
        assert read(path, layout).files == {"tiny_llm/counting.py": content}


def test_what_is_no_text_is_noted_and_not_taken(tmp_path: Path, layout: Layout) -> None:
    handed = read(as_folder(tmp_path / "a", {"tiny_llm/counting.py": "é".encode("utf-16")}), layout)
    assert handed.files == {}
    assert handed.notes == ("tiny_llm: not text, so the starter's are taken: counting.py",)


def test_the_hash_tells_names_and_contents_apart(tmp_path: Path) -> None:
    def content(files: dict[str, bytes]) -> str:
        return HandedIn(files, (), datetime.now(UTC), Clock.FILE).content

    assert content({"a": b"b", "c": b"d"}) == content({"c": b"d", "a": b"b"})
    others = [{"a": b"b"}, {"a": b"d", "c": b"b"}, {"ab": b"", "c": b"d"}, {"a": b"bc", "d": b""}, {}]
    assert len({content(files) for files in [{"a": b"b", "c": b"d"}, *others]}) == 6


def test_the_time_of_a_folder_is_that_of_its_newest_file(tmp_path: Path, layout: Layout) -> None:
    path = as_zip(tmp_path / "a.zip")
    os.utime(path, (5, 1_700_000_000))
    assert read(path, layout).submitted == datetime.fromtimestamp(1_700_000_000, UTC)
    assert read(path, layout).clock is Clock.FILE
    folder = as_folder(tmp_path / "a", {**FILES, "src/tiny_llm/shapes.py": b"", "newest.txt": b""})
    os.utime(folder / "src/tiny_llm/counting.py", (5, 1_600_000_000))
    os.utime(folder / "src/tiny_llm/shapes.py", (5, 1_600_000_500))
    assert read(folder, layout).submitted == datetime.fromtimestamp(1_600_000_500, UTC)


def test_the_time_of_a_repository_is_that_of_its_commit(tmp_path: Path, layout: Layout) -> None:
    handed = read(as_repository(tmp_path / "a"), layout)
    assert handed.submitted == datetime.fromtimestamp(1_770_000_000, UTC)
    assert handed.clock is Clock.COMMIT


def test_only_what_is_committed_counts(tmp_path: Path, layout: Layout) -> None:
    path = as_repository(tmp_path / "a")
    as_folder(path, {"src/tiny_llm/counting.py": b"later", "src/tiny_llm/shapes.py": b"untracked"})
    assert read(path, layout).files == {"tiny_llm/counting.py": COUNTING}


def test_without_git_a_repository_is_the_instructors_matter(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = as_repository(tmp_path / "a")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CourseError, match="install git to grade repositories"):
        read(path, layout)


def test_git_is_ended_when_it_takes_too_long(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = as_repository(tmp_path / "a")
    blob = git(path, "rev-parse", "HEAD")
    loose = path / ".git/objects" / blob[:2] / blob[2:]
    loose.unlink()
    os.mkfifo(loose)  # git waits for somebody who writes into it
    monkeypatch.setattr(git_program, "SECONDS", 0.2)
    assert "can't be read" in refusal(path, layout)
