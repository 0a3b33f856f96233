"""What the arrays were that a line of the learner's code names, for an exception that came out of it.

torch and Python speak of sizes, and seldom say whose: "not enough values to unpack (expected 4, got 3)".
"""

from __future__ import annotations

import linecache
import re
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any

from coursekit import arrays

if TYPE_CHECKING:
    from coursekit.running.places import Places

NAME = re.compile(r"(?<![\w.\])])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
MOST = 6
MISSING = object()


def named_values(error: BaseException, places: Places) -> list[str]:
    """What the failing line of the learner's code was given: shapes and whole numbers, and which line called it.

    Empty where that line names no array, or raised the exception on purpose, or where none of the learner's failed.
    """
    if not isinstance(error, RuntimeError | ValueError | IndexError) or isinstance(error, RecursionError):
        return []
    trace = error.__traceback__
    steps = zip(traceback.walk_tb(trace), traceback.extract_tb(trace), strict=True)
    mine = [(frame, place) for (frame, _), place in steps if places.is_learners(place.filename)]
    if not mine:
        return []
    frame, place = mine[-1]
    text = _source(place)
    if text.lstrip().startswith("raise"):
        return []
    found = {name: value for name in NAME.findall(text) for name, value in _resolved(name, frame)}
    if not any(arrays.framework(value) for value in found.values()):
        return []
    lines = ["  there: " + ", ".join([_shown(name, value) for name, value in found.items()][:MOST])]
    if len(mine) > 1:
        caller = mine[-2][1]
        lines.append(f"  called by {places.shown(caller.filename)}:{caller.lineno}: {caller.line}")
    return lines


def _source(place: traceback.FrameSummary) -> str:
    """The lines of the expression that failed, without comments."""
    first = place.lineno or 0
    lines = [linecache.getline(place.filename, n) for n in range(first, (place.end_lineno or first) + 1)]
    return " ".join(line.partition("#")[0] for line in lines)


def _resolved(name: str, frame: FrameType) -> list[tuple[str, Any]]:
    """The array or whole number that `name`, or the beginning of it, stands for; nothing of the learner's is run."""
    base, *attributes = name.split(".")
    value = frame.f_locals.get(base, MISSING)
    while not _is_shown(value):
        if value is MISSING or not attributes:
            return []
        part = attributes.pop(0)
        base, value = f"{base}.{part}", _attribute(value, part)
    return [(base, value)]


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, tuple) and name in getattr(type(owner), "_fields", ()):
        return getattr(owner, name)
    return getattr(owner, "__dict__", {}).get(name, MISSING)


def _is_shown(value: Any) -> bool:
    return arrays.framework(value) is not None or (isinstance(value, int) and not isinstance(value, bool))


def _shown(name: str, value: Any) -> str:
    return f"{name} = {value}" if isinstance(value, int) else f"{name} {list(value.shape)}"
