"""Text of a submission, made fit for a page: bounded, in one direction, without control characters."""

from __future__ import annotations

from datetime import datetime

NAME_LIMIT = 120
MESSAGE_LIMIT = 4_000
LINES_LIMIT = 60

_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_LINE_ENDS = {0x2028, 0x2029}
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)}
_SURROGATES = range(0xD800, 0xE000)
_NOT_XML = {0xFFFE, 0xFFFF}
_KEPT = {ord("\n"), ord("\t")}

_ESCAPES = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in {*_CONTROLS, *_BIDI, *_LINE_ENDS, *_SURROGATES, *_NOT_XML} - _KEPT
}


def visible(text: str) -> str:
    """The text with what can't be shown as Python writes it (``\\x1b``); tabs and line ends stay, as ``\\n``.

    Shown so are control characters, those that turn the direction of text, lone surrogates, and what XML forbids.
    """
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def line(text: str, limit: int = NAME_LIMIT) -> str:
    """The text on one line of at most ``limit`` characters, ``…`` at its end where it was cut."""
    # Cut before the rest, so that a text of gigabytes costs no more than a short one.
    start = " ".join(visible(text[: 4 * limit]).split())
    return start if len(start) <= limit and len(text) <= 4 * limit else start[: limit - 1].rstrip() + "…"


def block(text: str, limit: int = MESSAGE_LIMIT, lines: int = LINES_LIMIT) -> str:
    """The text on at most ``lines`` lines, of its first ``limit`` characters; a last line says that it was cut."""
    shown = visible(text[:limit]).strip("\n").split("\n")
    if len(text) <= limit and len(shown) <= lines:
        return "\n".join(shown)
    return "\n".join([*shown[:lines], "… (cut here)"])


def number(value: float) -> str:
    """A number of points: two decimals at most, and none where it is whole."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def counted(count: int, singular: str, plural: str = "") -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def when(time: datetime) -> str:
    """A date and a time to the minute, with the time zone where it is known."""
    return f"{time:%Y-%m-%d %H:%M %Z}".strip()
