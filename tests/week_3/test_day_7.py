"""Day 3.7: tickets, the batcher's door and its loop, and the gRPC service, also under load and with faults."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import wait as wait_for_futures
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_2.continuous import prompt_of
from week_2.reading_model import V, alone, scores_after

from coursekit import lab as door
from coursekit.check import check_equal, check_raises

from .beside_answers import is_future, on_event_loop, settled
from .beside_service import new_context
from .beside_threads import logged_errors
from .patience import hangs, limit
from .serving import (
    END,
    ENGINES,
    HALVES,
    Letters,
    batcher_of,
    check_at_rest,
    check_tickets,
    let_step_fail,
    new_request,
    outcome,
    outcomes,
    queued,
    ragged_engine,
    running,
    seat,
    some,
    wanted,
    watched,
)
from .serving_calls import Code, Desk, Moment, calls, ready, settle, tell
from .serving_grpc import SHORT, message_of
from .serving_loopback import Loopback, over_grpc
from .serving_threads import Running, ThreadErrors, within

QUICK = settings(max_examples=40, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)

on_each_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(autouse=True)
def _imported(lab: Any, request: pytest.FixtureRequest) -> None:
    """Modules that take long to import aren't imported inside a time limit."""
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


def zeros(lab: Any) -> Any:
    """Scores [V] for a sampler that doesn't look at them."""
    return lab.array(np.zeros(V))


def silent(token: int) -> None:
    """An `on_token` that does nothing."""


def ticket_of(lab: Any, request: Any, on_token: Callable[[int], Any] = silent, notes: Any = None) -> Any:
    return lab.ragged.ticket.Ticket(request, on_token, notes or Notes())


def choosing(*tokens: int) -> Callable[[Any, Any], int]:
    """A way of sampling that gives these, one after the other."""
    left = deque(tokens)
    return lambda logits, token_ids: left.popleft()


def failing(error: BaseException) -> Callable[..., int]:
    """A sampler, an `on_token` or another function that raises."""

    def fail(*arguments: Any) -> int:
        raise error

    return fail


def choose(ticket: Any, lab: Any) -> Any:
    """What `choose` returns; it must not raise, whatever the caller's code does."""
    try:
        return ticket.choose(zeros(lab), [1])
    except (ZeroDivisionError, OSError, ValueError, TypeError, asyncio.CancelledError) as error:
        raise AssertionError(
            f"the caller's code is at fault, and `choose` let {error!r} out: it would end the step of all requests"
        ) from None


def test_task_1_a_token_is_chosen_by_the_callers_sampler_and_told_to_the_caller(lab):
    given, told = list[tuple[Any, list[int]]](), list[int]()

    def sample(logits: Any, token_ids: Any) -> int:
        given.append((logits, list(token_ids)))
        return 11 + len(given)

    ticket = ticket_of(lab, new_request(lab, [4, 2], 5, sample=sample), told.append)
    logits = lab.array(np.zeros(V))
    check_equal(ticket.choose(logits, [4, 2]), 12, name="what `choose` returns")
    for _ in range(2):
        ticket.request.accept(logits)
    name = "the ids that the sampler was given: prompt and output so far"
    check_equal([ids for _, ids in given], [[4, 2], [4, 2], [4, 2, 13]], name=name)
    assert given[0][0] is logits, "the sampler was not given the logits"
    check_equal(told, [12, 13, 14], name="the tokens that `on_token` was called with")
    check_equal(ticket.request.output, [13, 14], name="the output of the ticket's request after two `accept`")
    assert ticket.error is None, f"nothing went wrong, and the ticket has an error: {ticket.error!r}"
    assert not ticket.over, "nothing went wrong, and the ticket is over"


def test_task_1_each_token_is_timed_from_the_one_before_it(lab):
    notes = Notes()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3, 5, 7)), notes=notes)
    came = ticket.last
    for _ in range(3):
        ticket.request.accept(zeros(lab))
    name = "what the metrics were told of three tokens: since when, and whether it is the first"
    check_equal(notes.told, [(came, True), (10.0, False), (20.0, False)], name=name)
    check_equal(ticket.last, 30.0, name="`last`: when the newest token came, as the metrics say")


def test_task_1_a_sampler_that_fails_harms_no_other_request(lab):
    error, told = ZeroDivisionError("a bad sampler"), list[int]()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=failing(error)), told.append)
    token = choose(ticket, lab)
    assert isinstance(token, int), f"a sampler failed: `choose` must return some token, not {token!r}"
    assert ticket.error is error, f"the ticket's error is what the sampler raised, not {ticket.error!r}"
    assert not ticket.future.done(), (
        "the request still has its seat and its pages, and its future is settled: `choose` leaves that to `settle`"
    )
    check_equal((told, ticket.over), ([], True), name="tokens that were told, and whether the ticket is over")


def test_task_1_an_on_token_that_fails_harms_no_other_request(lab):
    error = OSError("the caller has hung up")
    notes = Notes()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3)), failing(error), notes)
    token = choose(ticket, lab)
    assert isinstance(token, int), f"`on_token` failed: `choose` must return some token, not {token!r}"
    assert ticket.error is error, f"the ticket's error is what `on_token` raised, not {ticket.error!r}"
    check_equal(len(notes.told), 1, name="tokens in the metrics: a token is noted before its caller is told")


@pytest.mark.parametrize("where", ["sampler", "on_token"])
def test_task_1_asyncios_cancelled_error_harms_no_other_request(lab, where):
    """It is no Exception; and it is about the caller, not about the loop."""
    error, no_token = asyncio.CancelledError(), choosing(3)
    sample, on_token = (failing(error), silent) if where == "sampler" else (no_token, failing(error))
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=sample), on_token)
    choose(ticket, lab)
    assert ticket.error is error, (
        f"the {where} raised asyncio's CancelledError; the error is {ticket.error!r}"
    )


@pytest.mark.parametrize("token", [V, -1, 10**9, 3.0, None, "7"], ids=repr)
def test_task_1_a_token_that_the_model_does_not_have_harms_no_other_request(lab, token):
    """The next step would look it up in the embedding, for all requests together."""
    told, notes = list[Any](), Notes()
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(token)), told.append, notes)
    found = choose(ticket, lab)
    name = f"the sampler chose {token!r}, and the ids go from 0 to {V - 1}"
    assert isinstance(ticket.error, ValueError), (
        f"{name}: that is a ValueError of this request, not {ticket.error!r}"
    )
    assert repr(token) in str(ticket.error), f"{name}: the message names it; it is: {ticket.error}"
    assert found in range(V), f"{name}: `choose` returns an id, not {found!r}"
    check_equal((told, notes.told), ([], []), name=f"{name}: what caller and metrics were told")


@pytest.mark.parametrize("token", [0, V - 1])
def test_task_1_the_first_and_the_last_token_of_the_vocabulary_are_tokens(lab, token):
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(token)))
    check_equal(choose(ticket, lab), token, name="what `choose` returns")
    assert ticket.error is None, f"{token} is an id, and there are {V}: no error, but {ticket.error!r}"


@pytest.mark.parametrize("error", [StopIteration("next"), asyncio.CancelledError("gone")], ids=repr)
def test_task_1_an_error_that_no_future_can_carry_reaches_the_caller_by_name(lab, error):
    """A coroutine that awaits a StopIteration never ends on Python 3.11, and the other looks like a cancel."""
    ticket = ticket_of(lab, new_request(lab, [1], 5))
    ticket.error = error
    ticket.settle()

    found = ""
    with calls() as loop:
        awaiting = f"a coroutine that awaits a future whose request has failed with {error!r}"
        try:
            loop.future(ticket.future, awaiting).result()
        except RuntimeError as raised:
            found = str(raised)
    check_equal(found, f"{type(error).__name__}: {error}", name="the text of the RuntimeError that it gets")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
def test_task_1_ctrl_c_in_the_callers_code_is_no_error_of_the_request(lab, error):
    """It is meant for the program, not for the request; so is `sys.exit`."""
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=failing(error)))
    try:
        ticket.choose(zeros(lab), [1])
    except (KeyboardInterrupt, SystemExit):
        pass
    else:
        raise AssertionError(f"`choose` has caught {error!r}, which is meant for the program: it must go on")
    assert ticket.error is None, f"{error!r} became the ticket's error: {ticket.error!r}"


def test_task_1_a_future_gets_the_output(lab):
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3, 5)))
    for _ in range(2):
        ticket.request.accept(zeros(lab))
    assert ticket.settle() is True, "`settle` returns True when the answer was wanted"
    check_equal(outcome(ticket.future), [3, 5], name="how the future has ended: with the output alone")


def test_task_1_a_future_gets_the_error_where_there_is_one(lab):
    ticket = ticket_of(lab, new_request(lab, [1], 5, sample=choosing(3)))
    ticket.request.accept(zeros(lab))
    ticket.error = ValueError("too late")
    assert ticket.settle() is True, (
        "`settle` returns True: the future was not cancelled, so it gets the error"
    )
    check_equal(
        outcome(ticket.future), "ValueError", name="how the future has ended: with the ticket's error"
    )
    assert ticket.future.exception() is ticket.error, "the future's error is not the ticket's own"


@pytest.mark.parametrize("error", [None, ValueError("too late")], ids=["with output", "with an error"])
def test_task_1_a_cancelled_future_gets_nothing_and_wakes_its_waiters(lab, error):
    ticket = ticket_of(lab, new_request(lab, [1], 5))
    ticket.error = error
    assert ticket.future.cancel(), "a future can be cancelled as long as it is not settled"
    assert ticket.over, "a ticket whose future was cancelled is over"
    try:
        wanted_it = ticket.settle()
    except InvalidStateError:
        raise AssertionError(
            "the future was cancelled, and `settle` has given it a result or an error"
        ) from None
    assert wanted_it is False, "`settle` returns False when the caller has cancelled"
    done, _ = wait_for_futures([ticket.future], timeout=0)
    assert done, (
        "`concurrent.futures.wait` doesn't know that the future was cancelled: tell it, with "
        "`set_running_or_notify_cancel`"
    )


@pytest.mark.parametrize("error", [None, ValueError("too late")], ids=["with output", "with an error"])
def test_task_1_a_cancel_can_not_come_in_the_middle_of_settling(lab, error):
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
    """A queue that fails a test when it is changed by a thread that doesn't hold the lock."""

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

    def __iter__(self) -> Any:
        if getattr(self.batcher, "admitting", False):
            self._check("__iter__")
        return super().__iter__()

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


def settled_outside(batcher: Any, ticket: Any) -> list[bool]:
    """Watch a ticket's future: once it is settled, the list says whether the lock was free at that moment."""
    free = list[bool]()

    class Noting(Future):
        def set_running_or_notify_cancel(self) -> bool:
            free.append(is_free(batcher.changed))
            return super().set_running_or_notify_cancel()

    ticket.future = Noting()
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
                self.changed.wait_for(lambda: self.closed, 2 * limit())

        def abandon(self) -> None:
            self.abandons += 1

    return batcher_of(lab, Doorkeeper, **options)


def test_task_2_requests_wait_in_the_order_in_which_they_came(lab):
    batcher = doorkeeper(lab)
    batcher.request_queue = Guarded(batcher)
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 3) for n in (4, 1, 3)]
    futures = [batcher.submit(request) for request in requests]
    check_equal(queued(batcher), [r.prompt_ids for r in requests], name="the prompts in the queue")
    pending = [is_future(future) and not future.done() for future in futures]
    check_equal(pending, [True] * 3, name="whether each `submit` returned a future that is not settled yet")
    check_equal(batcher.stats().waiting, 3, name="requests that wait, in the figures")
    own = [ticket.future for ticket in batcher.request_queue]
    assert all(a is b for a, b in zip(own, futures, strict=True)), "`submit` returns the ticket's own future"
    calls = dict(batcher.core.toy_calls)
    check_equal(calls, {}, name="calls of the engine's push, step and abort by `submit`: they are the loop's")


