"""The folder that a run writes into: marks that are there already, and a lock that keeps other runs out."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from coursekit.errors import CourseError
from grading.marks import Marks, read_marks
from grading.running.rules import Rules, Surveyed

LETTERS = 60


@dataclass(frozen=True)
class Kept:
    """The results of a class, in one folder.

    ``marks`` has a file for each submission, written as soon as it is graded; ``work`` is there only during a run.
    """

    folder: Path

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    @property
    def work(self) -> Path:
        return self.folder / ".work"

    def target(self, submission: str) -> Path:
        """The file for the marks of a submission, by the name of its entry."""
        return self.marks / f"{_file_name(submission)}.json"

    def find(self, surveyed: Surveyed, rules: Rules) -> Marks | None:
        """The marks that a submission has already: of the same files, tests and seed; else None.

        Those that were earned without isolation hold only for a run that allows it.
        Learner, time and notes are those of today: the roster may have changed.
        """
        target = self.target(surveyed.entry.name)
        if surveyed.refusal or not target.is_file():
            return None
        try:
            marks = read_marks(target)
        except CourseError:
            return None
        known = (marks.content, marks.course, marks.draw)
        if known != (surveyed.content, rules.course_hash, rules.draw) or marks.refusal:
            return None
        if marks.without_isolation and not rules.without_isolation:
            return None
        return replace(marks, student=surveyed.student, submitted=surveyed.submitted, notes=surveyed.notes)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Within it, no other run writes here; what a run that was killed has left half done is removed.

        Raises:
            CourseError: another run is at work, or the folder can't be written.
        """
        lock = FileLock(self.folder / ".lock", timeout=0)
        try:
            self.marks.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise CourseError(
                f"another run is writing into {self.folder}: wait for it, or name another folder with --out"
            ) from None
        except OSError as error:
            raise CourseError(f"can't write into {self.folder}: {error.strerror}") from error
        try:
            self._clean()
            yield
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
            lock.release()

    def _clean(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        try:
            self.work.mkdir()
            for temporary in self.marks.glob(".*.tmp"):
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise CourseError(f"can't write into {self.folder}: {error.strerror}") from error


def _file_name(name: str) -> str:
    """For any name one of its own, which every file system takes."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LETTERS]
    return f"{words or 'submission'}-{sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"
