"""Where a chat takes place: a terminal, or a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rich.console import Console, RenderableType

from programs.safe_text import safe

PROMPT = "> "


class Screen:
    """Reads messages and commands, and shows answers and notes.

    Answers go to standard output, all else to standard error. In a terminal Ctrl-C never ends the program while it is
    at work: it stops an answer, see :meth:`stopping`.
    """

    def __init__(self) -> None:
        """Look whether a person types; if so, let readline help where there is one."""
        self.interactive = sys.stdin is not None and sys.stdin.isatty()
        self._console = Console(stderr=True, highlight=False)
        self._reading = False
        self._stop: Callable[[], None] = lambda: None
        if self.interactive:
            with suppress(ImportError):  # Windows has none; its terminal edits lines itself
                import readline  # noqa: F401  # it takes over `input`

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within it, Ctrl-C is taken care of, if a person types. To be called in the main thread."""
        before = signal.getsignal(signal.SIGINT)
        if not self.interactive or before is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within it, Ctrl-C calls ``stop``."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = lambda: None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._reading:
            raise KeyboardInterrupt
        self._stop()

    def lines(self) -> Iterator[str]:
        """What is typed or piped in, line by line, until it ends; in a terminal also until the second Ctrl-C."""
        return self._typed() if self.interactive else self._piped()

    def _typed(self) -> Iterator[str]:
        asked = False
        while True:
            try:
                line = self._read()
            except EOFError:
                print(flush=True)
                return
            except KeyboardInterrupt:
                print(flush=True)
                if asked:
                    return
                asked = True
                self.note("Ctrl-C again leaves, as Ctrl-D and /quit do")
            except UnicodeDecodeError:
                self.note("this line is not text in UTF-8")
            else:
                asked = False
                yield line

    def _read(self) -> str:
        self._reading = True
        try:
            if sys.stdout.isatty():
                return input(PROMPT)
            print(PROMPT, end="", file=sys.stderr, flush=True)
            return input()
        finally:
            self._reading = False

    def _piped(self) -> Iterator[str]:
        for number, line in enumerate(sys.stdin.buffer if sys.stdin is not None else (), start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                self.note(f"line {number} of the input is not text in UTF-8: it is left out")

    def write(self, text: str) -> None:
        """Show a piece of an answer."""
        print(safe(text), end="", flush=True)

    def note(self, text: str) -> None:
        """Say something beside the answers."""
        self._console.print(safe(text), style="dim", markup=False, soft_wrap=True)

    def show(self, what: RenderableType, **options: Any) -> None:
        """Show a table."""
        self._console.print(what, **options)
