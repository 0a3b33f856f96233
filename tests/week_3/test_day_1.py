"""Day 3.1: the allocator of pages, the pool, a sequence of pages, and generation on pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.models import real_model
from shared.numbers import normal
from shared.pending import check_not_growing
from week_1 import numpy_model
from week_1.caches import attention_oracle
from week_1.numpy_model import HKV, D, H
from week_2.full_caches import causal

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises, check_untouched

from .broken_books import BROKEN, REFUSED, blamed, with_four_held
from .decode_states import check_says
from .pages import (
    LAYERS,
    PAGE_SIZES,
    UNUSED,
    Account,
    N,
    allocator_of,
    as_one,
    books,
    check_all_free,
    filled,
    in_use,
    pages_needed,
    place_of,
    pool_of,
    spoil,
    through_pages,
    written,
)
from .paging_model import PagingModel, storage_of

QUICK = settings(max_examples=80, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"pages of {P}")


# Task 1: the allocator


@pytest.mark.parametrize("num_pages", [2, 5, 17])
def test_task_1_every_page_but_the_null_page_is_handed_out_once(lab, num_pages):
    allocator = allocator_of(lab, num_pages)
    pages = [allocator.allocate(1) for _ in range(num_pages - 1)]
    check_equal(
        sorted(page for one in pages for page in one),
        list(range(1, num_pages)),
        name="all the pages handed out",
    )


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_task_1_as_many_as_asked_for_come_with_one_reference_each(lab, count):
    allocator = allocator_of(lab, 7)
    pages = allocator.allocate(count)
    assert isinstance(pages, list), f"allocate({count}) should return a list of pages, not {pages!r}"
    check_equal(len(pages), count, name=f"how many pages allocate({count}) gave")
    check_equal(in_use(allocator), dict.fromkeys(sorted(pages), 1), name="the pages in use")
    check_equal(len(allocator.free_pages), 6 - count, name="how many pages are free afterwards")


@pytest.mark.parametrize(("taken", "count"), [(0, 6), (3, 3), (5, 1), (3, 100)])
def test_task_1_too_many_pages_are_refused_and_none_is_taken(lab, taken, count):
    allocator = allocator_of(lab, 6)
    held = allocator.allocate(taken)
    before = books(allocator)
    name = f"allocate({count}) with {5 - taken} pages free"
    kind = lab.paged.allocator.OutOfPages
    error = check_raises(kind, lambda: allocator.allocate(count), name=name)
    for number, what in ((count, "were wanted"), (5 - taken, "are free")):
        said = re.search(rf"\b{number}\b", str(error))
        assert said, f"{name}: the message should say how many {what}, {number}; it says {str(error)!r}"
    check_equal(books(allocator), before, name=f"what the allocator knows after the refused {name}")
    rest = allocator.allocate(5 - taken)
    check_equal(sorted(held + rest), list(range(1, 6)), name="all pages, the last free ones taken afterwards")


def test_task_1_a_negative_count_is_refused(lab):
    allocator = allocator_of(lab, 6)
    allocator.free(allocator.allocate(3)[:1])
    before = books(allocator)
    for count in (-1, -4):
        check_raises(ValueError, partial(allocator.allocate, count), name=f"allocate({count})")
    check_equal(books(allocator), before, name="what the allocator knows after a negative count")


def test_task_1_pages_come_back_in_any_order(lab):
    allocator = allocator_of(lab, 8)
    first, second = allocator.allocate(4), allocator.allocate(3)
    allocator.free([first[2], second[0], first[0]])
    kept = sorted([first[1], first[3], *second[1:]])
    check_equal(in_use(allocator), dict.fromkeys(kept, 1), name="the pages in use")
    again = allocator.allocate(3)
    check_equal(sorted(again), sorted([first[2], second[0], first[0]]), name="the pages that were free")
    allocator.free(tuple(kept + again))
    check_all_free(allocator, when="after all were freed")


def test_task_1_the_page_that_was_freed_last_is_handed_out_first(lab):
    allocator = allocator_of(lab, 8)
    pages = allocator.allocate(7)
    for page in (pages[4], pages[1], pages[6]):
        allocator.free([page])
    oldest = {"the page that was freed first comes first": [pages[4], pages[1], pages[6]]}
    check_equal(
        [allocator.allocate(1)[0] for _ in range(3)],
        [pages[6], pages[1], pages[4]],
        name=f"the pages in the order handed out, after {pages[4]}, {pages[1]} and {pages[6]} were freed in turn",
        suspects=oldest,
    )


def test_task_1_no_page_may_be_asked_for_and_none_freed_even_if_none_is_there(lab):
    allocator = allocator_of(lab, 4)
    held = allocator.allocate(3)
    before = books(allocator)
    check_equal(allocator.allocate(0), [], name="what allocate(0) gives when no page is free")
    allocator.free([])
    check_equal(books(allocator), before, name="what the allocator knows after allocate(0) and free([])")
    check_equal(len(held), 3, name="how many pages are held")


def test_task_1_a_page_with_two_references_is_free_when_both_are_given_up(lab):
    allocator = allocator_of(lab, 6)
    shared, own = allocator.allocate(2)
    allocator.references[shared] = 2
    allocator.free([shared, own])
    check_equal(
        in_use(allocator),
        {shared: 1},
        name="the pages in use after one of two references was given up (page: references)",
    )
    rest = allocator.allocate(4)
    assert shared not in rest, f"page {shared} was handed out again while it still had a reference"
    allocator.free(rest)
    allocator.free([shared])
    check_all_free(allocator, when="after the second reference was given up")


def test_task_1_two_references_may_be_given_up_in_one_call(lab):
    allocator = allocator_of(lab, 4)
    (page,) = allocator.allocate(1)
    allocator.references[page] = 2
    allocator.free([page, page])
    check_all_free(allocator, when="after both references were given up in one call")


@pytest.mark.parametrize("what", list(REFUSED))
def test_task_1_what_cannot_be_freed_is_refused_and_nothing_changes(lab, what):
    allocator, held = with_four_held(lab)
    pages, before = REFUSED[what](held), books(allocator)
    error = check_raises(ValueError, lambda: allocator.free(pages), name=f"free({pages}): {what}")
    check_says(error, blamed(allocator, pages), "which page it is")
    check_equal(books(allocator), before, name=f"what the allocator knows after the refused free of {what}")


def test_task_1_the_last_page_is_not_reached_by_a_negative_number(lab):
    allocator = allocator_of(lab, 5)
    allocator.allocate(4)
    before = books(allocator)
    check_raises(ValueError, lambda: allocator.free([-1]), name="free([-1]) with every page in use")
    check_equal(books(allocator), before, name="what the allocator knows after the refused free([-1])")


def test_task_1_a_page_freed_twice_is_refused_the_second_time(lab):
    allocator = allocator_of(lab, 5)
    pages = allocator.allocate(3)
    allocator.free(pages)
    check_raises(ValueError, lambda: allocator.free(pages), name="freeing the same pages a second time")
    check_all_free(allocator, when="after the same pages were freed twice")


def test_task_1_the_callers_list_is_the_callers(lab):
    allocator = allocator_of(lab, 6)
    pages = allocator.allocate(3)
    copy = list(pages)
    allocator.free(pages)
    check_equal(pages, copy, name="the list given to free, afterwards")
    again = allocator.allocate(2)
    held = in_use(allocator)
    again.clear()
    check_equal(in_use(allocator), held, name="the pages in use after the caller emptied the list it got")


@QUICK
@given(
    num_pages=st.integers(2, 9),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.lists(st.integers(0, 9), max_size=4))),
)
def test_task_1_any_order_of_taking_and_giving_back_keeps_the_books(num_pages, steps):
    account = Account(door.active(), num_pages)
    for take, count, numbers in steps:
        if take:
            account.allocate(count)
        else:
            account.free(account.pick(numbers))
    account.free_everything()


# Task 2: shared pages, and the books


def test_task_2_a_shared_page_is_freed_as_often_as_it_is_held(lab):
    allocator = allocator_of(lab, 6)
    pages = allocator.allocate(3)
    allocator.share(tuple(pages[:2]))
    allocator.share(pages[:1])
    expected = dict(sorted(zip(pages, (3, 2, 1), strict=True)))
    check_equal(in_use(allocator), expected, name="the references after sharing")
    for left in ({pages[0]: 2, pages[1]: 1}, {pages[0]: 1}, {}):
        allocator.free([page for page in pages if in_use(allocator).get(page)])
        check_equal(in_use(allocator), dict(sorted(left.items())), name="the references after another free")
    check_all_free(allocator, when="after every reference was given up")


def test_task_2_a_page_that_is_listed_twice_gets_two_references(lab):
    """It has two already, so two sequences share it once more."""
    allocator = allocator_of(lab, 5)
    page, other = allocator.allocate(2)
    allocator.share([page])
    allocator.share([page, other, page])
    once = {"a page that is listed twice is counted once": {page: 3, other: 2}}
    check_equal(
        in_use(allocator),
        {page: 4, other: 2},
        name="the references after sharing a page twice",
        suspects=once,
    )


@pytest.mark.parametrize("what", list(REFUSED))
def test_task_2_what_cannot_be_freed_cannot_be_shared_and_nothing_changes(lab, what):
    allocator, held = with_four_held(lab)
    pages, before = REFUSED[what](held), books(allocator)
    check_raises(ValueError, lambda: allocator.share(pages), name=f"share({pages}): {what}")
    check_equal(books(allocator), before, name=f"what the allocator knows after the refused share of {what}")


def test_task_2_balanced_books_pass_and_stay_as_they_are(lab):
    allocator = allocator_of(lab, 9)
    allocator.check()
    pages = allocator.allocate(8)
    allocator.check()
    allocator.share(pages[2:5])
    allocator.free([*pages[:4], *pages[6:]])
    allocator.free_pages.sort()
    allocator.free_pages.append(allocator.free_pages.pop(0))  # neither upwards nor downwards
    before, order = books(allocator), list(allocator.free_pages)
    allocator.check()
    check_equal(books(allocator), before, name="what the allocator knows after check()")
    check_equal(allocator.free_pages, order, name="the free list after check(), in its order")


@pytest.mark.parametrize("what", list(BROKEN))
def test_task_2_books_that_do_not_balance_are_reported(lab, what):
    allocator, held = with_four_held(lab)
    allocator.check()
    culprit = BROKEN[what](allocator, held)
    name = f"check() with {what}"
    check_raises(RuntimeError, allocator.check, name=name, match=str(culprit))


ACTIONS = st.tuples(
    st.sampled_from(["allocate", "free", "share", "free any", "share any"]),
    st.integers(0, 6),
    st.lists(st.integers(-2, 11), max_size=4),
)


@QUICK
@given(num_pages=st.integers(2, 10), steps=st.lists(ACTIONS, max_size=25))
def test_task_2_any_order_of_taking_sharing_and_freeing_keeps_the_books(num_pages, steps):
    account = Account(door.active(), num_pages)
    for action, count, numbers in steps:
        if action == "allocate":
            account.allocate(count)
        elif action == "free":
            account.free(account.pick(numbers))
        elif action == "share":
            account.share(account.pick(numbers))
        elif action == "free any":
            account.free(numbers)
        else:
            account.share(numbers)
        account.allocator.check()
    account.free_everything()
    account.allocator.check()


# Task 3: the pool


def check_write(lab: Any, P: int, layer: int, places: list[int], dtype: str = "float32") -> None:
    pool, *old = filled(lab, P, dtype)
    storage = pool.keys, pool.values
    new = [lab.numpy(lab.array(part, dtype)) for part in normal(32, 2, len(places), HKV, D)]
    arguments = [lab.array(part, dtype) for part in new]
    slot_mapping = lab.array(places)
    pool.write(layer, slot_mapping, *arguments)
    for name, argument, numbers in zip(("key", "value"), arguments, new, strict=True):
        check_untouched(argument, numbers, name=f"the argument `{name}` of write", dtype=dtype)
    check_equal(
        lab.numpy(slot_mapping).tolist(), places, name="the argument `slot_mapping` of write, afterwards"
    )
    for name, before, tokens, other, memory in zip(
        ("keys", "values"), old, new, new[::-1], storage, strict=True
    ):
        suspects = {"keys and values are mixed up": written(before, layer, places, other)}
        suspects["the places were sorted: token t belongs in place slot_mapping[t]"] = written(
            before, layer, sorted(places), tokens
        )
        suspects["the new numbers were added to those that were there"] = before + (
            written(np.zeros_like(before), layer, places, tokens)
        )
        suspects["nothing reached the pool: was it written to a copy?"] = before
        if layer:
            suspects["it was written to layer 0, whatever `layer` says"] = written(before, 0, places, tokens)
        everywhere = before
        for each in range(LAYERS):
            everywhere = written(everywhere, each, places, tokens)
        suspects["it was written to every layer"] = everywhere
        if max(places) < N and len(places) in (1, P):
            suspects["places were taken for pages: the write went through [N, P, Hkv, D]"] = through_pages(
                before, layer, places, tokens
            )
        check(
            as_one(lab, getattr(pool, name)),
            written(before, layer, places, tokens),
            name=f"pool.{name} after writing places {places} of layer {layer}",
            axes="layers N P Hkv D",
            rtol=0,
            atol=0,
            dtype=dtype,
            suspects=suspects,
        )
        moved = (
            f"pool.{name} lie elsewhere after a write: their memory is taken once, and written to in place"
        )
        if lab.is_array(memory):
            assert lab.shares_memory(getattr(pool, name), memory), moved


WRITES = {
    "one token, in a place that could be a page": [5],
    "as many tokens as a page has": [4, 6, 2],
    "a token in the last place": [3 * N - 1],
    "a run across two pages": [7, 8, 9, 10],
    "places in no order": [17, 3, 9, 4, 20],
}


@pytest.mark.parametrize("layer", [0, 2], ids=["first layer", "third layer"])
@pytest.mark.parametrize("case", list(WRITES))
def test_task_3_tokens_are_written_to_their_places_and_nowhere_else(lab, case, layer):
    check_write(lab, 3, layer, WRITES[case])


@pytest.mark.parametrize(("P", "places"), [(1, [6, 2, 4]), (1, [3]), (16, [15, 16, 111, 31, 32]), (16, [6])])
def test_task_3_pages_of_other_sizes_are_written_alike(lab, P, places):
    check_write(lab, P, 1, places)


def test_task_3_the_pool_keeps_its_dtype(lab):
    check_write(lab, 3, 1, [8, 13], "bfloat16")


def test_task_3_a_write_costs_what_it_writes_and_not_what_the_pool_holds(lab):
    P, slot_mapping = 16, lab.array([7000, 35, 2])
    pool = pool_of(lab, 500, P)
    layer = 500 * P * HKV * D
    arrays = [lab.array(part) for part in normal(38, 2, 3, HKV, D)]

    def write(*storage: Any) -> list[np.ndarray]:
        pool.write(1, slot_mapping, *arrays)
        return [lab.numpy(part[1][2, 3]) for part in (pool.keys, pool.values)]

    if lab.backend == "mlx":
        used = lab.peak_bytes(write)[1] // 4
    else:
        used = lab.largest_array(write, pool.keys, pool.values, *arrays)[1]
    assert used < layer / 2, (
        f"a write of 3 tokens made new arrays of {used} numbers for a while, in a pool with {layer} keys per layer: "
        "was a copy of the layer written to?"
    )


@sizes_of_pages
@pytest.mark.parametrize("layer", [0, 3], ids=["first layer", "last layer"])
def test_task_3_places_are_gathered_in_the_order_asked_for(lab, P, layer):
    _, keys, values = filled(lab, P)
    pool = pool_of(lab, N, P)
    places = [2 * P, N * P - 1, P, 3 * P - 1]
    for place in places:
        page, offset = place // P, place % P
        pool.keys[layer][page, offset] = lab.array(keys[layer, page, offset])
        pool.values[layer][page, offset] = lab.array(values[layer, page, offset])
    expected = tuple(
        np.stack([part[layer, place // P, place % P] for place in places]) for part in (keys, values)
    )
    actual = pool.gather(layer, lab.array(places))
    suspects = {"keys and values are mixed up": expected[::-1]}
    order = np.argsort(places)
    suspects["the order is that of the pool, not that of `places`"] = tuple(part[order] for part in expected)
    check(
        actual,
        expected,
        name=("the keys", "the values"),
        axes="S Hkv D",
        rtol=0,
        atol=0,
        suspects=suspects,
        nan="places were read that were not asked for; the test has put NaN into all such places",
    )


def test_task_3_what_was_gathered_is_a_copy(lab):
    pool, keys, values = filled(lab, 3)
    places = list(range(6, 12))
    gathered = pool.gather(1, lab.array(places))
    spoil(pool)
    expected = tuple(part[1].reshape(-1, HKV, D)[places] for part in (keys, values))
    check(
        gathered,
        expected,
        name=("the keys", "the values"),
        axes="S Hkv D",
        rtol=0,
        atol=0,
        nan="what was gathered changed with the pool",
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_3_what_was_gathered_has_the_dtype_of_the_pool(lab, dtype):
    pool, *_ = filled(lab, 3, dtype)
    gathered = pool.gather(1, lab.array([6, 4]))
    check_equal([lab.dtype(part) for part in gathered], [dtype] * 2, name="the dtypes of keys, values")


@sizes_of_pages
def test_task_3_pages_for_counts_the_last_one_even_if_it_is_part_full(lab, P):
    for tokens in (0, 1, P - 1, P, P + 1, 4 * P - 1, 4 * P, 4 * P + 1, 1000 * P + 1):
        name = f"pages_for({tokens}, {P})"
        check_equal(lab.paged.places.pages_for(tokens, P), pages_needed(tokens, P), name=name)


@sizes_of_pages
def test_task_3_a_position_stands_in_its_own_page_at_its_own_offset(lab, P):
    pages = [5, 2, 9, 4]
    for start, stop in ((0, 4 * P), (0, 1), (P - 1, P + 1), (P, 2 * P), (2 * P, 2 * P), (3 * P, 4 * P)):
        expected = [place_of(pages, position, P) for position in range(start, stop)]
        actual = lab.paged.places.places_of(pages, start, stop, P)
        numbers = [(pages[p // P], p % P) for p in range(start, stop)]
        suspects = {
            "these are page numbers, not places: a page has P of them": [page for page, _ in numbers],
            "the offset in the page was left out": [page * P for page, _ in numbers],
            "the page's number was not multiplied by P": [page + offset for page, offset in numbers],
            "`pages` was not asked: a sequence's pages need not be in one run": [
                pages[0] * P + p for p in range(start, stop)
            ],
            "`start` was not looked at: these begin with the sequence's first position": [
                place_of(pages, position, P) for position in range(stop)
            ],
        }
        name = f"the places of positions {start} to {stop - 1} in pages {pages}"
        check_equal(actual, expected, name=name, suspects=suspects)


def test_task_3_the_places_of_a_part_full_page_end_with_the_tokens(lab):
    actual = lab.paged.places.places_of([4, 1], 3, 6, 4)
    check_equal(actual, [19, 4, 5], name="the places of positions 3 to 5, with P = 4 in pages [4, 1]")


# Task 4: a sequence of pages


def sequence_of(lab: Any, allocator: Any, P: int, length: int = 0) -> Any:
    sequence = lab.paged.sequence.PagedSequence(allocator, P)
    if length:
        sequence.reserve(length)
        sequence.advance(length)
    return sequence


@sizes_of_pages
def test_task_4_reserve_takes_as_many_pages_as_the_tokens_need(lab, P):
    for length in (0, 1, P - 1, P, P + 1, 2 * P):
        for count in (0, 1, P - 1, P, P + 1, 3 * P + 1):
            allocator = allocator_of(lab, 8 * P)
            sequence = sequence_of(lab, allocator, P, length)
            before = list(sequence.pages)
            sequence.reserve(count)
            name = f"after reserve({count}) with {length} tokens there"
            expected, new = pages_needed(length + count, P), pages_needed(count, P)
            suspects = {
                "pages were taken for the new tokens alone, whatever room the last page has": len(before)
                + new,
                "a page too many: there is one for the token after these, too": pages_needed(
                    length + count + 1, P
                ),
            }
            check_equal(
                len(sequence.pages), expected, name=f"how many pages there are {name}", suspects=suspects
            )
            check_equal(sequence.pages[: len(before)], before, name=f"the pages held before, {name}")
            check_equal(sequence.length, length, name=f"sequence.length {name}")
            held = dict.fromkeys(sorted(sequence.pages), 1)
            check_equal(in_use(allocator), held, name=f"the pages in use {name}")


def test_task_4_what_is_reserved_already_is_not_taken_again(lab):
    allocator = allocator_of(lab, 9)
    sequence = sequence_of(lab, allocator, 3, 2)
    for count in (10, 10, 1, 0, 4):
        sequence.reserve(count)
        check_equal(len(sequence.pages), 4, name=f"how many pages there are after reserve({count})")
    check_equal(len(allocator.free_pages), 4, name="how many pages are free")


def test_task_4_one_token_at_a_time_takes_a_page_at_every_page_edge(lab):
    allocator = allocator_of(lab, 9)
    sequence = sequence_of(lab, allocator, 3)
    counts = []
    for _ in range(8):
        sequence.reserve(1)
        sequence.advance(1)
        counts.append(len(sequence.pages))
    check_equal(
        counts, [1, 1, 1, 2, 2, 2, 3, 3], name="how many pages there are after each of 8 tokens, P = 3"
    )
    check_equal(sequence.length, 8, name="sequence.length")


def test_task_4_too_few_pages_leave_everything_as_it_was(lab):
    allocator = allocator_of(lab, 7)
    other, sequence = sequence_of(lab, allocator, 3, 5), sequence_of(lab, allocator, 3, 4)
    pages, before = list(sequence.pages), books(allocator)
    error = lab.paged.allocator.OutOfPages
    check_raises(error, lambda: sequence.reserve(9), name="reserve(9), which takes 3 pages more of 2")
    check_equal(sequence.pages, pages, name="the sequence's pages after the refusal")
    check_equal(sequence.length, 4, name="sequence.length after the refusal")
    check_equal(books(allocator), before, name="what the allocator knows after the refusal")
    sequence.reserve(8)
    check_equal(len(sequence.pages), 4, name="how many pages there are after reserve(8), for which 2 suffice")
    check_equal(len(other.pages), 2, name="how many pages the other sequence has")


@sizes_of_pages
def test_task_4_places_follow_the_sequences_own_pages(lab, P):
    sequence = sequence_of(lab, allocator_of(lab, 9), P)
    sequence.pages = [6, 1, 8]
    for start, stop in ((0, 3 * P), (P - 1, P + 1), (2 * P, 2 * P + 1), (P, P)):
        expected = [place_of([6, 1, 8], position, P) for position in range(start, stop)]
        check_equal(sequence.places(start, stop), expected, name=f"places({start}, {stop}), P = {P}")


def test_task_4_advancing_counts_tokens_and_takes_nothing(lab):
    allocator = allocator_of(lab, 9)
    sequence = sequence_of(lab, allocator, 3)
    sequence.reserve(7)
    before = books(allocator)
    for count, length in ((5, 5), (1, 6), (1, 7)):
        sequence.advance(count)
        check_equal(sequence.length, length, name=f"sequence.length after advance({count})")
    check_equal(books(allocator), before, name="what the allocator knows after advancing")


def test_task_4_a_released_sequence_is_as_good_as_new(lab):
    allocator = allocator_of(lab, 6)
    sequence = sequence_of(lab, allocator, 3, 8)
    for _ in range(2):
        sequence.release()
        check_equal((sequence.pages, sequence.length), ([], 0), name="pages and length after release()")
        check_all_free(allocator, when="after release()")
    sequence.reserve(4)
    check_equal(len(sequence.pages), 2, name="how many pages reserve(4) took after release()")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_task_4_a_sequence_keeps_its_pages_when_the_allocator_fails(lab, error):
    class Failing(lab.paged.allocator.PageAllocator):  # type: ignore[name-defined]
        """Fails before it has freed anything."""

        def free(self, pages: Sequence[int]) -> None:
            raise error

    sequence = sequence_of(lab, Failing(6), 3, 8)
    pages = list(sequence.pages)
    with pytest.raises(error):
        sequence.release()
    name = f"pages and length after release(), whose `free` raised {error.__name__} and freed nothing"
    check_equal((sequence.pages, sequence.length), (pages, 8), name=name)


def test_task_4_releasing_gives_up_one_reference_and_no_more(lab):
    allocator = allocator_of(lab, 6)
    sequence = sequence_of(lab, allocator, 3, 8)
    shared = sequence.pages[1]
    allocator.share([shared])
    sequence.release()
    check_equal(
        in_use(allocator), {shared: 1}, name="the pages in use after one of two references was given up"
    )


@QUICK
@given(
    P=st.sampled_from(PAGE_SIZES),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=20),
)
def test_task_4_sequences_that_grow_and_end_side_by_side_share_no_place(P, steps):
    lab = door.active()
    allocator = allocator_of(lab, 30)
    sequences = [sequence_of(lab, allocator, P) for _ in range(3)]
    lengths = [0, 0, 0]
    for which, count in steps:
        others = sum(pages_needed(n, P) for i, n in enumerate(lengths) if i != which)
        if count == 0:
            sequences[which].release()
            lengths[which] = 0
        elif others + pages_needed(lengths[which] + count, P) > 29:
            error = lab.paged.allocator.OutOfPages
            check_raises(error, partial(sequences[which].reserve, count), name=f"reserve({count})")
        else:
            sequences[which].reserve(count)
            sequences[which].advance(count)
            lengths[which] += count
        check_equal([s.length for s in sequences], lengths, name="the lengths of three sequences")
        places = [place for s, n in zip(sequences, lengths, strict=True) for place in s.places(0, n)]
        assert len(set(places)) == len(places), "a place belongs to two tokens"
        assert min(places, default=P) >= P, "a token has a place in the null page"
    for sequence in sequences:
        sequence.release()
    check_all_free(allocator, when="after all three were released")


# Task 5: attention by gathering


def whole(length: int, seed: int = 33) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries [1, H, S, D], keys and values [1, Hkv, S, D] of a sequence."""
    return normal(seed, 1, H, length, D), *normal(seed + 1, 2, 1, HKV, length, D)


