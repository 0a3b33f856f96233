"""Day 3.6: which request is in which seat, how many tokens each brings to a step, and the engine around both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.models import real_model
from week_1 import numpy_model
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import V, alone, best, fingerprints

from coursekit import lab as door
from coursekit.check import check_equal, check_raises

from .beside_seats import let_finished_leave
from .mixed_batches import (
    batch_of,
    books,
    check_idle,
    dry_step,
    fits,
    leave,
    lens_in,
    real_batch,
    run_all,
    seat,
    state_of,
)
from .paged_batches import many, wanted_of
from .pages import pages_needed

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
FEWER = settings(QUICK, max_examples=30)  # for tests that run a model
sizes_of_pages = pytest.mark.parametrize("P", [1, 3, 16], ids=lambda P: f"pages of {P}")


def seats_in_line(state: Any) -> list[int]:
    return [number for number, _ in state.line]


def held_in(state: Any) -> list[int]:
    """How many pages each seat holds."""
    return [len(sequence.pages) for sequence in state.decode_state.sequences]


def numbers(found: Any, requests: list[Any]) -> list[int]:
    """Which of the requests these are."""
    return [requests.index(each) for each in found]


def stops(call: Callable[[], Any], error: type[BaseException], name: str) -> None:
    """Require that an exception comes through, KeyboardInterrupt among them."""
    __tracebackhide__ = True
    try:
        call()
    except error:
        return
    raise AssertionError(f"{name}: the {error.__name__} should come through, and the call returned")


# Task 1: in and out


def test_task_1_a_request_takes_the_first_idle_seat(lab):
    state = state_of(lab)
    requests = [new_request(lab, prompt_of(n), 4) for n in (5, 2, 7)]
    check_equal([state.push(each) for each in requests], [0, 1, 2], name="the seats that `push` returned")
    for number, request in enumerate(requests):
        running, sequence = state.seats[number], state.decode_state.sequences[number]
        assert running is not None, f"seat {number} is idle after a request was pushed into it"
        assert running.request is request, f"seat {number} has another request than the one pushed into it"
        assert running.sequence is sequence, f"the request in seat {number} must run on that seat's sequence"
        check_equal(running.due, request.prompt_len, name=f"how many tokens are due in seat {number}")
    check_equal(seats_in_line(state), [0, 1, 2], name="the seats in order of arrival")
    check_equal(held_in(state), [0, 0, 0], name="the pages held: a request takes them when it brings tokens")


def test_task_1_a_seat_is_used_again_and_its_request_stands_at_the_end_of_the_line(lab):
    state = state_of(lab)
    for n in (5, 2, 7):
        state.push(new_request(lab, prompt_of(n), 4))
    state.release([False, True, False])
    check_equal(state.idle, [1], name="the idle seats after seat 1 was released")
    check_equal(
        state.push(new_request(lab, prompt_of(4), 3)), 1, name="the seat of a request that comes later"
    )
    check_equal(seats_in_line(state), [0, 2, 1], name="the seats in order of arrival, seat 1 taken again")
    state.release([True, False, False])
    state.push(new_request(lab, prompt_of(3), 3))
    check_equal(seats_in_line(state), [2, 1, 0], name="the seats in order of arrival, seat 0 taken again")
    state.release([True, False, True])
    for n in (6, 8):
        state.push(new_request(lab, prompt_of(n), 3))
    check_equal(seats_in_line(state), [1, 0, 2], name="the seats in order of arrival, 0 and 2 taken again")


def test_task_1_of_several_idle_seats_the_first_is_taken(lab):
    state = state_of(lab, seats=4)
    for n in (5, 2, 7, 3):
        state.push(new_request(lab, prompt_of(n), 4))
    state.release([False, True, False, True])
    check_equal(state.push(new_request(lab, prompt_of(4), 3)), 1, name="the seat taken, with 1 and 3 idle")


def test_task_1_the_request_itself_is_pushed_and_nothing_of_it_changes(lab):
    state, request = state_of(lab), new_request(lab, prompt_of(5), 4)
    request.error = "set before"
    state.push(request)
    told = (list(request.token_ids), request.prompt_len, request.max_tokens, request.error)
    check_equal(told, (prompt_of(5), 5, 4, "set before"), name="the request after it was pushed")
    assert state.seats[0].request is request, "the seat must have the request itself, not a copy"


def test_task_1_a_request_with_output_goes_on_behind_it(lab):
    state = state_of(lab)
    request = new_request(lab, prompt_of(5), 4, output=[3, 1])
    state.push(request)
    running = state.seats[0]
    check_equal(request.output, [3, 1], name="the output of the request after it was pushed")
    check_equal(running.due, 7, name="how many tokens are due: the prompt's 5 and 2 of output")
    check_equal(running.next_ids(7), [*prompt_of(5), 3, 1], name="the tokens that are due")


def test_task_1_no_idle_seat_no_push(lab):
    state = state_of(lab, seats=2)
    for n in (4, 6):
        seat(lab, state, prompt_of(n), 3)
    before = books(state)
    late = new_request(lab, prompt_of(2), 3)
    check_raises(ValueError, lambda: state.push(late), name="a third request for two seats")
    check_equal(books(state), before, name="what is known after the refusal")


def test_task_1_a_refused_request_is_not_counted(lab):
    """Day 4.3 reads the ranks: they say only who came before whom, so the next number may be any larger one."""
    state = state_of(lab, seats=2)
    for n in (4, 6):
        state.push(new_request(lab, prompt_of(n), 3))
    pushed = state.pushed
    check_equal(pushed, 2, name="`pushed` after two requests")
    check_raises(ValueError, lambda: state.push(new_request(lab, [1], 3)), name="a third for two seats")
    check_equal(state.pushed, pushed, name="`pushed` after the refusal")


@pytest.mark.parametrize(
    ("length", "count", "output", "what"),
    [
        (0, 3, [], "an empty prompt"),
        (12, 3, [], "a prompt that leaves no position"),
        (8, 4, [], "too few pages in the pool"),
        (5, 0, [], "no output wanted"),
        (5, 2, [7, 8], "all its tokens"),
        (5, 3, [9], "an end token"),
    ],
)
def test_task_1_the_engine_refuses_what_it_cannot_run(lab, length, count, output, what):
    _, core = batch_of(lab, pages=3, limit=12)
    core.push(new_request(lab, prompt_of(3), 4))
    request, before = new_request(lab, prompt_of(length), count, (9,), output), books(core.state)
    name = f"a request with {what} (3 pages of 3, 12 positions)"
    error = check_raises(ValueError, lambda: core.push(request), name=name)
    check_equal(books(core.state), before, name=f"what is known after the refusal of {name}")
    reason = core.refusal(request)
    if reason is not None:
        check_equal(str(error), reason, name="the message, which is the reason that `refusal` gives")


def test_task_1_the_engine_takes_a_request_once_and_no_more_than_it_has_seats(lab):
    _, core = batch_of(lab, seats=2)
    first, same = (new_request(lab, prompt_of(4), 3) for _ in range(2))
    core.push(first)
    check_equal(core.idle, 1, name="how many requests may be pushed: one of two seats is taken")
    before = books(core.state)
    check_raises(ValueError, lambda: core.push(first), name="a request that is in a seat already")
    check_equal(books(core.state), before, name="what is known after the refusal")
    core.push(same)  # equal tokens, but another request
    check_equal(core.idle, 0, name="how many requests may be pushed when both seats are taken")
    name = "the engine's requests, of two with equal tokens"
    check_equal(numbers(core.requests, [first, same]), [0, 1], name=name)
    before = books(core.state)
    late = new_request(lab, prompt_of(2), 3)
    check_raises(ValueError, lambda: core.push(late), name="a third request for two seats")
    check_equal(books(core.state), before, name="what is known after the refusal")


def test_task_1_a_request_may_be_pushed_while_no_page_is_free(lab):
    _, core = batch_of(lab, seats=2, pages=3, limit=12)
    seat(lab, core.state, prompt_of(8), 2, computed=8, output=[5])
    check_equal(held_in(core.state), [3, 0], name="the pages held: all that there are")
    core.push(new_request(lab, prompt_of(9), 1))
    check_equal(core.idle, 0, name="how many more may be pushed: the second has its seat, and no page yet")


def test_task_1_complete_is_a_request_with_all_its_tokens(lab):
    state = state_of(lab, seats=8, limit=12)
    seat(lab, state, prompt_of(4), 3, computed=6, output=[5, 6, 7])
    seat(lab, state, prompt_of(4), 3, computed=5, output=[5, 6])
    seat(lab, state, prompt_of(4), 3, computed=4, output=[9], end_ids=(9,))
    seat(lab, state, [1, 9], 3, computed=1, end_ids=(9,))
    seat(lab, state, prompt_of(10), 30, computed=11, output=[5, 6])
    seat(lab, state, prompt_of(10), 30, computed=10, output=[5])
    seat(lab, state, prompt_of(3), 3, computed=5, output=[5, 6])
    before = books(state)
    name = "which seats are complete: 3 of 3 tokens, 2 of 3, an end token, one in the prompt, 12 of 12 positions, "
    expected = [True, False, True, False, True, False, False, False]
    name += "11 of 12, 2 of 3 tokens and none due, an idle seat"
    check_equal(state.completed_mask(), expected, name=name)
    check_equal(books(state), before, name="what is known after `completed_mask`")
    check_equal(state_of(lab).completed_mask(), [False] * 3, name="which of three idle seats are complete")


def test_task_1_get_gives_what_runs_in_the_marked_seats(lab):
    state = state_of(lab, seats=4)
    for n in (5, 2, 3):
        seat(lab, state, prompt_of(n), 9, computed=1)
    before = books(state)
    cases: dict[tuple[bool, ...], list[int]] = {
        (True, False, True, False): [0, 2],
        (False, True, False, False): [1],
        (True, True, True, True): [0, 1, 2],
        (False, False, True, True): [2],
        (False, False, False, True): [],
        (False, False, False, False): [],
    }
    for mask, numbers in cases.items():
        found = state.get(list(mask))
        check_equal(len(found), len(numbers), name=f"how many `get({list(mask)})` gives; seat 3 is idle")
        for each, number in zip(found, numbers, strict=True):
            assert each is state.seats[number], (
                f"`get({list(mask)})` should give what runs in seats {numbers}, in this order (seat 3 is idle)"
            )
    check_equal(books(state), before, name="what is known after `get`")


def test_task_1_get_goes_by_seats_and_not_by_arrival(lab):
    state = state_of(lab)
    for n in (5, 2, 7):
        seat(lab, state, prompt_of(n), 4, computed=1)
    leave(state, 1)
    seat(lab, state, prompt_of(4), 4)
    lengths = [each.request.prompt_len for each in state.get([True, True, True])]
    check_equal(lengths, [5, 4, 7], name="the prompts that `get` gives seat by seat; seat 1 came last")


def test_task_1_release_makes_seats_idle_and_gives_their_pages_back(lab):
    state = state_of(lab, seats=4, pages=12)
    requests = [seat(lab, state, prompt_of(n), 4, computed=n, output=[3]) for n in (5, 2, 7)]
    mask = [True, False, True, True]
    state.release(mask)
    check_equal(mask, [True, False, True, True], name="the mask that was given to `release`")
    check_equal(state.idle, [0, 2, 3], name="the idle seats after 0, 2 and the idle 3 were released")
    check_equal(held_in(state), [0, 1, 0, 0], name="the pages held after that")
    kept = state.seats[1]
    assert kept is not None, "seat 1 was not marked, and has lost its request"
    assert kept.request is requests[1], "seat 1 was not marked, and has another request now"
    check_equal((kept.sequence.length, kept.due), (2, 1), name="tokens computed and due in seat 1")
    state.decode_state.check()
    check_equal([each.output for each in requests], [[3]] * 3, name="the outputs: a request keeps its own")
    state.release([False] * 4)
    check_equal(state.idle, [0, 2, 3], name="the idle seats after a release without a mark")
    state.release([True] * 4)
    check_idle(state, when="after all seats were released, some of them idle")


@pytest.mark.parametrize("marks", [0, 1, 3])
def test_task_1_a_mask_of_the_wrong_length_releases_nothing(lab, marks):
    state = state_of(lab, seats=2)
    for n in (4, 6):
        seat(lab, state, prompt_of(n), 3, computed=n)
    before = books(state)
    check_raises(ValueError, lambda: state.release([True] * marks), name=f"{marks} marks for 2 seats")
    check_equal(books(state), before, name="what is known after the refusal")


@pytest.mark.parametrize("calls", [1, 2])
def test_task_1_after_ctrl_c_during_a_release_another_one_gives_everything_back(lab, calls):
    """Ctrl-C comes while pages go back: no seat is idle whose pages are still held."""
    state = state_of(lab, seats=3, pages=12)
    for n in (5, 2, 7):
        seat(lab, state, prompt_of(n), 4, computed=n)
    free, freed = state.decode_state.allocator.free, []

    def interrupted(pages: Any) -> None:
        freed.append(pages)
        if len(freed) == calls:
            raise KeyboardInterrupt
        free(pages)

    state.decode_state.allocator.free = interrupted
    stops(lambda: state.release([True] * 3), KeyboardInterrupt, "a release during which Ctrl-C comes")
    held = held_in(state)
    stranded = [number for number in state.idle if held[number]]
    check_equal(
        stranded, [], name="the idle seats that hold pages after Ctrl-C: pages go back before seats are idle"
    )
    state.decode_state.allocator.free = free
    state.release([True] * 3)
    check_idle(state, when="after Ctrl-C during a release, and another release of all seats")


COMINGS = st.lists(st.one_of(st.integers(1, 9), st.lists(st.booleans(), min_size=3, max_size=3)), max_size=20)


@QUICK
@given(COMINGS)
def test_task_1_any_coming_and_going(comings):
    """A list of requests per seat and one of arrivals know what the state must know."""
    lab, state = door.active(), state_of(door.active(), pages=20)
    seats: list[Any] = [None] * 3
    arrived: list[Any] = []
    for coming in comings:
        if isinstance(coming, list):
            state.release(coming)
            seats = [None if mark else each for mark, each in zip(coming, seats, strict=True)]
            arrived = [each for each in arrived if each in seats]
        elif None in seats:
            request, number = new_request(lab, prompt_of(coming), 4), seats.index(None)
            check_equal(state.push(request), number, name="the seat that `push` returned")
            state.decode_state.allocate([coming * (n == number) for n in range(3)])
            state.seats[number].sequence.advance(coming)
            seats[number] = request
            arrived.append(request)
        expected = [seats.index(each) for each in arrived]
        check_equal(seats_in_line(state), expected, name="the seats in order of arrival")
        needed = [0 if each is None else pages_needed(each.prompt_len, 3) for each in seats]
        check_equal(held_in(state), needed, name="the pages that each seat holds")
        state.decode_state.check()


# Task 2: who brings how much


def five(lab: Any) -> Any:
    """Two prompts, a decode, a prompt that is half computed, a decode."""
    state = state_of(lab, seats=6, pages=60)
    seat(lab, state, prompt_of(9), 4, computed=2)
    seat(lab, state, prompt_of(4), 4, computed=4, output=[5])
    seat(lab, state, prompt_of(6), 4)
    seat(lab, state, prompt_of(3), 4, computed=5, output=[5, 6, 7])
    seat(lab, state, prompt_of(2), 4)
    return state


@pytest.mark.parametrize(
    ("budget", "lens"),
    [
        (1, [0, 1, 0, 0, 0]),
        (2, [0, 1, 0, 1, 0]),
        (3, [1, 1, 0, 1, 0]),
        (8, [6, 1, 0, 1, 0]),
        (9, [7, 1, 0, 1, 0]),
        (10, [7, 1, 1, 1, 0]),
        (16, [7, 1, 6, 1, 1]),
        (17, [7, 1, 6, 1, 2]),
        (99, [7, 1, 6, 1, 2]),
    ],
)
def test_task_2_decodes_first_then_prompts_fill_the_step(lab, budget, lens):
    name = f"what the seats bring: due are 7, a decode, 6, a decode, 2, and one seat is idle; a budget of {budget}"
    check_equal(lens_in(five(lab), budget), [*lens, 0], name=name)


def test_task_2_a_prompt_of_one_token_is_not_a_decode(lab):
    state = state_of(lab, seats=4, pages=60)
    seat(lab, state, prompt_of(9), 4, computed=3)
    seat(lab, state, prompt_of(1), 4)
    seat(lab, state, prompt_of(5), 4, computed=4)
    name = (
        "what the seats bring: a long prompt came first, then a prompt of 1 token and the last token of one"
    )
    check_equal(lens_in(state, 2), [2, 0, 0, 0], name=f"{name}; a budget of 2")
    check_equal(lens_in(state, 7), [6, 1, 0, 0], name=f"{name}; a budget of 7")


def test_task_2_a_request_that_resumes_is_not_a_decode_until_one_token_is_due(lab):
    state = state_of(lab, seats=4, pages=60)
    seat(lab, state, prompt_of(6), 4)
    seat(lab, state, prompt_of(3), 9, output=[5, 6, 7])
    seat(lab, state, prompt_of(3), 9, computed=3, output=[5, 6])
    seat(lab, state, prompt_of(3), 9, computed=5, output=[5, 6, 7])
    name = "what the seats bring: a prompt of 6 came first; the others have output, and 6, 2 and 1 tokens due"
    check_equal(lens_in(state, 5), [4, 0, 0, 1], name=f"{name}; a budget of 5")
    check_equal(lens_in(state, 8), [6, 1, 0, 1], name=f"{name}; a budget of 8")
    check_equal(lens_in(state, 14), [6, 6, 1, 1], name=f"{name}; a budget of 14")
    check_equal(lens_in(state, 99), [6, 6, 2, 1], name=f"{name}; a budget of 99")


def test_task_2_the_order_is_that_of_arrival_not_that_of_the_seats(lab):
    state = state_of(lab, seats=3, pages=60)
    for n in (5, 6, 7):
        seat(lab, state, prompt_of(n), 4)
    leave(state, 0)
    seat(lab, state, prompt_of(8), 4)
    check_equal(lens_in(state, 10), [0, 6, 4], name="what the seats bring: seat 0 came last, a budget of 10")
    state = state_of(lab, seats=3, pages=60)
    for n in (5, 6, 7):
        seat(lab, state, prompt_of(n), 4, computed=n, output=[3])
    leave(state, 0)
    seat(lab, state, prompt_of(8), 4, computed=8, output=[3])
    check_equal(
        lens_in(state, 2), [0, 1, 1], name="which decodes come first: seat 0 came last, a budget of 2"
    )


@pytest.mark.parametrize("budget", [0, -1])
def test_task_2_a_budget_below_1_is_refused(lab, budget):
    state = five(lab)
    before = books(state)
    check_raises(ValueError, lambda: state.issue_lens(budget), name=f"a budget of {budget}")
    check_equal(books(state), before, name="what is known after the refusal")
    idle = state_of(lab)
    check_raises(ValueError, lambda: idle.issue_lens(budget), name=f"a budget of {budget}, all seats idle")


def test_task_2_idle_seats_bring_nothing(lab):
    check_equal(state_of(lab).issue_lens(5), [0, 0, 0], name="what three idle seats bring")
    state = state_of(lab)
    for n in (5, 3):
        seat(lab, state, prompt_of(n), 4, computed=n, output=[2])
    leave(state, 0)
    check_equal(
        lens_in(state, 9), [0, 1, 0], name="what the seats bring after the request of seat 0 has left"
    )


@pytest.mark.parametrize("computed", [2, 3, 4, 5, 6])
def test_task_2_a_token_needs_a_page_only_when_the_pages_are_full(lab, computed):
    state = state_of(lab, seats=1, pages=4)
    seat(lab, state, prompt_of(9), 4, computed=computed)
    name = f"what the seat brings: {computed} of 9 tokens are in pages of 3"
    check_equal(lens_in(state, 20), [9 - computed], name=name)


def test_task_2_a_token_for_a_page_that_is_not_full_takes_none(lab):
    state = state_of(lab, seats=2, pages=3)
    seat(lab, state, prompt_of(2), 2, computed=2, output=[5])  # holds one page with 2 tokens
    seat(lab, state, prompt_of(6), 1)
    name = (
        "what the seats bring: the decode's token has room in its page of 3, both free pages go to the prompt"
    )
    check_equal(lens_in(state, 20), [1, 6], name=name)


def test_task_2_a_request_without_a_page_does_not_stop_those_behind_it(lab):
    state = state_of(lab, seats=3, pages=7, P=4)
    seat(lab, state, prompt_of(8), 8, computed=8, output=[5])
    seat(lab, state, prompt_of(8), 8, computed=8, output=[5])  # its pages are full, and it may take none
    seat(lab, state, prompt_of(2), 3, computed=2, output=[5])  # has room in the page that it holds
    name = "what the seats bring: seat 1 gets no page; seat 2, behind it, needs none"
    check_equal(lens_in(state, 20), [1, 0, 1], name=name)


def test_task_2_a_seat_may_hold_more_pages_than_its_tokens_need(lab):
    """As after a step whose model failed: the pages stay with the seat."""
    state = state_of(lab, seats=2, pages=6)
    seat(lab, state, prompt_of(12), 4)
    seat(lab, state, prompt_of(3), 4)
    state.decode_state.allocate([12, 0])
    name = "what the seats bring: seat 0 holds 4 pages of 3 from a step that failed, and no token in them"
    check_equal(lens_in(state, 4), [4, 0], name=f"{name}; a budget of 4")
    check_equal(lens_in(state, 14), [12, 2], name=f"{name}; a budget of 14")


def test_task_2_as_many_tokens_as_there_are_pages_for(lab):
    state = state_of(lab, seats=2, pages=6)
    seat(lab, state, prompt_of(8), 8, computed=8, output=[5])  # holds 3, needs up to 5
    seat(lab, state, prompt_of(10), 6)  # needs up to 5; one of the 3 free pages is to spare
    check_equal(
        lens_in(state, 20), [1, 3], name="what the seats bring: a page of 3 is to spare for the second"
    )


def test_task_2_two_that_may_need_the_other_half_are_not_stranded(lab):
    state = state_of(lab, seats=2, pages=6, P=4)
    seat(lab, state, prompt_of(8), 8, computed=8, output=[5])
    seat(lab, state, prompt_of(8), 8, computed=8, output=[5])
    name = "what the seats bring: both hold 2 of 6 pages, both full, and may need 4"
    check_equal(lens_in(state, 20), [1, 0], name=name)


def test_task_2_a_decode_takes_its_page_at_its_place_in_line(lab):
    """Decodes are served before prompts; their ranks in line are still those of arrival."""
    state = state_of(lab, seats=3, pages=9)
    seat(lab, state, prompt_of(12), 4, computed=3)  # first in line: holds 1, needs up to 5
    seat(lab, state, prompt_of(6), 9, computed=6, output=[5])  # a decode: holds 2 full ones, needs up to 5
    seat(lab, state, prompt_of(9), 3)
    name = "what the seats bring: 6 pages are free; the decode takes one, the first prompt three"
    check_equal(lens_in(state, 40), [9, 1, 3], name=name)


def test_task_2_pages_that_are_held_are_counted_in_order_of_arrival(lab):
    state = state_of(lab, seats=2, pages=6)
    seat(lab, state, prompt_of(4), 3)
    seat(lab, state, prompt_of(9), 7, computed=9, output=[5])  # holds 3 full pages, needs up to 5
    leave(state, 0)
    seat(lab, state, prompt_of(6), 1)  # came last, and holds none
    name = (
        "what the seats bring: seat 1 came first and takes a page, seat 0 may take the one that is to spare"
    )
    check_equal(lens_in(state, 20), [3, 1], name=name)


def test_task_2_the_place_in_line_is_not_the_rank(lab):
    """`rank` counts all requests that ever came. One came and left, so the only one in line has rank 1."""
    state = state_of(lab, seats=2, pages=6)
    seat(lab, state, prompt_of(4), 3)
    leave(state, 0)
    seat(lab, state, prompt_of(6), 13, computed=6, output=[5])  # holds 2 full pages, needs up to 6: all
    seat(lab, state, prompt_of(3), 3)
    leave(state, 1)
    wrong = "`rank` was given to the banker: it asks for the place in line, 0 for the oldest that is there"
    check_equal(
        lens_in(state, 20, {wrong: [0, 0]}),
        [1, 0],
        name="what the seats bring: one request, which came second",
    )


def test_task_2_output_that_is_there_already_needs_no_more_pages(lab):
    """A request of 4 + 6 tokens may come to hold 9 of them, however many of the 6 it has when it is pushed."""
    state = state_of(lab, seats=2, pages=5)
    seat(lab, state, prompt_of(4), 6, output=[5, 6, 7])  # up to 3 pages
    seat(lab, state, prompt_of(6), 1)  # 2 pages
    check_equal(lens_in(state, 20), [7, 6], name="what the seats bring: 5 pages are just enough for both")


@pytest.mark.parametrize("limit", [10, 11, 12])
def test_task_2_positions_bound_the_pages_that_a_request_may_need(lab, limit):
    state = state_of(lab, seats=2, pages=5, limit=limit)
    seat(lab, state, prompt_of(7), 99)  # up to `limit` − 1 tokens: 3 pages, or 4 from 11 positions on
    seat(lab, state, prompt_of(6), 1)
    second = 6 if limit == 10 else 3
    name = f"what the seats bring: 5 pages of 3, and the first request may use all {limit} positions"
    check_equal(lens_in(state, 20), [7, second], name=name)


def test_task_2_the_next_tokens_of_each_seat_in_one_row(lab):
    state = state_of(lab, seats=4, pages=60)
    seat(lab, state, [10, 11, 12, 13, 14], 4, computed=2)
    seat(lab, state, [20, 21], 4, computed=2, output=[22])
    seat(lab, state, [7, 8], 4, output=[9])
    before = books(state)
    cases: dict[tuple[int, ...], list[int]] = {
        (3, 1, 3, 0): [12, 13, 14, 22, 7, 8, 9],
        (1, 1, 2, 0): [12, 22, 7, 8],
        (2, 0, 1, 0): [12, 13, 7],
        (0, 1, 0, 0): [22],
        (0, 0, 0, 0): [],
    }
    for lens, expected in cases.items():
        name = f"the next {list(lens)} tokens of 10 … 14 (2 computed), of 20 21 22 (2 computed), of 7 8 9, and none"
        given = list(lens)
        check_equal(state.ragged_issue_tokens(given), expected, name=name)
        check_equal(given, list(lens), name="the list that was given to `ragged_issue_tokens`")
    check_equal(books(state), before, name="what is known after `ragged_issue_tokens`")


def test_task_2_tokens_go_by_seats_and_not_by_arrival(lab):
    state = state_of(lab, seats=3, pages=60)
    for first in (10, 20, 30):
        seat(lab, state, [first, first + 1], 4)
    leave(state, 0)
    seat(lab, state, [40, 41], 4)
    name = "the tokens of three seats in one row; seat 0, with 40 and 41, came last"
    check_equal(state.ragged_issue_tokens([2, 1, 2]), [40, 41, 20, 30, 31], name=name)


def token_after(ids: Any, seed: int) -> int:
    return (fingerprints(ids)[-1] + seed) % V


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 6),  # steps until it comes
        st.integers(1, 14),  # tokens of prompt
        st.integers(1, 9),  # of output, at most
        st.sampled_from([(), (1, 7), tuple(range(0, V, 3))]),  # end tokens
    ),
    min_size=1,
    max_size=8,
)
POOLS = st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(0, 6))
LEAVING = st.dictionaries(st.integers(1, 12), st.integers(0, 3), max_size=3)
"""Step -> seat whose request is taken out before that step, to be pushed again later."""


def total_of(pool: tuple[int, int], limit: int) -> int:
    """Pages enough for the longest request there can be, and some more."""
    P, extra = pool
    return pages_needed(limit - 1, P) + extra


@QUICK
@given(
    wanted=ARRIVALS,
    pool=POOLS,
    seats=st.integers(1, 4),
    budget=st.integers(1, 9),
    leaving=LEAVING,
    seed=st.integers(0, 9),
)
def test_task_2_any_arrivals_any_pool_any_budget_and_every_request_ends(
    wanted, pool, seats, budget, leaving, seed
):
    """A dry run: pages are real, tokens are made up. Each step is compared with tokens dealt out one by one."""
    lab, limit = door.active(), 16
    state = state_of(lab, seats=seats, pages=total_of(pool, limit), P=pool[0], limit=limit)
    later = [
        (gap, new_request(lab, prompt_of(n, seed=i), count, ends))
        for i, (gap, n, count, ends) in enumerate(wanted)
    ]
    requests = [request for _, request in later]
    bound = sum(gap + each.prompt_len + each.max_tokens for gap, each in later) + 1
    bound += len(leaving) * (limit + 1)
    clock = 0
    while later or state.line:
        assert clock < bound, f"{bound} steps, and a request has not ended"
        number = leaving.get(clock, 9)
        if number < seats and state.seats[number] is not None:
            later.append((clock, state.seats[number].request))
            leave(state, number)
        while later and state.idle and later[0][0] <= clock:
            put(lab, state, later.pop(0)[1])
        if state.line:
            dry_step(state, budget, lambda ids: token_after(ids, seed), f"step {clock}")
            let_finished_leave(state, limit)
        elif later:
            later[0] = (clock, later[0][1])
        clock += 1
    unfinished = [n for n, each in enumerate(requests) if not each.finished(limit)]
    check_equal(unfinished, [], name="the requests that are not complete at the end")
    check_idle(state, when="at the end")


def put(lab: Any, state: Any, request: Any) -> None:
    """Put a request into the first idle seat by hand, as `push` does."""
    number = state.idle[0]
    sequence = state.decode_state.sequences[number]
    state.seats[number] = lab.paged.running.Running(request, sequence, state.pushed)
    state.pushed += 1


# Task 3: a mixed step


def push_all(lab: Any, core: Any, pairs: Any) -> list[Any]:
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in pairs]
    for request in requests:
        core.push(request)
    return requests


def test_task_3_a_request_gets_a_token_when_none_of_its_tokens_is_due(lab):
    model, core = batch_of(lab, budget=7)
    requests = push_all(lab, core, ((5, 3), (9, 3), (1, 3)))
    wanted = wanted_of(requests)
    steps = [
        ([5, 2, 0], [1, 0, 0], []),
        ([1, 6, 0], [2, 0, 0], []),
        ([1, 1, 1], [3, 1, 1], [0]),
        ([0, 1, 1], [3, 2, 2], []),
        ([0, 1, 1], [3, 3, 3], [1, 2]),
    ]
    for number, (lens, generated, finished) in enumerate(steps):
        done = core.step()
        issued = [(requests.index(request), count) for request, count in done.issued]
        expected = [(n, count) for n, count in enumerate(lens) if count]
        check_equal(issued, expected, name=f"(request, tokens) of step {number}, a budget of 7")
        name = f"the requests that step {number} has finished"
        check_equal(numbers(done.finished, requests), finished, name=name)
        outputs = [output[:count] for output, count in zip(wanted, generated, strict=True)]
        check_equal([each.output for each in requests], outputs, name=f"the outputs after step {number}")
    check_equal(
        model.head_rows, [1, 1, 3, 2, 2], name="rows of each call of `model.logits`: one per new token"
    )
    check_equal(core.requests, [], name="the requests that are left in the engine")
    check_idle(core.state, when="after all requests have finished")


def test_task_3_each_request_samples_from_its_own_row(lab):
    """Seat 0 came last: at first it takes no part, then all do; rows stand for the seats that take part."""
    _, core = batch_of(lab, budget=9)
    requests = push_all(lab, core, ((3, 3), (4, 6), (12, 3)))
    core.step()
    leave(core.state, 0)
    requests[0] = push_all(lab, core, ((6, 4),))[0]
    wanted = wanted_of(requests)
    core.token_budget = 4
    core.step()
    name = "the outputs of seats 0, 1 and 2 after a step of [0, 1, 3] tokens: row 0 of the step is seat 1's"
    check_equal([each.output for each in requests], [[], wanted[1][:2], []], name=name)
    core.token_budget = 99
    core.step()
    name = (
        "the outputs of seats 0, 1 and 2 after a step of [6, 1, 7] tokens: rows go by seats, not by arrival"
    )
    expected = [wanted[0][:1], wanted[1][:3], wanted[2][:1]]
    check_equal([each.output for each in requests], expected, name=name)


def test_task_3_rows_are_not_seats(lab):
    """The model's rows stand for the seats that take part; here seats 0 and 2 are idle."""
    _, core = batch_of(lab, seats=5, budget=99)
    requests = push_all(lab, core, ((5, 3), (4, 6), (3, 1), (6, 4), (2, 5)))
    core.step()
    leave(core.state, 0)
    for _ in range(3):
        core.step()
    wanted = wanted_of(requests)
    expected = [wanted[0][:1], wanted[1][:4], wanted[2], wanted[3], wanted[4][:4]]
    check_equal([each.output for each in requests], expected, name="the outputs; one left, one was complete")


