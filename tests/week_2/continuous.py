"""What the tests of Day 2.7 share: requests, slots that are taken, and an onlooker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from .reading_model import ReadingModel, V


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([length, seed]).integers(0, V, size=length).tolist()


def new_request(
    lab: Any,
    prompt: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int] = (),
    output: Sequence[int] = (),
    computed: int = 0,
    **options: Any,
) -> Any:
    """A request, in the middle of its way if `output` and `computed` say so."""
    request = lab.batch.Request(prompt, max_tokens, end_ids, **options)
    request.token_ids.extend(output)
    request.computed = computed
    return request


def prefill(lab: Any, length: int, chunk_size: int | None, **options: Any) -> tuple[Any, Any, list[bool]]:
    """Prefill to the end: the request, the model, and what each call of `try_prefill` returned."""
    model = ReadingModel(lab, max_positions=512)
    request = new_request(lab, prompt_of(length), 5, **options)
    done = []
    while not request.ready:
        done.append(request.try_prefill(model, chunk_size))
        assert len(done) <= length, f"{length} tokens are not prefilled after {length} chunks"
    return request, model, done


def seated(
    lab: Any, model: Any, num_slots: int, taken: Iterable[int], max_tokens: int = 9
) -> tuple[Any, list[Any], dict[int, Any]]:
    """A batch with requests in the slots `taken`, put there by `advance`: the batch, the slots, who is where."""
    batch = lab.static_batch.Batch(model, num_slots)
    slots: list[Any] = [None] * num_slots
    others = {}
    for slot in taken:
        request = new_request(lab, prompt_of(3 + 2 * slot, seed=slot), max_tokens)
        # One idle slot at a time: which of several a request takes is up to the engine.
        blocked = ["taken" if other != slot else None for other in range(num_slots)]
        lab.batch.advance(batch, blocked, request, None)
        assert blocked[slot] is request, f"slot {slot} was idle and a request was ready: it should be in it"
        slots[slot] = others[slot] = request
    return batch, slots, others


def generate(lab: Any, model: Any, requests: Sequence[Any], *rest: Any, **options: Any) -> list[list[int]]:
    """Run them all, with an end to engines that would go on for ever."""
    watch = options.pop("observe", None) or Watch(requests)
    return lab.batch.batch_generate(model, requests, *rest, observe=watch, **options)


class Watch:
    """Looks on, and fails a test on what must not happen in a step.

    `steps` holds, for each step, the request decoded in each slot and the one whose turn at prefilling it was.
    """

    def __init__(self, requests: Sequence[Any]) -> None:
        self.requests = list(requests)
        self.steps: list[tuple[list[Any], Any]] = []
        self.computed = [request.computed for request in requests]
        self.produced = [len(request.output) for request in requests]
        self.bound = 20 + sum(len(r.prompt_ids) + max(r.max_tokens, 0) for r in requests)

    def __call__(self, slots: Sequence[Any], prefilling: Any) -> None:
        assert len(self.steps) < self.bound, f"{self.bound} steps, and the requests are still not done"
        ahead = [request for request in self.requests if request.caches]
        assert len(ahead) <= 1, (
            f"{len(ahead)} requests hold caches and have no slot: one is prefilled ahead, no more"
        )
        self.steps.append((list(slots), prefilling))
        for request, before, known in zip(self.requests, self.produced, self.computed, strict=True):
            first = request.ready and known < len(request.prompt_ids)
            due = before + first + any(request is other for other in slots)
            step = f"step {len(self.steps)}: a request went from {before} to {len(request.output)} tokens"
            assert len(request.output) >= due, (
                f"{step} instead of {due}: in each step, one token is decoded for every busy slot"
            )
            assert len(request.output) <= due, (
                f"{step}, but the slots that the observer was shown make it {due}: show them as they were decoded, "
                "also those who finished with it"
            )
        begun = sum(r.computed > known for r, known in zip(self.requests, self.computed, strict=True))
        assert begun <= 1, (
            f"step {len(self.steps)}: prompts of {begun} requests were computed; a step computes one chunk of one"
        )
        self.computed = [request.computed for request in self.requests]
        self.produced = [len(request.output) for request in self.requests]

    @property
    def ever_seated(self) -> list[Any]:
        """The requests that were in a slot at some time, in the order in which they came."""
        seen: list[Any] = []
        for slots, _ in self.steps:
            seen += [request for request in slots if request is not None and request not in seen]
        return seen