def caches_of(lab: Any, pool: Any, sequence: Any) -> list[Any]:
    return [lab.paged.sequence.GatherCache(pool, layer, sequence) for layer in range(LAYERS)]


def test_task_5_the_sequence_stays_as_it_is_while_the_layers_run(lab):
    _, keys, values = whole(6)
    pool, allocator = pool_of(lab, 9, 3), allocator_of(lab, 9)
    sequence = sequence_of(lab, allocator, 3)
    sequence.reserve(6)
    pages, before = list(sequence.pages), books(allocator)
    for layer, cache in enumerate(caches_of(lab, pool, sequence)):
        cache.update_and_fetch(lab.array(keys), lab.array(values))
        assert sequence.length == 0, (
            f"after layer {layer} the sequence's length is {sequence.length}, not 0: the layers leave it alone, and "
            "the code that runs the model advances it when all have run"
        )
        check_equal(sequence.pages, pages, name=f"the sequence's pages after layer {layer} ran")
    check_equal(books(allocator), before, name="what the allocator knows after the layers ran")


PIECES = [(7,), (6, 3), (1, 4, 2), (6, 1, 1, 2), (16, 1, 15, 1)]


@sizes_of_pages
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_task_5_the_new_tokens_are_written_and_all_of_them_fetched(lab, pieces, P):
    _, keys, values = whole(sum(pieces))
    pool, allocator = pool_of(lab, 40, P), allocator_of(lab, 40)
    sequence = sequence_of(lab, allocator, P)
    cache, start = caches_of(lab, pool, sequence)[2], 0
    for L in pieces:
        stop = start + L
        sequence.reserve(L)
        *fetched, mask = cache.update_and_fetch(*(lab.array(x[:, :, start:stop]) for x in (keys, values)))
        expected = (keys[:, :, :stop], values[:, :, :stop])
        whole_pages = fetched[0].shape[2] == -(-stop // P) * P != stop
        assert not whole_pages, (
            f"{fetched[0].shape[2]} tokens were fetched, {stop} are there: whole pages were gathered, with the empty "
            "places of the last one"
        )
        check(
            tuple(fetched),
            expected,
            name=(f"the keys after {stop} tokens", f"the values after {stop} tokens"),
            axes="1 Hkv S D",
            rtol=0,
            atol=0,
            suspects={"keys and values are mixed up": expected[::-1]},
            nan=UNUSED,
        )
        if L == 1:
            assert mask is None, (
                "one new token may see everything: the mask is None, so that no zeros have to be added"
            )
        else:
            assert mask is not None, f"{L} new tokens came without a mask, and would see each other's future"
            check(mask, causal(L, stop), name=f"the mask of {L} new tokens after {start}", axes="L S")
        sequence.advance(L)
        start = stop


def test_task_5_the_sequence_says_how_many_tokens_are_there_already(lab):
    """Its tokens may have come through other caches; a cache that counts for itself would overwrite them."""
    _, keys, values = whole(7)
    pool, allocator = pool_of(lab, 9, 3), allocator_of(lab, 9)
    sequence = sequence_of(lab, allocator, 3)
    sequence.reserve(7)
    for start, stop, layer in ((0, 5, 0), (5, 7, 0), (5, 7, 0)):
        cache = caches_of(lab, pool, sequence)[layer]
        sequence.length = start
        fetched = cache.update_and_fetch(*(lab.array(x[:, :, start:stop]) for x in (keys, values)))
    sequence.length = 6
    again = cache.update_and_fetch(*(lab.array(x[:, :, 6:7]) for x in (keys, values)))
    for name, actual in (("after new caches", fetched), ("after the same call once more", again)):
        check(
            tuple(actual[:2]),
            (keys, values),
            name=(f"the keys {name}", f"the values {name}"),
            axes="1 Hkv S D",
            rtol=0,
            atol=0,
            nan=UNUSED,
            suspects={
                "only the new tokens came back: `sequence.length` says how many are there, no count of the cache": (
                    keys[:, :, -actual[0].shape[2] :],
                    values[:, :, -actual[1].shape[2] :],
                )
            },
        )


@sizes_of_pages
def test_task_5_nothing_is_written_but_the_new_tokens_of_this_layer(lab, P):
    _, keys, values = whole(8)
    pool, sequence = pool_of(lab, N + 5, P), sequence_of(lab, allocator_of(lab, N + 5), P)
    cache = caches_of(lab, pool, sequence)[1]
    for start, stop in ((0, 5), (5, 8)):
        spoil(pool)  # what was written before would be found again
        sequence.reserve(stop - start)
        cache.update_and_fetch(*(lab.array(x[:, :, start:stop]) for x in (keys, values)))
        for name, new in (("keys", keys), ("values", values)):
            expected = np.full((LAYERS, N + 5, P, HKV, D), np.nan)
            for position in range(start, stop):
                expected[1].reshape(-1, HKV, D)[place_of(sequence.pages, position, P)] = new[0, :, position]
            axes = "layers N P Hkv D"
            what = f"pool.{name} after tokens {start} to {stop - 1}, with NaN in all places before"
            layer_0 = {"it was written to layer 0, whatever the cache's layer": expected[[1, 0, 2, 3]]}
            actual = as_one(lab, getattr(pool, name))
            check(actual, expected, name=what, axes=axes, rtol=0, atol=0, suspects=layer_0)
        sequence.advance(stop - start)


def test_task_5_nothing_is_put_off_until_later_tokens(lab):
    """With MLX, which computes when a number is asked for; torch never has anything to put off."""
    model = real_model(lab, "llama")
    config, put_off = model.config, []
    pool = lab.paged.pool.KvPool(config, N + 5, 3, device=lab.device)
    for _ in lab.paged.sequence.generate_on_pages(model, pool, allocator_of(lab, N + 5), [5, 9, 2, 7], 6):
        put_off.append(lab.pending_operations(pool.keys[config.num_layers - 1]))
    check_not_growing(put_off, "the last layer's keys in the pool", "generated token")


@sizes_of_pages
def test_task_5_sequences_and_layers_do_not_mix(lab, P):
    pool, allocator = pool_of(lab, 40, P), allocator_of(lab, 40)
    sequences = [sequence_of(lab, allocator, P) for _ in range(2)]
    caches = [caches_of(lab, pool, sequence) for sequence in sequences]
    data = [[whole(9, seed=50 + 10 * one + 2 * layer) for layer in range(LAYERS)] for one in range(2)]
    starts = [0, 0]
    for one, L in ((0, 4), (1, 3), (0, 1), (1, 1), (1, 2), (0, 4), (1, 3)):
        start, stop = starts[one], starts[one] + L
        sequences[one].reserve(L)
        for layer in range(LAYERS):
            query, keys, values = data[one][layer]
            expected = attention_oracle(query, keys, values, 0.4, causal(9, 9))[:, :, start:stop]
            new = [lab.array(x[:, :, start:stop]) for x in (query, keys, values)]
            name = f"attention of tokens {start} to {stop - 1} of sequence {one}, layer {layer}"
            check(caches[one][layer].attend(*new, 0.4), expected, name=name, axes="1 H L D", nan=UNUSED)
        sequences[one].advance(L)
        starts[one] = stop


def test_task_5_pages_in_no_order_hold_a_sequence_in_order(lab):
    query, keys, values = whole(7)
    pool, sequence = pool_of(lab, 9, 3), sequence_of(lab, allocator_of(lab, 9), 3)
    sequence.pages = [7, 2, 5]
    cache, expected = (
        caches_of(lab, pool, sequence)[0],
        attention_oracle(query, keys, values, 0.4, causal(7, 7)),
    )
    for start, stop in ((0, 4), (4, 6), (6, 7)):
        actual = cache.attend(*(lab.array(x[:, :, start:stop]) for x in (query, keys, values)), 0.4)
        name = f"attention of tokens {start} to {stop - 1} in pages [7, 2, 5]"
        check(actual, expected[:, :, start:stop], name=name, axes="1 H L D", nan=UNUSED)
        sequence.advance(stop - start)


def test_task_5_the_mask_has_the_dtype_of_the_keys(lab):
    _, keys, values = whole(4)
    pool, sequence = pool_of(lab, 4, 3, dtype="bfloat16"), sequence_of(lab, allocator_of(lab, 4), 3)
    sequence.reserve(4)
    cache = caches_of(lab, pool, sequence)[0]
    fetched = cache.update_and_fetch(lab.array(keys, "bfloat16"), lab.array(values, "bfloat16"))
    check_equal(
        [lab.dtype(part) for part in fetched], ["bfloat16"] * 3, name="the dtypes of keys, values, mask"
    )


PROMPT = [3, 7, 3, 1, 5]
SCRIPT = [4, 11, 4, 0, 9, 2, 8]


def generate(lab: Any, model: Any, storage: tuple[Any, Any], prompt: Any, *rest: Any, **options: Any) -> Any:
    return lab.paged.sequence.generate_on_pages(model, *storage, list(prompt), *rest, **options)


@sizes_of_pages
def test_task_5_pages_are_reserved_before_the_model_runs_and_no_sooner(lab, P):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 14, P)
    check_equal(list(generate(lab, model, storage, PROMPT, 6)), SCRIPT[:6], name="the tokens generated")
    expected = [PROMPT, *([token] for token in SCRIPT[:5])]
    check_equal(model.calls, expected, name="the ids that the model was run on")
    needed = [pages_needed(len(PROMPT) + n, P) for n in range(6)]
    early = {
        "pages are taken for the token that comes next, too: its turn is the next run": [
            pages_needed(len(PROMPT) + n + 1, P) for n in range(6)
        ]
    }
    name = f"how many pages the request had when the model ran, P = {P}"
    check_equal(model.pages, needed, name=name, suspects=early)
    check_equal(model.head_rows, [1] * 6, name="how many rows went through the head each time")
    check_all_free(storage[1], when="at the end")


