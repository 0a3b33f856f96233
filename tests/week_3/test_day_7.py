"""Day 3.7: tickets, the batcher's door and its loop, and the gRPC service, also under load and with faults."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import wait as wait_for_futures
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import V, alone, scores_after

from coursekit import lab as door
from coursekit.check import check_equal, check_raises

from .serving import (
    END,
    HALVES,
    LIMIT,
    Letters,
    batcher_of,
    check_at_rest,
    queued,
    seated,
    some,
    wanted,
    watched,
)
from .serving_grpc import Aborted, Code, Context, Desk, Loopback, message_of, opened, over_grpc
from .serving_threads import Running, ThreadErrors, run_async, within

QUICK = settings(max_examples=40, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)


@pytest.fixture(autouse=True)
def _imported(lab: Any, request: pytest.FixtureRequest) -> None:
    """What takes its time to be imported isn't imported inside a time limit."""
    if request.node.name.startswith("test_task_5"):
        assert lab.ragged.grpc_server


# Task 1: a ticket


class Notes:
    """Stands for the metrics: remembers what it was told, and says that tokens came at 10, 20, 30."""

    def __init__(self) -> None:
        self.told: list[tuple[float, bool]] = []

    def token(self, since: float, first: bool) -> float:
        self.told.append((since, first))
        return 10.0 * len(self.told)


def nobody(token: int) -> None:
    """Nobody wants to hear of it."""


def ticket_of(lab: Any, request: Any, on_token: Callable[[int], Any] = nobody, notes: Any = None) -> Any:
    return lab.ragged.ticket.Ticket(request, on_token, notes or Notes())


def choosing(*tokens: int) -> Callable[[Any, Any], int]:
    """A way of sampling that gives these, one after the other."""
    left = deque(tokens)
    return lambda logits, token_ids: left.popleft()


def failing(error: Exception) -> Callable[..., int]:
    """A way of sampling, or somebody to be told of tokens, that fails."""

    def fail(*arguments: Any) -> int:
        raise error

    return fail


def test_task_1_a_token_is_chosen_by_the_callers_sampler_and_told_to_the_caller(lab):
    given, told = list[tuple[Any, list[int]]](), list[int]()

    def sample(logits: Any, token_ids: Any) -> int:
        given.append((logits, list(token_ids)))
        return 11 + len(given)

    ticket = ticket_of(lab, new_request(lab, [4, 2], 5, sample=sample), told.append)
    logits = lab.array(np.zeros(V))
    check_equal(ticket.choose(logits, [4, 2]), 12, name="what `choose` returns")
    ticket.request.accept(logits)
    check_equal([ids for _, ids in given], [[4, 2], [4, 2]], name="the ids that the sampler was given")
    assert given[0][0] is logits, "the sampler was not given the logits"
    check_equal(told, [12, 13], name="the tokens that the caller was told of")
    check_equal(ticket.request.output, [13], name="the output of the ticket's request after one `accept`")
    assert ticket.error is None, f"nothing went wrong, and the ticket has an error: {ticket.error!r}"


def test_task_1_each_token_is_timed_from_the_one_before_it(lab):
    notes = Notes()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3, 5, 7)), notes=notes)
    came = ticket.last
    for _ in range(3):
        ticket.request.accept(None)
    name = "what the metrics were told of three tokens: since when, and whether it is the first"
    check_equal(notes.told, [(came, True), (10.0, False), (20.0, False)], name=name)
    check_equal(ticket.last, 30.0, name="`last`: when the newest token came, as the metrics say")


def test_task_1_a_sampler_that_fails_harms_nobody_else(lab):
    error, told = ZeroDivisionError("a bad sampler"), list[int]()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=failing(error)), told.append)
    token = ticket.choose(lab.array(np.zeros(V)), [1])
    assert isinstance(token, int), f"a sampler failed: `choose` must return some token, not {token!r}"
    assert ticket.error is error, f"the ticket's error is what the sampler raised, not {ticket.error!r}"
    check_equal((told, ticket.over), ([], True), name="tokens that were told, and whether the ticket is over")


def test_task_1_a_caller_who_fails_when_told_harms_nobody_else(lab):
    error = OSError("the caller has hung up")
    notes = Notes()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3)), failing(error), notes)
    token = ticket.choose(lab.array(np.zeros(V)), [1])
    assert isinstance(token, int), f"`on_token` failed: `choose` must return some token, not {token!r}"
    assert ticket.error is error, f"the ticket's error is what `on_token` raised, not {ticket.error!r}"
    check_equal(len(notes.told), 1, name="tokens in the metrics: a token is noted before its caller is told")


def test_task_1_a_future_gets_a_copy_of_the_output(lab):
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3, 5)))
    for _ in range(2):
        ticket.request.accept(None)
    assert ticket.settle() is True, "`settle` returns True when the answer was wanted"
    result = ticket.future.result(timeout=0)
    check_equal(result, [3, 5], name="the future's result")
    assert result is not ticket.request.output, (
        "the future's result is a copy: the request goes on using its own"
    )


def test_task_1_a_future_gets_the_error_where_there_is_one(lab):
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3)))
    ticket.request.accept(None)
    ticket.error = ValueError("too late")
    assert ticket.settle() is True, "`settle` returns True: nobody has cancelled, so an error was wanted, too"
    assert ticket.future.exception(timeout=0) is ticket.error, "the future's error is not the ticket's"


@pytest.mark.parametrize("error", [None, ValueError("too late")], ids=["with output", "with an error"])
def test_task_1_a_cancelled_future_gets_nothing_and_wakes_those_who_wait(lab, error):
    ticket = ticket_of(lab, new_request(lab, [1], 5))
    ticket.error = error
    assert ticket.future.cancel(), "a future can be cancelled as long as nobody has settled it"
    assert ticket.settle() is False, "`settle` returns False when the caller has cancelled"
    done, _ = wait_for_futures([ticket.future], timeout=0)
    assert done, (
        "`concurrent.futures.wait` doesn't know that the future was cancelled: tell it, with "
        "`set_running_or_notify_cancel`"
    )


@pytest.mark.parametrize("error", [None, ValueError("too late")], ids=["with output", "with an error"])
def test_task_1_nobody_can_cancel_in_the_middle_of_settling(lab, error):
    """Between the question whether a future was cancelled and its result, another thread may run."""
    cancelled = list[bool]()

    class Racing(Future):
        def set_result(self, result: Any) -> None:
            cancelled.append(self.cancel())
            super().set_result(result)

        def set_exception(self, exception: Any) -> None:
            cancelled.append(self.cancel())
            super().set_exception(exception)

    ticket = ticket_of(lab, new_request(lab, [1], 5))
    ticket.future, ticket.error = Racing(), error
    with contextlib.suppress(InvalidStateError):  # where the cancel came through
        ticket.settle()
    name = "whether a cancel came through just before the result was set, as it would from another thread"
    check_equal(cancelled, [False], name=name)


# Task 2: through the door


class Guarded(deque):
    """A queue that fails a test when it is changed by somebody who doesn't hold the lock."""

    def __init__(self, batcher: Any, tickets: Any = ()) -> None:
        super().__init__(tickets)
        self.batcher = batcher

    def append(self, ticket: Any) -> None:
        self._check("append")
        super().append(ticket)

    def popleft(self) -> Any:
        self._check("popleft")
        return super().popleft()

    def clear(self) -> None:
        self._check("clear")
        super().clear()

    def _check(self, what: str) -> None:
        assert not is_free(self.batcher.changed), f"the queue's `{what}` was called outside `changed`"


def is_free(lock: Any) -> bool:
    """Whether another thread can take the lock."""

    def take() -> bool:
        free: bool = lock.acquire(blocking=False)
        if free:
            lock.release()
        return free

    return bool(within(take, "asking for the lock"))


def ends_of(batcher: Any) -> list[bool]:
    """From now on, for each ticket that `end` is called with: whether others could take the lock just then."""
    usual, free = batcher.end, list[bool]()

    def end(ticket: Any) -> None:
        free.append(is_free(batcher.changed))
        usual(ticket)

    batcher.end = end
    return free


def doorkeeper(lab: Any, body: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    """A batcher whose loop, which Task 3 writes, only waits until it is closed, or does what `body` says."""

    class Doorkeeper(lab.ragged.batcher.Batcher):
        abandons = 0

        def loop(self) -> None:
            if body is not None:
                body(self)
                return
            with self.changed:
                self.changed.wait_for(lambda: self.closed, 2 * LIMIT)

        def abandon(self) -> None:
            self.abandons += 1

    return batcher_of(lab, None, Doorkeeper, **options)


def test_task_2_requests_wait_in_the_order_in_which_they_came(lab):
    batcher = doorkeeper(lab)
    batcher.request_queue = Guarded(batcher)
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 3) for n in (4, 1, 3)]
    futures = [batcher.submit(request) for request in requests]
    check_equal(queued(batcher), [list(r.prompt_ids) for r in requests], name="the prompts in the queue")
    pending = [isinstance(future, Future) and not future.done() for future in futures]
    check_equal(pending, [True] * 3, name="whether each `submit` returned a future that is not settled yet")
    check_equal(batcher.stats().waiting, 3, name="requests that wait, in the figures")
    own = [ticket.future for ticket in batcher.request_queue]
    assert all(a is b for a, b in zip(own, futures, strict=True)), "`submit` returns the ticket's own future"


