"""What the tests of Day 2.7 share: requests, slots that are taken, and an observer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from .beside_requests import progress
from .reading_model import LAYERS, ReadingModel, V


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([length, seed]).integers(0, V, size=length).tolist()


def new_request(
    lab: Any,
    prompt: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int] = (),
    output: Sequence[int] = (),
    **options: Any,
) -> Any:
    """A request that has generated `output` already."""
    request = lab.request.Request(prompt, max_tokens, end_ids, **options)
    request.token_ids.extend(output)
    return request


def begun(lab: Any, request: Any, computed: int = 0) -> Any:
    """A prefill of the request, with `computed` of its tokens behind it (so it says; its caches are empty)."""
    prefill = lab.batch.Prefill(request, ReadingModel(lab, max_positions=512))
    prefill.computed = computed
    return prefill


def prefilled(lab: Any, request: Any, chunk_size: int | None) -> tuple[Any, list[bool]]:
    """Prefill a request to the end: the prefill, and what each call of `try_prefill` returned."""
    prefill, done = begun(lab, request), [False]
    length = len(request.token_ids)
    while not done[-1]:
        assert len(done) <= length, (
            f"try_prefill was called {length} times for {length} tokens, and has never returned True"
        )
        done.append(prefill.try_prefill(chunk_size))
    return prefill, done[1:]


def step_of(lab: Any, batch: Any, slots: list[Any], request: Any) -> Any:
    """What `prefill_step` returns for a request whose tokens all fit into one chunk."""
    return lab.batch.prefill_step(batch, slots, lab.batch.Prefill(request, batch.model), None)


def seated(
    lab: Any, model: Any, num_slots: int, taken: Iterable[int], max_tokens: int = 9, seed: int = 0
) -> tuple[Any, list[Any], dict[int, Any]]:
    """A batch with requests in the slots `taken`, put there by `prefill_step`: the batch, the slots, who is where."""
    batch = lab.static_batch.Batch(model, num_slots)
    slots: list[Any] = [None] * num_slots
    others = {}
    for slot in taken:
        request = new_request(lab, prompt_of(3 + 2 * slot, seed=seed + slot), max_tokens)
        # One idle slot at a time: which of several a request takes is up to the engine.
        blocked = ["taken" if other != slot else None for other in range(num_slots)]
        step_of(lab, batch, blocked, request)
        assert blocked[slot] is request, (
            f"the prompt was a single chunk, and of {num_slots} slots only slot {slot} was idle: after prefill_step "
            "the request should be in it"
        )
        slots[slot] = others[slot] = request
    return batch, slots, others


def generate(lab: Any, model: Any, requests: Sequence[Any], *rest: Any, **options: Any) -> list[list[int]]:
    """Run them all, with a `Watch` unless `observe` is given. An engine that would go on for ever is stopped."""
    observe = options.pop("observe", None) or Watch(model, requests)
    bound = 20 + sum(len(r.token_ids) + max(r.max_tokens, 0) for r in requests)
    steps = count(1)

    def look(slots: Any, prefill: Any) -> None:
        assert next(steps) <= bound, f"{bound} steps, and the requests are still not done"
        observe(slots, prefill)

    return lab.batch.batch_generate(model, requests, *rest, observe=look, **options)


def lets_through(error: BaseException, call: Callable[[], Any]) -> bool:
    """Whether `call` raises `error` itself. The error then holds no frames any more, and nothing that is in them."""
    try:
        call()
    except type(error) as caught:
        caught.__traceback__ = None
        return caught is error
    return False


class Watch:
    """An observer that fails a test on what must not happen in a step.

    `steps` holds, for each step, the request that was decoded in each slot, and the request that was being prefilled;
    `computed`, how many tokens of each request are computed, as the observer was shown.
    """

    def __init__(self, model: Any, requests: Sequence[Any]) -> None:
        self.model = model
        self.requests = list(requests)
        self.steps: list[tuple[list[Any], Any]] = []
        self.computed = dict.fromkeys(self.requests, 0)
        self.runs = len(model.runs)
        self.produced = [request.num_generated for request in requests]

    def __call__(self, slots: Sequence[Any], prefill: Any) -> None:
        self.steps.append((list(slots), None if prefill is None else prefill.request))
        if prefill is not None:
            self.computed[prefill.request] = prefill.computed
        self._check_runs()
        now = progress(tuple(self.requests), self.model.config.max_positions)
        for request, before, (tokens, _) in zip(self.requests, self.produced, now, strict=True):
            self._check_tokens(request, before, tokens)
        self._check_caches(now)
        self.produced = [tokens for tokens, _ in now]

    def _check_runs(self) -> None:
        """A step runs the model on one chunk at most, and decodes once at most."""
        runs, self.runs = self.model.runs[self.runs :], len(self.model.runs)
        for kind, what in (
            ("prefill", "one chunk of one request"),
            ("decode", "one token for every busy slot"),
        ):
            times = [run[0] for run in runs].count(kind)
            assert times <= 1, (
                f"step {len(self.steps)}: the model was run {times} times to {kind}; a step computes {what}"
            )

    def _check_tokens(self, request: Any, before: int, now: int) -> None:
        """A request gets a token with its last chunk, and one for the slot in which the observer was shown it."""
        slots, turn = self.steps[-1]
        step = f"step {len(self.steps)}: a request that had {before} tokens of output has {now}"
        assert now >= before, f"{step}: tokens were lost"
        if not any(request is other for other in slots):
            assert now == before or request is turn, (
                f"{step}, but the observer was shown it neither in a slot nor as the one being prefilled: show the "
                "slots as they were decoded, with the requests that finished, and the prefill whose turn it was"
            )
            assert now <= before + 1, (
                f"{step}, and the observer was shown it in no slot: show the slots as they were decoded, with the "
                "requests that finished"
            )
            return
        due = before + 1 + (request is turn)
        why = f"in a slot, and {'also' if request is turn else 'not'} as the one being prefilled"
        assert now == due, (
            f"{step} now, not {due}; the observer was shown it {why}. A last chunk brings one token, and each step "
            "decodes one for every busy slot"
        )

    def _check_caches(self, now: tuple[tuple[int, bool], ...]) -> None:
        """Only requests in slots, and one that is being prefilled, have caches."""
        slots, turn = self.steps[-1]
        left = {
            request
            for request, before, (tokens, finished) in zip(self.requests, self.produced, now, strict=True)
            if tokens > before and finished
        }
        held = {request for request in (*slots, turn) if request is not None} - left
        alive = self.model.caches_alive(at_most=LAYERS * len(held))
        assert alive <= LAYERS * len(held), (
            f"step {len(self.steps)}: {alive} caches exist, {LAYERS} for each request; but of the requests that "
            f"the observer was shown, only {len(held)} have not finished. Does something hold the caches of a "
            "request that has finished, or is more than one request computed ahead?"
        )

    @property
    def ever_seated(self) -> list[Any]:
        """The requests that were in a slot at some time, in the order in which they came."""
        seen: list[Any] = []
        for slots, _ in self.steps:
            seen += [request for request in slots if request is not None and request not in seen]
        return seen
