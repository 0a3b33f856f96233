"""What `pdm run starter` would change in the learner's packages, and whose work that would touch."""

from __future__ import annotations

import difflib
import json
import subprocess
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from coursekit.files import write_text
from coursekit.paths import Course

DIFF_LINES = 14


@dataclass(frozen=True)
class Drift:
    """A file of the starter that is not what the reference gives: changed, missing or extra.

    before: its content on disk; None where it is missing.
    after: what the reference gives; None where the reference has no such file.
    """

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def kind(self) -> str:
        if self.before is None:
            return "is missing"
        return "has no file behind it in the reference" if self.after is None else "differs"

    def diff(self) -> list[str]:
        """The first lines of a unified diff from the disk to what the reference gives; none for other kinds."""
        if self.before is None or self.after is None:
            return []
        before, after = (text.decode("utf-8", "replace").splitlines() for text in (self.before, self.after))
        lines = list(difflib.unified_diff(before, after, "on disk", "from the reference", n=1, lineterm=""))
        more = len(lines) - DIFF_LINES
        return lines if more <= 0 else [*lines[:DIFF_LINES], f"… and {more} more lines"]


def find_drift(folder: Path, wanted: dict[str, bytes], on_disk: list[Path]) -> list[Drift]:
    """Compare a package on disk with what it should hold; line ends don't count.

    Args:
        folder: the package.
        wanted: contents by path relative to the package.
        on_disk: the files that the package has.
    """
    targets = {folder / file: content for file, content in wanted.items()}
    found = []
    for path in sorted({*targets, *on_disk}):
        before, after = (path.read_bytes() if path.is_file() else None), targets.get(path)
        if before is None or after is None or _lf(before) != _lf(after):
            found.append(Drift(path, before, after))
    return found


class Origin:
    """Tells generated files from those that a learner has changed."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._path = course.state / "starter.json"

    def is_generated(self, drift: Drift) -> bool:
        """Whether the file on disk is as the last `pdm run starter` on this machine wrote it."""
        return drift.before is not None and self._written.get(self._name(drift.path)) == _hash(drift.before)

    def is_safe_to_overwrite(self, drift: Drift) -> bool:
        """Whether nothing would be lost: the file is missing, empty, generated, or committed as it is."""
        return not drift.before or self.is_generated(drift) or self._is_committed(drift)

    def is_safe_to_delete(self, drift: Drift) -> bool:
        """Whether an extra file was generated once: from here, or from a reference file that is committed."""
        if self.is_generated(drift):
            return True
        package, _, file = drift.path.relative_to(self._course.root / "src").as_posix().partition("/")
        return self._is_committed(drift) and self._head(f"solutions/{package}/{file}") is not None

    def remember(self, contents: dict[Path, bytes]) -> None:
        """Note what was generated, for the next time."""
        marks = {self._name(path): _hash(content) for path, content in contents.items()}
        write_text(self._path, json.dumps(marks, indent=1) + "\n")

    def recorded_with(self, contents: dict[Path, bytes]) -> tuple[Path, bytes]:
        """The file of these notes, and what it is to hold when these have been generated beside all the others."""
        marks = {self._name(path): _hash(content) for path, content in contents.items()}
        return self._path, (json.dumps({**self._written, **marks}, indent=1) + "\n").encode("utf-8")

    @cached_property
    def _written(self) -> dict[str, str]:
        try:
            marks = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return marks if isinstance(marks, dict) else {}

    def _name(self, path: Path) -> str:
        return path.relative_to(self._course.root).as_posix()

    def _is_committed(self, drift: Drift) -> bool:
        committed = self._head(self._name(drift.path))
        return committed is not None and drift.before is not None and _lf(committed) == _lf(drift.before)

    def _head(self, name: str) -> bytes | None:
        """A file's content in git's last commit; None without git, without a commit, or when it is not in it."""
        command = ["git", "-C", str(self._course.root), "show", f"HEAD:./{name}"]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None


def _lf(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n")


def _hash(content: bytes) -> str:
    return sha256(_lf(content)).hexdigest()
