"""Why a process ended in the middle of a test: what its exit code and Python's `faulthandler` say."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path

from coursekit.running.memory_limit import TOO_LARGE

TIMED_OUT = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d)", re.MULTILINE)
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
"""How `faulthandler` writes a frame; the innermost comes first."""
KILLED = -9
LINE_END = "\n"
REST = "the tests after it did not run"


def last_words(code: int, said: str, root: Path) -> str:
    """What to tell the learner.

    Args:
        code: the process's exit code, or minus the number of the signal that ended it.
        said: what `faulthandler`, or the watch over the memory, wrote before the end.
        root: of the course, whose files are named.
    """
    return "\n".join([_reason(code, said), *_place(said, root)])


def _reason(code: int, said: str) -> str:
    timed_out = TIMED_OUT.search(said)
    if timed_out is not None:
        hours, minutes, seconds = map(int, timed_out.groups())
        return (
            f"ran for {hours * 3600 + minutes * 60 + seconds} s and could not be interrupted, so Python was ended, "
            f"and {REST}: is there a loop that never ends, in compiled code or around an `except` that catches "
            "everything?"
        )
    if said.startswith(TOO_LARGE):
        return f"{said.partition(LINE_END)[0]}, so Python was ended, and {REST}"
    if code >= 0:
        return (
            f"the code ended Python itself, with exit code {code} (os._exit?), and {REST}: "
            "let it return, or raise an exception"
        )
    cause = "; was the memory used up?" if code == KILLED else ""
    return f"Python itself stopped ({_name(code)}){cause}, and {REST}"


def _name(code: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.strsignal(-code) or signal.Signals(-code).name
    return f"signal {-code}"


def _place(said: str, root: Path) -> list[str]:
    """The innermost line of the package under test."""
    for frame in FRAME.finditer(said):
        path = Path(frame["file"])
        if path.is_relative_to(root / "src") or path.is_relative_to(root / "solutions"):
            return [f"  {path.relative_to(root).as_posix()}:{frame['line']}, in {frame['function']}"]
    return []