def test_task_3_the_head_does_not_run_when_no_request_samples(lab):
    model, core = batch_of(lab, seats=2, budget=4)
    push_all(lab, core, ((9, 2), (4, 2)))
    core.step()
    check_equal(model.runs, [[(4, 4)]], name="(new tokens, tokens) of each sequence of the one run")
    check_equal(
        model.head_rows, [], name="rows of each call of `model.logits` after a chunk of 4 of 9 tokens"
    )


def test_task_3_without_a_request_the_model_does_not_run(lab):
    model, core = batch_of(lab)
    for when in ("at the beginning", "after the only request has finished"):
        done = core.step()
        check_equal((done.issued, done.finished), ([], []), name=f"issued and finished in a step {when}")
        runs = len(model.runs)
        push_all(lab, core, ((4, 1),))
        core.step()
        check_equal(len(model.runs), runs + 1, name="runs of the model for a prompt of 4 and one token")


def test_task_3_one_run_per_step_over_the_tokens_of_all_seats(lab):
    model, core = batch_of(lab, seats=4, budget=10)
    push_all(lab, core, ((5, 2), (3, 2), (9, 2), (2, 2)))
    for _ in range(4):
        core.step()
    expected = [{0: 5, 1: 3, 2: 2}, {0: 1, 1: 1, 2: 7, 3: 1}, {2: 1, 3: 1}, {3: 1}]
    check_equal(core.steps, expected, name="request -> tokens of each step, with a budget of 10")
    check_equal(len(model.runs), 4, name="runs of the model")


