"""The error that loading a model raises, and the door that everything else has to leave by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_MESSAGE = 600  # characters


class WeightsError(Exception):
    """A model that can't be loaded: one line that says what is wrong and what to do about it.

    It is meant for the person at the keyboard, so programs print it and leave with exit code 2. What a file spelled
    out may be part of the message, so line ends and other unprintable characters are written as escapes, and a very
    long message is cut.
    """

    def __init__(self, message: str) -> None:
        """Make one printable line of the message."""
        line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
        if len(line) > _LONGEST_MESSAGE:
            line = f"{line[:_LONGEST_MESSAGE]} …"
        super().__init__(line)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """The door around all code that handles what a model's files say.

    A damaged file can make a library raise anything. Whatever it is comes out as a WeightsError that names the file,
    so that nothing in a file can end a program in a stack trace. Only what the person at the keyboard does, Ctrl-C
    above all, passes through.
    """
    try:
        yield
    except WeightsError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if _is_out_of_memory(error):
            raise WeightsError(f"there isn't enough memory for {path}: choose a smaller model") from error
        raise WeightsError(
            f"{path} is damaged, or of a kind that can't be read ({_described(error)}): download it again"
        ) from error


def unreadable(path: str | Path, error: OSError) -> WeightsError:
    """The error for a file that the operating system doesn't give out: nothing says that it is damaged."""
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return WeightsError(f"can't read {path}: {reason}")


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up: pyo3 derives its PanicException from BaseException."""
    return type(error).__name__ == "PanicException"


def _is_out_of_memory(error: BaseException) -> bool:
    """Torch raises RuntimeError where Python and NumPy raise MemoryError."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
