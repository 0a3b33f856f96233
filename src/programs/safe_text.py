"""Text of a model or a file, made fit for a terminal: what would control the terminal is shown, and not done."""

from __future__ import annotations

BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Signs that change the direction of the text around them, so that it reads as something else."""

CONTROLS = (*range(0x20), *range(0x7F, 0xA0))  # C0, DEL and C1, with which terminal sequences begin
ALLOWED = {ord("\n"), ord("\t")}

ESCAPES = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in {*CONTROLS, *BIDI, *range(0xD800, 0xE000)} - ALLOWED
}


def safe(text: str) -> str:
    """A text with every control character but the line end and the tab as Python writes it: ``\\x1b`` for Escape."""
    return text.translate(ESCAPES)
