"""Day 3.5: the pages of a batch's seats, the table that lists them, and which of the free pages may be taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import lab as door
from coursekit.check import check_equal, check_raises

from .bankers import all_can_end, banker_of, limits_of, most_for, take, with_more
from .broken_tables import BROKEN, BROKEN_PAGES, HELD, SOUND, check_accepted, sound
from .decode_states import (
    Account,
    by_seat,
    check_free,
    check_rows,
    check_says,
    check_unchanged,
    interrupted,
    lengths_of,
    pages_of,
    refused,
    state_of,
    tables,
)
from .pages import PAGE_SIZES, pages_needed

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"pages of {P}")


# Task 1: pages for a step


@sizes_of_pages
def test_task_1_a_seat_takes_a_page_only_when_its_pages_are_full(lab, P):
    account = Account(lab, num_pages=40, P=P, seats=3, most=9)
    for new in (1, P - 1, 1, 2 * P - 1, 2 * P + 1, P, 1, 1):
        q_lens = [0, new, 0]
        assert account.allocate(q_lens), f"allocate({q_lens}) with 40 pages"
        account.advance(q_lens)


def test_task_1_all_seats_get_what_they_lack_at_once(lab):
    """Past and new tokens on pages of 3: 4 + 2 fill two pages, 3 + 1 need a second, 0 + 7 need three."""
    account = Account(lab, num_pages=12, P=3, seats=4, most=5)
    account.allocate([4, 3, 0, 5])
    account.advance([4, 3, 0, 5])
    account.allocate([2, 1, 7, 0])
    check_equal([len(pages) for pages in account.held], [2, 2, 3, 2], name="how many pages each seat holds")
    check_equal(account.state.held, [2, 2, 3, 2], name="`held`")


def test_task_1_pages_go_out_seat_by_seat_and_stand_behind_those_held(lab):
    """The allocator's next pages are 1, 2, 3, …; seat 2 holds two already, and its last one is full."""
    state = state_of(lab, num_pages=12, held={2: ([9, 7], 6)})
    state.allocate([4, 0, 1, 7])
    wanted = {0: [1, 2], 1: [], 2: [9, 7, 3], 3: [4, 5, 6]}
    check_equal(by_seat(pages_of(state)), wanted, name="the pages of each seat after allocate([4, 0, 1, 7])")
    check_rows(state, "after allocate([4, 0, 1, 7])")


def test_task_1_too_few_pages_are_refused_and_no_seat_gets_any(lab):
    state = state_of(lab, num_pages=11, held={0: ([4, 7], 6), 2: ([8, 3, 6], 9)})  # 5 of 10 are free
    name = "allocate([1, 6, 4, 4]) with 5 pages free, where 1 + 2 + 2 + 2 are lacking"
    kind = lab.paged.allocator.OutOfPages
    error = refused(state, kind, lambda: state.allocate([1, 6, 4, 4]), name=name)
    for number, what in ((7, "pages are wanted"), (5, "pages are free")):
        check_says(error, number, f"that {number} {what}")
    state.allocate([1, 6, 4, 0])
    check_free(state, [], when="after allocate([1, 6, 4, 0]), which takes the last five")


def test_task_1_pages_that_a_seat_holds_already_are_not_lacking(lab):
    """Steps have failed: the pages stay with their seats, and seat 1 may hold more than it needs next."""
    account = Account(lab, num_pages=6, P=3, seats=3, most=5)
    for q_lens in ([1, 10, 0], [1, 10, 0], [1, 3, 0], [4, 2, 0]):  # 1 + 4 of 5; the same; less; one too many
        account.allocate(q_lens)
    account.advance([1, 2, 0])
    account.allocate([0, 10, 0])
    check_equal([len(pages) for pages in account.held], [1, 4, 0], name="how many pages each seat holds")


def test_task_1_a_seat_that_holds_more_than_it_needs_lends_none(lab):
    """Seat 0 needs one of its three pages now. Seat 1 lacks two, and one is free: what seat 0 holds is not free."""
    state = state_of(lab, num_pages=5, held={0: ([4, 1, 3], 1)})
    kind = lab.paged.allocator.OutOfPages
    name = "allocate([1, 4, 0, 0]), where seat 1 lacks 2 pages, one is free, and seat 0 holds 2 to spare"
    refused(state, kind, lambda: state.allocate([1, 4, 0, 0]), name=name)


