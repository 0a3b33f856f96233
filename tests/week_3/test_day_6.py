"""Day 3.6: who is in a slot, who may take pages, who issues how much, a mixed step, and ragged batching."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_1 import numpy_model
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import V, alone, best, fingerprints, scores_after

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises

from .bankers import all_can_end, held_by, most_for, with_more
from .bounded_states import bounded_state
from .mixed_batches import (
    MixedModel,
    Watch,
    books,
    check_idle,
    check_step,
    dry_step,
    fits,
    many,
    real_model,
    run_all,
    seat,
    state_of,
    wanted_of,
)
from .pages import pages_needed, spoil

QUICK = settings(max_examples=80, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", [1, 3, 16], ids=lambda P: f"pages of {P}")


# Task 1: in and out


def test_task_1_a_request_takes_the_first_idle_slot(lab):
    state = state_of(lab)
    requests = [new_request(lab, prompt_of(n), 4) for n in (5, 2, 7)]
    check_equal([state.push(each) for each in requests], [0, 1, 2], name="the slots that `push` returned")
    for slot, request in enumerate(requests):
        assert state.requests[slot] is request, f"slot {slot} holds another request than the one pushed there"
        check_equal(state.tokens[slot], request.prompt_ids, name=f"the tokens of slot {slot}")
    check_equal(state.position, [0, 0, 0], name="the positions: nothing is issued yet")
    check_equal(state.input_lens, [5, 2, 7], name="the lengths of the prompts")
    check_equal(state.line, [0, 1, 2], name="the slots in line")
    check_equal(held_by(state), [0, 0, 0], name="the pages held: a request takes them when it issues tokens")


def test_task_1_a_slot_is_used_again_and_its_request_stands_at_the_end_of_the_line(lab):
    state = state_of(lab)
    for n in (5, 2, 7):
        seat(lab, state, prompt_of(n), 4, issued=n, output=[3])
    state.release([False, True, False])
    check_equal(state.idle, [1], name="the idle slots")
    late = new_request(lab, prompt_of(4), 3)
    check_equal(state.push(late), 1, name="the slot of a request that comes later")
    check_equal(state.line, [0, 2, 1], name="the slots in the order in which their requests came")
    check_equal((state.tokens[1], state.position[1]), (prompt_of(4), 0), name="its tokens, and its position")
    check_equal(state.input_lens[1], 4, name="the length of its prompt")
    state.release([True, False, False])
    state.push(new_request(lab, prompt_of(3), 3))
    check_equal(state.line, [2, 1, 0], name="the line after one more has come")


def test_task_1_the_prompt_belongs_to_the_caller(lab):
    state, prompt = state_of(lab), prompt_of(5)
    state.push(new_request(lab, prompt, 4))
    state.tokens[0].append(7)
    check_equal(prompt, prompt_of(5), name="the prompt, after a token was added to the slot's list")
    tuples = new_request(lab, tuple(prompt_of(6)), 4)
    state.push(tuples)
    check_equal(state.tokens[1], prompt_of(6), name="the slot's tokens for a prompt that is a tuple")


def test_task_1_an_output_that_is_there_already_is_not_taken_up(lab):
    state = state_of(lab)
    state.push(new_request(lab, prompt_of(5), 4, output=[3, 1]))
    check_equal(
        state.tokens[0], prompt_of(5), name="the slot's tokens for a request with an output: its prompt alone"
    )


@pytest.mark.parametrize(
    ("length", "count", "what"),
    [(0, 3, "empty prompt"), (12, 3, "prompt without room"), (8, 4, "too many pages"), (5, 0, "no output")],
)
def test_task_1_what_cannot_run_is_not_pushed(lab, length, count, what):
    state = state_of(lab, pages=3, limit=12)
    seat(lab, state, prompt_of(3), 4, issued=3, output=[5])
    request, before = new_request(lab, prompt_of(length), count), books(state)
    name = f"a request with {what} (3 pages of 3, 12 positions)"
    error = check_raises(ValueError, lambda: state.push(request), name=name)
    check_equal(books(state), before, name=f"what is known after the refusal of {name}")
    reason = state.refusal(request)
    if reason is not None:
        check_equal(str(error), reason, name="the message, which is the reason that `refusal` gives")


def test_task_1_a_request_that_just_fits_is_pushed(lab):
    state = state_of(lab, slots=2, pages=3, limit=12)
    seat(lab, state, prompt_of(8), 2, issued=8, output=[5])
    check_equal(held_by(state), [3, 0], name="the pages held: all that there are")
    late = new_request(lab, prompt_of(9), 1)
    check_equal(state.push(late), 1, name="the slot of one with 9 tokens; pages are for those who issue")


def test_task_1_no_idle_slot_no_push(lab):
    state = state_of(lab, slots=2)
    for n in (4, 6):
        seat(lab, state, prompt_of(n), 3)
    before = books(state)
    late = new_request(lab, prompt_of(2), 3)
    check_raises(ValueError, lambda: state.push(late), name="a third request for two slots")
    check_equal(books(state), before, name="what is known after the refusal")


def test_task_1_complete_is_who_has_all_its_tokens(lab):
    state = state_of(lab, slots=7, limit=12)
    seat(lab, state, prompt_of(4), 3, issued=6, output=[5, 6, 7])
    seat(lab, state, prompt_of(4), 3, issued=5, output=[5, 6])
    seat(lab, state, prompt_of(4), 3, issued=4, output=[9], end_ids=(9,))
    seat(lab, state, [1, 9, 1], 3, issued=3, output=[5], end_ids=(9,))
    seat(lab, state, prompt_of(10), 30, issued=11, output=[5, 6])
    seat(lab, state, prompt_of(10), 30, issued=10, output=[5])
    name = "who is complete: 3 of 3 tokens, 2 of 3, an end token, one in the prompt, 12 of 12 positions, 11, nobody"
    check_equal(state.completed_mask(), [True, False, True, False, True, False, False], name=name)


def test_task_1_get_gives_the_output_and_not_the_prompt(lab):
    state = state_of(lab, slots=4)
    seat(lab, state, prompt_of(5), 9, issued=7, output=[3, 1, 4])
    seat(lab, state, prompt_of(2), 9, issued=1)
    seat(lab, state, prompt_of(3), 9, issued=3, output=[2])
    cases = {
        (True, False, True, False): [[3, 1, 4], [2]],
        (False, True, True, False): [[], [2]],
        (False, False, False, False): [],
        (False, False, True, True): [[2], []],
    }
    before = books(state)
    for mask, expected in cases.items():
        check_equal(
            state.get(list(mask)),
            expected,
            name=f"the outputs of the slots marked in {list(mask)}; slot 3 is idle: its output is []",
        )
    check_equal(books(state), before, name="what is known after `get`")


def test_task_1_release_makes_slots_idle_and_gives_their_pages_back(lab):
    state = state_of(lab, slots=4, pages=12)
    for n in (5, 2, 7):
        seat(lab, state, prompt_of(n), 4, issued=n, output=[3])
    requests = list(state.requests)
    state.release([True, False, True, True])
    check_equal([each is None for each in state.requests], [True, False, True, True], name="who is idle")
    check_equal(held_by(state), [0, 1, 0, 0], name="the pages held after slots 0 and 2 were released")
    state.pages.check()
    cleared = [state.tokens[0], state.position[0], state.input_lens[0]]
    check_equal(cleared, [[], 0, 0], name="tokens, position and prompt length of an idle slot")
    kept = [state.tokens[1], state.position[1], state.input_lens[1]]
    check_equal(kept, [[*prompt_of(2), 3], 2, 2], name="those of the slot that was not marked")
    check_equal(requests[0].output, [3], name="the output that a released request keeps")
    state.release([True] * 4)
    check_idle(state, when="after all slots were released, some of them idle")


@pytest.mark.parametrize("marks", [1, 3])
def test_task_1_a_mask_of_the_wrong_length_releases_nothing(lab, marks):
    state = state_of(lab, slots=2)
    for n in (4, 6):
        seat(lab, state, prompt_of(n), 3, issued=n)
    before = books(state)
    check_raises(ValueError, lambda: state.release([True] * marks), name=f"{marks} marks for 2 slots")
    check_equal(books(state), before, name="what is known after the refusal")


# Task 2: pages to spare


def budget_of(lab: Any, free: int, held: list[int], most: list[int]) -> Any:
    return lab.ragged.page_budget.PageBudget(free, held, most)


def limits_of(budget: Any, count: int) -> list[int]:
    return [budget.limit(place) for place in range(count)]


def test_task_2_three_in_line_as_in_the_chapter(lab):
    budget = budget_of(lab, 4, [2, 3, 2], [4, 8, 6])
    check_equal(
        limits_of(budget, 3), [4, 2, 1], name="what A, B and C may take: 4 free, held 2 3 2, most 4 8 6"
    )
    budget.take(1, 1)
    check_equal(limits_of(budget, 3), [3, 1, 1], name="what they may take after B has taken a page")
    budget.take(2, 1)
    check_equal(limits_of(budget, 3), [2, 0, 0], name="what they may take after C has taken one, too")
    budget.take(0, 2)
    check_equal(limits_of(budget, 3), [0, 0, 0], name="what they may take when nothing is free")


def test_task_2_two_that_hold_half_each_are_not_stranded(lab):
    budget = budget_of(lab, 2, [2, 2], [4, 4])
    name = (
        "what two may take that hold 2 of 6 pages each, and need 2 more: the second none, or both are stuck"
    )
    check_equal(limits_of(budget, 2), [2, 0], name=name)


def test_task_2_whoever_takes_costs_those_before_and_not_those_behind(lab):
    budget = budget_of(lab, 6, [1, 1, 1], [3, 3, 3])
    check_equal(limits_of(budget, 3), [6, 4, 4], name="what three may take: 6 free, each holds 1 and needs 3")
    budget.take(0, 2)
    name = "what they may take after the first has taken 2: it gives them back before the others' turn"
    check_equal(limits_of(budget, 3), [4, 4, 4], name=name)
    budget = budget_of(lab, 6, [1, 1, 1], [3, 3, 3])
    budget.take(1, 2)
    name = "what they may take after the second has taken 2: the first has so much less to spare"
    check_equal(limits_of(budget, 3), [4, 2, 2], name=name)
    budget.take(1, 2)
    name = "what they may take after it has taken 2 more: nothing is to spare for those behind the first"
    check_equal(limits_of(budget, 3), [2, 0, 0], name=name)


def test_task_2_the_first_in_line_needs_nobodys_leave(lab):
    for free in (0, 1, 5):
        budget = budget_of(lab, free, [3], [3 + free])
        check_equal(budget.limit(0), free, name=f"what the only one may take, with {free} free")
        budget.take(0, free)
        check_equal(budget.limit(0), 0, name="what it may take after it has taken all")


def test_task_2_pages_of_those_before_count_as_free_by_then(lab):
    budget = budget_of(lab, 1, [4, 0, 0], [5, 5, 2])
    name = (
        "what three may take: 1 free, the first holds 4 and needs 1 more; whatever the others take, it lacks"
    )
    check_equal(limits_of(budget, 3), [1, 0, 0], name=name)
    budget = budget_of(lab, 3, [4, 0, 0], [5, 7, 2])
    name = (
        "what three may take: 3 free; the second needs all 7 when its turn comes, so the third may take none"
    )
    check_equal(limits_of(budget, 3), [3, 2, 0], name=name)


@pytest.mark.parametrize(("place", "count"), [(0, 5), (1, 3), (2, 2), (0, -1), (2, -1)])
def test_task_2_more_than_the_limit_is_refused(lab, place, count):
    budget = budget_of(lab, 4, [2, 3, 2], [4, 8, 6])
    name = f"{count} pages for number {place}, where the limits are 4, 2 and 1"
    check_raises(ValueError, lambda: budget.take(place, count), name=name)
    check_equal(limits_of(budget, 3), [4, 2, 1], name="the limits after the refusal")


def test_task_2_the_limit_may_be_taken_and_so_may_nothing(lab):
    for place, limit in enumerate([4, 2, 1]):
        budget = budget_of(lab, 4, [2, 3, 2], [4, 8, 6])
        budget.take(place, 0)
        check_equal(
            limits_of(budget, 3), [4, 2, 1], name=f"the limits after number {place} has taken nothing"
        )
        budget.take(place, limit)
        check_equal(budget.limit(place), 0, name=f"the limit of number {place} after it has taken all of it")


def test_task_2_the_lists_that_it_was_given_are_not_its_own(lab):
    held, most = [2, 3, 2], [4, 8, 6]
    budget = budget_of(lab, 4, held, most)
    budget.take(1, 1)
    check_equal((held, most), ([2, 3, 2], [4, 8, 6]), name="the lists after a `take`")
    held[0], most[1] = 0, 99
    check_equal(limits_of(budget, 3), [3, 1, 1], name="the limits after the caller has used its lists again")


TAKES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12)
MOST = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@QUICK
@given(most=MOST, extra=st.integers(0, 6), before=TAKES, now=TAKES)
def test_task_2_any_line_any_takes_everybody_can_still_end(most, extra, before, now):
    lab, total = door.active(), max(most) + extra
    free, held = total, [0 for _ in most]
    for number, share in before:  # a past: pages that may go, by the oracle
        place = number % len(most)
        count = min(share, most[place] - held[place], most_for(free, held, most, place))
        free, held = free - count, with_more(held, place, count)
    budget = budget_of(lab, free, list(held), list(most))
    for number, share in [(0, 0), *now]:
        place = number % len(most)
        name = f"{free} free, held {held}, at most {most}: what each may take"
        expected = [most_for(free, held, most, n) for n in range(len(most))]
        check_equal(limits_of(budget, len(most)), expected, name=name)
        count = min(share, expected[place], most[place] - held[place])
        budget.take(place, count)
        free, held = free - count, with_more(held, place, count)
        assert all_can_end(free, held, most), f"{free} free, held {held}, at most {most}: some can't end"


@QUICK
@given(most=MOST, extra=st.integers(0, 6), takes=TAKES)
def test_task_2_nobody_is_ever_stranded(most, extra, takes):
    """Take as much as one may, in any order; then let the first one go on alone, again and again."""
    lab, total = door.active(), max(most) + extra
    free, held = total, [0 for _ in most]
    for number, share in takes:
        place = number % len(most)
        limit = budget_of(lab, free, list(held), list(most)).limit(place)
        count = min(share, limit, most[place] - held[place])
        free, held = free - count, with_more(held, place, count)
    while most:
        lacks = most[0] - held[0]
        limit = budget_of(lab, free, list(held), list(most)).limit(0)
        name = f"{free} free, held {held}, at most {most}"
        assert lacks <= limit, (
            f"{name}: the first lacks {lacks} and may take {limit}; nobody will give one back"
        )
        free, held, most = free + held[0], held[1:], most[1:]


# Task 3: who issues how much


def test_task_3_due_is_what_was_not_issued_yet(lab):
    state = state_of(lab, slots=8, pages=60)
    seat(lab, state, prompt_of(7), 4)
    seat(lab, state, prompt_of(7), 4, issued=3)
    seat(lab, state, prompt_of(7), 4, issued=7, output=[5])
    seat(lab, state, prompt_of(7), 4, issued=9, output=[5, 6, 7])
    seat(lab, state, prompt_of(7), 3, issued=9, output=[5, 6, 7])
    seat(lab, state, prompt_of(7), 4, issued=7, output=[5], end_ids=(5,))
    seat(lab, state, prompt_of(1), 4)
    name = "what is due: a prompt, the rest of one, the newest token (twice), nothing (twice), a prompt of 1, nobody"
    check_equal(state.due(), [7, 4, 1, 1, 0, 0, 1, 0], name=name)


def test_task_3_nothing_is_due_in_a_slot_that_was_released(lab):
    state = state_of(lab, slots=2)
    for n in (5, 3):
        seat(lab, state, prompt_of(n), 4, issued=n, output=[2])
    state.release([True, False])
    check_equal(state.due(), [0, 1], name="what is due after slot 0 was released")
    check_equal(state.issue_lens(9), [0, 1], name="who issues how much then")


def lens_in(state: Any, capacity: int) -> list[int]:
    """What `issue_lens` says, which must be what the oracle says, and must change nothing."""
    __tracebackhide__ = True
    before = books(state)
    lens = state.issue_lens(capacity)
    check_equal(len(lens), len(state.requests), name="how many numbers `issue_lens` gives: one a slot")
    check_step(state, lens, capacity, f"with room for {capacity}")
    check_equal(books(state), before, name="what is known after `issue_lens`, which only plans")
    return lens


def five(lab: Any) -> Any:
    """As in the chapter: two prompts, a decode, a prompt that is half way, a decode."""
    state = state_of(lab, slots=6, pages=60)
    seat(lab, state, prompt_of(9), 4, issued=2)
    seat(lab, state, prompt_of(4), 4, issued=4, output=[5])
    seat(lab, state, prompt_of(6), 4)
    seat(lab, state, prompt_of(3), 4, issued=5, output=[5, 6, 7])
    seat(lab, state, prompt_of(2), 4)
    return state


@pytest.mark.parametrize(
    ("capacity", "lens"),
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
def test_task_3_decodes_first_then_prompts_fill_the_step(lab, capacity, lens):
    name = f"who issues how much: due are 7, a decode, 6, a decode, 2 and nobody; room for {capacity}"
    check_equal(lens_in(five(lab), capacity), [*lens, 0], name=name)


def test_task_3_a_prompt_of_one_token_is_not_a_decode(lab):
    state = state_of(lab, slots=4, pages=60)
    seat(lab, state, prompt_of(9), 4, issued=3)
    seat(lab, state, prompt_of(1), 4)
    seat(lab, state, prompt_of(5), 4, issued=4)
    name = "who issues how much: a long prompt came first, then a prompt of 1 and the last token of one; room for 2"
    check_equal(lens_in(state, 2), [2, 0, 0, 0], name=name)
    check_equal(lens_in(state, 7), [6, 1, 0, 0], name="the same with room for 7")


def test_task_3_the_order_is_that_of_arrival_not_that_of_the_slots(lab):
    state = state_of(lab, slots=3, pages=60)
    for n in (5, 6, 7):
        seat(lab, state, prompt_of(n), 4)
    state.release([True, False, False])
    seat(lab, state, prompt_of(8), 4)
    check_equal(lens_in(state, 10), [0, 6, 4], name="who issues how much: slot 0 came last, room for 10")
    state = state_of(lab, slots=3, pages=60)
    for n in (5, 6, 7):
        seat(lab, state, prompt_of(n), 4, issued=n, output=[3])
    state.release([True, False, False])
    seat(lab, state, prompt_of(8), 4, issued=8, output=[3])
    check_equal(lens_in(state, 2), [0, 1, 1], name="which decodes come first: slot 0 came last, room for 2")


@pytest.mark.parametrize("capacity", [0, -1])
def test_task_3_a_step_without_room_is_refused(lab, capacity):
    state = five(lab)
    before = books(state)
    check_raises(ValueError, lambda: state.issue_lens(capacity), name=f"a capacity of {capacity}")
    check_equal(books(state), before, name="what is known after the refusal")


def test_task_3_nobody_there(lab):
    check_equal(state_of(lab).issue_lens(5), [0, 0, 0], name="who issues how much when all slots are idle")


@pytest.mark.parametrize("issued", [2, 3, 4, 5, 6])
def test_task_3_a_token_needs_a_page_only_when_its_pages_are_full(lab, issued):
    state = state_of(lab, slots=1, pages=4)
    seat(lab, state, prompt_of(9), 4, issued=issued)
    check_equal(
        lens_in(state, 20), [9 - issued], name=f"who issues how much: {issued} of 9 are in pages of 3"
    )


def test_task_3_a_token_for_a_page_that_is_not_full_takes_none(lab):
    state = state_of(lab, slots=2, pages=3)
    seat(lab, state, prompt_of(2), 2, issued=2, output=[5])  # holds one page with 2 tokens
    seat(lab, state, prompt_of(6), 1)
    name = "who issues how much: the decode's token has room in its page of 3, and both free pages go to the prompt"
    check_equal(lens_in(state, 20), [1, 6], name=name)


def test_task_3_whoever_finds_no_page_does_not_stop_those_behind(lab):
    state = state_of(lab, slots=3, pages=7, P=4)
    seat(lab, state, prompt_of(8), 8, issued=8, output=[5])
    seat(lab, state, prompt_of(8), 8, issued=8, output=[5])  # its pages are full, and it may take none
    seat(lab, state, prompt_of(2), 3, issued=2, output=[5])  # has room in the page that it holds
    name = "who issues how much: slot 1 finds no page; slot 2, behind it, needs none"
    check_equal(lens_in(state, 20), [1, 0, 1], name=name)


def test_task_3_a_slot_may_hold_more_pages_than_its_tokens_need(lab):
    """As after a step whose model failed: the pages stay with the slot."""
    state = state_of(lab, slots=2, pages=6)
    seat(lab, state, prompt_of(12), 4)
    seat(lab, state, prompt_of(3), 4)
    state.pages.allocate([12, 0])
    check_equal(held_by(state), [4, 0], name="the pages held after a step of 12 tokens that was not finished")
    check_equal(
        lens_in(state, 4), [4, 0], name="who issues how much: the step is tried again with room for 4"
    )
    check_equal(lens_in(state, 14), [12, 2], name="the same with room for 14")


def test_task_3_as_many_tokens_as_there_are_pages_for(lab):
    state = state_of(lab, slots=2, pages=6)
    seat(lab, state, prompt_of(8), 8, issued=8, output=[5])  # holds 3, needs up to 5
    seat(lab, state, prompt_of(10), 6)  # needs up to 5; one of the 3 free pages is to spare
    check_equal(
        lens_in(state, 20), [1, 3], name="who issues how much: a page of 3 is to spare for the second"
    )


def test_task_3_two_that_may_need_the_other_half_are_not_stranded(lab):
    state = state_of(lab, slots=2, pages=6, P=4)
    seat(lab, state, prompt_of(8), 8, issued=8, output=[5])
    seat(lab, state, prompt_of(8), 8, issued=8, output=[5])
    name = "who issues how much: both hold 2 of 6 pages, both full, and may need 4"
    check_equal(lens_in(state, 20), [1, 0], name=name)


def test_task_3_a_decode_in_front_costs_nothing_behind(lab):
    """Decodes are served before prompts; their places in line are still those of arrival."""
    state = state_of(lab, slots=3, pages=9)
    seat(lab, state, prompt_of(12), 4, issued=3)  # first in line: holds 1, needs up to 5
    seat(lab, state, prompt_of(6), 9, issued=6, output=[5])  # a decode: holds 2 full ones, needs up to 5
    seat(lab, state, prompt_of(9), 3)
    name = "who issues how much: 6 free; the decode takes one, the first prompt three"
    check_equal(lens_in(state, 40), [9, 1, 3], name=name)


def test_task_3_whoever_is_complete_issues_nothing_and_keeps_its_place(lab):
    state = state_of(lab, slots=3, pages=8)
    seat(lab, state, prompt_of(9), 3, issued=11, output=[5, 6, 7])
    seat(lab, state, prompt_of(6), 9, issued=6, output=[5])
    seat(lab, state, prompt_of(5), 3)
    lens = lens_in(state, 9)
    check_equal(lens[:2], [0, 1], name="who issues how much: the first is complete, and not released yet")


def token_after(ids: Any, seed: int) -> int:
    return (fingerprints(ids)[-1] + seed) % V


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(1, 14),
        st.integers(1, 9),
        st.sampled_from([(), (1, 7), tuple(range(0, V, 3))]),
    ),
    min_size=1,
    max_size=8,
)
POOLS = st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(0, 6))


def total_of(pool: tuple[int, int], limit: int) -> int:
    """Pages enough for the longest request there can be, and some more."""
    P, extra = pool
    return pages_needed(limit - 1, P) + extra


@QUICK
@given(
    wanted=ARRIVALS, pool=POOLS, slots=st.integers(1, 4), capacity=st.integers(1, 9), seed=st.integers(0, 9)
)
def test_task_3_any_arrivals_any_pool_any_capacity_and_everybody_ends(wanted, pool, slots, capacity, seed):
    """A dry run: pages are real, tokens are made up. Each step is compared with tokens dealt out one by one."""
    lab, limit = door.active(), 16
    state = state_of(lab, slots=slots, pages=total_of(pool, limit), P=pool[0], limit=limit)
    later = [
        (gap, new_request(lab, prompt_of(n, seed=i), count, ends))
        for i, (gap, n, count, ends) in enumerate(wanted)
    ]
    requests = [request for _, request in later]
    bound = sum(gap + len(each.prompt_ids) + each.max_tokens for gap, each in later) + 1
    clock = 0
    while later or state.line:
        assert clock < bound, f"{bound} steps, and somebody has not ended"
        while later and state.idle and later[0][0] <= clock:
            state.push(later.pop(0)[1])
        if state.line:
            dry_step(state, capacity, lambda ids: token_after(ids, seed), f"step {clock}")
            state.release(state.completed_mask())
        elif later:
            later[0] = (clock, later[0][1])
        clock += 1
    unfinished = [n for n, each in enumerate(requests) if not each.finished(limit)]
    check_equal(unfinished, [], name="the requests that are not complete at the end")
    check_idle(state, when="at the end")


# Task 4: a mixed step


def test_task_4_the_next_tokens_of_each_in_one_row(lab):
    state = state_of(lab, slots=4, pages=60)
    seat(lab, state, [10, 11, 12, 13, 14], 4, issued=2)
    seat(lab, state, [20, 21], 4, issued=2, output=[22])
    seat(lab, state, [7, 8, 9], 4)
    before = books(state)
    cases = {
        (3, 1, 3, 0): [12, 13, 14, 22, 7, 8, 9],
        (1, 1, 2, 0): [12, 22, 7, 8],
        (2, 0, 1, 0): [12, 13, 7],
        (0, 1, 0, 0): [22],
        (0, 0, 0, 0): [],
    }
    for lens, expected in cases.items():
        name = f"the next {list(lens)} tokens of 10 … 14 (2 issued), of 20 21 22 (2 issued) and of 7 8 9"
        check_equal(state.ragged_issue_tokens(list(lens)), expected, name=name)
    check_equal(books(state), before, name="what is known after `ragged_issue_tokens`")


def test_task_4_advance_moves_each_by_what_it_issued(lab):
    state = state_of(lab, slots=4, pages=60)
    for n in (5, 2, 7):
        seat(lab, state, prompt_of(n), 4, issued=n - 2)
    tokens = [list(each) for each in state.tokens]
    lens = [2, 0, 1, 0]
    state.advance(lens)
    check_equal(state.position, [5, 0, 6, 0], name="the positions 3, 0, 5 and 0 after [2, 0, 1, 0] tokens")
    state.advance([0, 1, 1, 0])
    check_equal(state.position, [5, 1, 7, 0], name="the positions after [0, 1, 1, 0] more")
    check_equal(lens, [2, 0, 1, 0], name="the list given to `advance`")
    check_equal(state.tokens, tokens, name="the tokens after `advance`")


def test_task_4_a_request_chooses_for_itself(lab):
    given_to = []

    def sample(logits: Any, ids: Any) -> int:
        given_to.append((lab.numpy(logits), list(ids)))
        return 4

    state = state_of(lab, slots=3)
    seat(lab, state, prompt_of(5), 4, issued=5)
    chooser = seat(lab, state, prompt_of(3), 4, issued=4, output=[8], sample=sample)
    scores = scores_after(77)
    state.accept(1, lab.array(scores))
    check_equal(chooser.output, [8, 4], name="the output of the request in slot 1")
    check_equal(state.tokens[1], [*prompt_of(3), 8, 4], name="the tokens of slot 1: the new one is due next")
    check_equal(given_to[0][1], [*prompt_of(3), 8], name="the ids given to its sampler")
    check(given_to[0][0], scores, name="the logits given to its sampler", axes="V", framework="numpy")
    state.accept(0, lab.array(scores))
    check_equal(
        state.tokens[0], [*prompt_of(5), best(scores, [])], name="the tokens of slot 0, which is greedy"
    )
    check_equal(state.position, [5, 4, 0], name="the positions: an accepted token is not issued yet")


def mixed(lab: Any, model: Any, state: Any, capacity: int) -> list[int]:
    return lab.ragged.batch.mixed_step(model, state, capacity)


def push_all(lab: Any, state: Any, pairs: Any) -> list[Any]:
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in pairs]
    for request in requests:
        state.push(request)
    return requests


def test_task_4_whoever_has_nothing_due_after_the_step_gets_a_token(lab):
    model = MixedModel(lab)
    state = state_of(lab, model, slots=3)
    requests = push_all(lab, state, ((5, 3), (9, 3), (1, 3)))
    wanted = wanted_of(requests)
    steps = [
        ([5, 2, 0], [1, 0, 0]),
        ([1, 6, 0], [2, 0, 0]),
        ([1, 1, 1], [3, 1, 1]),
        ([0, 1, 1], [3, 2, 2]),
        ([0, 1, 1], [3, 3, 3]),
        ([0, 0, 0], [3, 3, 3]),
    ]
    for number, (lens, produced) in enumerate(steps):
        actual = mixed(lab, model, state, 7)
        check_equal(actual, lens, name=f"what `mixed_step` returns of step {number}, room for 7")
        expected = [output[:count] for output, count in zip(wanted, produced, strict=True)]
        name = f"the outputs after step {number}; who has tokens left to issue gets none"
        check_equal([each.output for each in requests], expected, name=name)
        state.pages.check()
    check_equal(model.head_rows, [1, 1, 3, 2, 2], name="rows of each call of `model.logits`: one a sample")
    check_equal(state.position, [7, 11, 3], name="the positions at the end: all but the last token")


def test_task_4_each_slot_samples_from_its_own_row(lab):
    """Slot 0 came last: at first it takes no part, then all do; nowhere do rows or slots run out."""
    model = MixedModel(lab)
    state = state_of(lab, model, slots=3)
    requests = push_all(lab, state, ((3, 3), (4, 6), (12, 3)))
    mixed(lab, model, state, 9)
    state.release([True, False, False])
    requests = [*push_all(lab, state, ((6, 4),)), *requests[1:]]
    wanted = wanted_of(requests)
    name = "the outputs in slots 0, 1, 2 after a step of [0, 1, 3] tokens: row 0 of `forward` is slot 1's"
    check_equal(mixed(lab, model, state, 4), [0, 1, 3], name="what a step with room for 4 issued")
    check_equal([each.output for each in requests], [[], wanted[1][:2], []], name=name)
    name = (
        "the outputs in slots 0, 1, 2 after a step of [6, 1, 7] tokens: rows come by slots, not by the line"
    )
    check_equal(mixed(lab, model, state, 99), [6, 1, 7], name="what a step with room for 99 issued")
    expected = [wanted[0][:1], wanted[1][:3], wanted[2][:1]]
    check_equal([each.output for each in requests], expected, name=name)


def test_task_4_rows_are_not_slots(lab):
    """The model's rows are those that take part; here slots 0 and 2 don't."""
    model = MixedModel(lab)
    state = state_of(lab, model, slots=5)
    requests = push_all(lab, state, ((5, 3), (4, 6), (3, 1), (6, 4), (2, 5)))
    mixed(lab, model, state, 99)
    state.release([True, False, False, False, False])
    for _ in range(3):
        mixed(lab, model, state, 99)
    wanted = wanted_of(requests)
    expected = [wanted[0][:1], wanted[1][:4], wanted[2], wanted[3], wanted[4][:4]]
    check_equal([each.output for each in requests], expected, name="the outputs; one left, one was complete")


def test_task_4_the_head_does_not_run_where_nobody_samples(lab):
    model = MixedModel(lab)
    state = state_of(lab, model, slots=2)
    push_all(lab, state, ((9, 2), (4, 2)))
    check_equal(mixed(lab, model, state, 4), [4, 0], name="the first step: 4 of 9 tokens")
    check_equal(model.head_rows, [], name="rows of each call of `model.logits` after it")


def test_task_4_nothing_due_and_the_model_does_not_run(lab):
    model = MixedModel(lab)
    state = state_of(lab, model)
    check_equal(mixed(lab, model, state, 4), [0, 0, 0], name="what a step of idle slots returns")
    push_all(lab, state, ((4, 1),))
    mixed(lab, model, state, 4)
    check_equal(mixed(lab, model, state, 4), [0, 0, 0], name="what a step returns where all are complete")
    check_equal((len(model.runs), model.head_rows), (1, [1]), name="runs of the model, and rows of its head")


@pytest.mark.parametrize("capacity", [0, -3])
def test_task_4_a_step_without_room_is_refused(lab, capacity):
    model = MixedModel(lab)
    state = state_of(lab, model)
    push_all(lab, state, ((4, 1),))
    check_raises(ValueError, lambda: mixed(lab, model, state, capacity), name=f"a capacity of {capacity}")


@pytest.mark.parametrize("call", [0, 1, 3])
def test_task_4_a_step_that_failed_may_be_tried_again(lab, call):
    model = MixedModel(lab)
    state = state_of(lab, model, slots=2)
    requests = push_all(lab, state, ((9, 3), (4, 4)))
    model.fails_at = call
    for _ in range(call):
        mixed(lab, model, state, 5)
    issued, tokens = list(state.position), [list(each) for each in state.tokens]
    check_raises(
        KeyError, lambda: mixed(lab, model, state, 5), name=f"a step whose model fails in run {call}"
    )
    check_equal(state.position, issued, name="the positions after the step that failed")
    check_equal(state.tokens, tokens, name="the tokens after the step that failed")
    state.pages.check()
    for _ in range(9):
        mixed(lab, model, state, 5)
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs in the end")


def test_task_4_a_step_that_failed_may_be_tried_again_with_less_room(lab):
    model = MixedModel(lab)
    state = state_of(lab, model, slots=2, pages=6)
    requests = push_all(lab, state, ((12, 3), (4, 2)))
    model.fails_at = 0
    check_raises(KeyError, lambda: mixed(lab, model, state, 12), name="a step whose model fails")
    check_equal(
        held_by(state), [4, 0], name="the pages held after it: `forward` leaves them with their slots"
    )
    check_equal(mixed(lab, model, state, 4), [4, 0], name="what a step with room for 4 issues then")
    for _ in range(9):
        mixed(lab, model, state, 4)
        state.release(state.completed_mask())
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs in the end")


@QUICK
@given(wanted=ARRIVALS, pool=POOLS, slots=st.integers(1, 4), capacity=st.integers(1, 9))
def test_task_4_whoever_comes_when_each_is_as_if_alone(wanted, pool, slots, capacity):
    """Requests are pushed between steps, into whatever goes on there."""
    lab, limit = door.active(), 16
    model = MixedModel(lab, max_positions=limit)
    state = state_of(lab, model, slots=slots, pages=total_of(pool, limit), P=pool[0], limit=limit)
    waiting = [
        new_request(lab, prompt_of(n, seed=i), count, ends) for i, (_, n, count, ends) in enumerate(wanted)
    ]
    requests, gaps = list(waiting), [gap for gap, *_ in wanted]
    bound = sum(gap + n + count for gap, n, count, _ in wanted) + len(wanted) + 1
    rounds = 0
    while waiting or state.line:
        assert rounds < bound, f"{bound} steps, and somebody has not ended"
        rounds += 1
        if waiting and state.idle and gaps[0] == 0:
            gaps.pop(0)
            state.push(waiting.pop(0))
        elif waiting and state.idle:
            gaps[0] -= 1
        planned = state.issue_lens(capacity)
        lens = mixed(lab, model, state, capacity)
        check_equal(lens, planned, name="what a step has issued, against what `issue_lens` said before it")
        assert any(lens) or not state.line, "requests are there, and nobody issued a token"
        state.pages.check()
        state.release(state.completed_mask())
    for request, output in zip(requests, wanted_of(requests, limit), strict=True):
        name = f"the output of a prompt of {len(request.prompt_ids)}, {slots} slots, room for {capacity}"
        check_equal(request.output, output, name=name)
    check_idle(state, when="at the end")


# Task 5: ragged batching


def batch_of(lab: Any, limit: int = 64, **options: Any) -> tuple[Any, Any]:
    model = MixedModel(lab, max_positions=limit)
    return model, state_of(lab, model, limit=limit, **options)


@sizes_of_pages
@pytest.mark.parametrize(("slots", "capacity"), [(1, 4), (3, 1), (3, 7), (12, 128)])
def test_task_5_every_request_gets_what_it_gets_alone(lab, slots, capacity, P):
    model, state = batch_of(lab, slots=slots, pages=90, P=P)
    requests = many(lab)
    outputs = run_all(lab, model, state, requests, capacity)
    for number, (output, wanted) in enumerate(zip(outputs, wanted_of(requests), strict=True)):
        name = f"the output of request {number} of 9, {slots} slots, room for {capacity}"
        check_equal(output, wanted, name=name)
    check_equal([each.output for each in requests], outputs, name="the outputs that the requests hold")


def test_task_5_whoever_ends_makes_room_in_the_next_step(lab):
    requests = [new_request(lab, prompt_of(1, seed=n), 2 if n else 9) for n in range(5)]
    model, state = batch_of(lab, slots=2)
    watch = Watch(state, requests, 8)
    run_all(lab, model, state, requests, 8, watch)
    together = [sorted(step) for step in watch.steps]
    expected = [[0, 1], [0, 1], [0, 2], [0, 2], [0, 3], [0, 3], [0, 4], [0, 4], [0]]
    check_equal(together, expected, name="who took part, step by step, with two slots")


def test_task_5_several_prompts_in_one_step(lab):
    requests = [new_request(lab, prompt_of(n, seed=n), 2) for n in (5, 3, 9, 2)]
    model, state = batch_of(lab, slots=4)
    watch = Watch(state, requests, 10)
    run_all(lab, model, state, requests, 10, watch)
    expected = [{0: 5, 1: 3, 2: 2}, {0: 1, 1: 1, 2: 7, 3: 1}, {2: 1, 3: 1}, {3: 1}]
    check_equal(watch.steps, expected, name="who issued how much, step by step, with room for 10")
    check_equal(len(model.runs), 4, name="runs of the model: one a step")


def test_task_5_requests_come_in_in_the_order_given(lab):
    requests = [new_request(lab, prompt_of(9 - n), 1 + n % 3) for n in range(7)]
    model, state = batch_of(lab, slots=2)
    watch = Watch(state, requests, 6)
    run_all(lab, model, state, requests, 6, watch)
    first = {number: n for n, step in reversed(list(enumerate(watch.steps))) for number in step}
    begun = sorted(first, key=lambda number: (first[number], number))
    check_equal(
        begun, list(range(7)), name="the requests in the order in which they issued their first token"
    )


def test_task_5_on_few_pages_everybody_ends(lab):
    """Each may need all the pages there are but one, and all slots want them at once."""
    requests = [new_request(lab, prompt_of(5, seed=n), 8) for n in range(6)]
    model, state = batch_of(lab, slots=4, pages=5)
    watch = Watch(state, requests, 8)
    check_equal(run_all(lab, model, state, requests, 8, watch), wanted_of(requests), name="the outputs")
    assert max(map(len, watch.steps)) > 1, (
        "with 5 pages, and up to 4 for each request, two can run for a while: pages are taken when they are needed"
    )


def test_task_5_the_onlooker_sees_who_has_finished_in_the_step(lab):
    requests = [new_request(lab, prompt_of(n), count) for n, count in ((3, 2), (2, 1), (4, 1))]
    model, state = batch_of(lab, slots=2)
    names = {None: "-", **dict(zip(requests, "abc", strict=True))}
    seen = []

    def observe(slots: Any, lens: Any) -> None:
        seen.append(("".join(names[each] for each in slots), list(lens)))

    lab.ragged.batch.batch_generate_ragged(model, state, requests, 9, observe)
    expected = [("ab", [3, 2]), ("ac", [1, 4])]
    check_equal(seen, expected, name="the slots and the lens that each step was observed with")


def test_task_5_samplers_and_end_tokens_belong_to_one_request(lab):
    def sampler(seed: int) -> Any:
        return lab.sampler.Sampler(lab.sampler.SamplingParams(temperature=3.0, seed=seed))

    def drawn(draw: Any, scores: np.ndarray, ids: list[int]) -> int:
        return draw(lab.array(scores), ids)

    prompts = [prompt_of(n) for n in (5, 9, 2, 6)]
    ends = [alone(prompts[0], 6)[3:4], (), (), (1, 2, 3, 4, 5, 6, 7, 8)]
    requests, expected = [], []
    for prompt, end_ids, seed in zip(prompts, ends, (0, 3, 4, 0), strict=True):
        options = {"sample": sampler(seed)} if seed else {}
        requests.append(new_request(lab, prompt, 7, end_ids, **options))
        choose = partial(drawn, sampler(seed)) if seed else best
        expected.append(alone(prompt, 7, end_ids, choose=choose))
    model, state = batch_of(lab, slots=4)
    check_equal(run_all(lab, model, state, requests), expected, name="the outputs")


def test_task_5_prompt_and_output_may_use_every_position(lab):
    model, state = batch_of(lab, limit=16)
    requests = [new_request(lab, prompt_of(n, seed=n), 100) for n in (15, 9, 3)]
    outputs = run_all(lab, model, state, requests)
    check_equal([len(output) for output in outputs], [1, 7, 13], name="tokens produced, with 16 positions")
    check_equal(outputs, wanted_of(requests, 16), name="the outputs")


def test_task_5_nothing_to_do(lab):
    model, state = batch_of(lab)
    check_equal(run_all(lab, model, state, []), [], name="the outputs of no requests")
    requests = [new_request(lab, [1], 0), new_request(lab, [1, 2], 1)]
    expected = wanted_of(requests)
    check_equal(run_all(lab, model, state, requests[:1]), [[]], name="the output for max_tokens 0")
    check_equal(model.runs, [], name="runs of the model, with no token to produce")
    check_equal(run_all(lab, model, state, requests), expected, name="the outputs for max_tokens 0 and 1")


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("length", [0, 10, 12, 40])
def test_task_5_a_request_that_can_never_run_is_refused_and_the_others_go_on(lab, length, place):
    model, state = batch_of(lab, limit=12, pages=3)
    requests = [new_request(lab, prompt_of(n), 3) for n in (5, 7, 1, 3)]
    requests.insert(place, new_request(lab, prompt_of(length), 3))
    errors: list[Any] = []
    watch = Watch(state, requests, 6)

    def observe(slots: Any, lens: Any) -> None:
        errors.append(requests[place].error)
        watch(slots, lens)

    outputs = run_all(lab, model, state, requests, 6, observe)
    expected = wanted_of(requests, 12)
    expected[place] = []
    check_equal(outputs, expected, name="the outputs, [] for the request that was refused")
    assert isinstance(errors[0], str), (
        f"a prompt of {length} with 12 positions and 3 pages of 3: its error should be set before anything runs"
    )
    others = [each.error for n, each in enumerate(requests) if n != place]
    check_equal(others, [None] * 4, name="the errors of the others")


def test_task_5_errors_are_set_anew(lab):
    model, state = batch_of(lab, limit=12)
    requests = [new_request(lab, prompt_of(n), 3) for n in (5, 12, 4)]
    for request in requests:
        request.error = "from an earlier run"
    outputs = run_all(lab, model, state, requests, 6)
    check_equal(outputs, [*wanted_of(requests[:1]), [], *wanted_of(requests[2:])], name="the outputs")
    check_equal([each.error is None for each in requests], [True, False, True], name="whose error is None")
    check_equal(
        requests[1].error, state.refusal(requests[1]), name="the error of the one with 12 tokens of 12"
    )


@pytest.mark.parametrize("call", [0, 3, 6])
@pytest.mark.parametrize("who", ["model", "sample", "observe"])
def test_task_5_slots_and_pages_go_back_after_an_error(lab, who, call):
    model, state = batch_of(lab)
    requests, steps, samples = many(lab), list[int](), list[int]()

    def sample(logits: Any, ids: Any) -> int:
        samples.append(len(ids))
        if who == "sample" and len(samples) == call + 1:
            raise KeyError("sample failed, as the test wanted it to")
        return int(np.argmax(lab.numpy(logits)))

    def observe(slots: Any, lens: Any) -> None:
        steps.append(sum(lens))
        if who == "observe" and len(steps) == call + 1:
            raise KeyError("the onlooker failed, as the test wanted it to")

    for request in requests:
        request.sample = sample
    model.fails_at = call if who == "model" else None
    run = partial(lab.ragged.batch.batch_generate_ragged, model, state, requests, 7, observe)
    check_raises(KeyError, run, name=f"a batch whose {who} fails at call {call}")
    check_idle(state, when=f"after the {who} failed at call {call}")


def test_task_5_room_for_128_tokens_unless_told(lab):
    model, state = batch_of(lab, limit=200, pages=100)
    request = new_request(lab, prompt_of(150), 2)
    outputs = lab.ragged.batch.batch_generate_ragged(model, state, [request])
    check_equal(outputs, wanted_of([request]), name="the outputs")
    counts = [sum(count for count, _ in run) for run in model.runs]
    check_equal(counts, [128, 22, 1], name="tokens of each run for a prompt of 150 and 2 tokens of output")


def test_task_5_capacities_below_1_are_refused(lab):
    model, state = batch_of(lab)
    call = partial(lab.ragged.batch.batch_generate_ragged, model, state, many(lab), 0)
    check_raises(ValueError, call, name="a capacity of 0")
    check_idle(state, when="after the refusal")


STOPS = st.lists(st.integers(0, V - 1), max_size=6)
REQUESTS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 9), STOPS), max_size=8)


@QUICK
@given(
    wanted=REQUESTS,
    P=st.sampled_from([1, 2, 3, 16]),
    pages=st.integers(1, 14),
    slots=st.integers(1, 4),
    capacity=st.integers(1, 9),
)
def test_task_5_whoever_comes_and_goes_each_is_as_if_alone(wanted, P, pages, slots, capacity):
    lab, limit = door.active(), 13
    model = MixedModel(lab, max_positions=limit)
    state = state_of(lab, model, slots=slots, pages=pages, P=P, limit=limit)
    requests = [
        new_request(lab, prompt_of(length, seed=n), count, ends)
        for n, (length, count, ends) in enumerate(wanted)
    ]
    outputs = run_all(lab, model, state, requests, capacity)
    for request, output in zip(requests, outputs, strict=True):
        length, most = len(request.prompt_ids), request.max_tokens
        runs = fits(request, limit, pages, P)
        name = f"a prompt of {length}, {most} tokens of output, {pages} pages of {P}, {limit} positions"
        check_equal(request.error is None, runs, name=f"whether {name} are accepted")
        expected = alone(request.prompt_ids, most, request.end_ids, limit) if runs else []
        check_equal(output, expected, name=f"the output of {name}")
    computed = sum(count for run in model.runs for count, _ in run)
    due = sum(len(r.prompt_ids) + len(r.output) - 1 for r in requests if r.output)
    check_equal(computed, due, name="tokens computed in all, each once, and no last one")


@sizes_of_pages
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_5_the_model_of_week_1_says_the_same_as_with_its_own_caches(lab, family, P):
    model = real_model(lab, family)
    pool = lab.paged.pool.KvPool(model.config, 31, P, device=lab.device)
    spoil(pool)
    decode_state = lab.ragged.decode_state.DecodeState(pool, 3, 30)
    state = bounded_state(lab, decode_state, model.config.max_positions)
    lengths = ((5, 9), (13, 7), (1, 4), (4, 1), (7, 5))
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in lengths]
    expected = [list(lab.generate.generate(model, r.prompt_ids, r.max_tokens)) for r in requests]
    outputs = run_all(lab, model, state, requests, 6)
    check_equal(
        outputs, expected, name="the outputs of five requests in three slots, against Day 2.1's `generate`"
    )