def test_task_2_a_ticket_has_its_callers_sampler_and_on_token(lab):
    batcher, told = doorkeeper(lab), list[int]()
    batcher.submit(new_request(lab, [3, 1], 4, sample=choosing(9, 8)), told.append)
    batcher.submit(new_request(lab, [3, 1], 4, sample=choosing(9, 8)))
    for ticket in batcher.request_queue:
        ticket.request.accept(zeros(lab))
        assert ticket.error is None, f"a token was chosen, and that ended with {ticket.error!r}"
    check_equal(told, [9], name="the tokens that `on_token` was called with")
    check_equal(batcher.stats().tokens, 2, name="tokens in the figures: the ticket has the batcher's metrics")


def test_task_2_the_request_is_left_as_it_is_and_runs_from_its_prompt(lab):
    """It may have run elsewhere before, and it may be submitted twice: each time a copy begins at the prompt."""
    batcher, sample = doorkeeper(lab), choosing(9, 8, 7)
    request = new_request(lab, [3, 1], 4, (END,), sample=sample)
    request.token_ids.append(5)
    for _ in range(2):
        batcher.submit(request)
    for ticket in batcher.request_queue:
        check_equal(ticket.request.token_ids, [3, 1], name="the tokens that the submitted copy begins with")
        ticket.request.accept(zeros(lab))
    found = (request.token_ids, request.max_tokens, sorted(request.end_ids), request.error)
    check_equal(found, ([3, 1, 5], 4, [END], None), name="the caller's own request, which is left as it is")
    assert request.sample is sample, "the caller's own request has another `sample` now"


@pytest.mark.parametrize(
    ("length", "reason"),
    [(0, "the prompt is empty"), (13, "a toy refuses prompts of 13 tokens"), (64, "at most 63 fit")],
)
def test_task_2_a_request_that_can_never_run_is_refused_with_the_engines_reason(lab, length, reason):
    batcher, request = doorkeeper(lab), new_request(lab, prompt_of(length), 3)
    name = f"a prompt of {length} tokens, which the engine refuses"
    check_raises(ValueError, lambda: batcher.submit(request), name=name, match=reason)
    check_equal(request.error, None, name="`error` of the caller's own request, which is left as it is")
    check_equal(queued(batcher), [], name="the queue, after a refusal")
    name = "refused because the queue was full, in the figures, after a request that can't ever run"
    check_equal(batcher.stats().refused, 0, name=name)


def test_task_2_a_request_for_no_tokens_has_its_output_at_once(lab):
    batcher = doorkeeper(lab, max_queue=1)
    batcher.submit(new_request(lab, [1, 2], 3))
    try:
        future = batcher.submit(new_request(lab, [1], 0))
    except lab.ragged.batcher.QueueFull:
        raise AssertionError(
            "the queue is full; a request for no tokens needs no place in it, and was refused"
        ) from None
    assert future.done(), (
        "a request with `max_tokens` 0 is finished before it begins, and its future is not settled"
    )
    check_equal(outcome(future), [], name="its output")
    check_equal(queued(batcher), [[1, 2]], name="the queue")
    stats = batcher.stats()
    counts = (stats.finished, stats.refused, stats.failed)
    check_equal(counts, (1, 0, 0), name="finished, refused, failed")


def test_task_2_tickets_are_settled_outside_the_lock(lab):
    """A callback of the future may wait for another thread, which may need the lock."""
    batcher, free = doorkeeper(lab), list[bool]()
    usual = batcher.settle

    def settle(ticket: Any) -> None:
        free.append(is_free(batcher.changed))
        usual(ticket)

    batcher.settle = settle
    batcher.submit(new_request(lab, [1], 0))
    check_equal(free, [True], name="whether the lock was free as `submit` settled a request for no tokens")
    batcher.submit(new_request(lab, [1], 3))
    ticket = batcher.request_queue[0]
    free = settled_outside(batcher, ticket)
    usual(ticket)
    check_equal(free, [True], name="whether the lock was free as `settle` settled a future")


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
    name = "refused because the queue was full, in the figures, after a request that came too late"
    check_equal(batcher.stats().refused, 0, name=name)


def test_task_2_a_request_that_has_ended_elsewhere_is_not_complete_here(lab):
    """What is run here is a copy, which begins with the prompt alone."""
    batcher, request = doorkeeper(lab), new_request(lab, [3, 1], 1)
    request.token_ids.append(5)
    future = batcher.submit(request)
    assert not future.done(), (
        "the caller's own request had ended elsewhere before it was submitted, and the future has an output at once: "
        "ask the ticket's request, which begins with the prompt, whether it is finished"
    )
    check_equal(queued(batcher), [[3, 1]], name="the prompts in the queue")


def test_task_2_a_batcher_that_is_closed_says_so_though_its_queue_is_full(lab):
    """A caller who is told that the queue is full tries again, in vain."""
    batcher = doorkeeper(lab, max_queue=1)
    batcher.submit(new_request(lab, [1], 3))
    batcher.closed = True
    name = "a request, when the batcher is closed and its queue is full"
    check_raises(lab.ragged.batcher.Closed, lambda: batcher.submit(new_request(lab, [2], 3)), name=name)
    check_equal(batcher.stats().refused, 0, name="refused because the queue was full, in the figures")


@pytest.mark.parametrize("max_queue", [1, 3])
def test_task_2_a_full_queue_takes_no_more(lab, max_queue):
    batcher = doorkeeper(lab, max_queue=max_queue)
    requests = [new_request(lab, [n + 1], 3) for n in range(max_queue + 2)]
    futures = [batcher.submit(request) for request in requests[:max_queue]]
    full = lab.ragged.batcher.QueueFull
    for n in (0, 1):
        check_raises(
            full,
            partial(batcher.submit, requests[max_queue + n]),
            name=f"one request more than the {max_queue} that may wait",
            match=str(max_queue),
        )
        check_equal(batcher.stats().refused, n + 1, name="refused, in the figures")
    check_equal(queued(batcher), [[n + 1] for n in range(max_queue)], name="the queue, afterwards")
    check_equal(outcomes(futures), ["pending"] * max_queue, name="how the requests that wait have ended")
    batcher.request_queue.popleft()
    batcher.submit(requests[-1])
    check_equal(queued(batcher)[-1], [max_queue + 2], name="the last in the queue, once one has left it")


def test_task_2_only_requests_that_wait_count_towards_max_queue(lab):
    batcher = doorkeeper(lab, max_queue=3, seats=3)
    seat(batcher, *(new_request(lab, [n], 3) for n in range(3)))
    batcher.max_queue = 2
    for n in range(2):
        try:
            batcher.submit(new_request(lab, [n + 5], 3))
        except lab.ragged.batcher.QueueFull:
            raise AssertionError(
                f"three requests run, {n} wait, and 2 may wait: `submit` has refused one more. Only requests in the "
                "queue count towards `max_queue`, not those in the engine"
            ) from None


COUNTS = ("finished", "cancelled", "failed", "refused")


