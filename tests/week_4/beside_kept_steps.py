"""Metadata of steps that come and go, where the learner's objects are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coursekit.beside import beside
from coursekit.checking.kernel_run import run_method_as_python


@beside
def slots_of_the_newest(attention: Any, first: Any, other: Any, heads: int, group: int) -> list[int]:
    """The slots of the step that `step_of` gives for new metadata, when others have come and gone before.

    Args:
        attention: a `TiledAttention`.
        first: what the metadata say that come and go.
        other: what the new ones say. They get the id of those that are gone, if it can be had.
        heads, group: as `step_of` takes them.
    """

    def step_of(meta: Any) -> Any:
        return run_method_as_python(attention, "step_of", meta, heads, group, spread=False, deep=True)

    going = replace(first)
    step_of(going)
    gone, new = id(going), list[Any]()
    del going
    for _ in range(200):  # all of them stay, so that one of them gets the place that is free, if it is
        new.append(replace(other))
        if id(new[-1]) == gone:
            break
    slots: list[int] = step_of(new[-1]).slots.tolist()
    return slots
