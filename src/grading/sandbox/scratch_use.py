"""How much of the disk a confined process uses."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 512  # the unit of st_blocks


class HiddenFilesError(Exception):
    """A folder can't be looked into, so what is in it can't be counted."""


@dataclass(frozen=True)
class Use:
    """Bytes on the disk, and files and folders."""

    bytes: int
    files: int


def of_folder(folder: Path, most_files: int) -> Use:
    """All that is below a folder, without following links; no further once there are more than ``most_files``.

    Raises:
        HiddenFilesError: a folder below it has no leave to be read, or too long a path.
    """
    used = files = 0
    left = [str(folder)]
    while left and files <= most_files:
        for entry in _entries(left.pop()):
            status = _status(entry)
            if status is None:
                continue
            files += 1
            used += status.st_blocks * _BLOCK
            if stat.S_ISDIR(status.st_mode):
                left.append(entry.path)
            if files > most_files:
                break
    return Use(used, files)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []  # gone since
    except OSError as error:
        raise HiddenFilesError(str(error)) from error


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HiddenFilesError(str(error)) from error


def of_deleted_files(pids: Iterable[int], folder: Path) -> int:
    """Bytes of files without a name that are open, or are mapped and were in ``folder`` (Linux; elsewhere 0)."""
    open_ones: dict[tuple[int, int], int] = {}
    mapped: dict[tuple[int, int], int] = {}
    for pid in pids:
        for status in _open_files(f"/proc/{pid}/fd"):
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                open_ones[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
        for file, length in _mapped_files(pid, folder):
            mapped[file] = max(length, mapped.get(file, 0))
    return sum({**mapped, **open_ones}.values())


def _mapped_files(pid: int, folder: Path) -> Iterator[tuple[tuple[int, int], int]]:
    """Deleted files of a folder that a process has in its memory: device and number, and how far that reaches."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if line.endswith(" (deleted)") and f" {folder}/" in line:
            addresses, _, offset, device, number, _ = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in addresses.split("-"))
            major, minor = (int(part, 16) for part in device.split(":"))
            yield (os.makedev(major, minor), int(number)), int(offset, 16) + end - start


def _open_files(folder: str) -> Iterator[os.stat_result]:
    """What a process has open; files that are closed meanwhile are left out, and all if the process has ended."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield os.stat(f"{folder}/{name}")


def files_of_private(folder: Path, pids: Iterable[int]) -> int:
    """Files and folders in a scratch folder that is a file system of its own, seen through a process that has it
    mounted.

    0 where no process has it (any more).
    """
    here = os.stat(folder).st_dev
    for pid in pids:
        inside = f"/proc/{pid}/root{folder}"
        try:
            if os.stat(inside).st_dev != here:
                system = os.statvfs(inside)
                return system.f_files - system.f_ffree
        except OSError:
            continue
    return 0