def guard_counts(batcher: Any) -> None:
    """From now on a count that is changed by a thread without the lock fails the test."""

    class Counts(type(batcher.metrics)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            assert name not in COUNTS or not is_free(batcher.changed), (
                f"`metrics.{name}` was changed outside `changed`: of two threads that count at the same moment, one "
                "would be lost"
            )
            super().__setattr__(name, value)

    batcher.metrics.__class__ = Counts


def test_task_2_counts_are_changed_under_the_lock(lab):
    """Any thread may settle a ticket, and any may be refused."""
    batcher = doorkeeper(lab, max_queue=3)
    guard_counts(batcher)
    for n in range(3):
        batcher.submit(new_request(lab, [n + 1], 3))
    check_raises(lab.ragged.batcher.QueueFull, lambda: batcher.submit(new_request(lab, [1], 3)))
    first, second, third = batcher.request_queue
    first.future.cancel()
    second.error = KeyError("failed")
    for ticket in (first, second, third):
        batcher.settle(ticket)
    stats = batcher.stats()
    counts = (stats.finished, stats.cancelled, stats.failed, stats.refused)
    check_equal(counts, (1, 1, 1, 1), name="finished, cancelled, failed, refused")


def test_task_2_a_new_request_wakes_the_loop(lab):
    def body(batcher: Any) -> None:
        with batcher.changed:
            asleep.set()
            batcher.changed.wait_for(lambda: batcher.request_queue or batcher.closed, 2 * limit())
            awake.append(len(batcher.request_queue))

    asleep, awake = threading.Event(), list[int]()
    batcher = doorkeeper(lab, body)
    batcher.start()
    assert asleep.wait(limit()), "the test's own loop has not begun"
    batcher.submit(new_request(lab, [1], 1))
    batcher.thread.join(limit())  # less than the loop sleeps if it is not woken
    if not awake:
        raise hangs("the loop sleeps on `changed`, and `submit` has not woken it")


def test_task_2_many_threads_submit_at_once(lab):
    batcher, full = doorkeeper(lab, max_queue=150), lab.ragged.batcher.QueueFull
    batcher.request_queue = Guarded(batcher)
    start = threading.Barrier(8)

    def caller(number: int) -> int:
        start.wait(limit())
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
            thread.join(limit())
    if not all(future.done() for future in results):
        raise hangs("eight threads submit at once, and some of them hang")
    taken = sum(future.result() for future in results)
    check_equal(taken, 150, name="requests taken, of 200, with room for 150")
    check_equal((len(batcher.request_queue), batcher.stats().refused), (150, 50), name="waiting and refused")
    for number in range(8):
        own = [n for caller, n in queued(batcher) if caller == number]
        check_equal(own, sorted(own), name=f"the order of the requests that thread {number} has submitted")


def test_task_2_stop_waits_for_the_loop_without_the_lock(lab):
    """The loop needs the lock to end, and callers need it to be told that the batcher is closed."""
    go_on = threading.Event()
    batcher = doorkeeper(lab, lambda batcher: go_on.wait(2 * limit()))
    batcher.start()
    stopping, errors = threading.Thread(target=batcher.stop, daemon=True), ThreadErrors()
    closed, ends = lab.ragged.batcher.Closed, list[str]()

    def submit() -> None:
        try:
            batcher.submit(new_request(lab, [1], 3))
        except closed:
            ends.append("Closed")

    with errors.collected():
        stopping.start()
        try:
            await_closed(batcher, errors)
            what = "`submit`, while another thread waits in `stop` for the loop's end (does `stop` hold the lock?),"
            within(submit, what)
            check_equal(ends, ["Closed"], name="how a request ends while another thread waits in `stop`")
        finally:
            go_on.set()
            stopping.join(limit())


def await_closed(batcher: Any, errors: ThreadErrors) -> None:
    """Wait until the batcher is closed, or a thread has failed."""
    pause, seconds = threading.Event(), limit()
    for _ in range(int(seconds / 0.01)):
        if batcher.closed or errors.errors:
            break
        pause.wait(0.01)
    if not batcher.closed:
        raise hangs(f"`stop` was called, and has not set `closed` within {seconds:g} s")


@pytest.mark.parametrize("drain", [True, False])
def test_task_2_stop_closes_the_door_and_wakes_the_loop(lab, drain):
    batcher = doorkeeper(lab)
    with ThreadErrors().collected():
        batcher.start()
        seconds = limit()
        ended = within(lambda: batcher.stop(drain=drain, timeout=seconds - 0.5), "stop", seconds)
    assert ended is True, (
        f"stop(drain={drain}) returned {ended!r}: the loop sleeps on `changed`, and was not woken in time"
    )
    check_equal((batcher.closed, batcher.abandoned), (True, not drain), name="closed, and abandoned")
    closed = lab.ragged.batcher.Closed
    for count in (3, 0):
        request = new_request(lab, [1], count)
        error = check_raises(closed, partial(batcher.submit, request), name="a request after stop")
        check_equal(str(error), lab.ragged.errors.CLOSED, name="the message of Closed, which clients get")
    check_equal(queued(batcher), [], name="the queue")
    check_equal(batcher.abandons, 0, name="calls of `abandon` by `stop`, for a loop that does it itself")


def test_task_2_stop_says_whether_the_loop_has_ended(lab):
    go_on = threading.Event()
    batcher = doorkeeper(lab, lambda batcher: go_on.wait(2 * limit()))
    batcher.start()
    ended = within(lambda: batcher.stop(timeout=0), "stop(timeout=0)")
    assert ended is False, f"the loop is in the middle of a step, and stop(timeout=0) returned {ended!r}"
    check_equal(batcher.abandoned, False, name="abandoned, after a stop that drains")
    assert within(lambda: batcher.stop(drain=False, timeout=0), "stop(timeout=0)") is False
    check_equal(batcher.abandoned, True, name="abandoned, after a stop without draining")
    within(lambda: batcher.stop(drain=True, timeout=0), "stop(timeout=0)")
    check_equal(batcher.abandoned, True, name="abandoned, after a later stop that would drain: it's too late")
    go_on.set()
    for moment in ("the loop has ended", "the loop had ended before `stop` was called"):
        assert within(lambda: batcher.stop(), "stop") is True, f"{moment}: stop returns True"


@pytest.mark.parametrize("drain", [True, False])
def test_task_2_stop_leaves_the_requests_to_the_loop(lab, drain):
    """They end after the step that is running, and the loop does that."""
    go_on = threading.Event()
    batcher = doorkeeper(lab, lambda batcher: go_on.wait(2 * limit()))
    futures = [batcher.submit(new_request(lab, [n + 1], 3)) for n in range(2)]
    batcher.start()
    try:
        within(lambda: batcher.stop(drain=drain, timeout=0), "stop(timeout=0)")
        found = outcomes(futures), queued(batcher), batcher.abandons
        name = (
            f"how two requests have ended, the queue, and calls of `abandon`, after stop(drain={drain}) in the "
            "middle of a step: the loop ends the requests, not `stop`"
        )
        check_equal(found, (["pending"] * 2, [[1], [2]], 0), name=name)
    finally:
        go_on.set()


def test_task_2_a_batcher_that_was_never_started_is_stopped_at_once(lab):
    batcher = doorkeeper(lab)
    batcher.submit(new_request(lab, [1], 3))
    for n in (1, 2):
        ended = within(batcher.stop, "stop of a batcher that was never started")
        assert ended is True, f"there is no loop that could still run, and stop returned {ended!r}"
        assert batcher.abandons >= 1, "there is no loop that calls `abandon`: `stop` has to, and has not"
        assert batcher.abandons <= n, (
            f"`stop` was called {n} times, and has called `abandon` {batcher.abandons} times"
        )


def test_task_2_settled_tickets_are_counted(lab):
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
        batcher.settle(ticket)
        stats = batcher.stats()
        ends.append((stats.cancelled, stats.failed, stats.finished))
    name = "cancelled, failed, finished, after each of two cancelled ones (one failed, too), three failed, one good"
    check_equal(ends, [(1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 0), (2, 3, 0), (2, 3, 1)], name=name)
    found = outcomes([ticket.future for ticket in tickets])
    check_equal(found, ["cancelled"] * 2 + ["KeyError"] * 3 + [[]], name="how the six futures have ended")
    told = wait_for_futures([tickets[0].future], timeout=0).done
    assert told, "a cancelled future was counted, and not settled with the ticket's own `settle`"


def test_task_2_a_request_that_is_cancelled_at_the_last_moment_counts_as_cancelled(lab):
    class Late(Future):
        """Cancelled by its caller just before it is asked whether it may be settled."""

        def set_running_or_notify_cancel(self) -> bool:
            self.cancel()
            return super().set_running_or_notify_cancel()

    batcher = doorkeeper(lab)
    batcher.submit(new_request(lab, [1], 3))
    ticket = batcher.request_queue[0]
    ticket.future = Late()
    batcher.settle(ticket)
    stats = batcher.stats()
    name = (
        "cancelled and finished, in the figures, when a cancel comes just before the future is settled: only what "
        "the ticket's `settle` returns says how the request has ended"
    )
    check_equal((stats.cancelled, stats.finished), (1, 0), name=name)


# Task 3: the loop


def steps(batcher: Any, count: int = 1) -> None:
    """What the loop does, by hand."""
    for _ in range(count):
        batcher.admit()
        batcher.retire(batcher.step())


def until_done(batcher: Any, bound: int = 300) -> int:
    """Step until no request waits or runs; how many steps it took."""
    taken = 0
    while batcher.request_queue or batcher.tickets:
        assert taken < bound, f"{bound} steps, and {batcher.stats().running} requests still run"
        steps(batcher)
        taken += 1
    return taken


def trouble() -> RuntimeError:
    return RuntimeError("the engine fails here, as the test wants it to")


def test_task_3_release_frees_seat_and_pages_before_futures_are_settled(lab):
    """A caller who gets an answer may send the next request at once: it must find room."""
    batcher, seen = batcher_of(lab), list[tuple[int, int, int]]()
    tickets = seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(2)))

    def note(future: Future[list[int]]) -> None:
        free = len(batcher.core.allocator.free_pages)
        seen.append((len(batcher.core.requests), len(batcher.tickets), 39 - free))

    for ticket in tickets:
        ticket.future.add_done_callback(note)
    batcher.release(tickets)
    name = "requests in the engine, in `tickets`, and pages held, as each of two futures is settled"
    check_equal(seen, [(0, 0, 0), (0, 0, 0)], name=name)


def test_task_3_release_touches_only_the_requests_that_leave(lab):
    batcher = batcher_of(lab)
    tickets = seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(3)))
    batcher.release([tickets[1]])
    check_equal(
        outcomes([t.future for t in tickets]), ["pending", [], "pending"], name="how the three have ended"
    )
    check_equal(running(batcher), [[0, 9], [2, 9]], name="the requests in the engine")
    check_tickets(batcher, "release")
    batcher.release([])
    check_equal(
        running(batcher), [[0, 9], [2, 9]], name="the requests in the engine, after no request was released"
    )


@pytest.mark.parametrize("error", [RuntimeError("the engine fails"), KeyboardInterrupt()], ids=repr)
def test_task_3_release_settles_futures_though_the_engine_fails(lab, error):
    batcher = batcher_of(lab)
    tickets = seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(3)))
    batcher.core.toy_fail("abort", 1, error)
    raised: BaseException | None = None
    try:
        batcher.release(tickets[:2])
    except (RuntimeError, KeyboardInterrupt) as found:
        if isinstance(found, NotImplementedError):
            raise
        raised = found
    assert raised is error, f"the engine's `abort` raised {error!r}, which must go on; it is {raised!r}"
    ends = outcomes([ticket.future for ticket in tickets])
    check_equal(ends, [[], [], "pending"], name="how three futures have ended; the first two were released")
    check_equal(len(batcher.tickets), 1, name="tickets that are left")


def test_task_3_retire_lets_complete_failed_and_cancelled_requests_go(lab):
    batcher = batcher_of(lab, seats=4)
    tickets = seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(4)))
    tickets[1].error = OSError("its own trouble")
    tickets[2].future.cancel()
    batcher.retire([tickets[3].request])
    found = dict(
        zip(["runs", "failed", "cancelled", "complete"], outcomes([t.future for t in tickets]), strict=True)
    )
    ends = {"runs": "pending", "failed": "OSError", "cancelled": "cancelled", "complete": []}
    check_equal(found, ends, name="how four requests have ended, by what they are when `retire` is called")
    check_equal(running(batcher), [[0, 9]], name="the requests in the engine")
    check_tickets(batcher, "retire")


def test_task_3_retire_releases_what_has_left_the_engine_by_itself(lab):
    """A complete request leaves the engine in its last step; its ticket goes, and the pages stay free."""
    batcher = batcher_of(lab)
    tickets = seat(batcher, *(new_request(lab, [n, 9], n + 1) for n in range(2)))
    batcher.retire(batcher.core.step().finished)
    check_equal(outcome(tickets[0].future), alone([0, 9], 1), name="the answer of a request for one token")
    check_equal(running(batcher), [[1, 9]], name="the requests in the engine")
    check_tickets(batcher, "retire")
    batcher.retire(batcher.core.step().finished)
    check_at_rest(batcher, [ticket.future for ticket in tickets])


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_task_3_retire_releases_a_request_once_though_it_is_complete_and_over(lab, how):
    """Its last token may be the one at which it fails, or its caller cancels."""
    batcher = batcher_of(lab)
    tickets = seat(batcher, *(new_request(lab, [n, 9], 1) for n in range(2)))
    if how == "failed":
        tickets[0].error = OSError("at its last token")
    else:
        tickets[0].future.cancel()
    batcher.retire(batcher.core.step().finished)
    ends = ["OSError" if how == "failed" else "cancelled", alone([1, 9], 1)]
    check_equal(
        outcomes([ticket.future for ticket in tickets]), ends, name="how two complete requests have ended"
    )
    check_at_rest(batcher, [ticket.future for ticket in tickets])


def guarding(lab: Any) -> Any:
    class Guarding(watched(lab)):  # type: ignore[misc]
        """A queue that is put in the place of another is guarded, too; `admit` looks through it under the lock."""

        admitting = False

        @property
        def request_queue(self) -> Guarded:
            return self._queue

        @request_queue.setter
        def request_queue(self, tickets: Any) -> None:
            assert not self.admitting or not is_free(self.changed), (
                "`admit` has put another queue in the place of `request_queue` outside `changed`: a request that was "
                "submitted just before is lost"
            )
            self._queue = Guarded(self, tickets)

        def admit(self) -> None:
            self.admitting = True
            try:
                super().admit()
            finally:
                self.admitting = False

    return Guarding


def test_task_3_admit_takes_requests_in_the_order_in_which_they_came(lab):
    batcher, tail = batcher_of(lab, guarding(lab), seats=2), [[3, 9], [4, 9, 9, 9], [5, 9]]
    for prompt in ([1, 9, 9], [2, 9], *tail):  # the second is the shortest of the first three
        batcher.submit(new_request(lab, prompt, 4))
    batcher.admit()
    check_equal(running(batcher), [[1, 9, 9], [2, 9]], name="the requests that have the two seats")
    check_equal(queued(batcher), tail, name="the requests that wait, in order")
    batcher.admit()
    check_equal(queued(batcher), tail, name="the requests that wait when no seat is idle")
    batcher.release([batcher.tickets[batcher.core.requests[0]]])
    batcher.admit()
    check_equal(
        running(batcher), [[2, 9], [3, 9]], name="the requests that run, once one of two seats was idle"
    )
    check_equal(queued(batcher), tail[1:], name="the requests that wait then")
    batcher.release([batcher.tickets[batcher.core.requests[0]]])
    batcher.admit()
    check_equal(
        running(batcher), tail[:2], name="the requests that run: the longer one came before the shorter"
    )


