"""Where the keys of a lesson file stand, for the messages about them."""

from __future__ import annotations

import re

# Strings and comments of a TOML file; triple quotes first, so that they are not read as an empty string.
_STRING = r"\"\"\"(?:\\.|[^\\])*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|#[^\n]*", re.DOTALL)


class TomlLines:
    """Where the keys of a lesson file stand; the TOML parser itself doesn't say."""

    def __init__(self, text: str) -> None:
        # Strings and comments are blanked out, so that what they hold is not taken for a key or a header.
        self._bare = _STRING_OR_COMMENT.sub(_blank, text)
        self._strings = [m.start() for m in _STRING_OR_COMMENT.finditer(text) if not m[0].startswith("#")]
        self._tasks = [m.start() for m in re.finditer(r"^[ \t]*\[\[\s*task\s*\]\]", self._bare, re.MULTILINE)]

    def of(self, key: str, task: int | None = None, item: int | None = None) -> int:
        """The line of a key, or of one string of its list; of the task, or 1, where the key is not there."""
        start, end = self._section(task)
        match = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=", re.MULTILINE).search(self._bare, start, end)
        if match is None:
            return self._line(start)
        if item is None:
            return self._line(match.end())
        return self._line([at for at in self._strings if at >= match.end()][item])

    def _section(self, task: int | None) -> tuple[int, int]:
        bounds = [0, *self._tasks, len(self._bare)]
        place = 0 if task is None else task + 1
        return (bounds[place], bounds[place + 1]) if place + 1 < len(bounds) else (0, len(self._bare))

    def _line(self, position: int) -> int:
        return self._bare.count("\n", 0, position) + 1


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
