"""Engines on pages as Day 3.2's tests run them, and a watch that knows the rules of a step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from week_2.beside_requests import progress
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import alone

from coursekit.check import check_equal

from .batch_model import RaggedModel, runner_of
from .pages import check_all_free, in_use, pages_needed


def batch_of(
    lab: Any,
    model: Any = None,
    *,
    num_pages: int = 40,
    P: int = 3,
    max_running: int = 3,
    chunk_size: int = 4,
) -> Any:
    """An engine without requests, over a model whose attention reads the pool token by token."""
    runner, allocator = runner_of(lab, model or RaggedModel(lab), num_pages, P)
    return lab.paged.batch.PagedBatch(runner, allocator, max_running, chunk_size)


def running_of(
    lab: Any, batch: Any, prompt: Sequence[int], max_tokens: int, held: int = 0, output: Sequence[int] = ()
) -> Any:
    """A request in the middle of its way, put into the engine by hand: the pool holds `held` of its tokens."""
    sequence = lab.paged.sequence.PagedSequence(batch.allocator, batch.page_size)
    sequence.reserve(len(prompt) + max_tokens)
    sequence.advance(held)
    request = new_request(lab, prompt, max_tokens, output=output)
    batch.running.append(lab.paged.running.Running(request, sequence))
    return batch.running[-1]


def most_tokens_of(request: Any, limit: int) -> int:
    """Tokens that the pool may have to hold: all but the last one generated."""
    return min(request.prompt_len + request.max_tokens, limit) - 1


def wanted_of(requests: Sequence[Any], limit: int = 1000) -> list[list[int]]:
    return [alone(each.prompt_ids, each.max_tokens, each.end_ids, limit) for each in requests]


def numbers_of(requests: Sequence[Any], some: Collection[Any]) -> list[int]:
    """Which of the requests these are."""
    return [next(n for n, other in enumerate(requests) if other is each) for each in some]


LENGTHS = (3, 17, 1, 4, 5, 30, 2, 8, 6)
COUNTS = (9, 2, 20, 1, 5, 6, 13, 0, 3)


def many(lab: Any) -> list[Any]:
    """Nine requests of very different lengths; the eighth asks for nothing."""
    pairs = zip(LENGTHS, COUNTS, strict=True)
    return [new_request(lab, prompt_of(length, seed=i), count) for i, (length, count) in enumerate(pairs)]


class Watch:
    """Is shown each step of an engine, and fails a test on what must not be then.

    `plans` holds, for each step, the numbers of the requests that took part, each with its count of tokens.
    """

    def __init__(self, batch: Any, requests: Sequence[Any]) -> None:
        self.batch = batch
        self.requests = list(requests)
        self.plans: list[list[tuple[int, int]]] = []
        self.produced = [each.num_generated for each in requests]
        self.computed = [0 for _ in requests]
        self.bound = 20 + sum(len(each.token_ids) + max(each.max_tokens, 0) for each in requests)

    def __call__(self, step: Any) -> None:
        assert len(self.plans) < self.bound, f"{self.bound} steps, and the requests are still not done"
        assert step.issued, "a step in which no request took part, while requests were left"
        took_part = numbers_of(self.requests, [request for request, _ in step.issued])
        self.plans.append(list(zip(took_part, [count for _, count in step.issued], strict=True)))
        self._check_shares(self.plans[-1])
        self._check_finished(step)
        self._check_pages()
        self._check_order()

    def _check_shares(self, plan: list[tuple[int, int]]) -> None:
        """Which request brought what; and a request got a token exactly if it took part and has nothing due."""
        step = f"step {len(self.plans)}"
        numbers = [number for number, _ in plan]
        assert len(numbers) <= self.batch.num_seats, f"{step}: {len(numbers)} requests took part"
        assert len(set(numbers)) == len(numbers), f"{step}: a request took part twice: {numbers}"
        chunks = [count for _, count in plan if count > 1]
        assert len(chunks) <= 1, f"{step}: chunks of {len(chunks)} prompts; a step computes one"
        most = max(chunks, default=1)
        assert most <= max(1, self.batch.chunk_size), f"{step}: a chunk of {most} tokens is too long"
        total = sum(count for _, count in plan)
        assert total <= self.batch.token_budget, (
            f"{step}: {total} tokens, more than the engine's token_budget"
        )
        for number, count in plan:
            self.computed[number] += count
        counts = progress(tuple(self.requests), self.batch.max_positions)
        for number, (now, _) in enumerate(counts):
            before = self.produced[number]
            assert now <= before + 1, (
                f"{step}: request {number} went from {before} to {now} tokens since `observe` was called last: "
                "call it after each step, also one that finishes no request"
            )
            due = before + (number in numbers and self._left(number) == 0)
            assert now == due, (
                f"{step}: request {number} went from {before} to {now} tokens; {self._left(number)} of its tokens "
                "are not in the pool yet: it gets a new one exactly when it took part and nothing is due any more"
            )
            self.produced[number] = now

    def _left(self, number: int) -> int:
        """How many tokens of a request were due behind those that it has brought, before it got a new one."""
        return int(self.requests[number].prompt_len + self.produced[number] - self.computed[number])

    def _check_finished(self, step: Any) -> None:
        """The requests of this step that are complete are in its `finished`, and have left."""
        limit, number = self.batch.max_positions, len(self.plans)
        wanted = sorted(n for n, _ in self.plans[-1] if self.requests[n].finished(limit))
        found = numbers_of(self.requests, step.finished)
        check_equal(
            found, wanted, name=f"the requests in `finished` of step {number}, in the order of arrival"
        )
        left = set(numbers_of(self.requests, self.batch.requests)) & set(wanted)
        assert not left, f"after step {number}: finished, and still in the engine: requests {sorted(left)}"

    def _check_pages(self) -> None:
        """The books balance, each page has one holder, and each request has pages for all that may come."""
        allocator, step = self.batch.allocator, f"after step {len(self.plans)}"
        allocator.check()
        held = Counter(page for each in self.batch.running for page in each.sequence.pages)
        assert in_use(allocator) == dict(sorted(held.items())), (
            f"{step}: pages in use {in_use(allocator)}; the requests that run hold {dict(sorted(held.items()))}"
        )
        limit, P = self.batch.max_positions, self.batch.page_size
        for each in self.batch.running:
            needed = pages_needed(most_tokens_of(each.request, limit), P)
            assert len(each.sequence.pages) == needed, (
                f"{step}: a request holds {len(each.sequence.pages)} pages; at its longest it needs {needed}, all of "
                "them from the start"
            )

    def _check_order(self) -> None:
        """No request has begun before one that came earlier."""
        numbers = [number for plan in self.plans for number, _ in plan]
        numbers += numbers_of(self.requests, [each.request for each in self.batch.running])
        for number in range(max(numbers)):
            if number in numbers:
                continue
            request = self.requests[number]
            assert request.error is not None or request.max_tokens < 1, (
                f"request {max(numbers)} runs; request {number}, which came before it, neither runs nor was refused"
            )


def run_all(lab: Any, batch: Any, requests: Sequence[Any], watch: Watch | None = None) -> list[list[int]]:
    """`generate_all` under a watch; everything is free at the end."""
    outputs = lab.engine_core.generate_all(batch, requests, watch or Watch(batch, requests))
    check_empty(batch, when="at the end")
    return outputs


def check_empty(batch: Any, *, when: str) -> None:
    """No request is in the engine, and no page is held."""
    __tracebackhide__ = True
    assert not batch.requests, f"{when}, {len(batch.requests)} requests are still in the engine"
    check_all_free(batch.allocator, when=when)


def core_of(lab: Any, num_seats: int, fails: Callable[[int], None] = lambda token: None) -> Any:
    """An engine that is none of the course's, without a model: `calls` notes how it is driven.

    In each step all requests get a token; a request whose first prompt token is 13 can't ever run. `fails` is called
    with a request's first token when it is pushed, and may raise.
    """

    class Plain(lab.engine_core.EngineCore):
        max_positions, token_budget = 50, num_seats

        def __init__(self) -> None:
            self.num_seats = num_seats
            self.allocator = None
            self.inside: deque[Any] = deque()
            self.calls: list[str] = []

        @property
        def idle(self) -> int:
            return num_seats - len(self.inside)

        @property
        def requests(self) -> list[Any]:
            return list(self.inside)

        def refusal(self, request: Any) -> str | None:
            return "the test refuses it" if request.token_ids[0] == 13 else None

        def push(self, request: Any) -> None:
            self.require_entry(request)
            fails(request.token_ids[0])
            self.calls.append(f"push {request.token_ids[0]}")
            self.inside.append(request)

        def step(self) -> Any:
            self.calls.append("step")
            issued = [(each, 1) for each in self.inside]
            for each in self.inside:
                each.token_ids.append(each.token_ids[0])
            finished = [each for each in self.inside if each.finished(self.max_positions)]
            self.inside = deque(each for each in self.inside if each not in finished)
            return lab.engine_core.Step(issued, finished)

        def abort(self, requests: Collection[Any]) -> None:
            self.inside = deque(each for each in self.inside if each not in requests)

    return Plain()