def test_task_3_admit_does_nothing_where_no_request_waits(lab):
    batcher = batcher_of(lab)
    batcher.admit()
    check_equal(
        (running(batcher), dict(batcher.core.toy_calls)), ([], {}), name="requests, and calls of the engine"
    )


def test_task_3_admit_lets_cancelled_requests_leave_the_queue(lab):
    batcher = batcher_of(lab, watched(lab), seats=2)
    futures = [batcher.submit(new_request(lab, [n + 1, 9], 4)) for n in range(6)]
    for n in (0, 3):
        futures[n].cancel()
    batcher.admit()
    check_equal(running(batcher), [[2, 9], [3, 9]], name="the requests that run: 1 and 4 were cancelled")
    check_equal(queued(batcher), [[5, 9], [6, 9]], name="the requests that wait")
    name = "cancelled, in the figures, once two cancelled requests have left the queue and were settled"
    check_equal(batcher.stats().cancelled, 2, name=name)
    futures[5].cancel()
    batcher.admit()
    check_equal(
        queued(batcher), [[5, 9]], name="the requests that wait, once 6 was cancelled and no seat is idle"
    )
    check_equal(batcher.stats().cancelled, 3, name="cancelled, in the figures")
    assert wait_for_futures([futures[5]], timeout=0).done, "a future that left the queue is not settled"


def test_task_3_admit_settles_outside_the_lock(lab):
    """A callback of the future may wait for another thread, which may need the lock."""
    batcher = batcher_of(lab, seats=1)
    for n in range(2):
        batcher.submit(new_request(lab, [n + 1, 9], 4))
    ticket = batcher.request_queue[1]
    free = settled_outside(batcher, ticket)
    ticket.future.cancel()
    batcher.admit()
    check_equal(free, [True], name="whether the lock was free as `admit` settled a cancelled request, once")


def test_task_3_admit_keeps_a_request_that_is_cancelled_between_two_looks(lab):
    class Late(Future):
        """Cancelled by its caller just before it is asked for the second time."""

        asked = 0

        def cancelled(self) -> bool:
            self.asked += 1
            if self.asked == 2:
                self.cancel()
            return super().cancelled()

    batcher = batcher_of(lab, seats=1)
    for n in range(2):
        batcher.submit(new_request(lab, [n + 1, 9], 4))
    late = batcher.request_queue[1].future = Late()
    batcher.admit()
    kept = [ticket.future for ticket in [*batcher.request_queue, *batcher.tickets.values()]]
    lost = late not in kept and not wait_for_futures([late], timeout=0).done
    assert not lost, (
        "a request was cancelled just before `admit` asked for the second time whether it is over. Now it is neither "
        "in the queue nor in the engine, and its future was never settled: ask each ticket once"
    )


def test_task_3_admit_keeps_a_request_whose_push_fails(lab):
    """It must be where `abandon` finds it."""
    batcher, error = batcher_of(lab), trouble()
    for n in range(3):
        batcher.submit(new_request(lab, [n + 1, 9], 4))
    batcher.core.toy_fail("push", 2, error)
    found = check_raises(RuntimeError, batcher.admit, name="`admit`, when the engine's `push` fails")
    assert found is error, f"what the engine raised must go on; it is {found!r}"
    check_equal(running(batcher), [[1, 9]], name="the requests in the engine; the second push has failed")
    name = "the requests in the queue; one whose push has failed is still there, where `abandon` finds it"
    check_equal(queued(batcher), [[2, 9], [3, 9]], name=name)
    check_tickets(batcher, "admit")


def test_task_3_admit_settles_cancelled_requests_before_it_pushes_others(lab):
    """A push may fail: by then the cancelled requests have left the queue, where `abandon` would look for them."""
    batcher = batcher_of(lab)
    futures = [batcher.submit(new_request(lab, [n + 1, 9], 4)) for n in range(3)]
    futures[1].cancel()
    batcher.core.toy_fail("push", 1, trouble())
    check_raises(RuntimeError, batcher.admit, name="`admit`, when the engine's `push` fails")
    lost = not wait_for_futures([futures[1]], timeout=0).done and [2, 9] not in queued(batcher)
    assert not lost, "the push of another request has failed, and a cancelled one was never settled"


def test_task_3_step_runs_the_engine_once(lab):
    batcher = batcher_of(lab, core=ragged_engine(lab, budget=8))
    for n in (3, 4, 5):
        batcher.submit(new_request(lab, prompt_of(n), 4))
    batcher.admit()
    found = batcher.step()
    check_equal(list(found), [], name="what `step` returns: no request is complete")
    runs = batcher.core.runner.model.runs
    check_equal(runs, [[(3, 3), (4, 4), (1, 1)]], name="what the model was run on: 8 tokens at most")
    stats = batcher.stats()
    check_equal((stats.steps, stats.occupancy, stats.tokens), (1, 1.0, 2), name="steps, occupancy, tokens")
    batcher.step()
    stats = batcher.stats()
    check_equal(
        (stats.steps, stats.occupancy), (2, 0.875), name="steps, and occupancy: 8 and then 6 of 8 tokens"
    )


def test_task_3_step_returns_the_requests_that_are_complete(lab):
    batcher = batcher_of(lab)
    tickets = seat(batcher, *(new_request(lab, [n, 9], n + 1) for n in range(2)))
    check_equal(
        [r.prompt_ids for r in batcher.step()],
        [[0, 9]],
        name="the prompts of the requests that `step` returns",
    )
    check_equal(
        outcome(tickets[0].future), "pending", name="how its future has ended: only `retire` settles it"
    )


def test_task_3_step_without_tokens_is_not_counted(lab):
    batcher = batcher_of(lab)
    check_equal(list(batcher.step()), [], name="what `step` returns when no request is in the engine")
    stats = batcher.stats()
    check_equal(
        (stats.steps, stats.occupancy), (0, None), name="steps and occupancy, when no token was issued"
    )


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, MemoryError])
def test_task_3_step_that_fails_fails_the_requests_in_the_engine(lab, kind):
    batcher, error = batcher_of(lab, seats=2), kind("the engine fails here, as the test wants it to")
    for n in range(3):
        batcher.submit(new_request(lab, [n + 1, 9], 4))
    batcher.admit()
    batcher.core.toy_fail("step", 1, error)
    try:
        complete = batcher.step()
    except kind as found:
        if found is not error:
            raise
        raise AssertionError(
            "`step` must not raise what the engine's step raises: it would end the loop"
        ) from None
    check_equal(
        list(complete), [], name="what `step` returns when the engine has failed: no request is complete"
    )
    errors = [ticket.error for ticket in batcher.tickets.values()]
    check_engine_failed(lab, errors, error)
    check_equal(batcher.request_queue[0].error, None, name="the error of the request that waits")
    check_equal(batcher.stats().steps, 0, name="steps: one that failed is none")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_task_3_step_lets_through_what_is_no_exception(lab, kind):
    batcher = batcher_of(lab)
    batcher.submit(new_request(lab, [1, 9], 4))
    batcher.admit()
    batcher.core.toy_fail("step", 1, kind("as the test wants it to"))
    try:
        batcher.step()
    except kind:
        return
    raise AssertionError(
        f"the engine's step was ended by {kind.__name__}, which is no Exception, and `step` has caught it: it has to "
        "end the loop"
    )


def check_engine_failed(lab: Any, errors: list[Any], cause: Exception) -> None:
    """Each request has an EngineFailed of its own, which keeps nothing of the step alive."""
    __tracebackhide__ = True
    failed, what = lab.ragged.errors.EngineFailed, "a step has failed: each request in the engine gets"
    assert all(isinstance(error, failed) for error in errors), f"{what} an EngineFailed, not {errors}"
    assert len({id(error) for error in errors}) == len(errors), (
        f"{what} an EngineFailed of its own: each caller's `result()` adds its traceback to the exception"
    )
    text = f"{type(cause).__name__}: {cause}"
    check_equal([str(error) for error in errors], [text] * len(errors), name=f"the texts; {what} one")
    for error in errors:
        kept = [each for each in (error.__traceback__, error.__cause__, error.__context__) if each]
        assert not kept, f"{what} an exception that keeps the step's tensors alive, by {kept[0]!r}"


def test_task_3_step_that_fails_is_logged_once(lab):
    """The callers get its text; where it happened only the log says."""
    batcher, error = batcher_of(lab, seats=2), trouble()
    seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(2)))
    batcher.core.toy_fail("step", 1, error)
    logged = logged_errors(batcher.step)
    assert logged == [error], (
        f"a step has failed: its error is logged once, with its traceback, by `log.exception`; found {logged}"
    )


@on_each_engine
@pytest.mark.parametrize("at", [1, 3])
def test_task_3_requests_in_the_engine_fail_with_it_and_the_others_go_on(lab, engine, at):
    core = ENGINES[engine](lab, seats=2)
    batcher = batcher_of(lab, watched(lab), core)
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 5) for n in range(4)]
    futures = [batcher.submit(request) for request in requests]
    let_step_fail(core, at, trouble())
    until_done(batcher)
    expected = ["EngineFailed", "EngineFailed", *[wanted(request) for request in requests[2:]]]
    check_equal(
        outcomes(futures), expected, name=f"how each of four has ended, two at a time; step {at} failed"
    )
    check_equal(batcher.stats().failed, 2, name="failed, in the figures")
    assert not batcher.closed, (
        "a step has failed, and the batcher takes no more requests: only the loop's end closes it"
    )
    check_at_rest(batcher, futures)


@on_each_engine
def test_task_3_a_complete_request_leaves_with_its_output(lab, engine):
    batcher = batcher_of(lab, watched(lab), ENGINES[engine](lab, seats=2))
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in ((2, 1), (3, 4), (1, 2))]
    futures = [batcher.submit(request) for request in requests]
    until_done(batcher)
    check_equal(outcomes(futures), [wanted(request) for request in requests], name="the three outputs")
    check_at_rest(batcher, futures)
    stats = batcher.stats()
    check_equal((stats.finished, stats.running, stats.waiting), (3, 0, 0), name="finished, running, waiting")


@on_each_engine
def test_task_3_a_request_cancelled_while_it_runs_gives_its_pages_back_after_the_step(lab, engine):
    core = ENGINES[engine](lab, seats=2)
    batcher = batcher_of(lab, watched(lab), core)
    requests = [new_request(lab, prompt_of(n + 4, seed=n), 6) for n in range(2)]
    futures = [batcher.submit(request) for request in requests]
    steps(batcher, 2)
    held = len(core.allocator.free_pages)
    futures[0].cancel()
    steps(batcher)
    check_equal(
        running(batcher), [requests[1].prompt_ids], name="the requests in the engine, after that step"
    )
    assert len(core.allocator.free_pages) > held, (
        "the step is over, and no page of the cancelled request is free"
    )
    check_equal(batcher.stats().cancelled, 1, name="cancelled, in the figures")
    until_done(batcher)
    check_equal(outcome(futures[1]), wanted(requests[1]), name="what the other request got")
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

    batcher = batcher_of(lab, watched(lab))
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 5) for n in range(4)]
    if what == "sample":
        requests[1].sample = fail_later
    futures = [
        batcher.submit(request, fail_later if what == "on_token" and n == 1 else silent)
        for n, request in enumerate(requests)
    ]
    until_done(batcher)
    expected = [wanted(request) for request in requests]
    ends = [expected[0], "ZeroDivisionError", *expected[2:]]
    check_equal(outcomes(futures), ends, name="how each of the four has ended")
    check_equal(count[0], at, name=f"calls of the failing {what}: it is not called again")
    check_equal((batcher.stats().failed, batcher.stats().finished), (1, 3), name="failed and finished")
    check_at_rest(batcher, futures)


