"""Texts that end an answer, in a text that comes piece by piece (Day 4.6)."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Gives on the text that it gets, up to the first stop string; holds back what may still become one.

    The answer ends with the first character at which a stop string is complete. If several are complete at this
    character, the one that begins first counts. So the pieces in which the text comes make no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Start with nothing held back.

        Args:
            stops: the stop strings; none of them is empty.
        """
        self.stops = list(stops)
        self.held = ""  # the end of the text so far, which may be the beginning of a stop string
        self.found: str | None = None  # the stop string that has ended the text

    def push(self, piece: str) -> str:
        """Take in the next piece of the text.

        Args:
            piece: any text, also an empty one.

        Returns:
            what is known to stand before any stop string, and was not returned before. After a stop string was found,
            always "".
        """
        raise NotImplementedError("Week 4 Day 6 Task 1: Stop strings")

    def flush(self) -> str:
        """The text is complete: return what was held back, which is no stop string; then nothing is held back."""
        raise NotImplementedError("Week 4 Day 6 Task 1: Stop strings")

    def _beginning(self, text: str) -> int:
        """How many characters at the end of a text are the beginning of a stop string; the longest counts."""
        raise NotImplementedError("Week 4 Day 6 Task 1: Stop strings")