def test_task_1_new_pages_stand_behind_those_that_a_failed_step_left(lab):
    """The first step took page 1 and failed, so no token is in it. The next one, of 7 tokens, needs two pages."""
    state = state_of(lab, num_pages=6, P=4)
    state.allocate([3, 0, 0, 0])
    state.allocate([7, 0, 0, 0])
    row = lab.numpy(state.page_indices)[0].tolist()
    check_equal(
        state.sequences[0].pages, [1, 2], name="the pages of seat 0, which held one page without a token"
    )
    check_equal(
        row[:3], [1, 2, 0], name="its row: a new page stands behind the pages held, whatever the length"
    )


@pytest.mark.parametrize("q_lens", [[9, 0, 0, -1], [9, 0, 0, 99]], ids=["negative", "too many"])
def test_task_1_what_can_never_be_is_refused_however_few_pages_are_free(lab, q_lens):
    state = state_of(lab, num_pages=3, P=4)
    name = (
        f"allocate({q_lens}), where seat 0 lacks more pages than are free, and seat 3 asks for what can't be"
    )
    check_raises(ValueError, lambda: state.allocate(q_lens), name=name)


def test_task_1_a_step_writes_only_the_entries_of_new_pages(lab):
    """The table is made once. A number that was planted where nothing is due is still there afterwards."""
    state = state_of(lab, num_pages=12, held={1: ([9, 7], 6)}, P=4)
    table = state.page_indices
    table[1, 0] = 11
    state.allocate([5, 0, 0, 0])
    assert state.page_indices is table, (
        "`allocate` made a new table: it fills in entries of the one that there is"
    )
    check_equal(
        int(table[1, 0]), 11, name="an entry of seat 1, which took no page, planted before `allocate`"
    )


def test_task_1_a_step_without_tokens_takes_no_page(lab):
    """All pages are held, one of them for a step that failed; one seat's pages are full."""
    state = state_of(lab, num_pages=5, held={0: ([4, 1], 6), 1: ([3], 0), 3: ([2], 1)})
    before = tables(state)
    for q_lens in ([0, 0, 0, 0], [0, 3, 0, 2]):
        state.allocate(q_lens)
        check_unchanged(state, before, f"after allocate({q_lens}): each seat has room for its tokens")


@pytest.mark.parametrize("others", [{}, {2: ([1, 2, 3], 9), 3: ([4, 5], 6)}], ids=["6 are free", "1 is free"])
def test_task_1_more_pages_than_a_seat_may_hold_can_never_be(lab, others):
    """Three pages of 3 at most: whatever is free, this step will never have its pages."""
    state = state_of(lab, num_pages=8, most=3, held={1: ([7], 2)} | others)
    name = "allocate([0, 8, 0, 0]): 8 tokens to the 2 in seat 1, where a seat may hold 3 pages of 3"
    error = refused(state, ValueError, lambda: state.allocate([0, 8, 0, 0]), name=name)
    check_says(error, 1, "that it is seat 1")


def test_task_1_a_seat_may_fill_all_the_pages_that_it_may_hold(lab):
    state = state_of(lab, most=3, held={1: ([7], 2)})
    state.allocate([0, 7, 0, 0])
    check_equal(state.held, [0, 3, 0, 0], name="the pages held, where 3 pages of 3 tokens are the most")
    check_rows(state, "when the row of seat 1 is full")


@pytest.mark.parametrize(
    "q_lens", [[], [1], [1, 2, 3], [1, 2, 3, 0, 0], [1, -1, 2, 1], [0, 0, 0, -1]], ids=str
)
def test_task_1_anything_but_a_number_for_each_seat_is_refused(lab, q_lens):
    state = state_of(lab, held={0: ([4, 7], 4), 3: ([2], 3)})
    refused(
        state, ValueError, lambda: state.allocate(q_lens), name=f"allocate({q_lens}) in a batch of 4 seats"
    )


def test_task_1_every_page_but_the_null_page_is_handed_out_once(lab):
    account = Account(lab, num_pages=9, P=3, seats=4, most=5)
    account.allocate([6, 3, 8, 5])
    check_equal(account.free, [], name="the pages left of 8, when 2 + 1 + 3 + 2 are held")