def test_task_3_finished_requests_leave_in_the_step_that_finishes_them(lab):
    _, core = batch_of(lab, seats=2, pages=4, budget=10)
    requests = push_all(lab, core, ((9, 1), (3, 6)))
    done = core.step()
    check_equal(
        numbers(done.finished, requests), [0], name="the finished requests; 0 wants 1 token, 1 wants 6"
    )
    check_equal(core.idle, 1, name="idle seats after the step in which one of two requests finished")
    check_equal(held_in(core.state)[0], 0, name="the pages of the seat that it has left")


def test_task_3_a_budget_below_the_number_of_seats_leaves_seats_waiting(lab):
    """A prompt begins only where decodes leave a part of the budget, so no more than 2 requests ever decode."""
    _, core = batch_of(lab, seats=4, budget=2)
    push_all(lab, core, ((1, 3),) * 4)
    for _ in range(9):
        core.step()
    expected = [{0: 1, 1: 1}] * 3 + [{2: 1, 3: 1}, {2: 1, 3: 1}, {2: 1, 3: 1}, {}, {}, {}]
    check_equal(core.steps, expected, name="request -> tokens of each step: 4 seats, a budget of 2")


def test_task_3_one_seat_and_a_budget_of_one_token(lab):
    model, core = batch_of(lab, seats=1, budget=1)
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in ((3, 2), (1, 1), (2, 3))]
    check_equal(run_all(lab, core, requests), wanted_of(requests), name="the outputs")
    counts = [[count for count, _ in run] for run in model.runs]
    check_equal(counts, [[1]] * 9, name="tokens of each sequence in each run of the model")


