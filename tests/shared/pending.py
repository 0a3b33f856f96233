"""What MLX puts off: an array has no numbers before they are asked for, only operations to compute."""

from __future__ import annotations

from collections.abc import Sequence


def check_not_growing(put_off: Sequence[int], what: str, each: str) -> None:
    """Operations that an array waits for, counted after each step: the later steps don't wait for more.

    Args:
        put_off: from ``lab.pending_operations``, after at least three steps.
        what: the array.
        each: a step.
    """
    __tracebackhide__ = True
    grows = put_off[-1] > put_off[0] and put_off[-1] > put_off[-2]
    assert not grows, (
        f"{what} wait for {', '.join(map(str, put_off))} operations, one number after each {each}: MLX puts off what "
        "no code asks for, and this grows until something evaluates it"
    )
