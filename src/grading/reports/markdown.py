"""Text in Markdown: nothing in it becomes HTML, a picture, a link, a heading or the end of a block."""

from __future__ import annotations

import re

# Letters, digits and the signs of names, which mean nothing in Markdown; a dot only where it makes no address.
_HARMLESS = re.compile(r"(?:[^\W_]|[ ,’'()%/…–−✓✗○!-]|[.:](?= |$)|(?<=[0-9])[.:](?=[0-9]))*")


class Written(str):
    """Markdown that is written already, and isn't escaped again."""


def inline(text: object) -> Written:
    """One line as plain words where they are harmless, else as code."""
    if isinstance(text, Written):
        return text
    words = " ".join(str(text).split())
    return Written(words) if _HARMLESS.fullmatch(words) else code(words)


def code(text: str) -> Written:
    """One line as code; a ``|`` is escaped, so that it ends no cell of a table."""
    words = " ".join(text.split()).replace("|", "\\|")
    if not words:
        return Written("")
    ticks = "`" * (_longest_run(words) + 1)
    pad = " " if words[0] == "`" or words[-1] == "`" else ""
    return Written(f"{ticks}{pad}{words}{pad}{ticks}")


def linked(text: object, target: str) -> Written:
    """A link to a file of these reports: ``target`` is a path that needs no escaping."""
    return Written(f"[{inline(text)}]({target})")


def fence(text: str) -> Written:
    """Some lines as a block of code."""
    marks = "`" * max(3, _longest_run(text) + 1)
    return Written(f"{marks}text\n{text}\n{marks}")


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