def test_task_1_the_pages_of_another_user_are_not_there_to_be_taken(lab):
    account = Account(lab, num_pages=9, P=3, seats=3, most=5)
    account.others_take(4)
    for q_lens in ([7, 3, 6], [7, 3, 0]):  # 6 pages; then all 4 that are left
        account.allocate(q_lens)
    account.others_give_back()
    account.allocate([7, 3, 6])


def test_task_1_a_page_that_was_freed_last_goes_out_first(lab):
    """Pages of another user of the same allocator, freed one by one."""
    state = state_of(lab)
    state.allocator.allocate(7)
    for page in (6, 2, 5):
        state.allocator.free([page])
    state.allocate([0, 0, 9, 0])
    check_equal(pages_of(state)[2], [5, 2, 6], name="the pages of seat 2, after 6, 2 and 5 were freed")


def test_task_1_the_numbers_that_it_was_given_stay_as_they_are(lab):
    state, q_lens = state_of(lab), [4, 0, 1, 7]
    state.allocate(q_lens)
    check_equal(q_lens, [4, 0, 1, 7], name="the list that `allocate` was given, afterwards")
    check_equal(lengths_of(state), [0] * 4, name="the lengths after `allocate`: the model has not run yet")


@st.composite
def works(draw: Any, kinds: tuple[str, ...] = ("step", "fail")) -> dict[str, Any]:
    """A small state, and what happens to it; a pool that others use, too."""
    seats, P = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 5]))
    counts = st.lists(st.sampled_from([0, 0, 1, 1, 2, P, P + 1, 3 * P]), min_size=seats, max_size=seats)
    events = st.one_of(
        st.tuples(st.sampled_from(kinds), counts), st.tuples(st.just("others"), st.integers(0, 3))
    )
    return {
        "seats": seats,
        "P": P,
        "num_pages": draw(st.integers(2, 12)),
        "most": draw(st.integers(1, 5)),
        "events": draw(st.lists(events, max_size=12)),
    }


def worked(work: dict[str, Any], after: Any = lambda state: None) -> Account:
    """An account of all that happens; `after` is called with the state each time."""
    account = Account(door.active(), work["num_pages"], work["P"], work["seats"], work["most"])
    for what, arguments in work["events"]:
        if what == "release":
            account.release([bool(count) for count in arguments])
        elif what == "others" and arguments:
            account.others_take(arguments)
        elif what == "others":
            account.others_give_back()
        elif account.allocate(arguments) and what == "step":
            account.advance(arguments)
        after(account.state)
    return account


@QUICK
@given(work=works())
def test_task_1_whatever_happens_no_page_is_given_twice_and_the_table_follows(work):
    worked(work)


# Task 2: back, and the books


@pytest.mark.parametrize(
    "mask", [(1, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 0), (1, 1, 1, 1), (0, 0, 0, 0)], ids=str
)
def test_task_2_released_seats_are_empty_and_the_others_as_before(lab, mask):
    """Seat 1 is empty already; seat 3 has a page and no token: its step failed."""
    state, marks = state_of(lab, num_pages=12, held=HELD), [bool(marked) for marked in mask]
    state.release(marks)
    when = f"after release({marks})"
    check_equal(marks, [bool(marked) for marked in mask], name=f"the mask itself {when}")
    wanted = tables(state_of(lab, num_pages=12, held={seat: HELD[seat] for seat in HELD if not mask[seat]}))
    found = tables(state)
    check_free(state, sorted(wanted["the free pages"]), when=when)
    for part in wanted:
        if part != "the free pages":
            check_equal(by_seat(found[part]), by_seat(wanted[part]), name=f"{part} {when}")


def test_task_2_a_seat_may_be_released_twice(lab):
    state = state_of(lab, num_pages=12, held=HELD)
    state.release([True, False, True, False])
    before = tables(state)
    state.release([True, True, True, False])
    check_unchanged(state, before, "after a second release of seats that are empty")


@pytest.mark.parametrize(
    "mask", [[], [True], [True] * 5, [False] * 3, [False] * 5, [True] + [False] * 4], ids=str
)
def test_task_2_anything_but_a_mark_for_each_seat_is_refused(lab, mask):
    state = state_of(lab, held={0: ([4, 7], 4)})
    refused(state, ValueError, lambda: state.release(mask), name=f"release({mask}) in a batch of 4 seats")


