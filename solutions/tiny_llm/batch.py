"""Continuous batching and chunked prefill (Day 2.7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tiny_llm.generate import Sample, greedy
from tiny_llm.kv_cache import FullKvCache
from tiny_llm.model import Transformer
from tiny_llm.static_batch import Batch


@dataclass(eq=False)
class Request:
    """One prompt on its way through the engine. Two requests are two, even where all they hold is equal."""

    prompt_ids: Sequence[int]
    max_tokens: int
    end_ids: Collection[int] = ()
    sample: Sample = greedy
    output: list[int] = field(default_factory=list)  # the tokens generated so far
    error: str | None = None  # why the request was refused; None if it was not
    computed: int = 0  # tokens of the prompt that the caches hold
    caches: list[FullKvCache] = field(default_factory=list)  # one a layer, until it has a slot

    @property
    def ready(self) -> bool:
        """Whether the whole prompt is computed; the first token of the output comes with its last chunk."""
        return self.computed == len(self.prompt_ids)

    @property
    def position(self) -> int:
        """Where the newest token of the output stands; no cache holds it yet."""
        return len(self.prompt_ids) + len(self.output) - 1

    def refusal(self, max_positions: int) -> str | None:
        """Why this request can't ever run, or None.

        The prompt must leave at least one position free. A request that will run out of positions later may run: it
        ends there.

        Args:
            max_positions: what prompt and output together may use.
        """
        if not self.prompt_ids:
            return "the prompt is empty: there is nothing to continue"
        if len(self.prompt_ids) >= max_positions:
            return f"the prompt has {len(self.prompt_ids)} tokens; at most {max_positions - 1} fit this model"
        return None

    def finished(self, max_positions: int) -> bool:
        """Whether the output is complete: ``max_tokens``, an end token, or all positions used."""
        if len(self.output) >= min(self.max_tokens, max_positions - len(self.prompt_ids)):
            return True
        return bool(self.output) and self.output[-1] in self.end_ids

    def accept(self, logits: Tensor) -> None:
        """Choose the next token from its logits [V] and append it to the output."""
        self.output.append(self.sample(logits, [*self.prompt_ids, *self.output]))

    def next_chunk(self, chunk_size: int | None) -> slice:
        """Which tokens of the prompt to compute next: at most ``chunk_size`` of them; all that are left if None."""
        left = len(self.prompt_ids) - self.computed
        return slice(self.computed, self.computed + (left if chunk_size is None else min(left, chunk_size)))

    def try_prefill(self, model: Transformer, chunk_size: int | None = None) -> bool:
        """Compute one chunk of the prompt, into ``caches``; with the last one, accept the first token.

        The head runs only after the last chunk, on its last row. A request that is ready must not be prefilled again.

        Args:
            model: the model.
            chunk_size: how many tokens at most; None: the whole prompt at once.

        Returns:
            whether the prompt is done.
        """
        if not self.caches:
            self.caches = [FullKvCache() for _ in range(model.config.num_layers)]
        chunk = self.next_chunk(chunk_size)
        tokens = torch.tensor([list(self.prompt_ids[chunk])], device=model.embedding.weight.device)
        hidden = model.hidden(tokens, chunk, self.caches)
        self.computed = chunk.stop
        if self.ready:
            self.accept(model.logits(hidden[0, -1]))
        return self.ready


Observer = Callable[[Sequence[Request | None], Request | None], None]
"""Looks on after each step, with two arguments (the same request is in both in the step in which it takes a slot):

- a new list of the requests that were decoded in this step, slot by slot, also those that finished; None: idle;
- the request whose turn at prefilling it was: it has a chunk more now, or its last one waits for a slot. Or None.
"""


def batch_generate(
    model: Transformer,
    requests: Sequence[Request],
    max_slots: int = 5,
    chunk_size: int | None = 128,
    observe: Observer = lambda slots, prefilling: None,
) -> list[list[int]]:
    """Continuous batching: as soon as a request has finished, the next one takes its slot.

    Each step computes one chunk of one prompt, if there is one to compute, then decodes one token for every slot: no
    request waits for more than a chunk between two of its tokens. While all slots are taken, one request is prefilled
    ahead, up to its last chunk. A request that finishes with its first token never takes a slot.

    Args:
        model: the model.
        requests: what to generate. One that can't ever run gets its ``error`` set and stays without output; the
            others go on.
        max_slots: how many requests are decoded together at most.
        chunk_size: how many tokens of a prompt are computed in a step at most; None for whole prompts.
        observe: called after each step.

    Returns:
        the output of each request, in the order of ``requests``.

    Raises:
        ValueError: ``max_slots`` or ``chunk_size`` is below 1.
    """
    if max_slots < 1 or (chunk_size is not None and chunk_size < 1):
        raise ValueError(f"{max_slots} slots and chunks of {chunk_size}: both must be at least 1")
    limit = model.config.max_positions
    for request in requests:
        request.error = request.refusal(limit)
    waiting = deque(request for request in requests if request.error is None and not request.finished(limit))
    batch = Batch(model, max_slots)
    slots: list[Request | None] = [None] * max_slots
    prefilling: Request | None = None
    while waiting or prefilling or any(slots):
        if prefilling is None and waiting:
            prefilling = waiting.popleft()
        current = prefilling
        if current is not None:
            prefilling = advance(batch, slots, current, chunk_size)
        decoding = list(slots)
        if any(slots):
            decode_slots(batch, slots)
        observe(decoding, current)
    return [request.output for request in requests]


def advance(
    batch: Batch, slots: list[Request | None], request: Request, chunk_size: int | None
) -> Request | None:
    """Bring a request one step closer to its slot: a chunk of its prompt, and with the last chunk a slot.

    The last chunk brings the first token, and the second must follow at once: so it waits, while no slot is idle.

    A request that takes a slot, or finishes without one, lets go of its caches: the slot alone holds them then, and
    nobody once it is idle again.

    Returns:
        the request, if it needs another step; None if it has a slot now, or has finished without one.
    """
    last = request.next_chunk(chunk_size).stop == len(request.prompt_ids)
    if last and None not in slots:
        return request
    if not request.try_prefill(batch.model, chunk_size):
        return request
    if not request.finished(batch.model.config.max_positions):
        slot = slots.index(None)
        batch.add(slot, request.caches)
        slots[slot] = request
    request.caches = []
    return None


def decode_slots(batch: Batch, slots: list[Request | None]) -> None:
    """Give every request in a slot its next token; whoever has finished leaves."""
    tokens = [None if request is None else request.output[-1] for request in slots]
    positions = [0 if request is None else request.position for request in slots]
    busy = [(slot, request) for slot, request in enumerate(slots) if request is not None]
    for (slot, request), logits in zip(busy, batch.decode(tokens, positions), strict=True):
        request.accept(logits)
        if request.finished(batch.model.config.max_positions):
            batch.remove(slot)
            slots[slot] = None
