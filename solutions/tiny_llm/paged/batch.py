"""Continuous batching on pages: prompts and decodes of many requests in the same run of the model (Day 3.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from tiny_llm.batch import Request
from tiny_llm.model import Transformer
from tiny_llm.paged.allocator import BlockAllocator, OutOfBlocks
from tiny_llm.paged.attention import PagedAttention, PagedCache, paged_attention
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool, blocks_for
from tiny_llm.paged.sequence import PagedSequence


def run_step(
    model: Transformer,
    pool: KvPool,
    sequences: Sequence[PagedSequence],
    tokens: Sequence[Sequence[int]],
    attention: PagedAttention = paged_attention,
) -> Tensor:
    """Run the model once over the new tokens of several sequences, and advance these.

    Tokens and metadata go where the model's embedding is.

    Args:
        model: the model.
        pool: where keys and values are.
        sequences: those that take part, each once; blocks for their new tokens are reserved.
        tokens: the new token ids of each, at least one.
        attention: how to attend.

    Returns:
        [B, E]: of each sequence, what ``model.hidden`` gives for its last token.

    Raises:
        ValueError: a sequence brings no token, or has no blocks for what it brings; none is taken here.
    """
    device = model.embedding.weight.device
    meta = ForwardMeta.build(sequences, [len(ids) for ids in tokens], device)
    caches = [PagedCache(pool, layer, meta, attention) for layer in range(model.config.num_layers)]
    row = torch.tensor([[token for ids in tokens for token in ids]], device=device)
    hidden = model.hidden(row, meta.positions, caches)
    for sequence, ids in zip(sequences, tokens, strict=True):
        sequence.advance(len(ids))
    return hidden[0, meta.last_rows]


class Running:
    """A request that runs: it has its blocks."""

    def __init__(self, request: Request, sequence: PagedSequence) -> None:
        """Begin with the prompt; the sequence is empty, and has blocks for all that may come."""
        self.request = request
        self.sequence = sequence
        self.ids = list(request.prompt_ids)  # prompt and output

    @property
    def due(self) -> int:
        """How many of its tokens the pool doesn't hold yet: what is left of the prompt, or the newest token."""
        return len(self.ids) - self.sequence.length

    def next_ids(self, count: int) -> list[int]:
        """The next ``count`` tokens that are due."""
        return self.ids[self.sequence.length :][:count]

    def accept(self, logits: Tensor) -> None:
        """Choose the next token from its logits [V]."""
        self.request.accept(logits)
        self.ids.append(self.request.output[-1])