def test_task_3_some_requests_are_aborted_and_the_others_go_on(lab):
    _, core = batch_of(lab, seats=4, pages=20)
    requests = push_all(lab, core, ((5, 6), (4, 6), (7, 6), (3, 6)))
    for _ in range(3):
        core.step()
    outputs = [each.output for each in requests]
    core.abort({requests[0], requests[2]})
    check_equal(core.idle, 2, name="idle seats after two of four requests were aborted")
    check_equal(numbers(core.requests, requests), [1, 3], name="the requests that are left, 0 and 2 aborted")
    core.decode_state.check()
    check_equal(held_in(core.state)[0::2], [0, 0], name="the pages of the seats that were left")
    check_equal([each.output for each in requests], outputs, name="the outputs after `abort`")
    while core.requests:
        core.step()
    wanted = wanted_of(requests)
    outputs[1], outputs[3] = wanted[1], wanted[3]
    check_equal(
        [each.output for each in requests], outputs, name="the outputs in the end; 0 and 2 left early"
    )
    check_idle(core.state, when="at the end")


@pytest.mark.parametrize("container", [list, tuple, set, frozenset])
def test_task_3_unknown_requests_are_left_out(lab, container):
    _, core = batch_of(lab, budget=20)
    twin = new_request(lab, prompt_of(5, seed=5), 6)
    requests = push_all(lab, core, ((5, 6), (4, 1), (4, 6)))
    core.step()
    before = books(core.state)
    core.abort(container())
    check_equal(books(core.state), before, name="what is known after no request was aborted")
    core.abort(container([twin, requests[1]]))
    name = "what is known after the abort of a request with equal tokens that was never pushed, and a finished one"
    check_equal(books(core.state), before, name=name)
    core.abort(container([twin, requests[0]]))
    check_equal(
        numbers(core.requests, requests), [2], name="the requests that are left; 1 finished, 0 aborted"
    )
    core.abort(container([requests[0]]))
    check_equal(numbers(core.requests, requests), [2], name="the requests that are left, 0 aborted twice")
    core.abort(container(requests))
    check_idle(core.state, when="after all requests were aborted")


