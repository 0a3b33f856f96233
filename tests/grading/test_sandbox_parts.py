"""The parts of the sandbox that need no process to be shut in."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest
from confinement import SMALL, bystander

from grading.sandbox import scratch_use, tree
from grading.sandbox.ending import Cause, Ending, in_words
from grading.sandbox.limits import GIB, Limits, named_and_real
from grading.sandbox.output import Kept
from grading.sandbox.plan import Entry, Landlock, Plan
from grading.sandbox.tree import Process

KEPT_PARTS = [
    ([b"abc"], "abc"),
    ([b"abcdefgh"], "abcdefgh"),
    ([b"abcdefghi"], "abcd\n[1 bytes are left out here]\nfghi"),
    ([b"ab", b"cd", b"ef", b"gh"], "abcdefgh"),
    ([b"ab", b"cdefghijk", b"l"], "abcd\n[4 bytes are left out here]\nijkl"),
    ([b"abcd", b"x" * 5000, b"efgh", b"ijkl"], "abcd\n[5,004 bytes are left out here]\nijkl"),
    ([*[b"x"] * 2000, b"yz"], "xxxx\n[1,994 bytes are left out here]\nxxyz"),
    ([], ""),
    ([b"a\xff\xc3\xbc"], "a�ü"),
]


@pytest.mark.parametrize(("parts", "text"), KEPT_PARTS)
def test_of_output_the_first_half_and_the_last_are_kept(parts: list[bytes], text: str) -> None:
    kept = Kept(8)
    for part in parts:
        kept.take(part)
    assert kept.text() == text


def test_an_odd_number_of_bytes_is_kept_in_full() -> None:
    kept = Kept(3)
    for byte in b"abcdef":
        kept.take(bytes([byte]))
    assert kept.text() == "a\n[3 bytes are left out here]\nef"


WORDS = [
    (Ending(Cause.ITSELF, code=0), "ended itself with exit code 0"),
    (Ending(Cause.ITSELF, signal=9), "was ended by the signal SIGKILL"),
    (Ending(Cause.ITSELF, signal=99), "was ended by the signal 99"),
    (Ending(Cause.KILLED), "was ended: it was no longer needed"),
    (Ending(Cause.MEMORY), "was ended: it used more than 2.5 GiB of memory"),
    (Ending(Cause.CPU), "was ended: it used more than 1.5 s of CPU time"),
    (Ending(Cause.SECONDS), "was ended: it took more than 600 s"),
    (Ending(Cause.PROCESSES), "was ended: it had more than 1,000 processes and threads"),
    (Ending(Cause.SCRATCH), "was ended: it wrote more than 300 bytes into its folder"),
    (Ending(Cause.FILES), "was ended: it had more than 20,000 files in its folder"),
    (Ending(Cause.HIDDEN), "was ended: it made a folder that can't be looked into"),
    (Ending(Cause.LOST), "was ended: the process that guards it was ended from outside"),
]


@pytest.mark.parametrize(("ending", "words"), WORDS)
def test_each_end_has_words(ending: Ending, words: str) -> None:
    limits = Limits(memory=5 * GIB // 2, cpu_seconds=1.5, seconds=600, processes=1000, scratch_bytes=300)
    assert in_words(ending, limits) == words


def test_each_cause_has_words() -> None:
    for cause in Cause:
        assert in_words(Ending(cause), SMALL)


def test_a_plan_is_the_same_after_its_travel() -> None:
    entry = Entry(("a", "b"), {"c": "d"}, "/e", {"f": 1}, Landlock(("g",), ("h",), "i"), "00")
    plan = Plan(entry, SMALL, "/e", ("j",), True, True, (3, 4))
    back = Plan.from_json(plan.to_json())
    assert back == plan


def test_a_program_may_have_any_name_in_the_list_of_processes() -> None:
    fields = [
        "S",
        "7",
        *"0000000",
        "0",
        "0",
        "100",
        "200",
        "300",
        "400",
        "20",
        "0",
        "5",
        "0",
        "99",
        "1000",
        "3",
    ]
    line = f"12 (a) b (S 1 c\n) {' '.join(fields)} 0 0".encode()
    found = tree.parse_stat(line)
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert found == Process(12, 7, 3 * page, 1000 / ticks, 5)


def test_descendants_come_after_their_parents_and_others_do_not() -> None:
    parents = {5: 1, 6: 5, 7: 6, 8: 5, 9: 2, 1: 0}
    every = [Process(pid, parent, 0, 0, 1) for pid, parent in parents.items()]
    found = [process.pid for process in tree.below(5, every)]
    assert sorted(found) == [6, 7, 8]
    assert found.index(6) < found.index(7)
    assert tree.below(7, every) == []


def test_a_process_that_was_started_is_found_with_what_it_uses() -> None:
    with bystander() as process:
        found = {one.pid: one for one in tree.descendants(os.getpid())}[process.pid]
    assert found.parent == os.getpid()
    assert found.threads == 1
    assert found.memory < GIB


@pytest.mark.parametrize(
    ("clock", "seconds"), [("0:00.25", 0.25), ("1:02.50", 62.5), ("1:02:03", 3723), ("2-03:04:05", 183845)]
)
def test_a_time_of_ps_is_read(clock: str, seconds: float) -> None:
    assert tree.seconds(clock) == seconds


def test_memory_counts_as_it_seems_below_the_limit() -> None:
    processes = [Process(-1, 0, 60, 0, 1), Process(-2, 0, 60, 0, 1)]
    assert tree.memory(processes, 200) == 120
    assert tree.memory(processes, 100) == 120  # that can't be asked about


def test_files_and_folders_below_a_folder_count_and_links_are_not_followed(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "large").write_bytes(bytes(1 << 20))
    (folder := tmp_path / "folder").mkdir()
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_bytes(b"x" * 100_000)
    (folder / "link").symlink_to(outside)
    use = scratch_use.of_folder(folder, 100)
    assert use.files == 3
    assert 100_000 <= use.bytes < 200_000
    assert scratch_use.of_folder(folder / "sub" / "nowhere", 100) == scratch_use.Use(0, 0)


def test_counting_stops_one_beyond_the_limit(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert scratch_use.of_folder(tmp_path, 10).files == 11
    assert scratch_use.of_folder(tmp_path, 50).files == 50


def test_a_folder_that_is_too_deep_is_told(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=here)
        below = os.open("x" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(scratch_use.HiddenFilesError):
        scratch_use.of_folder(tmp_path, 100)


def test_open_files_without_a_name_count_once_and_others_do_not(tmp_path: Path) -> None:
    with open(tmp_path / "gone", "wb") as gone, open(tmp_path / "there", "wb") as there:
        before = scratch_use.of_deleted_files([os.getpid()], tmp_path)
        for file in (gone, there):
            file.write(b"x" * 1_000_000)
            file.flush()
            os.fsync(file.fileno())
        os.unlink(gone.name)
        again = os.dup(gone.fileno())
        used = scratch_use.of_deleted_files([os.getpid(), -1], tmp_path) - before
        os.close(again)
    assert 1_000_000 <= used < 1_100_000


LIBRARY = ctypes.CDLL(None)
LIBRARY.mmap.restype = ctypes.c_void_p


def _map(descriptor: int, length: int, offset: int) -> int:
    address = LIBRARY.mmap(
        None, ctypes.c_size_t(length), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_long(offset)
    )
    return int(address)


def test_mapped_files_without_a_name_count_where_they_lie_in_the_folder(tmp_path: Path) -> None:
    before = scratch_use.of_deleted_files([os.getpid()], tmp_path)
    with open(tmp_path / "gone", "w+b") as file:
        file.truncate(1 << 20)
        # Python's own mmap would keep the file open.
        memory = _map(file.fileno(), 1 << 19, 1 << 18)
        again = _map(file.fileno(), 1 << 18, 0)
    assert scratch_use.of_deleted_files([os.getpid()], tmp_path) == before
    os.unlink(tmp_path / "gone")
    assert scratch_use.of_deleted_files([os.getpid()], tmp_path) - before >= (1 << 19) + (1 << 18)
    assert scratch_use.of_deleted_files([os.getpid()], tmp_path / "other") == before
    LIBRARY.munmap(ctypes.c_void_p(memory), ctypes.c_size_t(1 << 19))
    LIBRARY.munmap(ctypes.c_void_p(again), ctypes.c_size_t(1 << 18))
    assert scratch_use.of_deleted_files([os.getpid()], tmp_path) == before


def test_the_files_of_a_private_folder_are_unknown_where_there_is_none(tmp_path: Path) -> None:
    assert scratch_use.files_of_private(tmp_path, [os.getpid(), -1]) == 0


def test_a_path_that_leads_over_a_link_stands_in_both_forms(tmp_path: Path) -> None:
    (real := tmp_path / "a" / "real").mkdir(parents=True)
    (link := tmp_path / "link").symlink_to(real)
    assert named_and_real([link, real, link]) == [link.absolute(), real.resolve()]
