"""How Day 4.6 ends a text: character by character, and what the usual mistakes would give."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from coursekit.check import CheckFailed, check_equal


def answer(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text up to its stop string, and this stop string: looked for at each character anew."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


def beginnings(text: str, stops: Sequence[str]) -> list[tuple[str, int]]:
    """The stop strings of which the text's end is a beginning, and how many characters of each."""
    return [
        (stop, count)
        for stop in stops
        for count in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:count])
    ]


def found_suspects(text: str, stops: Sequence[str]) -> dict[str, str | None]:
    """Which stop string a mistake would find in the whole text."""
    there = [stop for stop in stops if stop in text]
    _, right = answer(text, stops)
    if right is None:
        return {}
    end = text.find(right) + len(right)
    complete = [stop for stop in there if text[:end].endswith(stop)]
    return {
        "the first stop string of the list was taken; the one that is complete first counts": there[0],
        "the stop string that begins first was taken; the one that is complete first counts": min(
            there, key=lambda stop: (text.find(stop), len(stop))
        ),
        "the longest stop string was taken; the one that is complete first counts": max(there, key=len),
        "of the stop strings that are complete at the same character, the one that begins first counts": min(
            complete, key=len
        ),
    }


class Reader:
    """Gives a text to a new `StopStrings` piece by piece, and looks at all that comes back."""

    def __init__(self, lab: Any, stops: Sequence[str]) -> None:
        self.stops = list(stops)
        self.watched = lab.engine.stops.StopStrings(stops)
        self.text = self.given = ""

    def push(self, piece: str) -> str:
        """What comes back for one more piece, once it is known to be right."""
        __tracebackhide__ = True
        over = self.watched.found is not None
        self.text += piece
        part = self.watched.push(piece)
        what = f"push({piece!r}), where {self.stops} end the text and {self.text!r} has come in all"
        if not isinstance(part, str):
            raise CheckFailed(f"{what}: a str expected, {type(part).__name__} found: {part!r}")
        if over and part:
            raise CheckFailed(f'{what}: returned {part!r}; after a stop string was found, push returns ""')
        self.given += part
        right, stop = answer(self.text, self.stops)
        check_equal(
            self.watched.found,
            stop,
            name=f"`found` after {what}",
            suspects=found_suspects(self.text, self.stops),
        )
        if stop is not None:
            own = {"the stop string itself is no part of the text": right + stop}
            check_equal(self.given, right, name=f"all that was returned up to {what}", suspects=own)
        elif not self.text.startswith(self.given):
            raise CheckFailed(f"{what}: {self.given!r} was returned in all, which is not how the text begins")
        else:
            self._check_held(what)
        return part

    def _check_held(self, what: str) -> None:
        """What was returned stays before any stop string, however the text goes on; and no more is held than that."""
        __tracebackhide__ = True
        ends = beginnings(self.text, self.stops)
        for stop, count in ends:
            going_on = self.text + stop[count:]
            right, _ = answer(going_on, self.stops)
            if not right.startswith(self.given):
                raise CheckFailed(
                    f"{what}: {self.given!r} was returned in all. If the text goes on with {stop[count:]!r}, a stop "
                    f"string begins within that: what may become a stop string must be held back"
                )
        most = max((count for _, count in ends), default=0)
        missing = self.text[len(self.given) :]
        if len(missing) > most:
            raise CheckFailed(
                f"{what}: {missing!r} is held back; only {missing[len(missing) - most :]!r} is the beginning of a "
                "stop string"
            )

    def flush(self) -> str:
        """The rest, after which nothing is held back."""
        __tracebackhide__ = True
        right, stop = answer(self.text, self.stops)
        what = f"flush(), where {self.stops} end the text and {self.text!r} has come in all"
        rest = self.watched.flush()
        lost = (
            {}
            if right == self.given
            else {"what was held back is lost: at the end of the text it is returned": ""}
        )
        check_equal(rest, right[len(self.given) :], name=what, suspects=lost)
        check_equal(self.watched.found, stop, name=f"`found` after {what}")
        check_equal(self.watched.flush(), "", name=f"a second {what}")
        return self.given + rest


def read(lab: Any, stops: Sequence[str], pieces: Sequence[str]) -> None:
    """Give the pieces, and take the rest."""
    __tracebackhide__ = True
    reader = Reader(lab, stops)
    for piece in pieces:
        reader.push(piece)
    reader.flush()


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The pieces of a text that is cut at these places; the same place twice gives an empty piece."""
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:stop] for start, stop in pairwise(edges)]