def test_task_2_a_ticket_knows_sampler_and_listener(lab):
    batcher, told = doorkeeper(lab), list[int]()
    request = new_request(lab, [3, 1], 4, sample=choosing(9, 8))
    batcher.submit(request, told.append)
    batcher.submit(new_request(lab, [3, 1], 4, sample=choosing(9, 8)))
    for ticket in batcher.request_queue:
        ticket.request.accept(None)
        assert ticket.error is None, f"a token was chosen, and that ended with {ticket.error!r}"
    check_equal(told, [9], name="the tokens that `on_token` was told of")
    check_equal(request.output, [], name="the output of the caller's own request, which is left as it is")
    check_equal(batcher.stats().tokens, 2, name="tokens in the figures: the ticket has the batcher's metrics")


def test_task_2_what_can_never_run_is_refused_with_the_reason(lab):
    batcher = doorkeeper(lab, pages=5)
    for prompt, count in (([], 3), (prompt_of(64), 1), (prompt_of(9), 9)):
        request = new_request(lab, prompt, count)
        reason = batcher.state.refusal(request)
        name = f"a request of {len(prompt)} tokens and {count} of output, which can't ever run,"
        error = check_raises(ValueError, partial(batcher.submit, request), name=name)
        check_equal(str(error), reason, name=f"the message for {name}")
    check_equal(queued(batcher), [], name="the queue, after refusals only")


def test_task_2_a_request_that_asks_for_nothing_has_it_at_once(lab):
    batcher = doorkeeper(lab, max_queue=1)
    batcher.submit(new_request(lab, [1, 2], 3))
    future = batcher.submit(new_request(lab, [1], 0))
    assert future.done(), "a request with `max_tokens` 0 is finished before it begins: nothing to wait for"
    check_equal(future.result(timeout=0), [], name="its output, also while the queue is full")
    check_equal(queued(batcher), [[1, 2]], name="the queue")
    stats = batcher.stats()
    counts = (stats.finished, stats.refused, stats.failed)
    check_equal(counts, (1, 0, 0), name="finished, refused, failed")


def test_task_2_tickets_are_ended_outside_the_lock(lab):
    """Whoever is told of an end may wait for another thread, which may need the lock."""
    batcher, free = doorkeeper(lab), list[bool]()
    ended = ends_of(batcher)
    batcher.submit(new_request(lab, [1], 0))
    check_equal(ended, [True], name="whether the lock was free as `submit` ended what asks for nothing")
    future = batcher.submit(new_request(lab, [1], 3))
    future.add_done_callback(lambda _: free.append(is_free(batcher.changed)))
    batcher.end(batcher.request_queue[0])
    check_equal(free, [True], name="whether the lock was free as `end` settled a future")


def test_task_2_stop_comes_just_before_the_lock(lab):
    class Late(threading.Condition):
        """Before a caller has the lock, another thread has stopped the batcher."""

        def __enter__(self) -> bool:
            held = super().__enter__()
            batcher.closed = True
            return held

    batcher = doorkeeper(lab)
    batcher.changed = Late()
    name = (
        "a request, when the batcher is stopped just before `submit` has the lock: look at `closed` under it"
    )
    check_raises(lab.ragged.batcher.Closed, lambda: batcher.submit(new_request(lab, [1], 3)), name=name)


@pytest.mark.parametrize("max_queue", [1, 3])
def test_task_2_a_full_queue_takes_nobody(lab, max_queue):
    batcher = doorkeeper(lab, max_queue=max_queue)
    requests = [new_request(lab, [n + 1], 3) for n in range(max_queue + 2)]
    futures = [batcher.submit(request) for request in requests[:max_queue]]
    full = lab.ragged.batcher.QueueFull
    for n in (0, 1):
        error = check_raises(
            full,
            partial(batcher.submit, requests[max_queue + n]),
            name=f"one more than {max_queue} that wait",
        )
        assert str(max_queue) in str(error), f"the message says how many wait: {max_queue}; it is {error}"
        check_equal(batcher.stats().refused, n + 1, name="refused, in the figures")
    check_equal(queued(batcher), [[n + 1] for n in range(max_queue)], name="the queue, afterwards")
    assert not any(future.done() for future in futures), "those that wait have nothing to do with it"
    batcher.request_queue.popleft()
    batcher.submit(requests[-1])
    check_equal(queued(batcher)[-1], [max_queue + 2], name="the last in the queue, once one has left it")


def test_task_2_a_new_request_wakes_the_loop(lab):
    def body(batcher: Any) -> None:
        with batcher.changed:
            asleep.set()
            batcher.changed.wait_for(lambda: batcher.request_queue or batcher.closed, LIMIT)
            awake.append(len(batcher.request_queue))

    asleep, awake = threading.Event(), list[int]()
    batcher = doorkeeper(lab, body)
    batcher.start()
    assert asleep.wait(LIMIT), "the test's own loop has not begun"
    batcher.submit(new_request(lab, [1], 1))
    batcher.thread.join(LIMIT - 1)  # less than the loop sleeps if nobody wakes it
    assert awake == [1], "the loop sleeps on `changed`, and `submit` has not woken it"


def test_task_2_many_threads_submit_at_once(lab):
    batcher, full = doorkeeper(lab, max_queue=150), lab.ragged.batcher.QueueFull
    batcher.request_queue = Guarded(batcher)
    start = threading.Barrier(8)

    def caller(number: int) -> int:
        start.wait(LIMIT)
        taken = 0
        for n in range(25):
            with contextlib.suppress(full):
                batcher.submit(new_request(lab, [number, n], 2))
                taken += 1
        return taken

    results = [Future[int]() for _ in range(8)]
    threads = [
        threading.Thread(target=lambda n=n: results[n].set_result(caller(n)), daemon=True) for n in range(8)
    ]
    with ThreadErrors().collected():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
    check_equal(
        sum(future.result(LIMIT) for future in results), 150, name="requests taken, of 200, with room for 150"
    )
    check_equal((len(batcher.request_queue), batcher.stats().refused), (150, 50), name="waiting and refused")
    for number in range(8):
        own = [n for caller, n in queued(batcher) if caller == number]
        check_equal(own, sorted(own), name=f"the order of what thread {number} has submitted")


@pytest.mark.parametrize("drain", [True, False])
def test_task_2_stop_closes_the_door_and_wakes_the_loop(lab, drain):
    """The loop has to take the lock once more to end: who waits for its end must not hold it."""
    batcher = doorkeeper(lab)
    usual = batcher.thread.join

    def join(*arguments: Any) -> None:
        assert is_free(batcher.changed), (
            "`stop` waits for the thread while it holds the lock `changed`, which the loop needs to end"
        )
        usual(*arguments)

    batcher.thread.join = join
    with ThreadErrors().collected():
        batcher.start()
        ended = within(lambda: batcher.stop(drain=drain, timeout=LIMIT - 1), "stop")
    assert ended is True, f"stop(drain={drain}) returned {ended!r}, and the loop ends as soon as it is woken"
    check_equal((batcher.closed, batcher.abandoned), (True, not drain), name="closed, and abandoned")
    closed = lab.ragged.batcher.Closed
    for count in (3, 0):
        request = new_request(lab, [1], count)
        check_raises(closed, partial(batcher.submit, request), name="a request after stop")
    check_equal(queued(batcher), [], name="the queue")


def test_task_2_stop_says_whether_the_loop_has_ended(lab):
    goon = threading.Event()
    batcher = doorkeeper(lab, lambda batcher: goon.wait(LIMIT))
    batcher.start()
    ended = within(lambda: batcher.stop(timeout=0), "stop(timeout=0)")
    assert ended is False, f"the loop is in the middle of a step, and stop(timeout=0) returned {ended!r}"
    check_equal(batcher.abandoned, False, name="abandoned, after a stop that drains")
    assert within(lambda: batcher.stop(drain=False, timeout=0), "stop(timeout=0)") is False
    check_equal(batcher.abandoned, True, name="abandoned, once somebody has stopped without draining")
    within(lambda: batcher.stop(drain=True, timeout=0), "stop(timeout=0)")
    check_equal(batcher.abandoned, True, name="abandoned, after a later stop that would drain: it's too late")
    goon.set()
    assert within(lambda: batcher.stop(timeout=LIMIT - 1), "stop") is True, (
        "the loop has ended: stop returns True"
    )


def test_task_2_what_was_never_started_is_stopped_at_once(lab):
    batcher = doorkeeper(lab)
    batcher.submit(new_request(lab, [1], 3))
    ended = within(lambda: batcher.stop(timeout=LIMIT - 1), "stop of a batcher that was never started")
    assert ended is True, f"there is no loop that could still run, and stop returned {ended!r}"
    check_equal(batcher.abandons, 1, name="calls of `abandon`, which nobody else makes without a loop")