@pytest.mark.parametrize("after", [1, 2, 4, 7])
def test_task_3_an_aborted_request_may_come_again_and_gets_the_same_tokens(lab, after):
    _, core = batch_of(lab, seats=2, budget=5)
    requests = push_all(lab, core, ((9, 8), (6, 9)))
    for _ in range(after):
        core.step()
    generated = [each.num_generated for each in requests]
    core.abort(requests)
    check_idle(core.state, when=f"after both requests were aborted behind {after} steps")
    for request in reversed(requests):
        core.push(request)
    while core.requests:
        core.step()
    name = f"the outputs of two requests that came again with {generated} tokens of output"
    check_equal([each.output for each in requests], wanted_of(requests), name=name)


def sampler(lab: Any, seed: int) -> Any:
    return lab.sampler.Sampler(lab.sampler.SamplingParams(temperature=3.0, seed=seed))


def alone_with_seed(lab: Any, request: Any, seed: int, limit: int = 1000) -> list[int]:
    """What a request gets alone, drawn by a sampler of its own with this seed; greedy with seed 0."""
    draw = sampler(lab, seed)

    def drawn(scores: np.ndarray, ids: list[int]) -> int:
        return draw(lab.array(scores), ids)

    choose = drawn if seed else best
    return alone(request.prompt_ids, request.max_tokens, request.end_ids, limit, choose)


