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
        raise NotImplementedError("Week 2 Day 7 Task 2: Prefill, whole and in chunks")

    def try_prefill(self, chunk_size: int | None = None) -> bool:
        """Compute the next chunk; after the last one, let the request accept its next token.

        The head runs only after the last chunk, on its last row. After True, it must not be called again. Whatever
        the model or the sampler raises comes through, and the request's tokens are as they were.

        Args:
            chunk_size: how many tokens at most; None for all at once.

        Returns:
            whether this was the last chunk.
        """
        raise NotImplementedError("Week 2 Day 7 Task 2: Prefill, whole and in chunks")


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
    raise NotImplementedError("Week 2 Day 7 Task 4: Continuous batching")


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
    raise NotImplementedError("Week 2 Day 7 Task 3: One step")


def decode_slots(batch: Batch, slots: list[Request | None]) -> None:
    """Give every request in a slot its next token; a request that has finished leaves its slot, and the batch."""
    raise NotImplementedError("Week 2 Day 7 Task 3: One step")