def test_task_2_the_end_is_counted(lab):
    batcher = doorkeeper(lab)
    ends = []
    for _ in range(6):
        batcher.submit(new_request(lab, [1], 3))
    tickets = list(batcher.request_queue)
    for ticket in tickets[:2]:
        ticket.future.cancel()
    for ticket in tickets[1:5]:
        ticket.error = KeyError("failed")
    for ticket in tickets:
        batcher.end(ticket)
        stats = batcher.stats()
        ends.append((stats.cancelled, stats.failed, stats.finished))
    name = "cancelled, failed, finished, after each of two cancelled ones (one failed, too), three failed, one good"
    check_equal(ends, [(1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 0), (2, 3, 0), (2, 3, 1)], name=name)
    assert all(ticket.future.done() for ticket in tickets), "`end` settles the future"


# Task 3: the loop


def steps(batcher: Any, count: int = 1) -> None:
    """What the loop does, by hand."""
    for _ in range(count):
        batcher.join()
        batcher.step()
        batcher.leave()


def until_done(batcher: Any, bound: int = 300) -> int:
    """Step until nobody waits or runs; how many steps it took."""
    taken = 0
    while batcher.request_queue or any(batcher.tickets):
        assert taken < bound, f"{bound} steps, and {batcher.stats().running} still run"
        steps(batcher)
        taken += 1
    return taken


def outcome(future: Future[list[int]]) -> Any:
    """How it has ended, in a word or a list."""
    if not future.done():
        return "pending"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return future.result() if error is None else type(error).__name__


def test_task_3_who_came_first_has_a_slot_first(lab):
    class Guarding(watched(lab)):  # type: ignore[misc]
        """A queue that is put in the place of another is guarded, too."""

        @property
        def request_queue(self) -> Guarded:
            return self._queue

        @request_queue.setter
        def request_queue(self, tickets: Any) -> None:
            self._queue = Guarded(self, tickets)

    batcher = batcher_of(lab, kind=Guarding, slots=2)
    for n in range(5):
        batcher.submit(new_request(lab, [n + 1, 9], 4))
    batcher.join()
    check_equal(seated(batcher), [[1, 9], [2, 9]], name="who has the two slots")
    check_equal(queued(batcher), [[3, 9], [4, 9], [5, 9]], name="who waits, in order")
    batcher.join()
    check_equal(queued(batcher), [[3, 9], [4, 9], [5, 9]], name="who waits when no slot is idle")
    batcher.release([True, False])
    batcher.join()
    check_equal(seated(batcher), [[3, 9], [2, 9]], name="who has the slots once slot 0 was idle")
    check_equal(queued(batcher), [[4, 9], [5, 9]], name="who waits then")


def test_task_3_join_takes_nobody_where_nobody_waits(lab):
    batcher = batcher_of(lab, slots=2)
    batcher.join()
    check_equal(seated(batcher), [None, None], name="who has the slots")


def test_task_3_who_was_cancelled_leaves_the_queue(lab):
    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    futures = [batcher.submit(new_request(lab, [n + 1, 9], 4)) for n in range(6)]
    for n in (0, 3):
        futures[n].cancel()
    batcher.join()
    check_equal(seated(batcher), [[2, 9], [3, 9]], name="who has the slots: 1 and 4 were cancelled")
    check_equal(queued(batcher), [[5, 9], [6, 9]], name="who waits")
    check_equal(batcher.stats().cancelled, 2, name="cancelled, in the figures")
    futures[5].cancel()
    batcher.join()
    check_equal(queued(batcher), [[5, 9]], name="who waits, once 6 was cancelled while no slot is idle")
    check_equal(batcher.stats().cancelled, 3, name="cancelled, in the figures")
    assert wait_for_futures([futures[5]], timeout=0).done, "a future that left the queue is not settled"


def test_task_3_tickets_are_ended_outside_the_lock(lab):
    """Whoever is told of an end may wait for another thread, which may need the lock."""
    batcher = batcher_of(lab, slots=1)
    futures = [batcher.submit(new_request(lab, [n + 1, 9], 4)) for n in range(3)]
    ended = ends_of(batcher)
    futures[1].cancel()
    batcher.join()
    check_equal(ended, [True], name="whether the lock was free as `join` ended what was cancelled")
    batcher.abandon()
    check_equal(ended, [True] * 3, name="whether the lock was free as `abandon` ended the other two")


def test_task_3_a_cancel_may_come_between_two_looks(lab):
    class Late(Future):
        """Cancelled by its caller just before somebody asks for the second time."""

        asked = 0

        def cancelled(self) -> bool:
            self.asked += 1
            if self.asked == 2:
                self.cancel()
            return super().cancelled()

    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    for n in range(3):
        batcher.submit(new_request(lab, [n + 1, 9], 4))
    late = batcher.request_queue[1].future = Late()
    until_done(batcher)
    stats = batcher.stats()
    name = (
        "cancelled and finished, of three: one is cancelled just before `join` could ask for the second time"
    )
    check_equal((stats.cancelled, stats.finished), (1, 2), name=name)
    assert wait_for_futures([late], timeout=0).done, "the one that was cancelled was never settled"


def test_task_3_the_cancelled_are_ended_though_a_push_fails(lab):
    batcher = batcher_of(lab, slots=2)
    futures = [batcher.submit(new_request(lab, [n + 1, 9], 4)) for n in range(3)]
    futures[1].cancel()
    batcher.state.push = failing(RuntimeError("a mistake in the engine, which the test has planted"))
    check_raises(RuntimeError, lambda: within(batcher.loop, "the loop"), name="a loop whose `push` fails")
    check_equal([outcome(f) for f in futures], ["Closed", "cancelled", "Closed"], name="how each has ended")
    check_equal(batcher.stats().cancelled, 1, name="cancelled, in the figures: it had left the queue by then")
    assert wait_for_futures([futures[1]], timeout=0).done, "the one that was cancelled was never settled"


def test_task_3_every_future_is_settled_though_the_slots_can_not_be_released(lab):
    batcher = batcher_of(lab, slots=2)
    futures = [batcher.submit(new_request(lab, [n + 1, 9], 4)) for n in range(3)]
    batcher.join()
    error = RuntimeError("a mistake in the engine, which the test has planted")
    batcher.state.release = failing(error)
    found = check_raises(RuntimeError, batcher.abandon, name="`abandon`, when `state.release` fails")
    assert found is error, f"what was raised must go on; it is {found!r}"
    check_equal([outcome(f) for f in futures], ["Closed"] * 3, name="how each has ended")


def test_task_3_a_step_without_tokens_is_no_step(lab):
    batcher = batcher_of(lab, slots=2)
    batcher.submit(new_request(lab, [1, 9], 4)).cancel()
    steps(batcher)
    stats = batcher.stats()
    name = "steps and occupancy, after all were cancelled in the queue: the model was not run"
    check_equal((stats.steps, stats.occupancy), (0, None), name=name)


def test_task_3_a_step_runs_the_model_once_for_all(lab):
    batcher = batcher_of(lab, slots=3, capacity=8)
    for n in (3, 4, 5):
        batcher.submit(new_request(lab, prompt_of(n), 4))
    batcher.join()
    batcher.step()
    check_equal(
        batcher.model.runs, [[(3, 3), (4, 4), (1, 1)]], name="what the model was run on: 8 tokens at most"
    )
    stats = batcher.stats()
    check_equal((stats.steps, stats.occupancy, stats.tokens), (1, 1.0, 2), name="steps, occupancy, tokens")
    batcher.step()
    stats = batcher.stats()
    name = "steps, and occupancy: 8 and then 6 of 8 tokens"
    check_equal((stats.steps, stats.occupancy), (2, 0.875), name=name)


def test_task_3_whoever_is_complete_leaves_with_its_output(lab):
    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in ((2, 1), (3, 4), (1, 2))]
    futures = [batcher.submit(request) for request in requests]
    held = []
    for _ in range(4):
        steps(batcher)
        held.append([outcome(future) == wanted(r) for future, r in zip(futures, requests, strict=True)])
    name = "who is done after each step: 1, 4 and 2 tokens of output, the third waits for the first"
    check_equal(held, [[1, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]], name=name)
    check_at_rest(batcher, futures)
    stats = batcher.stats()
    check_equal((stats.finished, stats.running, stats.waiting), (3, 0, 0), name="finished, running, waiting")


def test_task_3_who_was_cancelled_in_a_slot_gives_it_back_after_the_step(lab):
    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    requests = [new_request(lab, prompt_of(n + 4, seed=n), 6) for n in range(3)]
    futures = [batcher.submit(request) for request in requests]
    steps(batcher, 2)
    futures[0].cancel()
    steps(batcher)
    check_equal(seated(batcher)[0], None, name="who has slot 0 after the step in which it was cancelled")
    check_equal(batcher.state.pages.held[0], 0, name="pages that slot 0 holds")
    check_equal(batcher.stats().cancelled, 1, name="cancelled, in the figures")
    until_done(batcher)
    check_equal(
        [outcome(f) for f in futures[1:]], [wanted(r) for r in requests[1:]], name="what the others got"
    )
    check_at_rest(batcher, futures)


