"""Batches on pages as Day 3.2's tests run them, and an onlooker who knows the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from week_2.continuous import new_request, prompt_of
from week_2.reading_model import alone

from .batch_model import RaggedModel, storage_for
from .pages import pages_needed, check_all_free, in_use


def batch_of(
    lab: Any,
    model: Any = None,
    *,
    num_pages: int = 40,
    P: int = 3,
    max_running: int = 3,
    chunk_size: int = 4,
) -> Any:
    """An empty batch over a model whose attention reads the pool token by token."""
    model = model or RaggedModel(lab)
    pool, allocator = storage_for(lab, model, num_pages, P)
    return lab.paged.batch.PagedBatch(model, pool, allocator, max_running, chunk_size, model.read)


def running_of(
    lab: Any, batch: Any, prompt: Sequence[int], max_tokens: int, held: int = 0, output: Sequence[int] = ()
) -> Any:
    """A request in the middle of its way, put into the batch by hand: the pool holds `held` of its tokens."""
    sequence = lab.paged.sequence.PagedSequence(batch.allocator, batch.pool.page_size)
    sequence.reserve(len(prompt) + max_tokens)
    sequence.advance(held)
    request = new_request(lab, prompt, max_tokens, output=output)
    each = lab.paged.batch.Running(request, sequence)
    each.ids.extend(output)
    batch.running.append(each)
    return each


def longest_of(request: Any, limit: int) -> int:
    """Tokens that the pool may have to hold: all but the last one generated."""
    return min(len(request.prompt_ids) + request.max_tokens, limit) - 1


def wanted_of(requests: Sequence[Any], limit: int = 1000) -> list[list[int]]:
    return [alone(each.prompt_ids, each.max_tokens, each.end_ids, limit) for each in requests]


LENGTHS = (3, 17, 1, 4, 5, 30, 2, 8, 6)
COUNTS = (9, 2, 20, 1, 5, 6, 13, 0, 3)


def many(lab: Any) -> list[Any]:
    """Nine requests of very different lengths; the eighth asks for nothing."""
    pairs = zip(LENGTHS, COUNTS, strict=True)
    return [new_request(lab, prompt_of(length, seed=i), count) for i, (length, count) in enumerate(pairs)]


class Watch:
    """Looks on, and fails a test on what must not be after a step. `plans` holds, for each, (request, tokens)."""

    def __init__(self, batch: Any, requests: Sequence[Any]) -> None:
        self.batch = batch
        self.requests = list(requests)
        self.plans: list[list[tuple[int, int]]] = []
        self.produced = [len(each.output) for each in requests]
        self.computed = [0 for _ in requests]
        self.bound = 20 + sum(len(each.prompt_ids) + max(each.max_tokens, 0) for each in requests)

    def __call__(self, plan: Sequence[tuple[Any, int]]) -> None:
        assert len(self.plans) < self.bound, f"{self.bound} steps, and the requests are still not done"
        assert plan, "a step in which nobody took part"
        known = {id(each): number for number, each in enumerate(self.requests)}
        self.plans.append([(known[id(each.request)], count) for each, count in plan])
        self._check_shares(self.plans[-1])
        self._check_blocks()
        self._check_order()

    def _check_shares(self, plan: list[tuple[int, int]]) -> None:
        """Who brought what, and that whoever had nothing left to bring, and nobody else, got a token."""
        step = f"step {len(self.plans)}"
        numbers = [number for number, _ in plan]
        assert len(numbers) <= self.batch.max_running, f"{step}: {len(numbers)} requests took part"
        assert len(set(numbers)) == len(numbers), f"{step}: a request took part twice: {numbers}"
        chunks = [count for _, count in plan if count > 1]
        assert len(chunks) <= 1, f"{step}: chunks of {len(chunks)} prompts; a step computes one"
        most = max(chunks, default=1)
        assert most <= max(1, self.batch.chunk_size), f"{step}: a chunk of {most} tokens is too long"
        for number, count in plan:
            self.computed[number] += count
        for number, request in enumerate(self.requests):
            before, now = self.produced[number], len(request.output)
            left = len(request.prompt_ids) + before - self.computed[number]
            due = before + (number in numbers and left == 0)
            assert now == due, (
                f"{step}: request {number} went from {before} to {now} tokens; {left} of its tokens are not in the "
                "pool yet: it gets a new one exactly when it took part and nothing is due any more"
            )
            self.produced[number] = now

    def _check_blocks(self) -> None:
        """The books balance, each block has one holder, and each request has blocks for all that may come."""
        allocator, step = self.batch.allocator, f"after step {len(self.plans)}"
        allocator.check()
        held = Counter(block for each in self.batch.running for block in each.sequence.blocks)
        assert in_use(allocator) == dict(sorted(held.items())), (
            f"{step}: blocks in use {in_use(allocator)}; those that run hold {dict(sorted(held.items()))}"
        )
        limit, P = self.batch.model.config.max_positions, self.batch.pool.page_size
        for each in self.batch.running:
            assert not each.request.finished(limit), f"{step}: a request that is finished is still running"
            needed = pages_needed(longest_of(each.request, limit), P)
            assert len(each.sequence.blocks) == needed, (
                f"{step}: a request holds {len(each.sequence.blocks)} blocks; its longest needs {needed}, all of "
                "them from the start"
            )

    def _check_order(self) -> None:
        """Nobody came before one who stands further in front."""
        numbers = [number for plan in self.plans for number, _ in plan]
        numbers += [self.requests.index(each.request) for each in self.batch.running]
        for number in range(max(numbers)):
            request = self.requests[number]
            idle = request.error is not None or request.max_tokens < 1
            assert number in numbers or idle, (
                f"request {max(numbers)} runs, and request {number} is still waiting"
            )


def run_all(lab: Any, batch: Any, requests: Sequence[Any], watch: Watch | None = None) -> list[list[int]]:
    """`batch_generate_paged` with an onlooker; everything is free at the end."""
    outputs = lab.paged.batch.batch_generate_paged(batch, requests, watch or Watch(batch, requests))
    check_empty(batch, when="at the end")
    return outputs


def check_empty(batch: Any, *, when: str) -> None:
    """Nobody runs, and nobody holds a block."""
    __tracebackhide__ = True
    assert not batch.running, f"{when}, {len(batch.running)} requests are still running"
    check_all_free(batch.allocator, when=when)
