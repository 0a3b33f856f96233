"""Comparing plain values (lists, texts, dictionaries), and showing values in one line."""

from __future__ import annotations

import contextlib
from typing import Any

from coursekit import arrays
from coursekit.checking.causes import find_plain_cause
from coursekit.checking.comparison import CheckFailed, kind_of
from coursekit.checking.wording import differing, plural


def fail_plain(actual: Any, expected: Any, name: str, known: str | None = None) -> None:
    """Say how two plain values differ, with the likely cause if it is known."""
    __tracebackhide__ = True
    if isinstance(expected, (list, tuple)):
        fail_sequence(actual, expected, name, known)
    cause = f"\n  likely cause: {known}" if known else ""
    if isinstance(expected, str):
        fail_text(actual, expected, name, cause)
    if isinstance(expected, dict):
        fail_dictionary(actual, expected, name, cause)
    raise CheckFailed(f"{name}: {show(expected)} expected, {show(actual)} found{cause}")


def fail_sequence(actual: Any, expected: Any, name: str, known: str | None = None) -> None:
    """Say where two lists (or tuples) part, and why: the cause known beforehand, or one that the items tell."""
    __tracebackhide__ = True
    pairs = list(zip(actual, expected, strict=False))
    wrong = [i for i, (a, e) in enumerate(pairs) if a != e]
    lines = []
    if len(actual) != len(expected):
        lines.append(f"{plural(len(expected), 'item')} expected, {len(actual)} found")
    if wrong:
        first = wrong[0]
        where = f"the first at index {first}: " if len(pairs) > 1 else ""
        both = f"{show(expected[first])} expected, {show(actual[first])} found"
        lines.append(f"{differing(len(wrong), len(pairs), 'item')}; {where}{both}")
    lines += [f"expected {show(expected)}", f"found    {show(actual)}"]
    cause = known or find_plain_cause(list(actual), list(expected))
    if cause:
        lines.append(f"likely cause: {cause}")
    raise CheckFailed(f"{name}: " + "\n  ".join(lines))


def fail_text(actual: str, expected: str, name: str, cause: str = "") -> None:
    """Say at which character two texts part."""
    __tracebackhide__ = True
    common = next((i for i, (a, e) in enumerate(zip(actual, expected, strict=False)) if a != e), None)
    at = min(len(actual), len(expected)) if common is None else common
    start = max(0, at - 20)
    lines = [f"the texts part at character {at}"]
    lines += [f"expected {_piece(expected, start)}", f"found    {_piece(actual, start)}"]
    raise CheckFailed(f"{name}: " + "\n  ".join(lines) + cause)


def fail_dictionary(actual: dict[Any, Any], expected: dict[Any, Any], name: str, cause: str = "") -> None:
    """Say which keys are missing, are too many or have another value."""
    __tracebackhide__ = True
    lines = [f"{key!r} is missing" for key in expected if key not in actual]
    lines += [f"{key!r} does not belong there" for key in actual if key not in expected]
    for key in expected:
        if key in actual and actual[key] != expected[key]:
            lines.append(f"at {key!r}: {show(expected[key])} expected, {show(actual[key])} found")
    raise CheckFailed(f"{name}: " + "\n  ".join(lines[:4]) + cause)


def same_type(actual: Any, expected: Any) -> bool:
    """Whether a value is of the kind expected: True is no int, but 1 will do for 1.0."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return isinstance(expected, bool) and isinstance(actual, bool)
    if isinstance(expected, float) and isinstance(actual, int):
        return True
    return isinstance(actual, type(expected)) or isinstance(expected, type(actual))


def show(value: Any, limit: int = 100) -> str:
    """A value in one line of at most ``limit`` characters."""
    text = "<a value that can't be shown>"
    with contextlib.suppress(Exception):
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def outline(value: Any) -> str:
    """A value in one line; of an array its kind and shape."""
    if arrays.framework(value) is not None:
        return f"{kind_of(value)} of shape {list(arrays.to_numpy(value).shape)}"
    if isinstance(value, (tuple, list)) and any(arrays.framework(part) for part in value):
        return f"{kind_of(value)} ({', '.join(outline(part) for part in value)})"
    return show(value)


def _piece(text: str, start: int, length: int = 60) -> str:
    return (
        ("…" if start else "")
        + repr(text[start : start + length])
        + ("…" if start + length < len(text) else "")
    )