def test_task_5_pages_go_back_when_a_token_ends_the_text(lab):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 9, 3)
    tokens = list(generate(lab, model, storage, PROMPT, 7, {0, 9}))
    check_equal(tokens, SCRIPT[:4], name="the tokens, with the end tokens 0 and 9")
    check_equal(len(model.calls), 4, name="how often the model ran")
    check_all_free(storage[1], when="after an end token")


def test_task_5_an_end_token_of_the_prompt_ends_nothing(lab):
    """A chat's prompt is full of them, and may end with one. Token 9 is not in the prompt, and ends the text."""
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 9, 3)
    tokens = list(generate(lab, model, storage, PROMPT, 7, {PROMPT[-1], PROMPT[1], 9}))
    name = "the tokens, where the end tokens are 9 and two of the prompt's own, its last among them"
    ended = {"an end token of the prompt ended the text: only a generated one does": SCRIPT[:1]}
    nothing: dict[str, Any] = {"nothing was generated after a prompt that ends with an end token": []}
    check_equal(tokens, SCRIPT[:5], name=name, suspects=ended | nothing)


@pytest.mark.parametrize("room", [1, 3, 7])
def test_task_5_pages_go_back_when_the_positions_are_used_up(lab, room):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT, len(PROMPT) + room), storage_of(lab, 9, 3)
    tokens = list(generate(lab, model, storage, PROMPT, 100))
    check_equal(tokens, SCRIPT[:room], name=f"the tokens, with {room} positions after the prompt's")
    check_all_free(storage[1], when="after the last position was used")


