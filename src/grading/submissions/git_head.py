"""Which commit a learner's git repository stands at, found without git: so none of its settings is ever obeyed."""

from __future__ import annotations

import re
from pathlib import Path

from grading.submissions.folders import read_regular
from grading.submissions.members import Budget, Refused

MOST_BYTES = 8 << 20
"""Of a file that lists branches and tags."""
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = re.compile(r"refs/(?:[\w+@=-][\w.+@=-]*/)*[\w+@=-][\w.+@=-]*")
_ELSEWHERE = ("objects/info/alternates", "objects/info/http-alternates", "commondir")
"""By these files a repository borrows what another one has."""


def git_folder(path: Path) -> Path | None:
    """The folder that holds a repository's commits, be it bare or not; None where ``path`` is no repository.

    Raises:
        Refused: the repository's commits lie elsewhere.
    """
    inner = path / ".git"
    if inner.is_symlink() or inner.is_file():
        raise Refused("its .git leads to another folder: clone it whole")
    if inner.is_dir():
        return inner
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    return path if bare else None


def head_commit(folder: Path) -> str:
    """The id of the commit that HEAD names.

    Raises:
        Refused: there is none yet, or the repository is a part of another one.
    """
    for part in ("objects", "refs", *_ELSEWHERE):
        path = folder / part
        if path.is_symlink() or (part in _ELSEWHERE and path.exists()):
            raise Refused(f"its repository leads elsewhere by {part}: clone it whole")
    head = _text(folder, "HEAD").strip()
    branch = head.removeprefix("ref:").strip()
    commit = _of_branch(folder, branch) if head.startswith("ref:") else head
    if not _COMMIT.fullmatch(commit):
        raise Refused("its repository has no commit yet: commit the files, then hand in again")
    return commit


def _of_branch(folder: Path, branch: str) -> str:
    """Empty where the branch has no commit."""
    if not _BRANCH.fullmatch(branch) or ".." in branch:
        raise Refused("the HEAD of its repository names no branch")
    if _is_plain(folder, branch):
        return _text(folder, branch).strip()
    if not _is_plain(folder, "packed-refs"):
        return ""
    lines = (line.split(" ") for line in _text(folder, "packed-refs").splitlines())
    return next((words[0] for words in lines if len(words) == 2 and words[1] == branch), "")


def _is_plain(folder: Path, path: str) -> bool:
    """Whether there is such a file, and no link on the way to it."""
    place = folder
    for part in path.split("/"):
        place = place / part
        if place.is_symlink():
            raise Refused(f"its repository leads elsewhere by {path}: clone it whole")
    return place.is_file()


def _text(folder: Path, path: str) -> str:
    return read_regular(folder / path, Budget(MOST_BYTES)).decode("utf-8", "replace")