def test_task_3_the_state_of_a_sampler_goes_with_its_request(lab):
    """Three are aborted in the middle and come again in another order: each goes on with its own draws."""
    _, core = batch_of(lab, seats=3, budget=6)
    requests = [new_request(lab, prompt_of(n), 9, sample=sampler(lab, n)) for n in (4, 7, 5)]
    expected = [alone_with_seed(lab, each, each.prompt_len) for each in requests]
    for request in requests:
        core.push(request)
    for _ in range(5):
        core.step()
    core.abort(requests)
    for request in reversed(requests):
        core.push(request)
    while core.requests:
        core.step()
    check_equal([each.output for each in requests], expected, name="the outputs, drawn with three seeds")


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("call", [0, 1, 3])
def test_task_3_a_step_whose_model_failed_may_be_repeated(lab, call, error):
    model, core = batch_of(lab, seats=2, budget=5)
    requests = push_all(lab, core, ((9, 3), (4, 4)))
    model.failures, model.error = {call, call + 1}, error
    for _ in range(call):
        core.step()
    computed = [each.length for each in core.decode_state.sequences]
    tokens = [list(each.token_ids) for each in requests]
    for time in ("first", "second"):
        stops(core.step, error, f"a step whose model fails for the {time} time")
        name = f"after the model failed for the {time} time in step {call}"
        now = [each.length for each in core.decode_state.sequences]
        check_equal(now, computed, name=f"tokens that count as computed, {name}")
        check_equal([each.token_ids for each in requests], tokens, name=f"the tokens of the requests, {name}")
        check_equal(numbers(core.requests, requests), [0, 1], name=f"the requests in seats, {name}")
        core.decode_state.check()
    while core.requests:
        core.step()
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs in the end")
    check_idle(core.state, when="at the end")