@pytest.mark.parametrize("what", ["sample", "on_token"])
@pytest.mark.parametrize("at", [1, 3])
def test_task_3_a_request_that_fails_does_so_alone(lab, what, at):
    count = [0]

    def fail_later(*arguments: Any) -> int:
        count[0] += 1
        if count[0] == at:
            raise ZeroDivisionError("the caller's own mistake")
        return int(np.argmax(lab.numpy(arguments[0])))

    batcher = batcher_of(lab, kind=watched(lab))
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 5) for n in range(4)]
    if what == "sample":
        requests[1].sample = fail_later
    futures = [
        batcher.submit(request, fail_later if what == "on_token" and n == 1 else nobody)
        for n, request in enumerate(requests)
    ]
    until_done(batcher)
    expected = [wanted(request) for request in requests]
    ends = [expected[0], "ZeroDivisionError", *expected[2:]]
    check_equal([outcome(future) for future in futures], ends, name="how each of the four has ended")
    check_equal(count[0], at, name="calls of what failed: it is not called again")
    check_equal((batcher.stats().failed, batcher.stats().finished), (1, 3), name="failed and finished")
    check_at_rest(batcher, futures)


@pytest.mark.parametrize("at", [0, 2])
def test_task_3_a_model_that_fails_fails_those_in_slots(lab, at):
    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 5) for n in range(4)]
    futures = [batcher.submit(request) for request in requests]
    batcher.model.fails_at = at
    until_done(batcher)
    expected = ["KeyError", "KeyError", *[wanted(request) for request in requests[2:]]]
    name = f"how each of four has ended, two at a time; the model failed in run {at}"
    check_equal([outcome(future) for future in futures], expected, name=name)
    check_equal(batcher.stats().failed, 2, name="failed, in the figures")
    check_equal(batcher.stats().steps, len(batcher.model.runs) - 1, name="steps: the one that failed is none")
    check_at_rest(batcher, futures)


def test_task_3_slot_and_pages_are_free_before_anybody_hears_of_the_end(lab):
    """Whoever gets an answer may send the next request at once: it must find room."""
    batcher, seen = batcher_of(lab, kind=watched(lab), slots=2), list[tuple[int, int, int]]()

    def note(future: Future[list[int]]) -> None:
        pages = batcher.state.pages
        seen.append(
            (len(batcher.state.idle), sum(ticket is None for ticket in batcher.tickets), sum(pages.held))
        )

    for n in (4, 4):
        batcher.submit(new_request(lab, prompt_of(n, seed=n), 2)).add_done_callback(note)
    until_done(batcher)
    name = "idle slots, empty places in `tickets` and pages held, as each of two futures is settled in the same step"
    check_equal(seen, [(2, 2, 0), (2, 2, 0)], name=name)


def test_task_3_a_caller_may_do_with_its_request_what_it_likes(lab):
    """The ticket runs a copy: who empties its own list of token ids must not end the loop."""
    batcher, prompts = batcher_of(lab, kind=watched(lab), slots=1), [[3, 1, 4], [1, 5]]
    requests = [new_request(lab, list(prompt), 4) for prompt in prompts]
    futures = [batcher.submit(request) for request in requests]
    for request in requests:
        request.prompt_ids.clear()
        request.max_tokens = 0
    until_done(batcher)
    expected = [alone(prompt, 4) for prompt in prompts]
    check_equal([outcome(future) for future in futures], expected, name="the outputs")


def test_task_3_release_settles_only_the_marked(lab):
    batcher = batcher_of(lab, slots=3)
    futures = [batcher.submit(new_request(lab, prompt_of(n + 2), 5)) for n in range(2)]
    steps(batcher, 2)
    batcher.release([True, False, True])  # slot 2 is idle: it may be marked, too
    check_equal([future.done() for future in futures], [True, False], name="which futures are settled")
    check_equal([held > 0 for held in batcher.state.pages.held], [False, True, False], name="who holds pages")
    check_equal(seated(batcher), [None, prompt_of(3), None], name="who has a slot")


def test_task_3_abandon_ends_all_that_is_left(lab):
    batcher = batcher_of(lab, kind=watched(lab), slots=3)
    futures = [batcher.submit(new_request(lab, prompt_of(n + 2, seed=n), 9)) for n in range(7)]
    steps(batcher, 2)
    own = OSError("its own trouble")
    batcher.tickets[1].error = own
    for n in (2, 5):
        futures[n].cancel()
    batcher.request_queue = Guarded(batcher, batcher.request_queue)
    batcher.abandon()
    ends = ["Closed", "OSError", "cancelled", "Closed", "Closed", "cancelled", "Closed"]
    check_equal(
        [outcome(future) for future in futures],
        ends,
        name="how the three in slots and four in line have ended",
    )
    assert futures[1].exception() is own, (
        "an error that a request had already is the one that its caller gets"
    )
    assert batcher.closed, "after `abandon` nothing more is taken: `closed`"
    stats = batcher.stats()
    check_equal((stats.failed, stats.cancelled), (5, 2), name="failed and cancelled, in the figures")
    check_at_rest(batcher, futures)
    assert wait_for_futures(futures, timeout=0).not_done == set(), "a cancelled future was never settled"


