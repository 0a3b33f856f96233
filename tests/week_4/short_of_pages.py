"""Day 4.3's engine on a pool that holds token ids: a request that reads wrong pages gets wrong tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_2.reading_model import V, alone, best, fingerprints, scores_after

from coursekit.check import CheckFailed, check_equal
from coursekit.checking.objects import values_of
from coursekit.checking.wording import plural

from .beside_preempting import standing
from .beside_running import begin_run
from .preempting import check_books, scheduler_of

STEP = "issued", "preempted", "finished"
POISON = -1  # what a run that fails leaves behind


def ids(count: int, seed: int = 0) -> list[int]:
    """Tokens that the model has; those of two seeds differ from the first one on."""
    return [(5 * seed + 3 * n * (seed + 1)) % V for n in range(count)]


class TokenModel:
    """Stands for a model and its pool. A place holds a token id; the scores follow from all tokens that are read."""

    def __init__(self, lab: Any, pages: int, P: int) -> None:
        self.lab, self.P = lab, P
        self.pool = SimpleNamespace(num_pages=pages, page_size=P)
        self.model = SimpleNamespace(embedding=SimpleNamespace(weight=np.zeros((V, 1))), logits=self._logits)
        self.held: dict[int, int] = {}
        self.error: BaseException | None = None  # what the next run raises

    def run(self, sequences: Sequence[Any], tables: Any, tokens: Sequence[int], q_lens: Sequence[int]) -> Any:
        """Write all new tokens, then let each sequence read all of its own, as each layer of a model does."""
        places, left = [], iter(tokens)
        lengths, rows = begin_run(sequences, tables, q_lens, self.error is None)
        for length, pages, count in zip(lengths, rows, q_lens, strict=True):
            mine = [pages[n // self.P] * self.P + n % self.P for n in range(length + count)]
            for place in mine[length:]:
                self.held[place] = next(left) if self.error is None else POISON
            places.append(mine)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        read = [fingerprints([self.held.get(place, POISON) for place in mine])[-1] for mine in places]
        return self.lab.array(np.array(read, dtype=np.float32)[:, None])

    def _logits(self, hidden: Any) -> Any:
        return self.lab.array(np.stack([scores_after(int(row[0])) for row in self.lab.numpy(hidden)]))


class ShortOfPages:
    """An engine, its requests, and what each of them must get: what it gets alone."""

    def __init__(
        self, lab: Any, *, pages: int, P: int = 3, limit: int = 64, separate: bool = False, **options: Any
    ) -> None:
        self.lab, self.limit = lab, limit
        self.scheduler = scheduler_of(lab, pages=pages, P=P, limit=limit, **options)
        self.model = TokenModel(lab, pages + 1, P)
        self.core = lab.scheduling.batch.ExtendBatch(self.model, self.scheduler, separate=separate)
        self.wanted: dict[Any, list[int]] = {}
        self.preempted: dict[Any, int] = {}  # how often, by request
        self.began: dict[Any, int] = {}  # in which step each got its first tokens
        self.steps = 0

    def push(self, prompt: Sequence[int], max_tokens: int, seed: int | None = None, **options: Any) -> Any:
        """A request comes; with a seed, it draws its tokens at a temperature."""
        choose, sampler = best, dict[str, Any]()
        if seed is not None:
            params = self.lab.sampler.SamplingParams(temperature=2.0, top_k=5, seed=seed)
            other = self.lab.sampler.Sampler(params)
            sampler["sample"] = self.lab.sampler.Sampler(params)
            choose = lambda scores, ids: other(self.lab.array(scores), ids)  # noqa: E731
        request = self.lab.request.Request(prompt, max_tokens, **sampler, **options)
        self.wanted[request] = alone(prompt, max_tokens, max_positions=self.limit, choose=choose)
        self.core.push(request)
        return request

    def step(self) -> Any:
        """Make a step, and prove that it has done something, and that the books balance."""
        __tracebackhide__ = True
        places, next_one = standing(self.scheduler)
        before = {request: (level, -rank) for request, level, rank, _ in places}
        waiting = {request for request, *_, waits in places if waits}
        step = SimpleNamespace(**dict(zip(STEP, values_of([self.core.step()], *STEP)[0], strict=True)))
        self.steps += 1
        when = f"after step {self.steps}"
        if not step.issued and (waiting or self.core.requests):
            raise CheckFailed(f"{when}: there are requests, and no token was computed")
        for request in step.preempted:
            self.preempted[request] = self.preempted.get(request, 0) + 1
        begun = [request for request, _ in step.issued if request in waiting]
        if next_one is not None and next_one not in begun:
            raise CheckFailed(
                f"{when}: the next request of those that waited had level {before[next_one][0]}, all that ran had "
                "lower ones, and it has not begun: it may take seats and pages from them"
            )
        self._check_preempted(step, begun, before, when)
        for request in begun:
            self.began.setdefault(request, self.steps)
        check_books(self.scheduler, when)
        for request in step.finished:
            self.check_output(request)
        return step

    @staticmethod
    def _check_preempted(step: Any, begun: Collection[Any], before: Mapping[Any, Any], when: str) -> None:
        """Each request that was preempted has left the step, and another one, which stands above it, is in it."""
        __tracebackhide__ = True
        issued = [request for request, _ in step.issued]
        for request in step.preempted:
            rank = -before[request][1]
            if request in issued:
                raise CheckFailed(f"{when}: number {rank} was preempted, and is in the same step")
            above = [
                other
                for other in issued
                if (
                    before[other][0] > before[request][0]
                    if other in begun
                    else before[other] > before[request]
                )
            ]
            if not above:
                raise CheckFailed(
                    f"{when}: number {rank} was preempted for no request: none that stands above it is in the "
                    f"step, and "
                    "none that has begun in it has a higher level"
                )

    def fail(self, error: BaseException) -> None:
        """Let the model fail in the next step, which must let the error through and put the requests back."""
        __tracebackhide__ = True
        self.model.error = error
        try:
            self.core.step()
        except BaseException as raised:
            if raised is not error:
                raise
        else:
            raise CheckFailed("the model has failed in this step, and `step` has raised nothing")
        check_books(self.scheduler, "after a step in which the model failed")

    def finish(self, most: int = 1000) -> None:
        """Make steps until all requests have ended."""
        __tracebackhide__ = True
        first = self.steps
        while self.core.requests:
            if self.steps - first >= most:
                raise CheckFailed(
                    f"after {plural(most, 'step')} these requests have not ended: {self._state()}. They had to end "
                    "long before"
                )
            self.step()
        free = self.scheduler.cache.allocator.num_pages - 1
        check_equal(
            self.scheduler.cache.available,
            free,
            name="how many pages are available when all requests have ended",
        )

    def abort(self, requests: Collection[Any]) -> None:
        __tracebackhide__ = True
        self.core.abort(requests)
        check_books(self.scheduler, "after requests were aborted")

    def check_output(self, request: Any) -> None:
        __tracebackhide__ = True
        times = self.preempted.get(request, 0)
        check_equal(
            request.output,
            self.wanted[request],
            name=f"the output of a request with a prompt of {plural(request.prompt_len, 'token')} that was preempted "
            f"{plural(times, 'time')} (expected: what it gets alone)",
        )

    def times(self) -> dict[str, int]:
        """How often each request was preempted, by its client: for requests of different clients."""
        return {request.client: count for request, count in self.preempted.items()}

    def _state(self) -> str:
        told = []
        for each in sorted(self.scheduler.running + self.scheduler.waiting, key=lambda each: each.rank):
            request = each.request
            told.append(
                f"number {each.rank} ({request.num_generated} of {request.max_tokens} tokens, level {each.level}, "
                f"preempted {plural(self.preempted.get(request, 0), 'time')})"
            )
        return ", ".join(told[:5]) + (" …" if len(told) > 5 else "")
