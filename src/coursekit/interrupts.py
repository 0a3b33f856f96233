"""How a command ends by Ctrl-C while it imports modules, and once its work is done; and how by another program."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells give it: 128 and the signal's number."""

_LATER = 0.05  # seconds
_CLEAN_TERMINAL = b"\r\x1b[2K\x1b[?25h"  # the line emptied of what a spinner wrote, the cursor shown again


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Within it, Ctrl-C ends the process at once, with exit code 130: for imports, while nothing is open.

    A KeyboardInterrupt that is raised in the middle of an import may come out as another error, or be lost.
    """
    if not _python_handles_ctrl_c():
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def leaving_when_terminated() -> Iterator[None]:
    """Within it, SIGTERM ends the command in order, as Ctrl-C does, with exit code 143: nothing is left open or lost.

    To be called in the main thread.
    """
    before, report = signal.signal(signal.SIGTERM, _exit), sys.unraisablehook
    again: list[threading.Timer] = []

    def report_or_exit(lost: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised where an object ends, so the exit has to be raised again: elsewhere, so later.
        if isinstance(lost.exc_value, SystemExit):
            again.append(threading.Timer(_LATER, os.kill, (os.getpid(), signal.SIGTERM)))
            again[-1].start()
        else:
            report(lost)

    sys.unraisablehook = report_or_exit
    try:
        yield
    finally:
        for timer in again:
            timer.cancel()
        sys.unraisablehook = report
        signal.signal(signal.SIGTERM, before)
    if again:
        _exit(signal.SIGTERM, None)


def leave_at_once_from_now_on() -> None:
    """The same for the rest of the process: there is nothing left to do but to free memory."""
    if _python_handles_ctrl_c():
        signal.signal(signal.SIGINT, _leave)


def _python_handles_ctrl_c() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt here; a shell may have it ignored, and a caller may handle it."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _leave(number: int, frame: FrameType | None) -> None:
    # Straight to the file: a stream may be in the middle of writing, and so can't be written to.
    with suppress(OSError):
        os.write(2, (_CLEAN_TERMINAL if os.isatty(2) else b"") + b"interrupted\n")
    os._exit(INTERRUPTED)