def test_task_2_a_page_that_is_shared_stays_in_use(lab):
    """Seats 0 and 1 share page 4, and another user holds page 7 as well: each gives up its own reference alone."""
    state = state_of(lab, held={0: ([4, 7], 5), 1: ([4, 2], 4)})
    state.allocator.share([7])
    state.release([True, False, False, False])
    wanted = {4: 1, 7: 1, 2: 1}
    found = {page: state.allocator.references[page] for page in wanted}
    check_equal(found, wanted, name="the references of pages 4, 7 and 2 after seat 0 was released")
    check_equal(pages_of(state)[1], [4, 2], name="the pages of seat 1, which shared page 4 with seat 0")
    check_free(state, [1, 3, 5, 6, 8], when="after seat 0 was released")


def test_task_2_a_released_seat_begins_anew(lab):
    """It had five pages; its next request has one token. The row must not list any of the old pages."""
    account = Account(lab, num_pages=9, P=3, seats=2, most=5)
    account.allocate([13, 1])
    account.advance([13, 1])
    account.release([True, False])
    account.allocate([1, 1])
    account.allocate([15, 0])


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_task_2_after_ctrl_c_a_release_gives_everything_back(lab, calls):
    """Ctrl-C comes while pages are handed out, in one call of the allocator or in several."""
    state = lab.ragged.decode_state.DecodeState(interrupted(lab, 9, calls), 3, 3, 5)
    for q_lens in ([4, 1, 2], [3, 3, 0], [1, 0, 1]):
        try:
            state.allocate(q_lens)
        except KeyboardInterrupt:
            break
    else:
        raise AssertionError("KeyboardInterrupt, raised by the allocator, did not come through `allocate`")
    state.release([True] * 3)
    when = "after Ctrl-C during `allocate`, and a release of all seats"
    check_free(state, range(1, 9), when=when)
    check_rows(state, when)


@pytest.mark.parametrize("what", SOUND)
def test_task_2_books_that_are_right_are_left_alone(lab, what):
    check_accepted(SOUND[what](lab), what)


@pytest.mark.parametrize("how", BROKEN)
def test_task_2_what_is_wrong_in_the_books_is_found(lab, how):
    state = sound(lab)
    check_accepted(state, "seats in the middle of their work, one with a page for a step that failed")
    number = BROKEN[how](state)
    before = tables(state)
    error = check_raises(RuntimeError, state.check, name=f"check(), with {how}")
    check_unchanged(state, before, "after check(), which only reads")
    if number is not None:
        kind = "page" if how in BROKEN_PAGES else "seat"
        check_says(error, number, f"that something is wrong with {kind} {number} ({how})")


@QUICK
@given(work=works(kinds=("step", "step", "fail", "release")))
def test_task_2_whatever_happens_the_books_balance_and_no_page_is_lost(work):
    account = worked(work, after=lambda state: check_accepted(state, "pages taken and given back"))
    account.release([True] * work["seats"])
    account.others_give_back()
    check_free(account.state, range(1, work["num_pages"]), when="after everything was given back")


# Task 3: the banker


def test_task_3_the_line_of_the_chapter(lab):
    """A, B, C and D hold 2, 4, 3 and 0 pages of at most 4, 9, 6 and 3; four are free."""
    banker = banker_of(lab, 4, [2, 4, 3, 0], [4, 9, 6, 3])
    suspects = {
        "what is free may be taken, whatever the requests before it need": [4, 4, 4, 4],
        "the first in line alone is asked: every request before it has to spare the pages": [4, 2, 2, 2],
        "the request just before it alone is asked: every request before it has to spare the pages": [
            4,
            2,
            1,
            4,
        ],
        "a request is bounded by its own spare: only those before it are asked": [2, 1, 1, 1],
        "what those before hold is not counted: they have given it back by then": [4, 2, -1, -1],
    }
    check_equal(limits_of(banker, 4), [4, 2, 1, 1], name="what A, B, C and D may take", suspects=suspects)
    take(banker, 1, 1)
    suspects = {
        "what is taken costs the taker and those behind it, too: it costs those before it": [3, 1, 0, 0],
        "what is taken costs those behind it: it costs those before it": [3, 2, 0, 0],
        "what is taken costs no request anything: those before it can spare less now": [3, 2, 1, 1],
        "what was taken is still free": [4, 1, 1, 1],
    }
    name = "what they may take after B has taken a page"
    check_equal(limits_of(banker, 4), [3, 1, 1, 1], name=name, suspects=suspects)
    take(banker, 3, 1)
    check_equal(limits_of(banker, 4), [2, 0, 0, 0], name="what they may take after D has taken one, too")
    take(banker, 0, 2)
    check_equal(limits_of(banker, 4), [0] * 4, name="what they may take when no page is free")