@pytest.mark.parametrize("taken", [1, 4])
def test_task_5_pages_go_back_when_the_caller_asks_for_no_more(lab, taken):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 9, 3)
    stream = generate(lab, model, storage, PROMPT, 7)
    check_equal([next(stream) for _ in range(taken)], SCRIPT[:taken], name="the first tokens")
    check_equal(len(model.calls), taken, name=f"how often the model ran for {taken} tokens")
    assert in_use(storage[1]), "a request that goes on holds no page"
    stream.close()
    check_all_free(storage[1], when=f"after the stream was closed at token {taken}")


@pytest.mark.parametrize("failure", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("call", [0, 2])
@pytest.mark.parametrize("who", ["model", "sample"])
def test_task_5_pages_go_back_after_an_error_and_after_ctrl_c(lab, who, call, failure):
    model, storage, samples = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 9, 3), list[int]()

    def sample(logits: Any, token_ids: Any) -> int:
        samples.append(len(token_ids))
        if who == "sample" and len(samples) == call + 1:
            raise failure("sample failed, as the test wanted it to")
        return SCRIPT[len(samples) - 1]

    model.fails_at, model.failure = call if who == "model" else None, failure
    what = f"a {failure.__name__} of the {who} at token {call}"
    try:
        tokens = list(generate(lab, model, storage, PROMPT, 7, sample=sample))
    except failure:
        check_all_free(storage[1], when=f"after {what}")
    else:
        raise AssertionError(f"{what} should come through; it was swallowed, and the tokens were {tokens}")


