"""A model runner whose pool holds token ids: what a request reads there is compared with its own tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_2.reading_model import V, alone, fingerprints, scores_after

from coursekit.check import CheckFailed, check_equal

from .schedules import Share, check_sound, ranks, scheduler_of, shares
from .undoing import watch_undo

POISON = -1  # what a run that fails leaves in a place


class ToyRunner:
    """Writes the tokens of all sequences first, then lets each sequence read all of its own; the next token follows.

    `runs` holds for each run of the model which requests it ran on, and with how many tokens; `head_rows` how many
    rows each call of the head had. `failure` is raised by the next run, after it has written.
    """

    def __init__(self, lab: Any, scheduler: Any, pages: int, P: int) -> None:
        self.lab = lab
        self.scheduler = scheduler
        self.pool = SimpleNamespace(keys=np.zeros((1, pages, P, 1, 1)), page_size=P)
        weight = SimpleNamespace(weight=lab.array(np.zeros((V, 2))))
        self.model = SimpleNamespace(embedding=weight, logits=self.logits)
        self.places: dict[int, int] = {}
        self.runs: list[list[tuple[int, int]]] = []
        self.head_rows: list[int] = []
        self.failure: BaseException | None = None

    def run(self, sequences: Sequence[Any], tables: Any, tokens: Sequence[int], q_lens: Sequence[int]) -> Any:
        """States [B, 2]: the fingerprint of all tokens of each sequence, and how many they are."""
        __tracebackhide__ = True
        assert sequences, "the model was run on no request"
        owners = {each.sequence: each for each in self.scheduler.running}
        self.runs.append([(owners[one].rank, count) for one, count in zip(sequences, q_lens, strict=True)])
        rows = self.lab.numpy(tables).tolist()
        failure, self.failure, rest = self.failure, None, list(tokens)
        for sequence, row, count in zip(sequences, rows, q_lens, strict=True):
            pages = [*sequence.pages, *[0] * (len(row) - len(sequence.pages))]
            check_equal(row, pages, name=f"the block table of request {owners[sequence].rank}")
            for place in sequence.places(sequence.length, sequence.length + count):
                token = rest.pop(0)
                self.places[place] = token if failure is None else POISON
        if failure is not None:
            raise failure
        states = [self._read(owners[one], one.length + n) for one, n in zip(sequences, q_lens, strict=True)]
        for sequence, count in zip(sequences, q_lens, strict=True):
            sequence.advance(count)
        return self.lab.array(np.array(states, dtype=np.float64))

    def logits(self, hidden: Any) -> Any:
        """Scores [B, V] for states [B, 2]."""
        states = self.lab.numpy(hidden).reshape(-1, 2)
        assert len(states), "the head ran, but on no row: where no request samples, it must not run"
        self.head_rows.append(len(states))
        return self.lab.array(np.array([scores_after(int(state[0])) for state in states]))

    def _read(self, each: Any, stop: int) -> list[int]:
        """What a request reads in its pages, once it is certain that these are its own tokens."""
        __tracebackhide__ = True
        ids = each.request.token_ids[:stop]
        found = [self.places.get(place) for place in each.sequence.places(0, stop)]
        wrong = [at for at in range(stop) if found[at] != ids[at]]
        if wrong:
            at = wrong[0]
            what = {None: "nothing", POISON: "what a failed run left"}.get(
                found[at], f"the token {found[at]}"
            )
            raise CheckFailed(
                f"request {each.rank} reads {stop} tokens in the pages {each.sequence.pages}; at position {at} its "
                f"own token is {ids[at]}, and the pool holds {what}"
            )
        return [fingerprints(ids)[-1], stop]


def engine_of(
    lab: Any,
    *,
    pages: int = 60,
    P: int = 3,
    separate: bool = False,
    max_requests: int = 1024,
    **options: Any,
) -> Any:
    """An engine without requests around a toy runner, which is its `runner`."""
    scheduler = scheduler_of(lab, pages=pages, P=P, **options)
    _watch_remove(scheduler)
    watch_undo(scheduler)
    runner = ToyRunner(lab, scheduler, pages + 1, P)
    return lab.scheduling.batch.ExtendBatch(runner, scheduler, separate, max_requests)


def _watch_remove(scheduler: Any) -> None:
    """Task 4's tests look at what Task 3's `remove` has done: where it fails, they say so."""
    whole = scheduler.remove

    def watched(requests: Collection[Any]) -> None:
        __tracebackhide__ = True
        gone = [each for each in _all(scheduler) if each.request in requests]
        whole(requests)
        for each in gone:
            task = "`remove`, which is Task 4.2.3's:"
            assert each not in _all(scheduler), (
                f"{task} request {each.rank} was to be removed, and is still there"
            )
            assert not each.sequence.pages, (
                f"{task} request {each.rank} was removed, and its pages {each.sequence.pages} were not released"
            )

    scheduler.remove = watched


def step(core: Any, when: str = "a step") -> list[Share]:
    """One step. What it says and does must fit its plan, which is returned."""
    __tracebackhide__ = True
    scheduler, seen = core.scheduler, list[Any]()
    plan, runs = scheduler.plan, len(core.runner.runs)
    everyone = {each.request: (each.rank, len(each.request.token_ids)) for each in _all(scheduler)}

    def watched() -> Any:
        seen.append(plan())
        return seen[-1]

    scheduler.plan = watched
    try:
        done = core.step()
    finally:
        scheduler.plan = plan
    assert len(seen) == 1, f"{when}: the scheduler was asked for {len(seen)} plans; a step has one"
    planned = list(seen[0])
    _check_runs(core, planned, core.runner.runs[runs:], when)
    _check_lengths(core, planned, when)
    for chunk in planned:
        _check_token(chunk, everyone[chunk.running.request][1], when)
    _check_step(core, planned, done, {request: rank for request, (rank, _) in everyone.items()}, when)
    assert not scheduler.planned, f"after {when}, its plan is still there: was it committed?"
    check_sound(scheduler, f"after {when}")
    return shares(planned)


def _all(scheduler: Any) -> list[Any]:
    return [*scheduler.running, *scheduler.waiting]


def _in_order(core: Any, plan: Sequence[Any]) -> list[Any]:
    """The chunks in the order in which they are run."""
    return sorted(plan, key=lambda chunk: core.separate and not chunk.decode)


def _check_runs(core: Any, plan: Sequence[Any], runs: Sequence[Any], when: str) -> None:
    """The model has run on the plan: at once, or first on the decodes and then on the others."""
    __tracebackhide__ = True
    kinds = (True, False) if core.separate else (None,)
    parts = [
        [(chunk.running.rank, chunk.count) for chunk in plan if kind in (None, chunk.decode)]
        for kind in kinds
    ]
    expected = [part for part in parts if part]
    check_equal(list(runs), expected, name=f"the runs of the model in {when}, as (request, tokens)")


def _check_lengths(core: Any, plan: Sequence[Any], when: str) -> None:
    """The pool holds what the step brought, of each request that has not left."""
    __tracebackhide__ = True
    stay = [chunk for chunk in plan if chunk.running in _all(core.scheduler)]
    check_equal(
        [chunk.running.sequence.length for chunk in stay],
        [chunk.had + chunk.found + chunk.count for chunk in stay],
        name=f"the tokens in the pool of requests {ranks(chunk.running for chunk in stay)} after {when}",
        suspects={
            "the sequences were advanced once more; `run` has done so already": [
                chunk.had + chunk.found + 2 * chunk.count for chunk in stay
            ],
            "the step was undone, though the model has run on it": [chunk.had for chunk in stay],
        },
    )


def _check_token(chunk: Any, tokens: int, when: str) -> None:
    """A request gets a token exactly when none of its tokens is due any more, unless its sampler fails."""
    __tracebackhide__ = True
    request, due = chunk.running.request, tokens - chunk.had - chunk.found - chunk.count
    new, wanted = len(request.token_ids) - tokens, int(due == 0 and request.error is None)
    assert new == wanted, (
        f"{when}: request {chunk.running.rank} has {due} tokens due after it, and got {new} new tokens; a request "
        "gets one exactly when none is due"
    )


def _check_step(core: Any, plan: Sequence[Any], done: Any, rank_of: dict[Any, int], when: str) -> None:
    """The Step says which requests took part, and which of them have left."""
    __tracebackhide__ = True
    assert done is not None, f"{when}: None came back; is a `return` missing?"
    issued = [(rank_of.get(request, "?"), count) for request, count in done.issued]
    expected = [(chunk.running.rank, chunk.count) for chunk in _in_order(core, plan)]
    unordered = [(chunk.running.rank, chunk.count) for chunk in plan]
    check_equal(
        issued,
        expected,
        name=f"the (request, tokens) that took part in {when}",
        suspects={"the order of the plan; `order` says in which order it is run": unordered},
    )
    requests = [chunk.running.request for chunk in plan]
    over = [each for each in requests if each.error or each.finished(core.max_positions)]
    told, wanted = ([rank_of[each] for each in some] for some in (done.finished, over))
    missing = sorted(set(wanted) - set(told))
    assert not missing, f"{when}: requests {missing} are finished, and not in `finished` of the Step"
    check_equal(sorted(told), sorted(wanted), name=f"the requests in `finished` of {when}")
    left = [rank_of[each] for each in over if each in core.requests]
    assert not left, f"after {when}: finished, and still in the engine: requests {left}"


def to_the_end(core: Any, when: str = "a step", most: int = 400) -> list[list[Share]]:
    """Steps until no request is left."""
    __tracebackhide__ = True
    steps = list[list[Share]]()
    while core.requests:
        assert len(steps) < most, f"{most} steps, and requests {ranks(core.scheduler.running)} still run"
        steps.append(step(core, f"{when} ({len(steps)})"))
    return steps


def check_tokens(requests: Collection[Any], limit: int, when: str) -> None:
    """Each request got the tokens that it gets alone."""
    __tracebackhide__ = True
    for number, request in enumerate(requests):
        wanted = alone(request.prompt_ids, request.max_tokens, request.end_ids, limit)
        check_equal(request.output, wanted, name=f"the output of request {number} {when}")