def test_task_3_a_step_that_failed_may_be_repeated_with_a_smaller_budget(lab):
    model, core = batch_of(lab, seats=2, pages=6, budget=12)
    requests = push_all(lab, core, ((12, 3), (4, 2)))
    model.failures = {0}
    stops(core.step, KeyError, "a step whose model fails")
    core.token_budget = 4
    while core.requests:
        core.step()
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs in the end")


def test_task_3_a_request_may_leave_after_a_step_that_failed(lab):
    model, core = batch_of(lab, seats=2, pages=6, budget=12)
    requests = push_all(lab, core, ((12, 3), (4, 2)))
    model.failures = {0}
    stops(core.step, KeyError, "a step whose model fails")
    core.abort(requests[:1])
    core.decode_state.check()
    check_equal(held_in(core.state)[0], 0, name="the pages of the seat whose request was aborted")
    core.push(requests[0])
    while core.requests:
        core.step()
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs in the end")


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_task_3_after_an_error_in_a_sampler_requests_leave_and_come_again(lab, error):
    """The first request has its last token already when the sampler of the second one stops the step."""
    failing = [True, False]

    def sample(logits: Any, ids: Any) -> int:
        if failing.pop(0):
            raise error("the sampler failed, as the test wanted it to")
        failing.append(False)
        return int(np.argmax(lab.numpy(logits)))

    _, core = batch_of(lab, budget=20)
    requests = push_all(lab, core, ((5, 1), (4, 2), (3, 3)))
    requests[1].sample = sample
    stops(core.step, error, "a step in which a sampler fails")
    name = "which requests are in the engine after a sampler failed; `abort` takes them out, not `step`"
    check_equal(numbers(core.requests, requests), [0, 1, 2], name=name)
    core.abort(core.requests)
    check_idle(core.state, when="after the sampler failed and all requests were aborted")
    wanted = wanted_of(requests)
    check_equal(
        [each.output for each in requests], [wanted[0], [], []], name="the outputs after the failed step"
    )
    check_raises(ValueError, lambda: core.push(requests[0]), name="the request that had finished by then")
    outputs = run_all(lab, core, requests)
    check_equal(outputs, wanted, name="the outputs after the requests came again")


@sizes_of_pages
@pytest.mark.parametrize(("seats", "budget"), [(1, 4), (3, 1), (3, 7), (12, 128)])
def test_task_3_every_request_gets_the_tokens_that_it_gets_alone(lab, seats, budget, P):
    _, core = batch_of(lab, seats=seats, pages=90, P=P, budget=budget)
    requests = many(lab)
    outputs = run_all(lab, core, requests)
    for number, (output, wanted) in enumerate(zip(outputs, wanted_of(requests), strict=True)):
        name = f"the output of request {number} of 9, {seats} seats, a budget of {budget}"
        check_equal(output, wanted, name=name)


def test_task_3_a_finished_request_makes_room_for_the_next_step(lab):
    requests = [new_request(lab, prompt_of(1, seed=n), 2 if n else 9) for n in range(5)]
    _, core = batch_of(lab, seats=2)
    run_all(lab, core, requests)
    together = [sorted(step) for step in core.steps]
    expected = [[0, 1], [0, 1], [0, 2], [0, 2], [0, 3], [0, 3], [0, 4], [0, 4], [0]]
    check_equal(together, expected, name="the requests of each step, with two seats")


def test_task_3_on_few_pages_every_request_ends(lab):
    """Each may need all the pages there are but one, and all seats want them at once."""
    requests = [new_request(lab, prompt_of(5, seed=n), 8) for n in range(6)]
    _, core = batch_of(lab, seats=4, pages=5)
    check_equal(run_all(lab, core, requests), wanted_of(requests), name="the outputs")
    assert max(map(len, core.steps)) > 1, (
        "with 5 pages, and up to 4 for each request, two can run for a while: pages are taken when they are needed"
    )


def test_task_3_samplers_and_end_tokens_belong_to_one_request(lab):
    prompts = [prompt_of(n) for n in (5, 9, 2, 6)]
    ends = [alone(prompts[0], 6)[3:4], (), (), (1, 2, 3, 4, 5, 6, 7, 8)]
    requests, expected = [], []
    for prompt, end_ids, seed in zip(prompts, ends, (0, 3, 4, 0), strict=True):
        options = {"sample": sampler(lab, seed)} if seed else {}
        requests.append(new_request(lab, prompt, 7, end_ids, **options))
        expected.append(alone_with_seed(lab, requests[-1], seed))
    _, core = batch_of(lab, seats=4)
    check_equal(run_all(lab, core, requests), expected, name="the outputs")