def test_task_5_a_pool_that_runs_out_in_the_middle_ends_one_request_only(lab):
    pool, allocator = storage_of(lab, 6, 3)
    first, second = PagingModel(lab, 5, SCRIPT), PagingModel(lab, 4, SCRIPT[::-1])
    one = generate(lab, first, (pool, allocator), PROMPT, 4)
    check_equal([next(one), next(one)], SCRIPT[:2], name="the first request's tokens")
    held = in_use(allocator)
    other, tokens = generate(lab, second, (pool, allocator), [1, 2, 1, 6], 9), list[int]()
    error = lab.paged.allocator.OutOfPages
    name = "the second request, for which 3 pages of 3 places are left,"
    check_raises(error, lambda: tokens.extend(other), name=name)
    check_equal(
        len(second.calls), 6, name="how often the model ran before the pages gave out: 4 + 5 tokens fit"
    )
    check_equal(in_use(allocator), held, name="the pages in use afterwards: the first request's")
    check_equal(list(one), SCRIPT[2:4], name="the first request's tokens after the second had failed")
    check_all_free(allocator, when="at the end of both")


def test_task_5_a_prompt_too_long_for_the_pool_never_runs(lab):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 2, 3)
    error = lab.paged.allocator.OutOfPages
    stream = generate(lab, model, storage, PROMPT, 7)
    check_raises(error, lambda: next(stream), name="a prompt of 5 tokens with one page of 3 places")
    check_equal(len(model.calls), 0, name="how often the model ran")
    check_all_free(storage[1], when="after the refusal")


