"""The values in a model's files, each checked as it is read.

The files come from elsewhere: a size may be missing, a text, negative, or 10⁴⁰⁰. What passes here has the type and
lies within the bounds that the rest of the code relies on. A key that is missing and one whose value is null mean
the same in these files.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_llm.loading.errors import WeightsError

_MOST = 2**31 - 1  # far above every size of today


class Fields:
    """The values of one file by their keys. Every method raises WeightsError when the value isn't as it says."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """Read from `values`, which came from the file at `path`."""
        self.path = path
        self._values = values

    def get(self, key: str) -> Any:
        """The value as it stands, or None."""
        return self._values.get(key)

    def size(self, key: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number from 1 to `most`; without a default it must be there."""
        value = self._or(key, default)
        if not _is_whole(value) or not 1 <= value <= most:
            raise self.wrong(key, value, f"a whole number from 1 to {most}")
        return value

    def number(self, key: str, default: float | None, low: float, high: float) -> float:
        """A number from `low` to `high`, so neither NaN nor infinity; without a default it must be there."""
        value = self._or(key, default)
        if not _is_number(value) or not low <= value <= high:
            raise self.wrong(key, value, f"a number from {low:g} to {high:g}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self._or(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def text(self, key: str) -> str | None:
        """A string that can be written in UTF-8, or None."""
        value = self.get(key)
        if value is not None and not is_text(value):
            raise self.wrong(key, value, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        values = self.items(key)
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(key, values, "a list of texts")
        return values

    def items(self, key: str) -> list[Any]:
        """A list of anything."""
        values = self.get(key)
        if not isinstance(values, list):
            raise self.wrong(key, values, "a list")
        return values

    def token_id(self, key: str) -> int | None:
        """The id of a token, or None."""
        value = self.get(key)
        if value is not None and not (_is_whole(value) and 0 <= value <= _MOST):
            raise self.wrong(key, value, "the id of a token")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """The ids of tokens: none, one by itself, or a list."""
        value = self.get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(_is_whole(i) and 0 <= i <= _MOST for i in ids):
            raise self.wrong(key, value, "the id of a token, or a list of them")
        return tuple(ids)

    def within(self, key: str) -> Fields:
        """The object that is this key's value; an empty one where it is missing."""
        value = self._or(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, value, "an object")
        return Fields(self.path, value)

    def file_names(self) -> list[str]:
        """The values of all keys, each once and in order: names of files, without a folder in front of them."""
        for key, name in self._values.items():
            if not is_text(name) or name in ("", ".", "..") or set(name) & set("/\\\0"):
                raise self.wrong(key, name, "the name of a file")
        return sorted(set(self._values.values()))

    def wrong(self, key: str, value: Any, wanted: str) -> WeightsError:
        """The error for a value that is missing or not as it should be."""
        if value is None:
            return WeightsError(f"{self.path} has no {key!r}: it isn't whole; download it again")
        return WeightsError(f"{self.path} gives {shown(value)} as {key!r}, not {wanted}: download it again")

    def _or(self, key: str, default: Any) -> Any:
        value = self.get(key)
        return default if value is None else value


def shown(value: Any) -> str:
    """A value from a file as a message may show it: short, whatever it is."""
    return reprlib.repr(value)


def is_text(value: object) -> bool:
    """Whether it is a string without half characters (JSON can spell out a lone surrogate)."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
