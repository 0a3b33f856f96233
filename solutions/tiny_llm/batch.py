"""Continuous batching and chunked prefill (Day 2.7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import torch

from tiny_llm.kv_cache import FullKvCache
from tiny_llm.model import Transformer
from tiny_llm.request import Request
from tiny_llm.static_batch import Batch


class Prefill:
    """A request whose prompt is being computed, and the caches that hold what is computed of it."""

    def __init__(self, request: Request, model: Transformer) -> None:
        """Start with nothing computed."""
        self.request = request
        self.model = model
        self.caches = [FullKvCache() for _ in range(model.config.num_layers)]  # one per layer

    @property
    def computed(self) -> int:
        """How many tokens of the prompt the caches hold."""
        return self.caches[0].length

    def next_chunk(self, chunk_size: int | None) -> slice:
        """Which tokens of the prompt come next.

        Args:
            chunk_size: how many of them at most; None for all that are left.
        """
        left = self.request.prompt_len - self.computed
        return slice(self.computed, self.computed + (left if chunk_size is None else min(left, chunk_size)))

    def try_prefill(self, chunk_size: int | None = None) -> bool:
        """Compute the next chunk of the prompt; after the last one, let the request accept its first token.

        The head runs only after the last chunk, on its last row. A prompt that is done must not be prefilled again.

        Args:
            chunk_size: how many tokens at most; None for the whole prompt at once.

        Returns:
            whether the prompt is done.
        """
        chunk = self.next_chunk(chunk_size)
        tokens = torch.tensor([self.request.token_ids[chunk]], device=self.model.embedding.weight.device)
        hidden = self.model.hidden(tokens, chunk, self.caches)
        done = chunk.stop == self.request.prompt_len
        if done:
            self.request.accept(self.model.logits(hidden[0, -1]))
        return done


Observer = Callable[[Sequence[Request | None], Prefill | None], None]
"""Is called after each step, with two arguments (one request is in both in the step in which it takes a slot):

- a new list of the requests that were decoded in this step, slot by slot, also those that finished; None: idle;
- the prefill whose turn it was: it has a chunk more now, or its last chunk waits for a slot. None if there is none.
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
        requests: what to generate. A request that can't ever run gets its ``error`` set and stays without output; the
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
    prefilling: Prefill | None = None
    while waiting or prefilling or any(slots):
        if prefilling is None and waiting:
            prefilling = Prefill(waiting.popleft(), model)
        current = prefilling
        if current is not None:
            prefilling = prefill_step(batch, slots, current, chunk_size)
        decoding = list(slots)
        if any(slots):
            decode_slots(batch, slots)
        observe(decoding, current)
    return [request.output for request in requests]


def prefill_step(
    batch: Batch, slots: list[Request | None], prefill: Prefill, chunk_size: int | None
) -> Prefill | None:
    """Bring a request one step closer to its slot: a chunk of its prompt, and with the last chunk a slot.

    The last chunk brings the first token, and the second must follow at once: so it waits while no slot is idle.
    A request that takes a slot hands its caches over: from then on the slot alone holds them.

    Returns:
        the prefill, if it needs another step; None if its request has a slot now, or has finished without one.
    """
    request = prefill.request
    last = prefill.next_chunk(chunk_size).stop == request.prompt_len
    if last and None not in slots:
        return prefill
    if not prefill.try_prefill(chunk_size):
        return prefill
    if not request.finished(batch.model.config.max_positions):
        slot = slots.index(None)
        batch.add(slot, prefill.caches)
        slots[slot] = request
    return None


def decode_slots(batch: Batch, slots: list[Request | None]) -> None:
    """Give every request in a slot its next token; a request that has finished leaves its slot."""
    tokens = [None if request is None else request.token_ids[-1] for request in slots]
    positions = [0 if request is None else len(request.token_ids) - 1 for request in slots]
    busy = [(slot, request) for slot, request in enumerate(slots) if request is not None]
    for (slot, request), logits in zip(busy, batch.decode(tokens, positions), strict=True):
        request.accept(logits)
        if request.finished(batch.model.config.max_positions):
            batch.remove(slot)
            slots[slot] = None