def test_task_3_a_caller_may_change_its_request_after_submit(lab):
    """The ticket runs a copy: a caller that empties its own list of token ids must not end the loop."""
    batcher, prompts = batcher_of(lab, watched(lab), seats=1), [[3, 1, 4], [1, 5]]
    requests = [new_request(lab, list(prompt), 4) for prompt in prompts]
    futures = [batcher.submit(request) for request in requests]
    for request in requests:
        request.token_ids.clear()
        request.max_tokens = 0
    until_done(batcher)
    expected = [alone(prompt, 4) for prompt in prompts]
    check_equal(outcomes(futures), expected, name="the outputs")


def waits(batcher: Any, why: str) -> bool:
    """What `wait_for_work` returns when it has no reason to sleep."""

    class Sleepless(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError(f"`wait_for_work` goes to sleep, though {why}")

    batcher.changed = Sleepless()
    return bool(within(batcher.wait_for_work, "`wait_for_work`"))


def test_task_3_wait_for_work_goes_on_while_there_is_work(lab):
    batcher = batcher_of(lab, seats=1)
    batcher.submit(new_request(lab, [1, 2], 3))
    why = "a request is in the queue"
    assert waits(batcher, why), f"{why}: there is work"
    batcher.closed = True
    assert waits(batcher, why), f"closed, and {why}: it is served first"
    batcher = batcher_of(lab, seats=1)
    seat(batcher, new_request(lab, [1, 2], 3))
    why = "a request is in the engine"
    assert waits(batcher, why), f"{why}: there is work, though the queue is empty"
    batcher.closed = True
    assert waits(batcher, why), f"closed, and {why}: it is finished first"
    batcher.abandoned = True
    assert not waits(batcher, "the batcher is closed"), (
        "abandoned: the requests that are left are not finished"
    )


def test_task_3_wait_for_work_ends_when_closed_and_no_request_is_left(lab):
    batcher = batcher_of(lab)
    batcher.closed = True
    assert not waits(batcher, "the batcher is closed"), "closed, and no request waits or runs: the loop ends"


def test_task_3_wait_for_work_sleeps_until_something_changes(lab):
    class Bed(threading.Condition):
        """A thread that sleeps here is woken for nothing, and then by a stop. A time limit passes at once."""

        def wait(self, timeout: float | None = None) -> bool:
            slept.append(True)
            batcher.closed = len(slept) > 1
            return timeout is None

        def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
            if timeout is None:
                return super().wait_for(predicate)
            self.wait(timeout)
            return predicate()

    batcher, slept = batcher_of(lab), list[bool]()
    batcher.changed = Bed()
    found = within(batcher.wait_for_work, "`wait_for_work`")
    assert slept, "there is no work, and `wait_for_work` has not slept"
    assert batcher.closed, (
        f"no request is there, the batcher is not stopped, and `wait_for_work` has returned {found!r}: a thread may "
        "be woken for nothing, and then it sleeps again; so it does after a time limit"
    )
    assert not found, (
        f"the batcher was closed, no request is left, and `wait_for_work` has returned {found!r}"
    )


def test_task_3_abandon_ends_all_requests_that_are_left(lab):
    batcher = batcher_of(lab, watched(lab), seats=3)
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 9) for n in range(7)]
    futures = [ticket.future for ticket in seat(batcher, *requests[:3])]
    futures += [batcher.submit(request) for request in requests[3:]]
    batcher.core.step()
    own = OSError("its own trouble")
    list(batcher.tickets.values())[1].error = own
    for n in (2, 5):
        futures[n].cancel()
    batcher.request_queue = Guarded(batcher, batcher.request_queue)
    batcher.abandon()
    ends = ["Closed", "OSError", "cancelled", "Closed", "Closed", "cancelled", "Closed"]
    name = "how three requests in the engine and four in the queue have ended"
    check_equal(outcomes(futures), ends, name=name)
    assert futures[1].exception() is own, (
        "an error that a request had already is the one that its caller gets"
    )
    closed = [futures[n].exception() for n in (0, 3, 4, 6)]
    assert all(str(error) for error in closed), "Closed without a text: its text is what a client is told"
    assert len({id(error) for error in closed}) == len(closed), (
        "several futures have one and the same exception: each gets a Closed of its own, since each caller's "
        "`result()` adds its traceback to it"
    )
    assert batcher.closed, "after `abandon` no request is taken: `closed`"
    stats = batcher.stats()
    check_equal((stats.failed, stats.cancelled), (5, 2), name="failed and cancelled, in the figures")
    check_at_rest(batcher, futures)
    assert not wait_for_futures(futures, timeout=0).not_done, "a cancelled future was never settled"
    batcher.abandon()
    check_equal(
        batcher.stats().failed, 5, name="failed, in the figures, after `abandon` was called once more"
    )


def test_task_3_step_leaves_a_request_the_error_that_it_has_already(lab):
    batcher, own, error = batcher_of(lab, seats=2), ValueError("its own"), trouble()
    tickets = seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(2)))
    tickets[0].error = own
    batcher.core.toy_fail("step", 1, error)
    batcher.step()
    assert tickets[0].error is own, (
        f"a request that had failed by itself keeps its own error; now it has {tickets[0].error!r}"
    )
    check_engine_failed(lab, [tickets[1].error], error)


def test_task_3_abandon_closes_the_door_before_another_thread_can_come_in(lab):
    open_doors = list[int]()

    class Watching(threading.Condition):
        """Looks at the door whenever the lock is given back: another thread may submit at that moment."""

        def __exit__(self, *arguments: Any) -> None:
            if not batcher.closed:
                open_doors.append(len(batcher.request_queue))
            super().__exit__(*arguments)

    batcher = batcher_of(lab)
    batcher.submit(new_request(lab, [1, 9], 4))
    batcher.changed = Watching()
    batcher.abandon()
    assert not open_doors, (
        "`abandon` has given the lock back before `closed` was set: a request that is submitted just then is taken, "
        "and its future is never settled"
    )


def test_task_3_abandon_settles_outside_the_lock(lab):
    batcher = batcher_of(lab, seats=1)
    tickets = seat(batcher, new_request(lab, [1, 9], 4))
    batcher.submit(new_request(lab, [2, 9], 4))
    tickets.extend(batcher.request_queue)
    free = [settled_outside(batcher, ticket) for ticket in tickets]
    batcher.abandon()
    check_equal(
        free, [[True]] * 2, name="whether the lock was free as `abandon` settled each of two requests, once"
    )


def test_task_3_abandon_settles_every_future_though_the_engine_fails(lab):
    batcher, error = batcher_of(lab, seats=2), trouble()
    futures = [ticket.future for ticket in seat(batcher, *(new_request(lab, [n, 9], 4) for n in range(2)))]
    futures.append(batcher.submit(new_request(lab, [3, 9], 4)))
    batcher.core.toy_fail("abort", 1, error)
    found = check_raises(RuntimeError, batcher.abandon, name="`abandon`, when the engine's `abort` fails")
    assert found is error, f"what the engine raised must go on; it is {found!r}"
    check_equal(
        outcomes(futures),
        ["Closed"] * 3,
        name="how two requests in the engine and one in the queue have ended",
    )


@pytest.mark.parametrize("where", ["push", "step", "abort"])
def test_task_3_a_loop_that_fails_leaves_no_caller_waiting(lab, where):
    """The engine's `step` ends with what is no Exception, as Ctrl-C is; `push` and `abort` with one that is."""
    batcher = batcher_of(lab, watched(lab), seats=2)
    error = KeyboardInterrupt("as if by Ctrl-C") if where == "step" else trouble()
    futures = [batcher.submit(new_request(lab, [3, 3], 9 if n else 1)) for n in range(5)]
    batcher.core.toy_fail(where, 1 if where == "abort" else 2, error)
    raised: BaseException | None = None
    try:
        within(batcher.loop, "the loop")
    except BaseException as found:
        if found is not error:
            raise
        raised = found
    pending = sum(not future.done() for future in futures)
    assert not pending, (
        f"an exception of the engine's `{where}` has ended the loop, and {pending} of 5 futures were never settled: "
        "however the loop ends, `abandon` must run, and find every ticket"
    )
    assert raised is error, (
        f"the engine's `{where}` has ended the loop with an exception, which the loop must not hide"
    )
    first = "Closed" if where == "push" else alone([3, 3], 1)  # complete with the first step
    name = f"how each of five has ended, when the engine's `{where}` fails"
    check_equal(outcomes(futures), [first, *["Closed"] * 4], name=name)
    closed = lab.ragged.batcher.Closed
    check_raises(closed, lambda: batcher.submit(new_request(lab, [1], 2)), name="a request after that")
    check_at_rest(batcher, futures)


def test_task_3_the_loop_sleeps_while_there_are_no_requests(lab):
    batcher = batcher_of(lab, watched(lab))
    requests = some(lab, 4)
    with Running(batcher) as served:
        for request in requests:
            answer = served.result(served.submit(request))
            check_equal(answer, wanted(request), name="an answer, one request at a time")
    taken = batcher.stats().steps
    check_equal(
        batcher.core.toy_calls["step"], taken, name="calls of the engine's `step`, as many as had tokens"
    )


@on_each_engine
def test_task_3_the_loop_serves_many_callers(lab, engine):
    core = ENGINES[engine](lab, seats=4, budget=12)
    batcher, requests = batcher_of(lab, watched(lab), core), some(lab, 48, longest=8)
    told: list[list[int]] = [[] for _ in requests]
    start = threading.Barrier(6)

    def caller(number: int) -> None:
        start.wait(limit())
        for n in range(number, len(requests), 6):
            futures[n] = served.submit(requests[n], told[n].append)

    futures: dict[int, Future[list[int]]] = {}
    with Running(batcher) as served:
        threads = [threading.Thread(target=caller, args=[n], daemon=True) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit())
        served.wait(*futures.values())
    for n, request in enumerate(requests):
        check_equal(outcome(futures[n]), wanted(request), name=f"the output of request {n}, among 48")
        check_equal(
            told[n], wanted(request), name=f"the tokens that `on_token` of request {n} was called with"
        )
    check_equal(batcher.stats().finished, 48, name="finished, in the figures")


def test_task_3_a_request_comes_in_while_others_run(lab):
    """Continuous batching: it doesn't wait until those before it are complete."""
    batcher, order = batcher_of(lab, watched(lab), seats=2), list[str]()

    def listen(token: int) -> None:
        if not order:
            more.append(served.submit(new_request(lab, [8, 8], 2), lambda token: order.append("the second")))
        order.append("the first")

    more = list[Future[list[int]]]()
    with Running(batcher) as served:
        served.wait(served.submit(new_request(lab, [1, 1], 9), listen))
        served.wait(*more)
    assert "the second" in order[: order.count("the first")], (
        "there are two seats, and a request that came at the first token of another has waited until that was "
        f"complete: the tokens came in the order {order}"
    )


def test_task_3_callers_come_and_go_while_the_engine_makes_a_step(lab):
    """A step may take a second: the lock must be free meanwhile."""
    batcher = batcher_of(lab, watched(lab), seats=1)
    batcher.core.toy_close()
    with Running(batcher) as served:
        first = served.submit(new_request(lab, [1, 1], 2))
        batcher.core.toy_await()
        what = "`submit`, while the engine makes a step for which the loop needs no lock,"
        second = within(lambda: served.submit(new_request(lab, [2, 2], 2)), what, limit() / 2)
        assert second.cancel(), "a request that waits can't be cancelled while the engine makes a step"
        batcher.core.toy_open()
        served.wait(first, second)
    check_equal(outcome(first), alone([1, 1], 2), name="the answer of the request that ran")


