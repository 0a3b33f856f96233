"""git at work on a learner's objects from an empty repository of our own: the learner's settings aren't read."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coursekit.errors import CourseError
from grading.submissions.members import Refused

SECONDS = 60.0
"""How long one call of git may take: a repository can be made so that it never ends."""
_SHA256 = "[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectformat = sha256\n"
_SHA1 = "[core]\nrepositoryformatversion = 0\nbare = true\n"
_SHA256_LETTERS = 64


@contextmanager
def reading(folder: Path, commit: str, arguments: Sequence[str], asked: bytes = b"") -> Iterator[IO[bytes]]:
    """What git prints; it is ended where that isn't read to the end.

    Args:
        folder: the one that holds the learner's ``objects``.
        commit: the id of any commit in it: by its length, git knows the kind of all ids.
        arguments: git's.
        asked: what git reads on its standard input.

    Raises:
        Refused: git failed, or took too long.
        CourseError: there is no git here.
    """
    with tempfile.TemporaryDirectory(prefix="grade-git-") as name, tempfile.TemporaryFile() as stdin:
        own = Path(name)
        for part in ("objects", "refs"):
            (own / part).mkdir()
        (own / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
        config = _SHA256 if len(commit) == _SHA256_LETTERS else _SHA1
        (own / "config").write_text(config, encoding="utf-8")
        stdin.write(asked)
        stdin.seek(0)
        process = _start(own, folder, arguments, stdin)
        assert process.stdout is not None
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        try:
            yield process.stdout
            if process.wait() != 0:
                raise Refused("its repository can't be read: is it damaged, or cloned only in part?")
        finally:
            timer.cancel()
            process.kill()
            process.stdout.close()
            process.wait()


def _start(own: Path, folder: Path, arguments: Sequence[str], stdin: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_DIR": str(own),
        "GIT_OBJECT_DIRECTORY": str(folder.resolve() / "objects"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": "none",
        "LC_ALL": "C",
    }
    try:
        return subprocess.Popen(
            ["git", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=own,
        )
    except OSError as error:
        raise CourseError(f"can't start git: {error.strerror}; install git to grade repositories") from error