def test_task_5_no_tokens_need_no_page(lab):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 2, 3)
    try:
        found = list(generate(lab, model, storage, PROMPT, 0))
    except lab.paged.allocator.OutOfPages:
        raise AssertionError(
            "max_tokens is 0, so the model need not run; pages were asked for nevertheless, and too few are free"
        ) from None
    check_equal(found, [], name="the tokens with max_tokens 0 and too few pages for the prompt")


@pytest.mark.parametrize(("length", "max_tokens"), [(0, 3), (8, 3), (9, 0)])
def test_task_5_a_prompt_that_is_empty_or_too_long_is_refused(lab, length, max_tokens):
    model, storage = PagingModel(lab, length, SCRIPT, max_positions=8), storage_of(lab, 9, 3)
    stream = generate(lab, model, storage, [1] * length, max_tokens)
    name = f"a prompt of {length} tokens for a model of 8 positions"
    check_raises(ValueError, lambda: list(stream), name=name)
    check_equal(len(model.calls), 0, name="how often the model ran")
    check_all_free(storage[1], when="after the refusal")


def test_task_5_nothing_is_taken_before_it_is_asked_for(lab):
    model, storage = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 9, 3)
    stream = generate(lab, model, storage, PROMPT, 7)
    check_all_free(storage[1], when="before the first token was asked for")
    check_equal(len(model.calls), 0, name="how often the model ran before a token was asked for")
    stream.close()
    check_equal(list(generate(lab, model, storage, PROMPT, 0)), [], name="the tokens with max_tokens 0")
    check_equal(len(model.calls), 0, name="how often the model ran for no token")
    check_all_free(storage[1], when="after no token was asked for")