def waits(batcher: Any, why: str) -> bool:
    """What `wait` returns when it has no reason to sleep."""

    class Sleepless(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError(f"`wait` goes to sleep, though {why}")

    batcher.changed = Sleepless()
    return bool(within(batcher.wait, "`wait`"))


def test_task_3_wait_goes_on_while_there_is_work(lab):
    batcher = batcher_of(lab, slots=1)
    batcher.submit(new_request(lab, [1, 2], 3))
    assert waits(batcher, "somebody is in the queue"), "somebody is in the queue: there is work"
    batcher.join()
    why = "somebody is in a slot"
    assert waits(batcher, why), f"{why}: there is work, though the queue is empty"
    batcher.closed = True
    assert waits(batcher, why), f"closed, and {why}: it is finished first"
    batcher.abandoned = True
    assert not waits(batcher, "the batcher is closed"), "abandoned: nobody waits for the rest"


def test_task_3_wait_ends_when_closed_and_nothing_is_left(lab):
    batcher = batcher_of(lab, slots=1)
    batcher.closed = True
    assert not waits(batcher, "the batcher is closed"), "closed, and nobody waits or runs: the loop ends"
    queue = batcher_of(lab, slots=1)
    queue.submit(new_request(lab, [1, 2], 3))
    queue.closed = True
    assert waits(queue, "somebody is in the queue"), (
        "closed, and somebody is in the queue: it is served first"
    )


def test_task_3_wait_sleeps_until_something_changes(lab):
    class Bed(threading.Condition):
        """Whoever sleeps here is woken by a stop."""

        def wait(self, timeout: float | None = None) -> bool:
            slept.append(True)
            batcher.closed = True
            return True

    batcher, slept = batcher_of(lab, slots=1), list[bool]()
    batcher.changed = Bed()
    found = within(batcher.wait, "`wait`")
    name = "whether `wait` slept while there was no work, and what it returned once the batcher was closed"
    check_equal((slept, found), ([True], False), name=name)


def test_task_3_the_loop_sleeps_while_nobody_waits(lab):
    """Whatever is asked of the model between two requests is asked for nothing."""
    batcher = batcher_of(lab, kind=watched(lab))
    requests = some(lab, 4)
    with Running(batcher) as running:
        for request in requests:
            check_equal(
                running.result(running.submit(request)), wanted(request), name="an answer, one at a time"
            )
    check_equal(batcher.stats().steps, len(batcher.model.runs), name="steps, and runs of the model")


def test_task_3_the_loop_serves_many_callers(lab):
    batcher, requests = batcher_of(lab, kind=watched(lab), slots=4, capacity=12), some(lab, 48, longest=8)
    told: list[list[int]] = [[] for _ in requests]
    start = threading.Barrier(6)

    def caller(number: int) -> None:
        start.wait(LIMIT)
        for n in range(number, len(requests), 6):
            futures[n] = running.submit(requests[n], told[n].append)

    futures: dict[int, Future[list[int]]] = {}
    with Running(batcher) as running:
        threads = [threading.Thread(target=caller, args=[n], daemon=True) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        running.wait(*futures.values())
    for n, request in enumerate(requests):
        check_equal(outcome(futures[n]), wanted(request), name=f"the output of request {n}, among 48")
        check_equal(told[n], wanted(request), name=f"the tokens that request {n} was told of")
    check_equal(batcher.stats().finished, 48, name="finished, in the figures")


def test_task_3_who_listens_may_cancel_and_submit_from_there(lab):
    """All of this happens on the batcher's thread, in the middle of a step."""
    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    requests = [new_request(lab, prompt_of(n + 3, seed=n), 9) for n in range(4)]
    more = list[Future[list[int]]]()

    def listen(token: int) -> None:
        tokens.append(token)
        if len(tokens) == 3:
            futures[1].cancel()  # in a slot
            futures[2].cancel()  # in the queue
            more.append(running.submit(new_request(lab, [8, 8], 2)))

    tokens = list[int]()
    batcher.model.close()
    with Running(batcher) as running:
        futures = [
            running.submit(request, listen if n == 0 else nobody) for n, request in enumerate(requests)
        ]
        batcher.model.open()
        running.wait(*futures)
        running.wait(*more)
    ends = [wanted(requests[0]), "cancelled", "cancelled", wanted(requests[3])]
    check_equal([outcome(future) for future in futures], ends, name="how each of the four has ended")
    check_equal(outcome(more[0]), alone([8, 8], 2), name="what the one submitted from `on_token` got")


def test_task_3_stop_lets_all_finish_first(lab):
    batcher, requests = batcher_of(lab, kind=watched(lab), slots=2), some(lab, 7)
    batcher.model.close()
    with Running(batcher) as running:
        futures = [running.submit(request) for request in requests]
        batcher.model.await_run()
        assert batcher.stop(timeout=0) is False, "a step is running: the loop can't have ended"
        check_raises(
            lab.ragged.batcher.Closed, lambda: batcher.submit(requests[0]), name="a request after stop"
        )
        batcher.model.open()
        assert batcher.stop(timeout=LIMIT), f"the loop has not ended {LIMIT:g} s after the last answer"
    ends = [wanted(request) for request in requests]
    check_equal([outcome(future) for future in futures], ends, name="the answers, all of them complete")


def test_task_3_stop_without_draining_ends_all_after_the_step(lab):
    batcher, requests = batcher_of(lab, kind=watched(lab), slots=2), some(lab, 6)
    requests[0] = new_request(lab, [5, 5], 1)  # complete with the step that runs
    requests[1] = new_request(lab, [6, 6], 30)
    batcher.model.close()
    with Running(batcher) as running:
        futures = [running.submit(request) for request in requests]
        batcher.model.await_run()
        batcher.stop(drain=False, timeout=0)
        batcher.model.open()
        assert batcher.stop(timeout=LIMIT), f"the loop has not ended {LIMIT:g} s after the step that ran"
    ends = [wanted(requests[0]), *["Closed"] * 5]
    check_equal([outcome(future) for future in futures], ends, name="how each has ended")
    check_equal(len(batcher.model.runs), 1, name="runs of the model")


def test_task_3_what_was_never_started_settles_its_futures(lab):
    batcher = batcher_of(lab, kind=watched(lab))
    futures = [batcher.submit(request) for request in some(lab, 3)]
    assert within(lambda: batcher.stop(timeout=LIMIT), "stop") is True
    check_equal(
        [outcome(future) for future in futures],
        ["Closed"] * 3,
        name="how each of those that waited has ended",
    )


@pytest.mark.parametrize("where", ["step", "leave", "push", "wait"])
def test_task_3_a_loop_that_fails_leaves_nobody_waiting(lab, where):
    """Whatever goes wrong, in the loop or in the state: it must not end in silence."""
    batcher = batcher_of(lab, kind=watched(lab), slots=2)
    trouble = RuntimeError("a mistake in the engine, which the test has planted")
    calls = [0]
    owner, name = (batcher.state, "push") if where == "push" else (batcher, where)
    usual = getattr(owner, name)

    def sometimes(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise trouble
        return usual(*arguments)

    setattr(owner, name, sometimes)
    futures = [batcher.submit(new_request(lab, prompt_of(n + 2, seed=n), 9)) for n in range(5)]
    error = check_raises(
        RuntimeError,
        lambda: within(batcher.loop, "the loop"),
        name=f"a loop whose `{where}` fails at its second call (the exception that ended the loop must go on)",
    )
    assert error is trouble, f"the loop must not hide what has ended it; it raised {error!r}"
    check_equal([outcome(future) for future in futures], ["Closed"] * 5, name="how each of five has ended")
    closed = lab.ragged.batcher.Closed
    check_raises(closed, lambda: batcher.submit(new_request(lab, [1], 2)), name="a request after that")
    check_at_rest(batcher, futures)


@QUICK
@given(
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("submit"), st.integers(1, 9), st.integers(1, 6)),
            st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0)),
            st.tuples(st.just("step"), st.integers(1, 3), st.just(0)),
        ),
        max_size=24,
    ),
    sizes=st.tuples(st.integers(1, 3), st.integers(4, 12), st.integers(1, 7)),
)
def test_task_3_any_coming_and_going(actions, sizes):
    """Slots, pages and capacity from tight to roomy; requests come and are cancelled between any two steps."""
    lab = door.active()
    slots, pages, capacity = sizes
    batcher = batcher_of(lab, kind=watched(lab), slots=slots, pages=pages + 3, capacity=capacity)
    requests, futures = list[Any](), list[Future[list[int]]]()
    for action, first, second in actions:
        if action == "submit":
            request = new_request(lab, prompt_of(first, seed=len(requests)), second, (END,))
            if batcher.state.refusal(request) is None:
                requests.append(request)
                futures.append(batcher.submit(request))
        elif action == "cancel" and futures:
            futures[first % len(futures)].cancel()
        elif action == "step":
            for _ in range(first):
                if batcher.request_queue or any(batcher.tickets):
                    steps(batcher)
    until_done(batcher)
    for n, (request, future) in enumerate(zip(requests, futures, strict=True)):
        expected = "cancelled" if future.cancelled() else wanted(request)
        check_equal(outcome(future), expected, name=f"how request {n} of {len(requests)} has ended")
    stats = batcher.stats()
    name = "finished and cancelled together, in the figures"
    check_equal(stats.finished + stats.cancelled, len(requests), name=name)
    check_at_rest(batcher, futures)


# Task 4: reading a message


def service_module(lab: Any) -> Any:
    return lab.ragged.grpc_service


def prompt_read(lab: Any, **fields: Any) -> list[int]:
    return list(service_module(lab).read_prompt(message_of(lab, **fields), Letters()))


def request_read(lab: Any, **fields: Any) -> Any:
    return service_module(lab).read_request(message_of(lab, **{"ids": [1]} | fields), Letters())


def test_task_4_each_kind_of_input_becomes_token_ids(lab):
    check_equal(
        prompt_read(lab, prompt="abc"), [25, 0, 1, 2, 25], name="a prompt: a user's turn in the chat form"
    )
    check_equal(prompt_read(lab, text="abc"), [0, 1, 2], name="a text: as it stands")
    check_equal(prompt_read(lab, ids=[3, 0, V - 1, 3]), [3, 0, V - 1, 3], name="token ids")
    check_equal(prompt_read(lab, ids=[]), [], name="no token ids, which the batcher will refuse")


@pytest.mark.parametrize("kind", ["prompt", "text"])
def test_task_4_a_client_can_not_write_control_tokens(lab, kind):
    ids = prompt_read(lab, **{kind: "ab<end>"})
    assert END not in ids, (
        f"a {kind} with the letters <end> became {ids}; {END} is the control token of that name"
    )


@pytest.mark.parametrize("fields", [{}, {"prompt": ""}], ids=["nothing", "an empty prompt"])
def test_task_4_a_message_without_input_is_refused(lab, fields):
    check_raises(
        ValueError, lambda: prompt_read(lab, **fields), name=f"a message with {fields or 'no input'}"
    )


def test_task_4_a_model_without_a_chat_form_asks_for_a_text(lab):
    class Plain(Letters):
        def encode_chat(self, messages: Any) -> list[int]:
            raise lab.loading.errors.WeightsError("no chat template")

    message = message_of(lab, prompt="abc")
    check_raises(
        ValueError,
        lambda: service_module(lab).read_prompt(message, Plain()),
        name="a prompt for a model without a chat template (WeightsError)",
        match="text",
    )


@pytest.mark.parametrize("ids", [[V], [1, 2, 4_000_000_000], [3, V + 6, 1]], ids=str)
def test_task_4_an_unknown_token_id_is_refused_by_name(lab, ids):
    error = check_raises(
        ValueError, lambda: prompt_read(lab, ids=ids), name=f"token ids {ids}; there are {V}"
    )
    assert str(max(ids)) in str(error), (
        f"the message names the id that is not known, {max(ids)}; it is: {error}"
    )


def test_task_4_what_is_left_out_has_its_default(lab):
    request = request_read(lab, ids=[4, 2])
    check_equal(list(request.prompt_ids), [4, 2], name="the prompt")
    check_equal(request.max_tokens, service_module(lab).MAX_TOKENS, name="max_tokens")
    check_equal(sorted(request.end_ids), [END], name="the end tokens, which are the tokenizer's")
    scores = lab.array(scores_after(17))
    check_equal([request.sample(scores, [4, 2]) for _ in range(5)], [17] * 5, name="five tokens: greedy")
    check_equal(request_read(lab, max_tokens=1).max_tokens, 1, name="max_tokens, where a client asks for 1")


def draws(sample: Callable[[Any, list[int]], int], lab: Any) -> list[int]:
    scores = lab.array(np.sin(np.arange(V) * 1.7) * 2)
    return [int(sample(scores, [3, 5, 3])) for _ in range(30)]


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"seed": 0},
        {"top_k": 3},
        {"top_p": 0.5},
        {"min_p": 0.6},
        {"repetition_penalty": 3.0},
        {"temperature": 4.0},
    ],
    ids=lambda field: next(iter(field), "temperature and seed"),
)
def test_task_4_each_parameter_reaches_the_sampler(lab, field):
    fields = {"temperature": 1.5, "seed": 7} | field
    oracle = lab.sampler.Sampler(lab.sampler.SamplingParams(**fields))
    name = f"30 tokens drawn with {fields}"
    check_equal(draws(request_read(lab, **fields).sample, lab), draws(oracle, lab), name=name)


