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
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    @property
    def position(self) -> int:
        """Where the newest token of the output stands; no cache holds it yet."""
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    def refusal(self, max_positions: int) -> str | None:
        """Why this request can't ever run, or None.

        The prompt must leave at least one position free. A request that will run out of positions later may run: it
        ends there.

        Args:
            max_positions: what prompt and output together may use.
        """
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    def finished(self, max_positions: int) -> bool:
        """Whether the output is complete: ``max_tokens``, an end token, or all positions used."""
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    def accept(self, logits: Tensor) -> None:
        """Choose the next token from its logits [V] and append it to the output."""
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    def next_chunk(self, chunk_size: int | None) -> slice:
        """Which tokens of the prompt to compute next: at most ``chunk_size`` of them; all that are left if None."""
        raise NotImplementedError("Week 2 Day 7 Task 2: Prefill, whole and in chunks")

    def try_prefill(self, model: Transformer, chunk_size: int | None = None) -> bool:
        """Compute one chunk of the prompt, into ``caches``; with the last one, accept the first token.

        The head runs only after the last chunk, on its last row. A request that is ready must not be prefilled again.

        Args:
            model: the model.
            chunk_size: how many tokens at most; None: the whole prompt at once.

        Returns:
            whether the prompt is done.
        """
        raise NotImplementedError("Week 2 Day 7 Task 2: Prefill, whole and in chunks")


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
    raise NotImplementedError("Week 2 Day 7 Task 4: Continuous batching")


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
    raise NotImplementedError("Week 2 Day 7 Task 3: One step")


def decode_slots(batch: Batch, slots: list[Request | None]) -> None:
    """Give every request in a slot its next token; whoever has finished leaves."""
    raise NotImplementedError("Week 2 Day 7 Task 3: One step")
