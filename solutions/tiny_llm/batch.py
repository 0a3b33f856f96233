"""Continuous batching and chunked prefill (Day 2.7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tiny_llm.arrays import evaluate, integers
from tiny_llm.kv_cache import FullKvCache
from tiny_llm.model import Transformer
from tiny_llm.request import Request
from tiny_llm.static_batch import Batch


class Prefill:
    """A request on its way to a slot, and the caches that hold what is computed of its tokens.

    These are the tokens of its prompt. If the request has an output already, from a call that ended with an error or
    Ctrl-C, the output is computed together with the prompt, and the request goes on behind it.
    """

    def __init__(self, request: Request, model: Transformer) -> None:
        """Start with nothing computed."""
        self.request = request
        self.model = model
        self.computed = 0  # how many of the request's tokens were computed
        self.caches = [FullKvCache() for _ in range(model.config.num_layers)]  # one per layer

    def next_chunk(self, chunk_size: int | None) -> slice:
        """Which of the request's tokens come next.

        Args:
            chunk_size: how many of them at most; None for all that are left.
        """
        left = len(self.request.token_ids) - self.computed
        return slice(self.computed, self.computed + (left if chunk_size is None else min(left, chunk_size)))

    def try_prefill(self, chunk_size: int | None = None) -> bool:
        """Compute the next chunk; after the last one, let the request accept its next token.

        The head runs only after the last chunk, on its last row. After True, it must not be called again. Whatever
        the model or the sampler raises comes through, and the request's tokens are as they were.

        Args:
            chunk_size: how many tokens at most; None for all at once.

        Returns:
            whether this was the last chunk.
        """
        chunk = self.next_chunk(chunk_size)
        tokens = integers([self.request.token_ids[chunk]], like=self.model.embedding.weight)
        hidden = self.model.hidden(tokens, chunk, self.caches)
        evaluate(hidden)  # also if it isn't the last chunk
        self.computed = chunk.stop
        done = chunk.stop == len(self.request.token_ids)
        if done:
            self.request.accept(self.model.logits(hidden[0, -1]))
        return done


Observer = Callable[[Sequence[Request | None], Prefill | None], None]
"""Is called after each step, with two arguments (in the step in which a request takes a slot, it is in both):

- a new list with an entry per slot: the request that was decoded in this step, even if it finished with it, or None;
- the prefill whose turn it was, or None: one more chunk of it is computed now, or its last chunk waits for a slot.
"""


def batch_generate(
    model: Transformer,
    requests: Sequence[Request],
    max_slots: int = 5,
    chunk_size: int | None = 128,
    observe: Observer = lambda slots, prefilling: None,
) -> list[list[int]]:
    """Continuous batching: as soon as a request has finished, the next one takes its slot.

    Each step computes one chunk of one request, if one is to be prefilled, then decodes one token for every slot: no
    request waits for more than a chunk between two of its tokens. While all slots are taken, one request is prefilled
    ahead, up to its last chunk. A request that finishes with its last chunk never takes a slot.

    The caches of a request are gone as soon as it has finished, and all of them after an error or Ctrl-C. After
    these, the requests keep their output so far, and another call with them goes on behind it.

    Args:
        model: the model.
        requests: what to generate. The ``error`` of each is set anew, before any of them runs: a reason for a request
            that can't ever run, which stays as it is, and None for the others.
        max_slots: how many requests are decoded together at most.
        chunk_size: how many tokens of a request are prefilled in a step at most; None for all at once.
        observe: called after each step.

    Returns:
        the output of each request, in the order of ``requests``.

    Raises:
        ValueError: ``max_slots`` or ``chunk_size`` is below 1, or a request is given twice. No request has changed.
    """
    if max_slots < 1 or (chunk_size is not None and chunk_size < 1):
        raise ValueError(f"{max_slots} slots and chunks of {chunk_size}: both must be at least 1")
    if len(set(requests)) < len(requests):
        raise ValueError("a request is given twice: it can be in one place only")
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
    """Bring a request one step closer to its slot: a chunk, and with the last chunk a slot.

    The last chunk brings a token, and the next token must follow at once: so the last chunk waits while no slot is
    idle, also that of a request that wants one token only. After it, the prefill has no caches any more (``[]``): the
    slot alone holds them, or, if the request has finished, nothing does.

    Returns:
        the prefill, if it needs another step; None if its request has a slot now, or has finished without one.
    """
    request = prefill.request
    last = prefill.next_chunk(chunk_size).stop == len(request.token_ids)
    if last and None not in slots:
        return prefill
    if not prefill.try_prefill(chunk_size):
        return prefill
    if not request.finished(batch.model.config.max_positions):
        slot = slots.index(None)
        batch.add(slot, prefill.caches)
        slots[slot] = request
    prefill.caches = []
    return None


def decode_slots(batch: Batch, slots: list[Request | None]) -> None:
    """Give every request in a slot its next token; a request that has finished leaves its slot, and the batch."""
    tokens = [None if request is None else request.token_ids[-1] for request in slots]
    positions = [0 if request is None else len(request.token_ids) - 1 for request in slots]
    busy = [(slot, request) for slot, request in enumerate(slots) if request is not None]
    for (slot, request), logits in zip(busy, batch.decode(tokens, positions), strict=True):
        request.accept(logits)
        if request.finished(batch.model.config.max_positions):
            batch.remove(slot)
            slots[slot] = None