def test_task_4_each_request_has_a_sampler_of_its_own(lab):
    """A seed draws the same tokens, whoever else draws between two of them."""
    one, two = (request_read(lab, temperature=1.5, seed=7) for _ in range(2))
    alone = draws(request_read(lab, temperature=1.5, seed=7).sample, lab)
    check_equal(
        (draws(one.sample, lab), draws(two.sample, lab)), (alone, alone), name="what two requests draw"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", -0.5),
        ("repetition_penalty", 0.0),
    ],
)
def test_task_4_a_value_that_makes_no_sense_is_refused_by_name(lab, name, value):
    error = check_raises(ValueError, lambda: request_read(lab, **{name: value}), name=f"{name} = {value}")
    assert name in str(error), f"the message names {name}; it is: {error}"


@pytest.mark.parametrize(
    ("output", "ends", "reason"),
    [
        ([4, END], [END], "STOP"),
        ([4, 5], [END], "LENGTH"),
        ([], [END], "LENGTH"),
        ([END, 5], [END], "LENGTH"),
        ([5], [END, 5], "STOP"),
        ([5, END], [], "LENGTH"),
        ([END], [END], "STOP"),
    ],
)
def test_task_4_an_answer_stops_by_itself_or_for_its_length(lab, output, ends, reason):
    pb = lab.ragged.protocol.tiny_llm_pb2
    found = service_module(lab).finish_reason(output, new_request(lab, [1], 2, ends))
    name = f"why {output} has ended, where {ends} end an answer"
    check_equal(pb.FinishReason.Name(found), f"FINISH_REASON_{reason}", name=name)


# Task 5: Run and Stream


def service_of(lab: Any, desk: Any, tokenizer: Any = None) -> Any:
    return service_module(lab).TinyLlmService(desk, tokenizer or Letters())


def errors_of(lab: Any) -> list[tuple[Exception, Any]]:
    batcher = lab.ragged.batcher
    return [
        (ValueError("top_p is 7"), Code.INVALID_ARGUMENT),
        (batcher.QueueFull("9 are waiting"), Code.RESOURCE_EXHAUSTED),
        (batcher.Closed("shutting down"), Code.UNAVAILABLE),
        (ZeroDivisionError("a mistake of ours"), Code.INTERNAL),
    ]


async def refused(call: Any) -> None:
    """Wait for a call that is aborted."""
    with contextlib.suppress(Aborted):
        await call


async def refused_with(lab: Any, context: Context, error: Exception) -> None:
    await refused(service_module(lab).refuse(context, error))


def test_task_5_each_refusal_has_its_status(lab):
    for error, code in errors_of(lab):
        context = Context()
        run_async(partial(refused_with, lab, context, error), "refuse")
        check_equal(context.ended, (code, str(error)), name=f"status and details for {error!r}")


@pytest.mark.parametrize("call", ["Run", "Stream"])
def test_task_5_what_the_batcher_refuses_ends_the_call(lab, call):
    async def main(service: Any, context: Context) -> None:
        if call == "Run":
            await refused(service.Run(message_of(lab, text="ab"), context))
            return
        with contextlib.suppress(Aborted):
            async for piece in await opened(service.Stream(message_of(lab, text="ab"), context)):
                raise AssertionError(f"the request was refused, and there is a piece: {piece}")

    for error, code in errors_of(lab):
        context = Context()
        service = service_of(lab, Desk(error))
        run_async(partial(main, service, context), call)
        check_equal(
            context.ended, (code, str(error)), name=f"how {call} has ended when `submit` raises {error!r}"
        )


def test_task_5_what_can_not_be_read_never_reaches_the_batcher(lab):
    async def main() -> None:
        for fields in ({}, {"ids": [V]}, {"text": "a", "top_p": 7.0}, {"text": "a", "max_tokens": 0}):
            desk, context = Desk(), Context()
            await refused(service_of(lab, desk).Run(message_of(lab, **fields), context))
            code = context.ended and context.ended[0]
            check_equal(
                code, Code.INVALID_ARGUMENT, name=f"how a call of Run with {fields or 'no input'} has ended"
            )
            check_equal(len(desk.taken), 0, name="requests that the batcher was given")

    run_async(main, "Run")


def test_task_5_reading_a_long_text_does_not_hold_up_the_others(lab):
    readers = set[int]()

    class Noting(Letters):
        def encode(self, text: str, control_tokens: bool = True) -> list[int]:
            readers.add(threading.get_ident())
            return super().encode(text, control_tokens)

    async def main() -> None:
        desk = Desk()
        call = asyncio.create_task(service_of(lab, desk, Noting()).Run(message_of(lab, text="ab"), Context()))
        await first_of(desk.arrived.wait(), call)
        if threading.get_ident() in readers:
            raise AssertionError(
                "a text became tokens on the event loop's own thread, and all other calls waited: "
                "`asyncio.to_thread` reads it on another"
            )
        desk.taken[0][2].set_result([1])
        await call

    run_async(main, "Run")


async def first_of(event: Any, call: asyncio.Task[Any]) -> None:
    """Wait for something that happens during a call; if the call ends before that, raise what it raises."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait([waiting, call], return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        raise AssertionError(f"the call has ended too early, with {call.result()!r}")


@pytest.mark.parametrize(("output", "reason"), [([7, 27, 28, 4], "LENGTH"), ([7, 4, END], "STOP")])
def test_task_5_run_gives_the_whole_answer(lab, output, reason):
    pb = lab.ragged.protocol.tiny_llm_pb2

    async def main() -> Any:
        desk = Desk()
        call = asyncio.create_task(
            service_of(lab, desk).Run(message_of(lab, prompt="abc", max_tokens=4), Context())
        )
        await first_of(desk.arrived.wait(), call)
        request, _, future = desk.taken[0]
        check_equal(
            (list(request.prompt_ids), request.max_tokens), ([25, 0, 1, 2, 25], 4), name="the request"
        )
        await asyncio.to_thread(future.set_result, output)
        return await call

    reply = run_async(main, "Run")
    found = (
        reply.text,
        list(reply.token_ids),
        pb.FinishReason.Name(reply.finish_reason),
        reply.prompt_tokens,
    )
    expected = (Letters().decode(output), output, f"FINISH_REASON_{reason}", 5)
    check_equal(found, expected, name="text, token ids, reason and prompt tokens of the reply")


@pytest.mark.parametrize("call", ["Run", "Stream"])
def test_task_5_an_answer_that_fails_ends_the_call(lab, call):
    async def main(service: Any, desk: Desk, context: Context, error: Exception) -> None:
        async def pieces() -> None:
            async for _ in await opened(service.Stream(message_of(lab, text="ab"), context)):
                pass

        running = service.Run(message_of(lab, text="ab"), context) if call == "Run" else pieces()
        task = asyncio.create_task(refused(running))
        await first_of(desk.arrived.wait(), task)
        _, on_token, future = desk.taken[0]
        await tell(on_token, 3)
        await asyncio.to_thread(future.set_exception, error)
        await task

    closed = lab.ragged.batcher.Closed("stopped before the end")
    cases = ((closed, Code.UNAVAILABLE), (KeyError("x"), Code.INTERNAL), (ValueError("y"), Code.INTERNAL))
    for error, code in cases:
        desk, context = Desk(), Context()
        arguments = service_of(lab, desk), desk, context, error
        run_async(partial(main, *arguments), call)
        ended, details = context.ended or (None, "")
        check_equal(ended, code, name=f"how {call} has ended, after a token, when the future has {error!r}")
        words = str(error) if error is closed else type(error).__name__
        assert words in details, f"the details should say {words!r}; they are {details!r}"


async def tell(on_token: Callable[[int], Any], token: int) -> None:
    """Call it as the batcher does: on another thread than the event loop's."""
    try:
        await asyncio.to_thread(on_token, token)
    except RuntimeError as error:
        raise AssertionError(
            f"`on_token` is called on the batcher's thread, and asyncio objects: {error}. Only the event loop may "
            "touch its queue: ask it to, with `loop.call_soon_threadsafe`"
        ) from None


def test_task_5_tokens_cross_from_the_batchers_thread(lab):
    async def main() -> None:
        desk, context = Desk(), Context()
        stream: Any = await opened(service_of(lab, desk).Stream(message_of(lab, text="ab"), context))
        piece = asyncio.create_task(next_of(stream))
        await first_of(desk.arrived.wait(), piece)
        await tell(desk.taken[0][1], 3)
        check_equal(list((await piece).token_ids), [3], name="the token of the first piece")
        await stream.aclose()

    run_async(main, "the first piece of Stream, whose token has come,")


def test_task_5_token_0_is_a_token_like_any_other(lab):
    async def main() -> list[int]:
        stream = service_of(lab, ready([0, 4])).Stream(message_of(lab, text="ab"), Context())
        return [token async for piece in await opened(stream) for token in piece.token_ids]

    name = "the tokens of all pieces: 0 is a token, and only None is the end"
    check_equal(run_async(main, "Stream"), [0, 4], name=name)


def ready(output: list[int]) -> Desk:
    """A batcher that has all tokens at once: they are there before the stream is read for the first time."""

    class Ready(Desk):
        def submit(self, request: Any, on_token: Callable[[int], None] = nobody) -> Any:
            future = super().submit(request, on_token)
            for token in output:
                on_token(token)
            future.set_result(output)
            return future

    return Ready()