class PagedBatch:
    """Requests that run together, on the blocks of one pool.

    There are no slots and no rows: each step makes one ragged batch of whatever the requests bring.
    """

    def __init__(
        self,
        model: Transformer,
        pool: KvPool,
        allocator: BlockAllocator,
        max_running: int = 16,
        chunk_size: int = 128,
        attention: PagedAttention = paged_attention,
    ) -> None:
        """Start empty.

        Args:
            model: the model.
            pool: where keys and values go.
            allocator: hands out the pool's blocks; others may use it, too.
            max_running: how many requests run together at most.
            chunk_size: how many tokens of a prompt are computed in a step at most.
            attention: how to attend.

        Raises:
            ValueError: ``max_running`` or ``chunk_size`` is below 1.
        """
        if max_running < 1 or chunk_size < 1:
            raise ValueError(f"{max_running} requests and chunks of {chunk_size}: both must be at least 1")
        self.model = model
        self.pool = pool
        self.allocator = allocator
        self.max_running = max_running
        self.chunk_size = chunk_size
        self.attention = attention
        self.running: list[Running] = []  # in the order in which they came

    def longest(self, request: Request) -> int:
        """How many tokens of a request the pool may have to hold: the last one that it generates never gets there."""
        return min(len(request.prompt_ids) + request.max_tokens, self.model.config.max_positions) - 1

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None: the reason of :meth:`Request.refusal`, or too small a pool."""
        reason = request.refusal(self.model.config.max_positions)
        blocks = self.allocator.num_blocks - 1
        needed = blocks_for(self.longest(request), self.pool.block_size)
        if reason is None and needed > blocks:
            return f"prompt and output need up to {needed} blocks of {self.pool.block_size}; the pool has {blocks}"
        return reason

    def admit(self, waiting: deque[Request]) -> None:
        """Let requests in from the left, while there are few enough, and blocks for all that they may need.

        They get all their blocks now, so that none is left stranded half way. One that has to wait is not overtaken.

        Raises:
            OutOfBlocks: the first one has to wait, and nobody runs who could make room.
        """
        while waiting and len(self.running) < self.max_running:
            sequence = PagedSequence(self.allocator, self.pool.block_size)
            try:
                sequence.reserve(self.longest(waiting[0]))
            except OutOfBlocks:
                if not self.running:
                    raise
                return
            self.running.append(Running(waiting.popleft(), sequence))

    def plan(self) -> list[tuple[Running, int]]:
        """Who brings how many tokens to the next step.

        First all that have a single token due, in the order in which they came; then the first of the others, with a
        chunk of its prompt.
        """
        singles = [(each, 1) for each in self.running if each.due == 1]
        prompts = [(each, min(each.due, self.chunk_size)) for each in self.running if each.due > 1]
        return singles + prompts[:1]

    def step(self) -> list[tuple[Running, int]]:
        """Run the model once. Whoever has no token due after it gets its next one; whoever is finished leaves.

        Returns:
            what :meth:`plan` said.
        """
        plan = self.plan()
        sequences = [each.sequence for each, _ in plan]
        tokens = [each.next_ids(count) for each, count in plan]
        hidden = run_step(self.model, self.pool, sequences, tokens, self.attention)
        complete = [row for row, (each, _) in enumerate(plan) if each.due == 0]
        if complete:
            for row, logits in zip(complete, self.model.logits(hidden[complete]), strict=True):
                plan[row][0].accept(logits)
        limit = self.model.config.max_positions
        for each in [each for each in self.running if each.request.finished(limit)]:
            each.sequence.release()
            self.running.remove(each)
        return plan

    def release(self) -> None:
        """Give the blocks of all that still run back: after an error, or when nobody wants the rest."""
        for each in self.running:
            each.sequence.release()
        self.running = []


def generate_paged(batch: PagedBatch, request: Request) -> Iterator[int]:
    """One request's tokens, as they come.

    Args:
        batch: empty; empty again at the end, also when the caller asks for no more.
        request: what to generate.

    Yields:
        Each new token id.

    Raises:
        ValueError: the request can't ever run; its ``error`` says the same. Raised when the first token is asked for,
            as OutOfBlocks is.
        OutOfBlocks: others hold too many blocks.
    """
    request.error = batch.refusal(request)
    if request.error is not None:
        raise ValueError(request.error)
    if request.finished(batch.model.config.max_positions):
        return
    try:
        batch.admit(deque([request]))
        while batch.running:
            batch.step()
            if request.output:
                yield request.output[-1]
    finally:
        batch.release()


def batch_generate_paged(
    batch: PagedBatch,
    requests: Sequence[Request],
    observe: Callable[[Sequence[tuple[Running, int]]], None] = lambda plan: None,
) -> list[list[int]]:
    """Day 2.7's continuous batching, on pages: a step is one run of the model.

    Args:
        batch: empty; empty again at the end, however that comes.
        requests: what to generate. One that can't ever run gets its ``error`` set and stays without output; the
            others go on.
        observe: called after each step with those that took part, and how many tokens each brought.

    Returns:
        the output of each request, in the order of ``requests``.

    Raises:
        OutOfBlocks: others hold so many blocks that a request can't begin.
    """
    for request in requests:
        request.error = batch.refusal(request)
    limit = batch.model.config.max_positions
    waiting = deque(each for each in requests if each.error is None and not each.finished(limit))
    try:
        while waiting or batch.running:
            batch.admit(waiting)
            observe(batch.step())
    finally:
        batch.release()
    return [request.output for request in requests]