def test_task_5_requests_side_by_side_and_after_one_another_use_one_pool(lab):
    storage, streams = storage_of(lab, 12, 3), []
    prompts = (PROMPT, [1, 2], [6] * 7)
    models = [PagingModel(lab, len(prompt), SCRIPT[n:]) for n, prompt in enumerate(prompts)]
    streams = [generate(lab, model, storage, p, 4) for model, p in zip(models, prompts, strict=True)]
    rows = list(zip(*streams, strict=True))
    for n in range(3):
        check_equal([row[n] for row in rows], SCRIPT[n : n + 4], name=f"the tokens of request {n} of three")
    again = PagingModel(lab, 9, SCRIPT)
    check_equal(
        list(generate(lab, again, storage, [2] * 9, 7)), SCRIPT, name="the tokens of one more request"
    )
    check_all_free(storage[1], when="at the end")


def test_task_5_sample_sees_every_id_and_the_callers_prompt_stays(lab):
    model, storage, seen = PagingModel(lab, len(PROMPT), SCRIPT), storage_of(lab, 9, 3), list[Any]()

    def sample(logits: Any, token_ids: Any) -> int:
        seen.append((lab.numpy(logits), list(token_ids)))
        return [6, 2, 10][len(seen) - 1]

    prompt = list(PROMPT)
    tokens = lab.paged.sequence.generate_on_pages(model, *storage, prompt, 3, sample=sample)
    check_equal(list(tokens), [6, 2, 10], name="the tokens, which sample chooses")
    check_equal(prompt, PROMPT, name="the caller's prompt, afterwards (copy it before you append)")
    for n, (scores, ids) in enumerate(seen):
        expected = PROMPT + [6, 2, 10][:n]
        check_equal(ids, expected, name=f"the ids given to sample for token {n}")
        state = np.array([len(expected), expected[-1], sum(expected)], dtype=np.float64)
        check(scores, model.scores(state), name=f"the logits for token {n}", axes="V", framework="numpy")


@sizes_of_pages
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_5_the_model_of_week_1_says_the_same_as_with_its_own_caches(lab, family, P):
    config = lab.config.ModelConfig(**numpy_model.config_fields(family))
    tensors = numpy_model.random_tensors(family)
    weights = lab.weights.Weights(config, {name: lab.array(values) for name, values in tensors.items()})
    model = lab.model.Transformer(config, weights)
    storage = storage_of(lab, 26, P)
    for prompt, count in (([30, 4, 17, 8], 6), ([9, 1] * 8 + [5], 7), ([12], 3)):
        expected = list(lab.generate.generate(model, prompt, count))
        actual = list(generate(lab, model, storage, prompt, count))
        check_equal(actual, expected, name=f"{count} tokens after {prompt}, compared with `generate`")
    check_all_free(storage[1], when="after three requests")