def test_task_5_a_piece_comes_with_each_token(lab):
    """Tokens come from another thread, as from the batcher's; asyncio's debug mode objects if that touches it."""
    output, texts = [7, HALVES[0], HALVES[1], 4, END], ["h", "", "é", "e", ""]

    async def main() -> list[Any]:
        desk, pieces = Desk(), asyncio.Queue[Any]()
        seen = []

        async def client() -> None:
            async for piece in await opened(
                service_of(lab, desk).Stream(message_of(lab, text="ab"), Context())
            ):
                pieces.put_nowait(piece)

        call = asyncio.create_task(client())
        await first_of(desk.arrived.wait(), call)
        _, on_token, future = desk.taken[0]
        for token in output:
            await tell(on_token, token)
            seen.append(await asyncio.wait_for(pieces.get(), LIMIT / 2))
        await asyncio.to_thread(future.set_result, output)
        await call
        return [*seen, *[pieces.get_nowait() for _ in range(pieces.qsize())]]

    pieces = run_async(main, "Stream, which is to give each piece before the next token comes,")
    expected = [(text, [token], 0) for text, token in zip(texts, output, strict=True)] + [("", [], 1)]
    found = [(piece.text, list(piece.token_ids), piece.finish_reason) for piece in pieces]
    check_equal(found, expected, name="text, token ids and finish_reason of each piece")


@pytest.mark.parametrize("output", [[7, 4] * 20, [7, HALVES[0]], [END], []], ids=str)
def test_task_5_the_last_piece_has_what_text_is_left(lab, output):
    """A slow reader: all tokens are there, however many, and the future is settled, before it reads the first."""
    pb = lab.ragged.protocol.tiny_llm_pb2

    async def main() -> list[Any]:
        stream = service_of(lab, ready(output)).Stream(message_of(lab, text="ab"), Context())
        return [piece async for piece in await opened(stream)]

    pieces = run_async(main, "Stream")
    check_equal([t for piece in pieces for t in piece.token_ids], output, name="the tokens of all pieces")
    check_equal(
        "".join(p.text for p in pieces), Letters().decode(output), name="the text of all pieces together"
    )
    check_equal(len(pieces), len(output) + 1, name="how many pieces: one for each token, and a last one")
    reasons = [pb.FinishReason.Name(piece.finish_reason).removeprefix("FINISH_REASON_") for piece in pieces]
    last = "STOP" if output and output[-1] == END else "LENGTH"
    check_equal(reasons, ["UNSPECIFIED"] * len(output) + [last], name="the finish_reason of each piece")