def test_task_3_two_that_hold_half_each_are_not_stranded(lab):
    banker = banker_of(lab, 2, [2, 2], [4, 4])
    name = "what each of two may take, that hold 2 of 6 pages and lack 2 more: none for the second, or both are stuck"
    check_equal(limits_of(banker, 2), [2, 0], name=name)


def test_task_3_a_request_that_takes_costs_those_before_it_and_not_those_behind(lab):
    banker = banker_of(lab, 6, [1, 1, 1], [3, 3, 3])
    check_equal(limits_of(banker, 3), [6, 4, 4], name="what three may take: 6 free, each holds 1 and needs 3")
    take(banker, 0, 2)
    name = "what they may take after the first has taken 2: it gives them back before the turn of the others"
    check_equal(limits_of(banker, 3), [4, 4, 4], name=name)
    banker = banker_of(lab, 6, [1, 1, 1], [3, 3, 3])
    take(banker, 1, 2)
    name = "what they may take after the second has taken 2: the first has 2 fewer to spare"
    check_equal(limits_of(banker, 3), [4, 2, 2], name=name)
    take(banker, 1, 2)
    name = "what they may take after it has taken 2 more: the first has none to spare for those behind it"
    check_equal(limits_of(banker, 3), [2, 0, 0], name=name)


def test_task_3_the_first_in_line_may_take_all_that_is_free(lab):
    for free in (0, 1, 5):
        banker = banker_of(lab, free, [3], [3 + free])
        check_equal(banker.limit(0), free, name=f"what the only one may take, with {free} free")
        take(banker, 0, free)
        check_equal(banker.limit(0), 0, name="what it may take after it has taken all")


def test_task_3_pages_of_those_before_count_as_free_by_then(lab):
    banker = banker_of(lab, 1, [4, 0, 0], [5, 5, 2])
    name = "what three may take: 1 free, the first holds 4 and lacks 1; a page for another would be that very page"
    check_equal(limits_of(banker, 3), [1, 0, 0], name=name)
    banker = banker_of(lab, 3, [4, 0, 0], [5, 7, 2])
    name = (
        "what three may take: 3 free; the second needs all 7 when its turn comes, so the third may take none"
    )
    check_equal(limits_of(banker, 3), [3, 2, 0], name=name)


def test_task_3_each_before_it_has_to_be_asked_not_the_first_or_the_last_alone(lab):
    banker = banker_of(lab, 5, [2, 1, 4, 0], [3, 8, 5, 1])
    name = "what four may take, of which the second has nothing to spare, the first 4 and the third 7"
    check_equal(limits_of(banker, 4), [5, 4, 0, 0], name=name)


def test_task_3_an_empty_line_is_no_fault(lab):
    banker_of(lab, 5, [], [])


@pytest.mark.parametrize(("ahead", "count"), [(0, 5), (1, 3), (2, 2), (3, 2), (0, -1), (2, -1)])
def test_task_3_more_than_the_limit_is_refused(lab, ahead, count):
    banker = banker_of(lab, 4, [2, 4, 3, 0], [4, 9, 6, 3])
    name = f"take({ahead}, {count}), where the limits are 4, 2, 1 and 1"
    check_raises(ValueError, lambda: banker.take(ahead, count), name=name)
    check_equal(limits_of(banker, 4), [4, 2, 1, 1], name="the limits after the refusal")


def test_task_3_the_limit_may_be_taken_and_so_may_nothing(lab):
    for ahead, limit in enumerate([4, 2, 1, 1]):
        banker = banker_of(lab, 4, [2, 4, 3, 0], [4, 9, 6, 3])
        take(banker, ahead, 0)
        check_equal(limits_of(banker, 4), [4, 2, 1, 1], name=f"the limits after take({ahead}, 0)")
        take(banker, ahead, limit)
        check_equal(banker.limit(ahead), 0, name=f"limit({ahead}) after take({ahead}, {limit}), all of it")