def test_task_3_on_token_may_cancel_and_submit(lab):
    """All of this happens on the batcher's thread, in the middle of a step."""
    batcher = batcher_of(lab, watched(lab), seats=2)
    requests = [new_request(lab, prompt_of(n + 3, seed=n), 9) for n in range(4)]
    more = list[Future[list[int]]]()

    def listen(token: int) -> None:
        tokens.append(token)
        if len(tokens) == 3:
            futures[1].cancel()  # it runs
            futures[2].cancel()  # it waits
            more.append(served.submit(new_request(lab, [8, 8], 2)))

    tokens = list[int]()
    batcher.core.toy_close()
    with Running(batcher) as served:
        futures = [served.submit(request, silent if n else listen) for n, request in enumerate(requests)]
        batcher.core.toy_open()
        served.wait(*futures)
        served.wait(*more)
    ends = [wanted(requests[0]), "cancelled", "cancelled", wanted(requests[3])]
    check_equal(outcomes(futures), ends, name="how each of the four has ended")
    check_equal(
        outcome(more[0]), alone([8, 8], 2), name="the answer of the request submitted from `on_token`"
    )


def test_task_3_stop_lets_all_requests_finish_first(lab):
    batcher, requests = batcher_of(lab, watched(lab), seats=2), some(lab, 7)
    batcher.core.toy_close()
    with Running(batcher) as served:
        futures = [served.submit(request) for request in requests]
        batcher.core.toy_await()
        assert batcher.stop(timeout=0) is False, "a step is running: the loop can't have ended"
        closed = lab.ragged.batcher.Closed
        check_raises(closed, lambda: batcher.submit(requests[0]), name="a request after stop")
        batcher.core.toy_open()
        served.wait(*futures)
        assert batcher.stop(timeout=limit()), "every future is settled, and the loop goes on"
        assert batcher.stop(drain=False), "the loop has ended, and a second `stop` returns False"
    check_equal(
        outcomes(futures), [wanted(request) for request in requests], name="the answers, all complete"
    )


def test_task_3_stop_without_draining_ends_all_requests_after_the_step(lab):
    batcher, requests = batcher_of(lab, watched(lab), seats=2), some(lab, 6)
    requests[0] = new_request(lab, [5, 5], 1)  # complete with the step that runs
    requests[1] = new_request(lab, [6, 6], 30)
    batcher.core.toy_close()
    with Running(batcher) as served:
        futures = [served.submit(request) for request in requests]
        batcher.core.toy_await()
        batcher.stop(drain=False, timeout=0)
        batcher.core.toy_open()
        served.wait(*futures)
        assert batcher.stop(timeout=limit()), "every future is settled, and the loop goes on"
    check_equal(outcomes(futures), [wanted(requests[0]), *["Closed"] * 5], name="how each has ended")
    check_equal(batcher.core.toy_calls["step"], 1, name="steps of the engine")


def test_task_3_a_batcher_that_was_never_started_settles_its_futures(lab):
    batcher = batcher_of(lab, watched(lab))
    futures = [batcher.submit(request) for request in some(lab, 3)]
    for _ in range(2):
        assert within(batcher.stop, "stop") is True
        check_equal(outcomes(futures), ["Closed"] * 3, name="how each of the three that waited has ended")
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
    engine=st.sampled_from(sorted(ENGINES)),
)
def test_task_3_any_coming_and_going(actions, sizes, engine):
    """Seats, pages and budget from tight to roomy; requests come and are cancelled between any two steps."""
    lab = door.active()
    seats, pages, budget = sizes
    core = ENGINES[engine](lab, seats=seats, pages=pages + 3, budget=budget)
    batcher = batcher_of(lab, watched(lab), core)
    requests, futures = list[Any](), list[Future[list[int]]]()
    for action, first, second in actions:
        if action == "submit":
            request = new_request(lab, prompt_of(first, seed=len(requests)), second, (END,))
            if core.refusal(request) is None:
                requests.append(request)
                futures.append(batcher.submit(request))
        elif action == "cancel" and futures:
            futures[first % len(futures)].cancel()
        elif action == "step":
            for _ in range(first):
                if batcher.request_queue or batcher.tickets:
                    steps(batcher)
    until_done(batcher)
    for n, (request, future) in enumerate(zip(requests, futures, strict=True)):
        expected = "cancelled" if future.cancelled() else wanted(request)
        check_equal(
            outcome(future), expected, name=f"how request {n} of {len(requests)} has ended, on {engine}"
        )
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
    for spaced in (" a", "a ", "a\n", " "):
        expected = Letters().encode_chat([{"role": "user", "content": spaced}])
        check_equal(
            prompt_read(lab, prompt=spaced), expected, name=f"the prompt {spaced!r}: nothing is stripped"
        )
        expected = Letters().encode(spaced)
        check_equal(prompt_read(lab, text=spaced), expected, name=f"the text {spaced!r}: nothing is stripped")
    check_equal(prompt_read(lab, ids=[3, 0, V - 1, 3]), [3, 0, V - 1, 3], name="token ids")
    check_equal(
        prompt_read(lab, ids=[]), [], name="an empty list of token ids, which the batcher will refuse"
    )
    check_equal(prompt_read(lab, text=""), [], name="an empty text, which the batcher will refuse")


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


def test_task_4_a_tokenizer_that_fails_is_not_the_clients_mistake(lab):
    class Failing(Letters):
        def encode_chat(self, messages: Any) -> list[int]:
            raise error

    error = ZeroDivisionError("a bad tokenizer")
    message = message_of(lab, prompt="abc")
    try:
        found: Any = service_module(lab).read_prompt(message, Failing())
    except (ZeroDivisionError, ValueError) as raised:
        found = raised
    assert found is error, (
        f"the tokenizer raised {error!r}, and `read_prompt` made {found!r} of it: only a WeightsError says that the "
        "model has no chat form"
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
    try:
        request = request_read(lab, ids=[4, 2])
    except ValueError as error:
        raise AssertionError(
            f"a message with token ids alone was refused: {error}. Was that field filled in?"
        ) from None
    check_equal(request.prompt_ids, [4, 2], name="the prompt")
    check_equal(request.max_tokens, service_module(lab).MAX_TOKENS, name="max_tokens")
    check_equal(sorted(request.end_ids), [END], name="the end tokens, which are the tokenizer's")
    scores = lab.array(scores_after(17))
    drawn = set(draws(request.sample, lab))
    assert len(drawn) == 1, f"without a temperature a request is greedy, and it has drawn {sorted(drawn)}"
    check_equal([request.sample(scores, [4, 2]) for _ in range(5)], [17] * 5, name="five tokens: greedy")
    first, second = (draws(request_read(lab, temperature=1.5).sample, lab) for _ in range(2))
    assert first != second, (
        "two requests without a seed have drawn the same 30 tokens: each has a seed of its own"
    )
    for count in (1, request.max_tokens + 1, 4000):
        found = request_read(lab, max_tokens=count).max_tokens
        check_equal(found, count, name=f"max_tokens, where a client asks for {count}")


def test_task_4_each_end_token_of_the_tokenizer_ends_an_answer(lab):
    class TwoEnds(Letters):
        end_ids: Any = (END, 3, 11)

    request = service_module(lab).read_request(message_of(lab, ids=[1]), TwoEnds())
    check_equal(sorted(request.end_ids), [3, 11, END], name="the end tokens; the tokenizer has three")


def draws(sample: Callable[[Any, list[int]], int], lab: Any) -> list[int]:
    """30 tokens drawn from the same scores."""
    scores = lab.array(np.sin(np.arange(V) * 1.7) * 2)
    return [int(sample(scores, [3, 5, 3])) for _ in range(30)]


@pytest.mark.parametrize("seed", [0, 7])
def test_task_4_the_seed_reaches_the_sampler(lab, seed):
    first, second = (draws(request_read(lab, temperature=1.5, seed=seed).sample, lab) for _ in range(2))
    assert first == second, (
        f"two requests with seed {seed} draw different tokens: the seed was left out. `HasField` says whether a "
        "field was filled in; its value doesn't"
    )
    oracle = lab.sampler.Sampler(lab.sampler.SamplingParams(temperature=1.5, seed=seed))
    check_equal(first, draws(oracle, lab), name=f"30 tokens drawn with temperature 1.5 and seed {seed}")


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 4.0), ("top_k", 3), ("top_p", 0.5), ("min_p", 0.6), ("repetition_penalty", 3.0)],
)
def test_task_4_each_parameter_reaches_the_sampler(lab, field, value):
    others = {"temperature": 1.5, "seed": 7}
    fields = others | {field: value}
    found = draws(request_read(lab, **fields).sample, lab)
    expected, without = (
        draws(lab.sampler.Sampler(lab.sampler.SamplingParams(**given)), lab) for given in (fields, others)
    )
    assert found == expected or found != without, (
        f"the tokens are drawn as if `{field}` = {value} had been left out"
    )
    check_equal(found, expected, name=f"30 tokens drawn with {fields}")


def test_task_4_a_temperature_of_0_is_greedy(lab):
    """It is also the default; filled in, it is not an error."""
    scores = lab.array(scores_after(17))
    check_equal(
        request_read(lab, temperature=0.0).sample(scores, [1]), 17, name="a token drawn with temperature 0"
    )