@pytest.mark.parametrize("call", ["Run", "Stream"])
def test_task_5_a_client_that_leaves_cancels_its_future(lab, call):
    """So gRPC tells a service that a client has cancelled or gone away, or that its deadline has passed."""

    async def main() -> bool:
        desk = Desk()
        service, message = service_of(lab, desk), message_of(lab, text="ab")

        async def read() -> None:
            async for _ in await opened(service.Stream(message, Context())):
                pass

        task = asyncio.create_task(service.Run(message, Context()) if call == "Run" else read())
        await first_of(desk.arrived.wait(), task)
        await tell(desk.taken[0][1], 3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled(), f"{call} was cancelled, and has swallowed that"
        return bool(desk.taken[0][2].cancelled())

    assert run_async(main, call), (
        f"{call} was cancelled, and the future was not: the batcher goes on for nobody, with a slot and its pages"
    )


async def next_of(stream: Any) -> Any:
    return await anext(stream)


def test_task_5_a_stream_that_is_closed_between_two_pieces_cancels_its_future(lab):
    async def main() -> bool:
        desk = Desk()
        stream: Any = await opened(service_of(lab, desk).Stream(message_of(lab, text="ab"), Context()))
        first = asyncio.create_task(next_of(stream))
        await first_of(desk.arrived.wait(), first)
        await tell(desk.taken[0][1], 3)
        check_equal(list((await first).token_ids), [3], name="the tokens of the first piece")
        await stream.aclose()
        return bool(desk.taken[0][2].cancelled())

    assert run_async(main, "Stream"), "the stream was closed after a piece, and its future goes on"


# Task 5 over loopback: a whole server, real clients


def test_task_5_over_grpc_two_hundred_at_once_get_what_each_gets_alone(lab):
    requests = [new_request(lab, prompt_of(n % 9 + 1, seed=n), n * 7 % 8 + 1, (END,)) for n in range(200)]

    async def ask(client: Loopback, n: int) -> list[int]:
        fields: dict[str, Any] = {"ids": requests[n].prompt_ids, "max_tokens": requests[n].max_tokens}
        if n % 2:
            return await client.tokens(deadline=2 * LIMIT, **fields)
        return list((await client.run(deadline=2 * LIMIT, **fields)).token_ids)

    async def scenario(client: Loopback) -> None:
        outputs = await asyncio.gather(*(ask(client, n) for n in range(200)))
        for n, (output, request) in enumerate(zip(outputs, requests, strict=True)):
            check_equal(output, wanted(request), name=f"the tokens of request {n}, among 200")

    batcher = over_grpc(lab, scenario, 2 * LIMIT, slots=16, capacity=64, pages=80, max_queue=200)
    check_equal(batcher.stats().finished, 200, name="finished, in the figures")


def test_task_5_over_grpc_stream_and_run_give_the_same_text(lab):
    async def scenario(client: Loopback) -> None:
        for n in range(6):
            fields: dict[str, Any] = {"text": "abcdefghijkl"[: 2 * n + 1], "max_tokens": 12}
            reply = await client.run(**fields)
            pieces = [piece async for piece in client.stream(**fields)]
            found = "".join(piece.text for piece in pieces), pieces[-1].finish_reason
            expected = reply.text, reply.finish_reason
            check_equal(found, expected, name=f"text and finish_reason of Stream, against Run, for {fields}")

    over_grpc(lab, scenario)


def test_task_5_over_grpc_clients_that_cancel_leave_nothing_behind(lab):
    chance = random.Random(7)
    leaves = [chance.choice([0, 1, 2, 5, None]) for _ in range(40)]  # after so many pieces; None: stays
    requests = [new_request(lab, prompt_of(n % 9 + 1, seed=n), 9, (END,)) for n in range(40)]

    async def ask(client: Loopback, n: int) -> list[int]:
        call = client.stream(ids=requests[n].prompt_ids, max_tokens=9)
        tokens = list[int]()
        if leaves[n] == 0:
            call.cancel()
            return tokens
        async for piece in call:
            tokens += piece.token_ids
            if len(tokens) == leaves[n]:
                call.cancel()
                break
        return tokens

    async def scenario(client: Loopback) -> None:
        outputs = await asyncio.gather(*(ask(client, n) for n in range(40)))
        for n, request in enumerate(requests):
            expected = wanted(request)[: leaves[n]]
            check_equal(
                outputs[n], expected, name=f"the tokens of request {n}, which leaves after {leaves[n]}"
            )
        await client.until(lambda stats: not stats.waiting + stats.running, "nobody waits or runs")

    batcher = over_grpc(lab, scenario, slots=4)
    stats = batcher.stats()
    check_equal(
        stats.finished + stats.cancelled, len(batcher.futures), name="finished and cancelled together"
    )
    check_equal(stats.failed, 0, name="failed: to cancel is no failure")


def test_task_5_over_grpc_a_client_that_is_killed_frees_slot_and_pages(lab):
    async def scenario(client: Loopback) -> None:
        client.model.close()
        message = message_of(lab, text="abc", max_tokens=50).SerializeToString()
        method = f"/{lab.ragged.grpc_server.SERVICE}/Stream"
        script = Path(__file__).with_name("killed_client.py")
        process = Popen(
            [sys.executable, str(script), client.server.address, method, message.hex()], stdout=PIPE
        )
        try:
            assert process.stdout is not None
            await client.runs()
            client.model.let(1)
            line = await asyncio.to_thread(process.stdout.readline)
            check_equal(line, b"a piece\n", name="what the client's process says after the first step")
            gone = asyncio.wrap_future(client.batcher.futures[0])
        finally:
            process.kill()
            await asyncio.to_thread(process.communicate)
        await asyncio.wait([gone], timeout=LIMIT)
        assert gone.cancelled(), "the client's process is gone, and its future was not cancelled"
        client.model.open()
        await client.until(lambda stats: stats.cancelled == 1, "one request was cancelled")
        check_equal(
            client.batcher.stats().free_pages, 39, name="free pages, after the step that ran just then"
        )
        check_equal(
            await client.tokens(text="ab", max_tokens=3), alone([0, 1], 3, (END,)), name="the next answer"
        )

    over_grpc(lab, scenario)


POISON: list[dict[str, Any]] = [
    {},
    {"prompt": ""},
    {"text": ""},
    {"ids": []},
    {"ids": [V]},
    {"ids": [1, 2_000_000_000]},
    {"text": "a" * 64},
    {"text": "a", "max_tokens": 0},
    {"text": "a", "top_p": 0.0},
    {"text": "a", "temperature": float("nan")},
    {"text": "a" * 30, "max_tokens": 30},
]


def test_task_5_over_grpc_poison_among_good_requests(lab):
    """Too long, empty, unknown, senseless, more than the pages hold: each is told so, and nobody else notices."""

    async def scenario(client: Loopback) -> None:
        good = [asyncio.create_task(client.tokens(ids=[n, 3], max_tokens=6)) for n in range(8)]
        for fields in POISON:
            for call in (client.run(**fields), anext(aiter(client.stream(**fields)))):
                code, details = await client.status(call)
                check_equal(
                    code, Code.INVALID_ARGUMENT, name=f"the status of {fields or 'a message without input'}"
                )
                assert details, f"{fields or 'a message without input'} was refused, and nobody says why"
        raw = client.channel.unary_unary(f"/{lab.ragged.grpc_server.SERVICE}/Run")
        code, _ = await client.status(
            raw(b"\x0a\x02\xc3\x28", timeout=LIMIT)
        )  # field 1, two bytes, not UTF-8
        assert code in (Code.INTERNAL, Code.UNKNOWN), (
            f"bytes that are no message, which gRPC itself refuses: {code}"
        )
        for n, task in enumerate(good):
            check_equal(await task, alone([n, 3], 6, (END,)), name=f"the tokens of good request {n}")

    batcher = over_grpc(lab, scenario, pages=18)
    check_equal(batcher.stats().finished, 8, name="finished, in the figures")


def test_task_5_over_grpc_a_failure_ends_its_own_call_only(lab):
    """A sampler that raises harms its own request; a model that raises, those in slots."""

    async def scenario(client: Loopback) -> None:
        client.model.close()
        bad = client.batcher.submit(new_request(lab, [2, 2], 9, sample=failing(OSError("a bad sampler"))))
        first = [asyncio.create_task(client.tokens(ids=[n, 3], max_tokens=9)) for n in range(2)]
        await client.until(lambda stats: stats.waiting + stats.running == 3, "three requests are there")
        client.model.open()
        for n, task in enumerate(first):
            check_equal(await task, alone([n, 3], 9, (END,)), name="the tokens of those beside a bad sampler")
        check_equal(outcome(bad), "OSError", name="how the request with the bad sampler has ended")

        client.model.close()
        calls = [client.run(ids=[n, 5], max_tokens=9), client.run(ids=[n, 6], max_tokens=9)]
        statuses = [asyncio.create_task(client.status(call)) for call in calls]
        await client.until(lambda stats: stats.waiting + stats.running == 2, "two requests are there")
        client.model.fails_at = len(client.model.runs) + 1
        client.model.open()
        found = [(code, "KeyError" in details) for code, details in await asyncio.gather(*statuses)]
        name = "the status of both that were in slots when the model failed, and whether it names the error"
        check_equal(found, [(Code.INTERNAL, True)] * 2, name=name)
        check_equal(
            await client.tokens(ids=[4, 4], max_tokens=5), alone([4, 4], 5, (END,)), name="the next answer"
        )

    over_grpc(lab, scenario)


def test_task_5_over_grpc_a_deadline_cancels_in_the_queue_and_in_a_slot(lab):
    async def scenario(client: Loopback) -> None:
        client.model.close()
        short = [asyncio.create_task(client.status(client.run(text="ab", max_tokens=30, deadline=0.4)))]
        await client.runs()
        short.append(asyncio.create_task(client.status(client.run(text="cd", max_tokens=30, deadline=0.4))))
        long = asyncio.create_task(client.tokens(text="ef", max_tokens=3))
        client.model.let(2)
        codes = [code for code, _ in await asyncio.gather(*short)]
        name = "the status of a call in a slot and one in the queue, once their deadlines have passed"
        check_equal(codes, [Code.DEADLINE_EXCEEDED] * 2, name=name)
        client.model.open()
        check_equal(
            await long, alone([4, 5], 3, (END,)), name="the tokens of the one behind them, with time enough"
        )
        await client.until(lambda stats: not stats.waiting + stats.running, "nobody waits or runs")

    stats = over_grpc(lab, scenario, slots=1).stats()
    check_equal((stats.finished, stats.failed), (1, 0), name="finished and failed, in the figures")
    assert stats.steps < 30, (
        f"{stats.steps} steps: the model has gone on for those whose deadlines had passed"
    )


def so_many_wait(count: int, stats: Any) -> bool:
    return stats.waiting == count


def test_task_5_over_grpc_a_full_queue_says_so_at_once(lab):
    async def scenario(client: Loopback) -> None:
        client.model.close()
        calls = [asyncio.create_task(client.tokens(ids=[1, 1], max_tokens=4))]
        await client.runs()  # it has the slot; from here on they wait
        for n in (2, 3):
            calls.append(asyncio.create_task(client.tokens(ids=[n, n], max_tokens=4)))
            await client.until(partial(so_many_wait, n - 1), f"{n - 1} requests wait")
        for call in (client.run(text="a"), anext(aiter(client.stream(text="a")))):
            code, details = await client.status(call)
            check_equal(
                code, Code.RESOURCE_EXHAUSTED, name="the status of a call while two wait, of two that may"
            )
            assert "2" in details, f"the details say how many wait, 2; they are {details!r}"
        check_equal(await client.check(), "SERVING", name="health, while the model stands still")
        client.model.open()
        for n, call in enumerate(calls, 1):
            check_equal(await call, alone([n, n], 4, (END,)), name=f"the tokens of request {n}")

    check_equal(
        over_grpc(lab, scenario, slots=1, max_queue=2).stats().refused, 2, name="refused, in the figures"
    )


def test_task_5_over_grpc_a_batcher_that_was_stopped_is_unavailable(lab):
    async def scenario(client: Loopback) -> None:
        client.model.close()
        before = [asyncio.create_task(client.status(client.run(ids=[n, n], max_tokens=9))) for n in range(5)]
        await client.until(lambda stats: stats.waiting + stats.running == 5, "five requests are there")
        await client.runs()
        client.batcher.stop(drain=False, timeout=0)
        client.model.open()
        codes = [code for code, _ in await asyncio.gather(*before)]
        check_equal(codes, [Code.UNAVAILABLE] * 5, name="the status of calls that were not finished")
        for call in (client.run(text="a"), anext(aiter(client.stream(text="a")))):
            check_equal(
                (await client.status(call))[0], Code.UNAVAILABLE, name="the status of a call after that"
            )

    over_grpc(lab, scenario)


def test_task_5_over_grpc_shutting_down_lets_calls_finish(lab):
    async def scenario(client: Loopback) -> None:
        client.model.close()
        watch = client.health.Watch(health_pb2.HealthCheckRequest(), timeout=LIMIT)
        check_equal(
            (await watch.read()).status, health_pb2.HealthCheckResponse.SERVING, name="health, serving"
        )
        calls = [asyncio.create_task(client.tokens(ids=[n, n], max_tokens=5)) for n in range(6)]
        await client.until(lambda stats: stats.waiting + stats.running == 6, "six requests are there")
        stopping = asyncio.create_task(client.server.stop(grace=LIMIT))
        name = "health, while the server shuts down"
        check_equal((await watch.read()).status, health_pb2.HealthCheckResponse.NOT_SERVING, name=name)
        watch.cancel()
        client.model.open()
        for n, call in enumerate(calls):
            check_equal(
                await call, alone([n, n], 5, (END,)), name=f"the tokens of request {n}, asked before the stop"
            )
        await stopping
        check_equal(
            (await client.status(client.run(text="a")))[0], Code.UNAVAILABLE, name="a call after the stop"
        )

    check_equal(over_grpc(lab, scenario, slots=2).stats().finished, 6, name="finished, in the figures")


def test_task_5_over_grpc_when_the_grace_is_over_calls_end(lab):
    async def scenario(client: Loopback) -> None:
        client.model.close()
        calls = [client.run(ids=[n, n], max_tokens=40) for n in range(3)]
        streams = [anext(aiter(client.stream(ids=[n, 9], max_tokens=40))) for n in range(3)]
        statuses = [asyncio.create_task(client.status(call)) for call in (*calls, *streams)]
        await client.until(lambda stats: stats.waiting + stats.running == 6, "six requests are there")
        stopping = asyncio.create_task(client.server.stop(grace=0.05))
        codes = {code for code, _ in await asyncio.gather(*statuses)}
        assert codes <= {Code.UNAVAILABLE, Code.CANCELLED}, f"the calls have ended with {codes}"
        client.model.open()
        async with asyncio.timeout(LIMIT):
            await stopping

    stats = over_grpc(lab, scenario, slots=2).stats()
    check_equal(
        (stats.finished, stats.steps <= 2), (0, True), name="finished, and whether the model stopped soon"
    )


def test_task_5_over_grpc_health_and_reflection(lab):
    async def scenario(client: Loopback) -> None:
        service = lab.ragged.grpc_server.SERVICE
        check_equal(await client.check(), "SERVING", name="health of the server")
        check_equal(await client.check(service), "SERVING", name=f"health of {service}")
        stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([question]), timeout=LIMIT)]
        names = [each.name for each in answers[0].list_services_response.service]
        assert service in names, f"the server tells that it serves {names}; {service} is missing"
        check_equal(
            await client.tokens(text="abc", max_tokens=4), alone([0, 1, 2], 4, (END,)), name="an answer"
        )

    over_grpc(lab, scenario)
