"""A model runner whose pool holds token ids: what a request reads there is compared with its own tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_2.reading_model import V, alone, fingerprints, scores_after

from coursekit.check import CheckFailed, check_equal
from coursekit.checking.objects import values_of

from .beside_running import advance, everyone, pages_and_places
from .beside_schedules import Share
from .schedules import check_sound, ranks, scheduler_of
from .toy_steps import FIELDS, Chunk, Engine, check_lengths, check_runs, check_step, check_token
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
        self.pool = SimpleNamespace(num_pages=pages, page_size=P)
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
        rank_of, ids_of = dict[Any, int](), dict[Any, list[int]]()
        for one, rank, ids in values_of(self.scheduler.running, "sequence", "rank", "request.token_ids"):
            rank_of[one], ids_of[one] = rank, ids
        self.runs.append([(rank_of[one], count) for one, count in zip(sequences, q_lens, strict=True)])
        rows = self.lab.numpy(tables).tolist()
        failure, self.failure, rest = self.failure, None, list(tokens)
        own = pages_and_places(sequences, q_lens)
        for sequence, row, (pages, places, new) in zip(sequences, rows, own, strict=True):
            filled = [*pages, *[0] * (len(row) - len(pages))]
            check_equal(row, filled, name=f"the block table of request {rank_of[sequence]}")
            for place in places[len(places) - new :]:
                token = rest.pop(0)
                self.places[place] = token if failure is None else POISON
        if failure is not None:
            raise failure
        states = [
            self._read(rank_of[one], ids_of[one], pages, places)
            for one, (pages, places, _) in zip(sequences, own, strict=True)
        ]
        advance(sequences, q_lens)
        return self.lab.array(np.array(states, dtype=np.float64))

    def logits(self, hidden: Any) -> Any:
        """Scores [B, V] for states [B, 2]."""
        states = self.lab.numpy(hidden).reshape(-1, 2)
        assert len(states), "the head ran, but on no row: where no request samples, it must not run"
        self.head_rows.append(len(states))
        return self.lab.array(np.array([scores_after(int(state[0])) for state in states]))

    def _read(self, rank: int, ids: list[int], pages: list[int], places: list[int]) -> list[int]:
        """What a request reads in its pages, once it is certain that these are its own tokens."""
        __tracebackhide__ = True
        stop, found = len(places), [self.places.get(place) for place in places]
        wrong = [at for at in range(stop) if found[at] != ids[at]]
        if wrong:
            at = wrong[0]
            what = {None: "nothing", POISON: "what a failed run left"}.get(
                found[at], f"the token {found[at]}"
            )
            raise CheckFailed(
                f"request {rank} reads {stop} tokens in the pages {pages}; at position {at} its own token is "
                f"{ids[at]}, and the pool holds {what}"
            )
        return [fingerprints(ids[:stop])[-1], stop]


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


def _all(scheduler: Any) -> list[Any]:
    return [*scheduler.running, *scheduler.waiting]


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
    engine = Engine(*values_of([core], *Engine._fields)[0])
    scheduler, seen = engine.scheduler, list[Any]()
    plan, runs = scheduler.plan, len(engine.runner.runs)
    before = everyone(scheduler)

    def watched() -> Any:
        seen.append(plan())
        return seen[-1]

    scheduler.plan = watched
    try:
        done = core.step()
    finally:
        scheduler.plan = plan
    assert len(seen) == 1, f"{when}: the scheduler was asked for {len(seen)} plans; a step has one"
    chunks = [Chunk(*values) for values in values_of(seen[0], *FIELDS)]
    check_runs(engine, chunks, engine.runner.runs[runs:], when)
    check_lengths(engine, chunks, when)
    tokens = {request: count for request, _, count in before}
    for chunk in chunks:
        check_token(chunk, tokens[chunk.request], when)
    check_step(core, engine, chunks, done, {request: rank for request, rank, _ in before}, when)
    assert not scheduler.planned, f"after {when}, its plan is still there: was it committed?"
    check_sound(scheduler, f"after {when}")
    return [(chunk.rank, chunk.had, chunk.found, chunk.brought) for chunk in chunks]


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