def test_task_3_no_request_may_take_more_than_is_free(lab):
    """The first takes all four pages, more than it lacks: those that others can spare are not there any more."""
    banker = banker_of(lab, 4, [2, 4, 3, 0], [4, 9, 6, 3])
    take(banker, 0, 4)
    check_equal(limits_of(banker, 4), [0, 0, 0, 0], name="the limits when no page is free")


def test_task_3_to_ask_changes_nothing(lab):
    banker = banker_of(lab, 4, [2, 4, 3, 0], [4, 9, 6, 3])
    for _ in range(3):
        check_equal(limits_of(banker, 4), [4, 2, 1, 1], name="the limits, asked three times")


def test_task_3_the_lists_that_it_was_given_stay_the_callers(lab):
    held, most = [2, 4, 3, 0], [4, 9, 6, 3]
    banker = lab.ragged.banker.Banker(4, held, most)
    take(banker, 1, 1)
    check_equal((held, most), ([2, 4, 3, 0], [4, 9, 6, 3]), name="the lists after a `take`")
    held[0], most[1] = 0, 99
    check_equal(
        limits_of(banker, 4), [3, 1, 1, 1], name="the limits after the caller has used its lists again"
    )


TAKES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12)
MOST = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@QUICK
@given(most=MOST, extra=st.integers(0, 6), before=TAKES, now=TAKES)
def test_task_3_the_limit_is_the_most_that_lets_each_one_end(most, extra, before, now):
    """Against trying: all numbers of pages, and each time the whole line run to its end."""
    lab, total = door.active(), max(most) + extra
    free, held = total, [0 for _ in most]
    for number, share in before:  # what happened before this step: pages that may go, found by trying
        ahead = number % len(most)
        count = min(share, most[ahead] - held[ahead], most_for(free, held, most, ahead))
        free, held = free - count, with_more(held, ahead, count)
    banker = banker_of(lab, free, held, most)
    for number, share in [(0, 0), *now]:
        ahead = number % len(most)
        expected = [most_for(free, held, most, n) for n in range(len(most))]
        name = f"what each may take, with {free} free, {held} held and at most {most}"
        check_equal(limits_of(banker, len(most)), expected, name=name)
        count = min(share, expected[ahead], most[ahead] - held[ahead])
        take(banker, ahead, count)
        free, held = free - count, with_more(held, ahead, count)
        assert all_can_end(free, held, most), f"{free} free, held {held}, at most {most}: some can't end"


@st.composite
def traffic(draw: Any) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Tokens per page, pages, and requests: tokens of the prompt, at most to come, and how many come indeed."""
    P = draw(st.sampled_from([1, 2, 4]))
    each = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
    requests = [
        (prompt, most, min(most, some)) for prompt, most, some in draw(st.lists(each, min_size=1, max_size=6))
    ]
    largest = max(pages_needed(prompt + most - 1, P) for prompt, most, _ in requests)
    return P, largest + draw(st.integers(0, 4)), requests


@QUICK
@given(traffic=traffic(), order=st.permutations(range(6)), chunk=st.integers(1, 9))
def test_task_3_every_request_comes_to_its_end_however_few_pages_there_are(traffic, order, chunk):
    """Each step serves the line in any order, each request as far as its pages reach; some end before their most."""
    lab, (P, free, requests) = door.active(), traffic
    line = [
        {"done": 0, "last": prompt + some - 1, "held": 0, "most": pages_needed(prompt + most - 1, P)}
        for prompt, most, some in requests
    ]
    while line:
        what = f"{free} pages of {P} free, in line {line}"
        banker = banker_of(lab, free, [each["held"] for each in line], [each["most"] for each in line])
        brought = 0
        for ahead in (number for number in order if number < len(line)):
            each = line[ahead]
            room = (each["held"] + banker.limit(ahead)) * P - each["done"]
            new = max(0, min(chunk, each["last"] - each["done"], room))
            taken = max(0, pages_needed(each["done"] + new, P) - each["held"])
            take(banker, ahead, taken)
            each["done"] += new
            each["held"] += taken
            free -= taken
            brought += new
        assert brought > 0, f"no request may go on, and none will give a page back: {what}"
        assert free >= 0, f"more pages were allowed than were free: {what}"
        free += sum(each["held"] for each in line if each["done"] == each["last"])
        line = [each for each in line if each["done"] < each["last"]]
