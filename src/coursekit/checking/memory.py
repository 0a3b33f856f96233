"""How much memory a model takes."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping

from coursekit import arrays
from coursekit.beside import beside

_LEAVES = (type, types.ModuleType, str, bytes, int, float)


@beside
def held_bytes(holder: object) -> int:
    """Bytes of all the arrays that an object holds: its own, those of its parts, in containers and in closures.

    Memory in which several of them lie counts once; so does a number that stands for many.
    """
    seen: dict[int, object] = {}  # by id; holding on to each, so that no id is given away again
    waiting, spans = [holder], list[tuple[int, int]]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, _LEAVES):
            continue
        seen[id(thing)] = thing
        if arrays.framework(thing) is not None:
            spans.append(arrays.span(thing))
        else:
            waiting += _parts(thing)
    total = reached = 0
    for first, end in sorted(spans):
        total += max(0, end - max(first, reached))
        reached = max(reached, end)
    return total


def _parts(thing: object) -> Iterable[object]:
    if isinstance(thing, Mapping):
        return thing.values()
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    closed_over = [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    return [*closed_over, getattr(thing, "__self__", None), getattr(thing, "__dict__", None)]
