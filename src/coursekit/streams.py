"""Standard output and standard error that are closed, full, or can't show every sign."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO


class OutputLost(Exception):
    """Nothing more can be written to standard output.

    It is not an OSError, so that no handler for files takes it for one of theirs.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.reader_gone = isinstance(error, BrokenPipeError)


class _Output(io.TextIOWrapper):
    """Standard output: an error ends the program, by an OutputLost."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputLost(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputLost(error) from None


class _Messages(io.TextIOWrapper):
    """Standard error: a message that can't be written is lost, and the work goes on."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """Make both streams fit to write to.

    A stream that is closed takes everything and keeps nothing. Where the terminal's encoding lacks a sign such as ×,
    a question mark is printed.
    """
    sys.stdout = _prepared(sys.stdout, _Output)
    sys.stderr = _prepared(sys.stderr, _Messages)


def _prepared(stream: TextIO | None, kind: type[io.TextIOWrapper]) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return kind(
        stream.buffer,
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def drop_output() -> None:
    """Let standard output lead nowhere, so that what is still in its buffer raises no error at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
