"""What may happen to a scheduler and its engine, as hypothesis draws it: arrivals, failures, aborts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from week_2.continuous import lets_through, new_request
from week_3.pages import pages_needed

from coursekit.check import CheckFailed, check_equal

from .beside_schedules import books, ran
from .schedules import check_books, check_plan, check_sound, counts, ranks, scheduler_of
from .toy_runner import check_tokens, engine_of, step

LIMIT = 30
schedules = st.fixed_dictionaries(
    {
        "P": st.integers(1, 4),
        "pages": st.integers(4, 30),
        "trie": st.booleans(),
        "seats": st.integers(1, 6),
        "budget": st.integers(1, 12),
        "chunk": st.sampled_from([None, 1, 3, 5]),
    }
)
COMMON = ([0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0], [1] * 12)
prompts = st.builds(
    lambda common, count, rest: [*common[:count], *rest],
    st.sampled_from(COMMON),
    st.integers(0, 12),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), prompts, st.integers(1, 9)),
        st.tuples(st.just("arrive"), prompts, st.integers(1, 9)),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("fail")),
        st.tuples(st.just("leave"), st.integers(0, 5)),
    ),
    max_size=25,
)


def most_pages(request: Any, P: int, limit: int) -> int:
    """How many pages a request may come to need."""
    return pages_needed(min(request.prompt_len + request.max_tokens, limit) - 1, P)


def check_promises(scheduler: Any, when: str) -> None:
    """What all that run may still need is there; and who waits, waits for a reason."""
    __tracebackhide__ = True
    cache, limit = scheduler.cache, scheduler.max_positions
    lacking = sum(
        most_pages(each.request, cache.page_size, limit) - len(each.sequence.pages)
        for each in scheduler.running
    )
    assert lacking <= cache.available, (
        f"{when}: the requests that run may need {lacking} more pages, and {cache.available} are available"
    )
    if not (scheduler.waiting and scheduler.left and len(scheduler.running) < scheduler.num_seats):
        return
    first = scheduler.waiting[0]
    cache.match(first.sequence, first.request.token_ids)
    needs = most_pages(first.request, cache.page_size, limit) - len(first.sequence.pages)
    available = cache.available
    cache.release(first.sequence)
    assert lacking + needs > available, (
        f"{when}: request {first.rank} waits; there are a seat, {scheduler.left} tokens of the budget and "
        f"{available} pages; {lacking} of these are promised, and it needs {needs}"
    )


class Dry:
    """A scheduler without a model: requests get their tokens by hand."""

    def __init__(self, lab: Any, options: Mapping[str, Any]) -> None:
        self.lab = lab
        self.scheduler = scheduler_of(lab, limit=LIMIT, **options)
        self.pages, self.P = options["pages"], options["P"]
        self.number = 0

    def arrive(self, prompt: Sequence[int], max_tokens: int) -> None:
        request = new_request(self.lab, prompt, max_tokens)
        if most_pages(request, self.P, LIMIT) <= self.pages:
            self.scheduler.push(request)

    def step(self, times: int) -> None:
        __tracebackhide__ = True
        for _ in range(times):
            plan = self._plan()
            ran(self.scheduler, plan, token=self.number % 3)
            self._check(f"after step {self.number}")
            self.number += 1

    def fail(self) -> None:
        __tracebackhide__ = True
        before = books(self.scheduler)
        self._plan()
        self.scheduler.undo()
        when = f"after step {self.number} was planned and undone"
        if any(
            page not in books(self.scheduler)["the tree"].values() for page in before["the tree"].values()
        ):
            before = {what: before[what] for what in list(before)[:6]}  # pages were evicted, and stay so
        check_books(self.scheduler, before, when)

    def leave(self, number: int) -> None:
        __tracebackhide__ = True
        everyone = self.scheduler.requests
        self.scheduler.remove(everyone[number : number + 1])
        expected = everyone[:number] + everyone[number + 1 :]
        left = [request in self.scheduler.requests for request in everyone]
        check_equal(
            left,
            [request in expected for request in everyone],
            name="which requests are there after one left",
        )
        self._check("after a request left")

    def finish(self) -> None:
        """All come to their ends, and then all pages can be had."""
        __tracebackhide__ = True
        for _ in range(600):
            if not self.scheduler.num_requests:
                break
            self.step(1)
        check_equal(self.scheduler.num_requests, 0, name="the requests that are left after 600 more steps")
        check_equal(self.scheduler.cache.available, self.pages, name="the pages available at the end")

    def _plan(self) -> list[Any]:
        __tracebackhide__ = True
        scheduler, when = self.scheduler, f"step {self.number}"
        line, there = list(scheduler.line()), scheduler.num_requests
        try:
            plan: list[Any] = scheduler.plan()
        except self.lab.paged.allocator.OutOfPages as error:
            raise CheckFailed(
                f"{when}: no other user has pages, and {ranks(scheduler.running)} run, {ranks(scheduler.waiting)} "
                f"wait; so a request must be able to go on. OutOfPages was raised: {error}"
            ) from error
        assert plan or not there, f"{when}: no request brings a token"
        check_plan(scheduler, plan, line, when)
        check_promises(scheduler, f"{when}, {counts(plan)}")
        return plan

    def _check(self, when: str) -> None:
        __tracebackhide__ = True
        check_sound(self.scheduler, when)


class Engine(Dry):
    """The engine around the toy runner, which compares all that is read with what should be there."""

    def __init__(self, lab: Any, options: Mapping[str, Any], separate: bool) -> None:
        self.core = engine_of(lab, limit=LIMIT, separate=separate, **options)
        self.lab, self.scheduler, self.number = lab, self.core.scheduler, 0
        self.pages, self.P = options["pages"], options["P"]
        self.ended: list[Any] = []
        self.aborted: list[Any] = []

    def arrive(self, prompt: Sequence[int], max_tokens: int) -> None:
        request = new_request(self.lab, prompt, max_tokens, end_ids=[5, 17])
        if self.core.refusal(request) is None:
            self.core.push(request)
            self.ended.append(request)

    def step(self, times: int) -> None:
        __tracebackhide__ = True
        for _ in range(times):
            if self.core.requests:
                step(self.core, f"step {self.number}")
                self.number += 1

    def fail(self) -> None:
        __tracebackhide__ = True
        if not self.core.requests:
            return
        before = list(books(self.scheduler).items())[:6]
        error = self.core.runner.failure = KeyError("the model failed, as the test wanted it to")
        assert lets_through(error, self.core.step), (
            "the model failed; its error should come through, and did not"
        )
        check_books(self.scheduler, dict(before), f"after the model failed in step {self.number}")

    def leave(self, number: int) -> None:
        __tracebackhide__ = True
        some = self.core.requests[number : number + 1]
        self.core.abort(some)
        self.ended = [request for request in self.ended if request not in some]
        check_sound(self.scheduler, "after a request was aborted")

    def finish(self) -> None:
        __tracebackhide__ = True
        super().finish()
        check_tokens(self.ended, LIMIT, "at the end, compared with what it gets alone")


def play(world: Dry, happens: Sequence[tuple[Any, ...]]) -> None:
    """Let these things happen, then bring all requests to their ends."""
    __tracebackhide__ = True
    for name, *arguments in happens:
        getattr(world, name)(*arguments)
    world.finish()
