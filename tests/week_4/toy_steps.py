"""What a step of Day 4.2's engine says and does, compared with its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from coursekit.check import check_equal

from .beside_running import everyone, finished


class Chunk(NamedTuple):
    """A chunk of a plan, after the step: what is known of it and of its request."""

    request: Any
    rank: int
    had: int
    found: int
    brought: int
    decode: bool
    ids: list[int]
    error: str | None
    length: int


class Engine(NamedTuple):
    """What an engine consists of."""

    scheduler: Any
    runner: Any
    separate: bool
    max_positions: int


FIELDS = (
    *("running.request", "running.rank", "had", "found", "count", "decode"),
    *("running.request.token_ids", "running.request.error", "running.sequence.length"),
)


def _in_order(engine: Engine, plan: Sequence[Chunk]) -> list[Chunk]:
    """The chunks in the order in which they are run."""
    return sorted(plan, key=lambda chunk: engine.separate and not chunk.decode)


def check_runs(engine: Engine, plan: Sequence[Chunk], runs: Sequence[Any], when: str) -> None:
    """The model has run on the plan: at once, or first on the decodes and then on the others."""
    __tracebackhide__ = True
    kinds = (True, False) if engine.separate else (None,)
    parts = [
        [(chunk.rank, chunk.brought) for chunk in plan if kind in (None, chunk.decode)] for kind in kinds
    ]
    expected = [part for part in parts if part]
    check_equal(list(runs), expected, name=f"the runs of the model in {when}, as (request, tokens)")


def check_lengths(engine: Engine, plan: Sequence[Chunk], when: str) -> None:
    """The pool holds what the step brought, of each request that has not left."""
    __tracebackhide__ = True
    there = {request for request, *_ in everyone(engine.scheduler)}
    stay = [chunk for chunk in plan if chunk.request in there]
    check_equal(
        [chunk.length for chunk in stay],
        [chunk.had + chunk.found + chunk.brought for chunk in stay],
        name=f"the tokens in the pool of requests {[chunk.rank for chunk in stay]} after {when}",
        suspects={
            "the sequences were advanced once more; `run` has done so already": [
                chunk.had + chunk.found + 2 * chunk.brought for chunk in stay
            ],
            "the step was undone, though the model has run on it": [chunk.had for chunk in stay],
        },
    )


def check_token(chunk: Chunk, tokens: int, when: str) -> None:
    """A request gets a token exactly when none of its tokens is due any more, unless its sampler fails."""
    __tracebackhide__ = True
    due = tokens - chunk.had - chunk.found - chunk.brought
    new, wanted = len(chunk.ids) - tokens, int(due == 0 and chunk.error is None)
    assert new == wanted, (
        f"{when}: request {chunk.rank} has {due} tokens due after it, and got {new} new tokens; a request "
        "gets one exactly when none is due"
    )


def check_step(
    core: Any, engine: Engine, plan: Sequence[Chunk], done: Any, rank_of: dict[Any, int], when: str
) -> None:
    """The Step says which requests took part, and which of them have left."""
    __tracebackhide__ = True
    assert done is not None, f"{when}: None came back; is a `return` missing?"
    issued = [(rank_of.get(request, "?"), count) for request, count in done.issued]
    expected = [(chunk.rank, chunk.brought) for chunk in _in_order(engine, plan)]
    unordered = [(chunk.rank, chunk.brought) for chunk in plan]
    check_equal(
        issued,
        expected,
        name=f"the (request, tokens) that took part in {when}",
        suspects={"the order of the plan; `order` says in which order it is run": unordered},
    )
    over = finished([chunk.request for chunk in plan], engine.max_positions)
    told, wanted = ([rank_of[each] for each in some] for some in (done.finished, over))
    missing = sorted(set(wanted) - set(told))
    assert not missing, f"{when}: requests {missing} are finished, and not in `finished` of the Step"
    check_equal(sorted(told), sorted(wanted), name=f"the requests in `finished` of {when}")
    there = core.requests
    left = [rank_of[each] for each in over if each in there]
    assert not left, f"after {when}: finished, and still in the engine: requests {left}"