def test_task_3_prompt_and_output_may_use_every_position(lab):
    _, core = batch_of(lab, limit=16)
    requests = [new_request(lab, prompt_of(n, seed=n), 100) for n in (15, 9, 3)]
    outputs = run_all(lab, core, requests)
    check_equal([len(output) for output in outputs], [1, 7, 13], name="tokens generated, with 16 positions")
    check_equal(outputs, wanted_of(requests, 16), name="the outputs")


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("call", [0, 3, 6])
@pytest.mark.parametrize("part", ["model", "sampler", "observer"])
def test_task_3_seats_and_pages_are_given_back_after_an_error(lab, part, call, error):
    model, core = batch_of(lab, budget=7)
    requests, steps, samples = many(lab), list[Any](), list[int]()

    def sample(logits: Any, ids: Any) -> int:
        samples.append(len(ids))
        if part == "sampler" and len(samples) == call + 1:
            raise error("the sampler failed, as the test wanted it to")
        return int(np.argmax(lab.numpy(logits)))

    def observe(step: Any) -> None:
        steps.append(step)
        if part == "observer" and len(steps) == call + 1:
            raise error("the observer failed, as the test wanted it to")

    for request in requests:
        request.sample = sample
    if part == "model":
        model.failures, model.error = {call}, error
    run = partial(lab.engine_core.generate_all, core, requests, observe)
    stops(run, error, f"`generate_all` whose {part} fails at call {call}")
    check_idle(core.state, when=f"after the {part} failed at call {call}")
    check_equal(run_all(lab, core, requests), wanted_of(requests), name="the outputs of a second run")


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("length", [0, 10, 12, 40])
def test_task_3_a_request_that_can_never_run_is_refused_and_the_others_go_on(lab, length, place):
    _, core = batch_of(lab, limit=12, pages=3, budget=6)
    requests = [new_request(lab, prompt_of(n), 3) for n in (5, 7, 1, 3)]
    requests.insert(place, new_request(lab, prompt_of(length), 3))
    outputs = run_all(lab, core, requests)
    expected = wanted_of(requests, 12)
    expected[place] = []
    check_equal(outputs, expected, name="the outputs, [] for the request that was refused")


@pytest.mark.parametrize("budget", [0, -3])
def test_task_3_budgets_below_1_are_refused_and_128_is_the_default(lab, budget):
    _, core = batch_of(lab, limit=200, pages=100)
    kind = lab.ragged.batch.RaggedBatch
    check_raises(
        ValueError, lambda: kind(core.runner, core.decode_state, budget), name=f"a budget of {budget}"
    )
    request = new_request(lab, prompt_of(150), 2)
    plain, counts = kind(core.runner, core.decode_state), []

    def observe(step: Any) -> None:
        counts.append([count for _, count in step.issued])

    outputs = lab.engine_core.generate_all(plain, [request], observe)
    check_equal(outputs, wanted_of([request]), name="the outputs")
    check_equal(counts, [[128], [22], [1]], name="tokens of each step for a prompt of 150 and 2 of output")


FAILING = st.sets(st.integers(0, 20), max_size=3)
SEEDS = st.lists(st.integers(0, 2), min_size=8, max_size=8)


@FEWER
@given(
    wanted=ARRIVALS,
    pool=POOLS,
    seats=st.integers(1, 4),
    budget=st.integers(1, 9),
    leaving=LEAVING,
    failing=FAILING,
    seeds=SEEDS,
)
def test_task_3_any_arrivals_departures_and_failures_each_as_if_alone(
    wanted, pool, seats, budget, leaving, failing, seeds
):
    """Requests come between steps, leave and come again; the model fails now and then, and the step is repeated."""
    lab, limit = door.active(), 16
    model, core = batch_of(
        lab, seats=seats, pages=total_of(pool, limit), P=pool[0], limit=limit, budget=budget
    )
    model.failures = set(failing)
    later = []
    for i, (gap, n, count, ends) in enumerate(wanted):
        options = {"sample": sampler(lab, seeds[i])} if seeds[i] else {}
        later.append((gap, new_request(lab, prompt_of(n, seed=i), count, ends, **options)))
    requests = [request for _, request in later]
    clock = 0
    while later or core.requests:
        number = leaving.get(clock, 9)
        if number < seats and core.state.seats[number] is not None:
            later.append((0, core.state.seats[number].request))
            core.abort([later[-1][1]])
        if later and core.idle and later[0][0] == 0:
            core.push(later.pop(0)[1])
        elif later and core.idle:
            later[0] = (later[0][0] - 1, later[0][1])
        try:
            core.step()
        except KeyError:
            core.decode_state.check()
        clock += 1
    for request, seed in zip(requests, seeds, strict=False):
        name = f"the output of a prompt of {request.prompt_len}, {seats} seats, a budget of {budget}, seed {seed}"
        check_equal(request.output, alone_with_seed(lab, request, seed, limit), name=name)
    check_idle(core.state, when="at the end")


STOPS = st.lists(st.integers(0, V - 1), max_size=6)
REQUESTS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 9), STOPS), max_size=8)


@FEWER
@given(
    wanted=REQUESTS,
    P=st.sampled_from([1, 2, 3, 16]),
    pages=st.integers(1, 14),
    seats=st.integers(1, 4),
    budget=st.integers(1, 9),
)
def test_task_3_any_requests_on_any_pool_each_as_if_alone(wanted, P, pages, seats, budget):
    lab, limit = door.active(), 13
    model, core = batch_of(lab, seats=seats, pages=pages, P=P, limit=limit, budget=budget)
    requests = [
        new_request(lab, prompt_of(length, seed=n), count, ends)
        for n, (length, count, ends) in enumerate(wanted)
    ]
    outputs = run_all(lab, core, requests)
    for request, output in zip(requests, outputs, strict=True):
        runs = fits(request, limit, pages, P)
        name = (
            f"a prompt of {request.prompt_len}, {request.max_tokens} tokens of output, {pages} pages of {P}"
        )
        check_equal(request.error is None, runs, name=f"whether {name} are accepted, with {limit} positions")
        expected = alone(request.prompt_ids, request.max_tokens, request.end_ids, limit) if runs else []
        check_equal(output, expected, name=f"the output of {name}")
    computed = sum(count for run in model.runs for count, _ in run)
    due = sum(r.prompt_len + len(r.output) - 1 for r in requests if r.output)
    check_equal(computed, due, name="tokens computed in all, each once, and no last one")


@sizes_of_pages
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_3_the_model_of_week_1_says_the_same_as_with_its_own_caches(lab, family, P):
    model = real_model(lab, family)
    core = real_batch(lab, model, seats=3, pages=30, P=P, budget=6)
    lengths = ((5, 9), (13, 7), (1, 4), (4, 1), (7, 5))
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in lengths]
    expected = [list(lab.generate.generate(model, r.prompt_ids, r.max_tokens)) for r in requests]
    outputs = run_all(lab, core, requests)
    check_equal(
        outputs, expected, name="the outputs of five requests in three seats, against Day 2.1's `generate`"
    )