def test_task_4_each_request_has_a_sampler_of_its_own(lab):
    """A seed draws the same tokens, also when another request draws between two of them."""
    one, two = (request_read(lab, temperature=1.5, seed=7) for _ in range(2))
    alone = draws(request_read(lab, temperature=1.5, seed=7).sample, lab)
    check_equal(
        (draws(one.sample, lab), draws(two.sample, lab)), (alone, alone), name="what two requests draw"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
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
        ([END], [END, 5], "STOP"),
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


def test_task_5_each_refusal_has_its_status(lab):
    for error, code in errors_of(lab):
        context = new_context()
        with calls() as loop:
            loop.refuse(service_module(lab).refuse, context, error).refused()
        check_equal(context.ended, (code, str(error)), name=f"status and details for {error!r}")


def check_no_piece(call: Any) -> None:
    """Of a request that was refused."""
    __tracebackhide__ = True
    pieces = call.pieces_so_far()
    assert not pieces, f"the request was refused, and there is a piece: {pieces[0]}"


@pytest.mark.parametrize("name", ["Run", "Stream"])
def test_task_5_what_the_batcher_refuses_ends_the_call(lab, name):
    for error, code in errors_of(lab):
        context = new_context()
        with calls() as loop:
            call = loop.either(name)(service_of(lab, Desk(error)), message_of(lab, text="ab"), context)
            call.refused()
            check_no_piece(call)
        check_equal(
            context.ended, (code, str(error)), name=f"how {name} has ended when `submit` raises {error!r}"
        )


def test_task_5_what_can_not_be_read_never_reaches_the_batcher(lab):
    with calls() as loop:
        for fields in ({}, {"ids": [V]}, {"text": "a", "top_p": 7.0}, {"text": "a", "max_tokens": 0}):
            desk, context = Desk(), new_context()
            loop.run(service_of(lab, desk), message_of(lab, **fields), context).refused()
            code = context.ended and context.ended[0]
            check_equal(
                code, Code.INVALID_ARGUMENT, name=f"how a call of Run with {fields or 'no input'} has ended"
            )
            check_equal(len(desk.taken), 0, name="requests that the batcher was given")


def test_task_5_reading_a_long_text_does_not_hold_up_the_others(lab):
    readers = list[bool]()

    class Noting(Letters):
        def encode(self, text: str, control_tokens: bool = True) -> list[int]:
            readers.append(on_event_loop())
            return super().encode(text, control_tokens)

    desk = Desk()
    with calls() as loop:
        call = loop.run(service_of(lab, desk, Noting()), message_of(lab, text="ab"))
        call.first(desk.arrived)
        assert not any(readers), (
            "a text became tokens on the event loop's own thread, and all other calls waited: "
            "`asyncio.to_thread` reads it on another"
        )
        settle(desk.taken[0][2], [1])
        call.result()


def test_task_5_a_text_is_not_read_while_there_is_no_room_for_its_request(lab):
    """To read a long text takes longer than to refuse it, and a full queue means that many have come."""
    read = list[str]()

    class Noting(Letters):
        def encode(self, text: str, control_tokens: bool = True) -> list[int]:
            read.append(text)
            return super().encode(text, control_tokens)

    for error, code in errors_of(lab)[1:3]:
        desk: Any = Desk()
        desk.require_room, context = failing(error), new_context()
        with calls() as loop:
            loop.run(service_of(lab, desk, Noting()), message_of(lab, text="ab"), context).refused()
        check_equal(
            context.ended, (code, str(error)), name=f"how Run has ended; `require_room` raises {error!r}"
        )
        assert not read, f"`require_room` raises {error!r}, and the text was read before it was asked"


@pytest.mark.parametrize("name", ["Run", "Stream"])
def test_task_5_a_client_that_leaves_while_its_text_is_read_submits_nothing(lab, name):
    reading, go_on = Moment(), threading.Event()

    class Slow(Letters):
        def encode(self, text: str, control_tokens: bool = True) -> list[int]:
            reading.come()
            go_on.wait(limit())
            return super().encode(text, control_tokens)

    desk, context = Desk(), new_context()
    with calls() as loop:
        call = loop.either(name)(service_of(lab, desk, Slow()), message_of(lab, text="ab"), context)
        try:
            call.first(reading)
            left = call.cancel()
        finally:
            go_on.set()
    found = context.ended, left, len(desk.taken)
    what = (
        f"a client leaves while its text is read: the status that {name} has ended the call with, whether {name} is "
        "cancelled, and the requests submitted"
    )
    check_equal(found, (None, True, 0), name=what)


@pytest.mark.parametrize(("output", "reason"), [([7, 27, 28, 4], "LENGTH"), ([7, 4, END], "STOP")])
def test_task_5_run_gives_the_whole_answer(lab, output, reason):
    desk = Desk()
    with calls() as loop:
        call = loop.run(service_of(lab, desk), message_of(lab, prompt="abc", max_tokens=4))
        call.first(desk.arrived)
        request, _, future = desk.taken[0]
        check_equal(
            (list(request.prompt_ids), request.max_tokens), ([25, 0, 1, 2, 25], 4), name="the request"
        )
        settle(future, output)
        text, tokens, ended, prompt_tokens = call.result()
    found = (text, list(tokens), reason_of(lab, ended), prompt_tokens)
    check_equal(
        found,
        (Letters().decode(output), output, reason, 5),
        name="text, token ids, reason and prompt tokens of the reply",
    )


def reason_of(lab: Any, value: int) -> str:
    """The name of a finish_reason."""
    pb = lab.ragged.protocol.tiny_llm_pb2
    return str(pb.FinishReason.Name(value)).removeprefix("FINISH_REASON_")


def test_task_5_the_text_of_an_answer_is_not_stripped(lab):
    class Spaced(Letters):
        def decode(self, ids: Any, skip_control_tokens: bool = True) -> str:
            return super().decode(ids, skip_control_tokens).replace("e", " ")

    with calls() as loop:
        call = loop.run(service_of(lab, ready([4, 7, 4]), Spaced()), message_of(lab, text="ab"))
        text = call.result()[0]
    check_equal(
        text, " h ", name="the text of Run's reply: what the tokenizer makes of the output, with its spaces"
    )


@pytest.mark.parametrize("name", ["Run", "Stream"])
def test_task_5_an_answer_that_fails_ends_the_call(lab, name):
    reasons = list[int]()

    def fail(desk: Desk, context: Any, error: Exception, told: bool) -> None:
        with calls() as loop:
            service, what = service_of(lab, desk), f"{name}, whose future has an error,"
            call = loop.either(name)(service, message_of(lab, text="ab"), context, what)
            call.first(desk.arrived)
            _, on_token, future = desk.taken[0]
            if told:
                tell(on_token, 3)
            settle(future, error=error)
            call.refused()
            reasons.extend(reason for _, _, reason in call.pieces_so_far())

    closed = lab.ragged.batcher.Closed("stopped before the end")
    cases = ((closed, Code.UNAVAILABLE), (KeyError("x"), Code.INTERNAL), (ValueError("y"), Code.INTERNAL))
    for told, (error, code) in itertools.product((True, False), cases):
        context = new_context()
        fail(Desk(), context, error, told)
        ended, details = context.ended or ("no status, as if it were a success", "")
        when = "after a token" if told else "before the first token"
        check_equal(ended, code, name=f"how {name} has ended, when the future has {error!r} {when}")
        for words in [str(error)] if error is closed else [type(error).__name__, str(error)]:
            assert words in details, f"the details should say {words!r}; they are {details!r}"
    assert not any(reasons), (
        "an answer has failed, and a piece of Stream had a finish_reason before that: its client takes half an "
        "answer for a whole one"
    )


@pytest.mark.parametrize("name", ["Run", "Stream"])
def test_task_5_a_tokenizer_that_fails_does_not_end_a_call_as_a_success(lab, name):
    class Failing(Letters):
        def decode(self, ids: Any, skip_control_tokens: bool = True) -> str:
            raise ZeroDivisionError("a bad tokenizer")

    with calls() as loop:
        call = loop.either(name)(service_of(lab, ready([7, 4]), Failing()), message_of(lab, text="ab"))
        if call.aborted():
            return
        with contextlib.suppress(ZeroDivisionError):
            call.result()
            raise AssertionError(
                f"an output could not be decoded, and {name} has ended as if its answer were whole: an error must "
                "come out of the call, or `abort` must end it"
            )


def test_task_5_tokens_cross_from_the_batchers_thread(lab):
    desk = Desk()
    with calls() as loop:
        what = "the first piece of Stream, whose token has come,"
        call = loop.stream(service_of(lab, desk), message_of(lab, text="ab"), what=what)
        call.first(desk.arrived)
        assert desk.taken[0][1] is not None, "Stream has submitted its request without an `on_token`"
        tell(desk.taken[0][1], 3)
        check_equal(tokens_of(call.pieces(1)), [3], name="the token of the first piece")


def tokens_of(pieces: list[Any]) -> list[int]:
    """The tokens of some pieces, together."""
    return [token for _, tokens, _ in pieces for token in tokens]


def test_task_5_token_0_is_a_token_like_any_other(lab):
    with calls() as loop:
        pieces = loop.stream(service_of(lab, ready([0, 4])), message_of(lab, text="ab")).all_pieces()
    name = "the tokens of all pieces: 0 is a token, and only None is the end"
    check_equal(tokens_of(pieces), [0, 4], name=name)


def test_task_5_a_piece_comes_with_each_token(lab):
    """Tokens come from another thread, as from the batcher's; asyncio's debug mode objects if that touches it."""
    output, texts = [7, HALVES[0], HALVES[1], 4, END], ["h", "", "é", "e", ""]
    desk, what = Desk(), "Stream, which is to give each piece before the next token comes,"
    with calls() as loop:
        call = loop.stream(service_of(lab, desk), message_of(lab, text="ab"), what=what)
        call.first(desk.arrived)
        _, on_token, future = desk.taken[0]
        for n, token in enumerate(output, 1):
            tell(on_token, token)
            if not call.await_pieces(n):
                raise hangs(
                    f"token {token} has come, and no piece; each token has one, if need be without text"
                )
        settle(future, output)
        pieces = call.all_pieces()
    expected = [(text, (token,), 0) for text, token in zip(texts, output, strict=True)] + [("", (), 1)]
    check_equal(pieces, expected, name="text, token ids and finish_reason of each piece")


@pytest.mark.parametrize("output", [[7, 4] * 20, [7, HALVES[0]], [END], []], ids=str)
def test_task_5_the_last_piece_has_what_text_is_left(lab, output):
    """A slow reader: all tokens are there, however many, and the future is settled, before it reads the first."""
    with calls() as loop:
        pieces = loop.stream(service_of(lab, ready(output)), message_of(lab, text="ab")).all_pieces()
    check_equal(tokens_of(pieces), output, name="the tokens of all pieces")
    text = "".join(text for text, _, _ in pieces)
    check_equal(text, Letters().decode(output), name="the text of all pieces together")
    check_equal(len(pieces), len(output) + 1, name="how many pieces: one for each token, and a last one")
    reasons = [reason_of(lab, reason) for _, _, reason in pieces]
    last = "STOP" if output and output[-1] == END else "LENGTH"
    check_equal(reasons, ["UNSPECIFIED"] * len(output) + [last], name="the finish_reason of each piece")


@pytest.mark.parametrize("name", ["Run", "Stream"])
def test_task_5_a_client_that_leaves_cancels_its_future(lab, name):
    """In this way gRPC tells a service that a client has cancelled or gone away, or that its deadline has passed."""
    desk = Desk()
    with calls() as loop:
        call = loop.either(name)(service_of(lab, desk), message_of(lab, text="ab"))
        call.first(desk.arrived)
        tell(desk.taken[0][1], 3)
        assert call.cancel(), f"{name} was cancelled, and has swallowed that"
        assert desk.taken[0][2].cancelled(), (
            f"{name} was cancelled, and its future was not: the batcher goes on with an answer that no client reads"
        )


def test_task_5_each_stream_decodes_its_own_tokens(lab):
    """A client leaves in the middle of a character: the next answer must not begin with the rest of it."""
    desk = Desk()
    service = service_of(lab, desk)
    with calls() as loop:
        broken = loop.stream(service, message_of(lab, text="ab"))
        broken.first(desk.arrived)
        tell(desk.taken[0][1], HALVES[0])
        broken.pieces(1)
        broken.cancel()
        service.batcher = ready([7, 4])
        pieces = loop.stream(service, message_of(lab, text="ab")).all_pieces()
    found = "".join(text for text, _, _ in pieces)
    assert found == "he", (
        f"a client has left in the middle of a character, and the next stream, whose text is 'he', says {found!r}: "
        "each stream needs a StreamDecoder of its own"
    )


def test_task_5_a_stream_that_is_closed_between_two_pieces_cancels_its_future(lab):
    desk = Desk()
    with calls() as loop:
        call = loop.read_one(service_of(lab, desk), message_of(lab, text="ab"))
        call.first(desk.arrived)
        tell(desk.taken[0][1], 3)
        check_equal(tokens_of(call.all_pieces()), [3], name="the tokens of the first piece")
        assert desk.taken[0][2].cancelled(), "the stream was closed after a piece, and its future goes on"


# Task 5 over loopback: a whole server, real clients


def test_task_5_over_grpc_two_hundred_at_once_get_what_each_gets_alone(lab):
    requests = [new_request(lab, prompt_of(n % 9 + 1, seed=n), n * 7 % 8 + 1, (END,)) for n in range(200)]
    expected = [wanted(request) for request in requests]
    fields = [{"ids": request.prompt_ids, "max_tokens": request.max_tokens} for request in requests]
    seconds = 2 * limit(SHORT)

    def scenario(client: Loopback) -> None:
        asked = [(client.stream if n % 2 else client.run)(deadline=seconds, **fields[n]) for n in range(200)]
        for n, call in enumerate(asked):
            output = call.tokens() if n % 2 else list(call.result()[1])
            check_equal(output, expected[n], name=f"the tokens of request {n}, among 200")

    core = ragged_engine(lab, seats=16, budget=64, pages=80)
    batcher = over_grpc(lab, scenario, core, max_queue=200)
    check_equal(batcher.stats().finished, 200, name="finished, in the figures")


def test_task_5_over_grpc_stream_and_run_give_the_same_text(lab):
    def scenario(client: Loopback) -> None:
        for n in range(6):
            fields: dict[str, Any] = {"text": "abcdefghijkl"[: 2 * n + 1], "max_tokens": 12}
            text, _, reason, _ = client.run(**fields).result()
            pieces = client.stream(**fields).all_pieces()
            found = "".join(piece[0] for piece in pieces), pieces[-1][2]
            name = f"text and finish_reason of Stream, against Run, for {fields}"
            check_equal(found, (text, reason), name=name)

    over_grpc(lab, scenario, ragged_engine(lab))


def test_task_5_over_grpc_clients_that_cancel_leave_nothing_behind(lab):
    chance = random.Random(7)
    leaves = [chance.choice([0, 1, 2, 5, None]) for _ in range(40)]  # after so many pieces; None: stays
    requests = [new_request(lab, prompt_of(n % 9 + 1, seed=n), 9, (END,)) for n in range(40)]

    def scenario(client: Loopback) -> None:
        asked = [
            client.stream(ids=request.prompt_ids, max_tokens=9, leave=leaves[n])
            for n, request in enumerate(requests)
        ]
        for n, request in enumerate(requests):
            name = f"the tokens of request {n}, which leaves after {leaves[n]}"
            check_equal(asked[n].tokens(), wanted(request)[: leaves[n]], name=name)
        client.until(lambda stats: not stats.waiting + stats.running, "no request waits or runs")

    batcher = over_grpc(lab, scenario, ragged_engine(lab, seats=4))
    stats = batcher.stats()
    check_equal(
        stats.finished + stats.cancelled, len(batcher.futures), name="finished and cancelled together"
    )
    check_equal(stats.failed, 0, name="failed: to cancel is no failure")


def test_task_5_over_grpc_a_client_that_is_killed_frees_seat_and_pages(lab):
    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        with client.killed_client(text="abc", max_tokens=50) as process:
            client.step()
            client.core.toy_let(1)
            line = process.stdout.readline()
            check_equal(line, b"a piece\n", name="what the client's process says after the first step")
        gone = client.batcher.futures[0]
        settled(gone, limit(SHORT))
        assert gone.cancelled(), "the client's process is gone, and its future was not cancelled"
        client.core.toy_open()
        client.until(lambda stats: stats.cancelled == 1, "one request was cancelled")
        check_equal(
            client.batcher.stats().free_pages, 39, name="free pages, after the step that ran just then"
        )
        check_equal(client.tokens(text="ab", max_tokens=3), alone([0, 1], 3, (END,)), name="the next answer")

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
    {"text": "a" * 13},
    {"text": "a" * 1000},  # no 63 tokens could hold it, so it isn't even read
    {"ids": [1] * 64},
    {"text": "a", "max_tokens": -1},
    {"text": "a", "top_k": -1},
    {"text": "a", "repetition_penalty": 5e-324},
]


