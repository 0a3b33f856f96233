"""What a confined process may use, and where it may read and write: plain records."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from coursekit.errors import CourseError

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Limits:
    """What the command may use together with all that it starts. Beyond a limit, all of it is ended.

    A single process that asks for more than ``memory`` is refused it (Python raises ``MemoryError``). A single file
    can't become larger than ``scratch_bytes``.

    Raises:
        CourseError: a limit isn't above 0.
    """

    memory: int = 4 * GIB
    """Bytes that are resident."""
    cpu_seconds: float = 600
    seconds: float = 900
    """By the clock on the wall."""
    processes: int = 512
    """Processes and threads, counted together."""
    open_files: int = 512
    """Of each process."""
    scratch_bytes: int = GIB
    """In the scratch folder."""
    scratch_files: int = 20_000
    """Files and folders in the scratch folder."""
    output_bytes: int = 64 << 10
    """Of what it prints, this much is kept: the first half and the last. The rest is dropped."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise CourseError(
                    f"the limit {field.name} is {getattr(self, field.name)}; it has to be above 0"
                )


@dataclass(frozen=True)
class Rooms:
    """The folders (or files) that the command may read, and the one folder that it may write to.

    The environment of this Python and the libraries of the system may be read in any case.
    """

    read: tuple[Path, ...]
    scratch: Path

    def places(self) -> list[Path]:
        """``read``, each as it is named and, where that leads over a symbolic link, as what it is; shorter ones
        first.

        Raises:
            CourseError: one doesn't exist, or the scratch folder is none.
        """
        for path in self.read:
            if not path.exists():
                raise CourseError(f"there is no {path} for the confined process to read")
        if not self.scratch.is_dir():
            raise CourseError(f"the scratch folder {self.scratch} is not a folder")
        return named_and_real(self.read)


def named_and_real(paths: tuple[Path, ...] | list[Path]) -> list[Path]:
    """Each path, absolute, both as it is named and with symbolic links followed; none twice, shorter ones first."""
    both = {way for path in paths for way in (path.absolute(), path.resolve())}
    return sorted(both, key=lambda path: (len(path.parts), path))