def test_task_5_over_grpc_poison_among_good_requests(lab):
    """Too long, empty, unknown, senseless, refused by the engine: the client is told, and no other call is harmed."""

    def scenario(client: Loopback) -> None:
        good = [client.stream(ids=[n, 3], max_tokens=6) for n in range(8)]
        for fields in POISON:
            what = fields or "a message without input"
            for call in (client.run(**fields), client.stream(**fields)):
                code, details = call.status()
                check_equal(code, Code.INVALID_ARGUMENT, name=f"the status of {what}")
                assert details, f"{what} was refused, and the details don't say why"
        code, _ = client.raw(b"\x0a\x02\xc3\x28").status()  # field 1, two bytes, not UTF-8
        check_equal(code, Code.INVALID_ARGUMENT, name="the status of bytes that are no message")
        for n, call in enumerate(good):
            check_equal(call.tokens(), alone([n, 3], 6, (END,)), name=f"the tokens of good request {n}")

    batcher = over_grpc(lab, scenario)
    check_equal(batcher.stats().finished, 8, name="finished, in the figures")


def test_task_5_over_grpc_a_failure_ends_its_own_call_only(lab):
    """A sampler that raises harms its own request; an engine that raises, the requests in it."""

    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        bad = client.batcher.submit(new_request(lab, [2, 2], 9, sample=failing(OSError("a bad sampler"))))
        first = [client.stream(ids=[n, 3], max_tokens=9) for n in range(2)]
        client.until(lambda stats: stats.waiting + stats.running == 3, "three requests are there")
        client.core.toy_open()
        for n, call in enumerate(first):
            check_equal(
                call.tokens(), alone([n, 3], 9, (END,)), name="the tokens of a request beside a bad sampler"
            )
        settled(bad, limit(SHORT))
        check_equal(outcome(bad), "OSError", name="how the request with the bad sampler has ended")

        client.core.toy_close()
        both = [client.run(ids=[n, 5], max_tokens=9), client.run(ids=[n, 6], max_tokens=9)]
        client.until(lambda stats: stats.waiting + stats.running == 2, "two requests are there")
        client.core.toy_fail("step", client.core.toy_calls["step"] + 2, KeyError("the engine fails"))
        client.core.toy_open()
        found = [(code, "KeyError" in details) for code, details in (call.status() for call in both)]
        name = "the status of both calls in the engine when it failed, and whether the details name the error"
        check_equal(found, [(Code.INTERNAL, True)] * 2, name=name)
        check_equal(client.tokens(ids=[4, 4], max_tokens=5), alone([4, 4], 5, (END,)), name="the next answer")

    over_grpc(lab, scenario)


def test_task_5_over_grpc_a_deadline_cancels_waiting_and_running_requests(lab):
    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        short = [client.run(text="ab", max_tokens=30, deadline=0.4)]
        client.step()
        short.append(client.run(text="cd", max_tokens=30, deadline=0.4))
        long = client.stream(text="ef", max_tokens=3)
        client.core.toy_let(2)
        codes = [call.status()[0] for call in short]
        name = "the status of a running and a waiting call, once their deadlines have passed"
        check_equal(codes, [Code.DEADLINE_EXCEEDED] * 2, name=name)
        # The server's own clock of a call starts when the call arrives, later than the client's.
        time.sleep(1.0)
        client.core.toy_open()
        check_equal(
            long.tokens(),
            alone([4, 5], 3, (END,)),
            name="the tokens of the call behind them, with time enough",
        )
        client.until(lambda stats: not stats.waiting + stats.running, "no request waits or runs")

    stats = over_grpc(lab, scenario, seats=1).stats()
    check_equal((stats.finished, stats.failed), (1, 0), name="finished and failed, in the figures")
    assert stats.steps < 30, (
        f"{stats.steps} steps: the engine has gone on with requests whose deadlines had passed"
    )


def this_many_wait(count: int, stats: Any) -> bool:
    return stats.waiting == count


def test_task_5_over_grpc_a_full_queue_says_so_at_once(lab):
    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        taken = [client.stream(ids=[1, 1], max_tokens=4)]
        client.step()  # the first request has the seat; the next ones wait
        for n in (2, 3):
            taken.append(client.stream(ids=[n, n], max_tokens=4))
            client.until(partial(this_many_wait, n - 1), f"{n - 1} requests wait")
        for call in (client.run(text="a"), client.stream(text="a")):
            code, details = call.status()
            check_equal(
                code, Code.RESOURCE_EXHAUSTED, name="the status of a call while two wait, of two that may"
            )
            assert "2" in details, f"the details say how many wait, 2; they are {details!r}"
        check_equal(client.check(), "SERVING", name="health, while the engine makes a step")
        client.core.toy_open()
        for n, call in enumerate(taken, 1):
            check_equal(call.tokens(), alone([n, n], 4, (END,)), name=f"the tokens of request {n}")

    check_equal(
        over_grpc(lab, scenario, seats=1, max_queue=2).stats().refused, 2, name="refused, in the figures"
    )


def test_task_5_over_grpc_a_batcher_that_was_stopped_is_unavailable(lab):
    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        before = [client.run(ids=[n, n], max_tokens=9) for n in range(5)]
        client.until(lambda stats: stats.waiting + stats.running == 5, "five requests are there")
        client.step()
        client.batcher.stop(drain=False, timeout=0)
        client.core.toy_open()
        codes = [call.status()[0] for call in before]
        check_equal(codes, [Code.UNAVAILABLE] * 5, name="the status of calls that were not finished")
        for call in (client.run(text="a"), client.stream(text="a")):
            check_equal(call.status()[0], Code.UNAVAILABLE, name="the status of a call after that")

    over_grpc(lab, scenario)


def test_task_5_over_grpc_shutting_down_lets_calls_finish(lab):
    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        watch = client.watch()
        check_equal(watch.pieces(1), ["SERVING"], name="health, serving")
        asked = [client.stream(ids=[n, n], max_tokens=5) for n in range(6)]
        client.until(lambda stats: stats.waiting + stats.running == 6, "six requests are there")
        stopping = client.stop(grace=limit(SHORT))
        name = "health, while the server shuts down"
        check_equal(watch.pieces(2)[1:], ["NOT_SERVING"], name=name)
        watch.cancel()
        client.core.toy_open()
        for n, call in enumerate(asked):
            name = f"the tokens of request {n}, asked before the stop"
            check_equal(call.tokens(), alone([n, n], 5, (END,)), name=name)
        stopping.result()
        check_equal(client.run(text="a").status()[0], Code.UNAVAILABLE, name="a call after the stop")

    check_equal(over_grpc(lab, scenario, seats=2).stats().finished, 6, name="finished, in the figures")


def test_task_5_over_grpc_when_the_grace_is_over_calls_end(lab):
    def scenario(client: Loopback) -> None:
        client.core.toy_close()
        asked = [client.run(ids=[n, n], max_tokens=40) for n in range(3)]
        asked += [client.stream(ids=[n, 9], max_tokens=40) for n in range(3)]
        client.until(lambda stats: stats.waiting + stats.running == 6, "six requests are there")
        stopping = client.stop(grace=0.05)
        codes = {call.status()[0] for call in asked}
        assert codes <= {Code.UNAVAILABLE, Code.CANCELLED}, f"the calls have ended with {codes}"
        client.core.toy_open()
        stopping.result()

    stats = over_grpc(lab, scenario, seats=2).stats()
    check_equal(
        (stats.finished, stats.steps <= 2), (0, True), name="finished, and whether the engine stopped soon"
    )


def test_task_5_over_grpc_health_and_reflection(lab):
    def scenario(client: Loopback) -> None:
        service = lab.ragged.grpc_server.SERVICE
        check_equal(client.check(), "SERVING", name="health of the server")
        check_equal(client.check(service), "SERVING", name=f"health of {service}")
        names = client.services()
        assert service in names, f"the server tells that it serves {names}; {service} is missing"
        check_equal(client.tokens(text="abc", max_tokens=4), alone([0, 1, 2], 4, (END,)), name="an answer")

    over_grpc(lab, scenario)
