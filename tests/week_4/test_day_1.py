"""Day 4.1: page caches: the life of a page, finding prefixes, publishing, releasing and evicting."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from week_3.pages import pages_needed

from coursekit import lab as door
from coursekit.check import check_equal, check_raises

from .arrivals import Arrivals
from .events import LATE, events, play
from .prefixes import (
    PAGE_SIZES,
    base_of,
    books,
    check_books,
    check_held,
    check_sound,
    check_unheld,
    compute,
    computed,
    cut,
    hold,
    pages_in,
    plant,
    sequence_with,
    text,
    tree,
    tree_of,
    trie_of,
)
from .telling import (
    acquire,
    check_calls,
    check_new_list,
    check_refused,
    check_tip,
    counts_too_early,
    find,
    more_tokens,
    release,
    withdraw_after_failure,
)

QUICK = settings(max_examples=100, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"P = {P}")
EDGES = [(k, edge) for k in (1, 2, 3) for edge in (-1, 0, 1)]
at_edges = pytest.mark.parametrize(
    ("k", "edge"), EDGES, ids=[f"{k}P{edge:+d}" if edge else f"{k}P" for k, edge in EDGES]
)


# Task 1: the life of a page


def test_task_1_lacking_takes_no_page(lab):
    cache = base_of(lab)
    sequence = sequence_with(lab, cache, 4)
    before = books(cache, [sequence])
    cache.lacking(sequence, 9)
    check_books(cache, [sequence], before, "after lacking(sequence, 9)")


@sizes_of_pages
def test_task_1_the_pages_that_are_lacking_at_page_edges(lab, P):
    """No page is free: `lacking` says what is needed, whether it is there or not."""
    edges = sorted({0, 1, P - 1, P, P + 1, 2 * P - 1, 2 * P, 2 * P + 1}, reverse=True)
    found, expected, wrong = dict[str, int](), dict[str, int](), defaultdict[str, dict[str, int]](dict)
    for length, more, count in product(edges, (0, 1, 2), edges):
        has, wanted = pages_needed(length, P) + more, pages_needed(length + count, P)
        cache = base_of(lab, max(2, 1 + has), P)
        call = f"pages of {P} lacking for {more_tokens(count)}, where {has} pages hold {length} tokens"
        found[call] = cache.lacking(sequence_with(lab, cache, length, has), count)
        expected[call] = max(0, wanted - has)
        for mistake, value in {
            "a negative number, where the pages have more room than is needed": wanted - has,
            "the pages that the sequence has already are counted, too": wanted,
            "pages that the sequence has and its tokens don't need yet were not counted": (
                wanted - pages_needed(length, P)
            ),
            "a page too many, where the tokens end at a page's edge": max(0, (length + count) // P + 1 - has),
            "rounded down: a page that is filled in part is needed, too": max(0, (length + count) // P - has),
            "pages for the new tokens alone: the last page may have room for some of them": (
                pages_needed(count, P)
            ),
        }.items():
            wrong[mistake][call] = value
    check_calls(found, expected, wrong)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6, 8])
@pytest.mark.parametrize(("length", "pages"), [(0, 0), (4, 2), (6, 2), (4, 3)])
def test_task_1_a_sequence_gets_the_pages_that_it_lacks(lab, length, pages, count):
    cache = base_of(lab, 9)
    other, sequence = sequence_with(lab, cache, 1), sequence_with(lab, cache, length, pages)
    had = list(sequence.pages)
    name = f"acquire for {more_tokens(count)}, where {pages} pages of 3 held {length} tokens"
    acquire(lab, cache, sequence, count, name)
    wanted = max(pages, pages_needed(length + count, 3))
    check_equal(len(sequence.pages), wanted, name=f"how many pages the sequence has after {name}")
    check_equal(sequence.pages[:pages], had, name=f"the pages that it had before {name}")
    check_equal(sequence.length, length, name=f"the sequence's length after {name} (nothing is computed yet)")
    check_held(cache, dict.fromkeys([*other.pages, *sequence.pages], 1), f"after {name}")
    check_sound(cache, [other, sequence], f"after {name}")


@pytest.mark.parametrize(
    ("length", "count", "free"), [(0, 1, 0), (0, 7, 2), (4, 9, 2), (6, 1, 0), (5, 20, 4)]
)
def test_task_1_too_few_pages_are_refused_and_nothing_changes(lab, length, count, free):
    has = pages_needed(length, 3)
    cache = base_of(lab, 1 + has + free + 1)
    other, sequence = sequence_with(lab, cache, 1), sequence_with(lab, cache, length)
    lacking, before = pages_needed(length + count, 3) - has, books(cache, [other, sequence])
    name = (
        f"acquire for {more_tokens(count)}, where {has} pages of 3 hold {length} tokens and {free} are free"
    )
    check_refused(lab, cache, sequence, count, lacking, name)
    check_books(cache, [other, sequence], before, f"after the refused {name}")


@pytest.mark.parametrize(("length", "free"), [(0, 2), (4, 2), (6, 1), (5, 0)])
def test_task_1_the_last_free_pages_may_be_taken(lab, length, free):
    has = pages_needed(length, 3)
    cache = base_of(lab, max(2, 1 + has + free))
    sequence, count = sequence_with(lab, cache, length), (has + free) * 3 - length
    for again in ("", ", asked a second time"):
        held = len(sequence.pages)
        name = f"acquire for {more_tokens(count)}, where {held} pages of 3 held {length} tokens{again}"
        acquire(lab, cache, sequence, count, name)
        check_equal(len(sequence.pages), has + free, name=f"how many pages the sequence has after {name}")


@pytest.mark.parametrize("cache_of", [base_of, trie_of], ids=["BasePageCache", "TrieCache"])
def test_task_1_both_caches_know_what_is_lacking(lab, cache_of):
    cache = cache_of(lab)
    check_equal(
        cache.lacking(sequence_with(lab, cache, 4), 3), 1, name="pages lacking for 3 tokens behind 4, P = 3"
    )


@pytest.mark.parametrize("reserved", [0, 1, 2])
@pytest.mark.parametrize("keep", [7, 4, 5, 8, 1, 2, 0, 3, 6])
def test_task_1_release_keeps_the_pages_of_the_first_tokens(lab, keep, reserved):
    cache = base_of(lab)
    other = sequence_with(lab, cache, 4)
    sequence = sequence_with(lab, cache, 8, 3 + reserved)
    old, had, left = sequence.pages, list(sequence.pages), sequence.pages[: pages_needed(keep, 3)]
    cache.release(sequence, keep)
    name = f"after release(keep={keep}) of 8 tokens in {3 + reserved} pages of 3"
    suspects = {"everything was given up, whatever is to be kept": list[int]()}
    if keep > 3:
        suspects["the page that is kept in part was freed"] = left[: keep // 3]
    check_equal(
        sequence.pages, left, name=f"the sequence's pages {name}", suspects={} if 0 < keep < 3 else suspects
    )
    check_equal(sequence.length, keep, name=f"the sequence's length {name}")
    check_held(cache, dict.fromkeys([*other.pages, *left], 1), name)
    check_new_list(sequence, old, had, name)
    check_equal(cache.evicted, 0, name=f"how many pages were evicted so far (`evicted`), {name}")
    check_sound(cache, [other, sequence], name)


def test_task_1_release_gives_up_everything_unless_told_what_to_keep(lab):
    cache = base_of(lab)
    sequence = sequence_with(lab, cache, 7)
    cache.release(sequence)
    check_equal((sequence.pages, sequence.length), ([], 0), name="pages and length after release")
    check_held(cache, {}, "after release")


def test_task_1_pages_that_wait_for_their_first_token_are_released_too(lab):
    cache = base_of(lab)
    sequence = sequence_with(lab, cache, 0, 3)
    cache.release(sequence)
    check_equal(sequence.pages, [], name="the pages of a sequence without tokens after release")
    check_held(cache, {}, "after release of a sequence with three pages and no token")


def test_task_1_a_sequence_may_be_released_twice_and_used_again(lab):
    cache = base_of(lab)
    other, sequence = sequence_with(lab, cache, 4), sequence_with(lab, cache, 7)
    for when in ("after release", "after a second release"):
        cache.release(sequence)
        check_equal((sequence.pages, sequence.length), ([], 0), name=f"pages and length {when}")
        check_held(cache, dict.fromkeys(other.pages, 1), when)
    cache.acquire(sequence, 4)
    check_equal(len(sequence.pages), 2, name="how many pages a released sequence gets for 4 tokens")
    check_sound(cache, [other, sequence], "after a released sequence got pages again")


def test_task_1_a_page_that_another_user_holds_is_not_free_after_release(lab):
    cache = base_of(lab)
    sequence = sequence_with(lab, cache, 7)
    first, second, _ = sequence.pages
    cache.allocator.share([first, second])
    cache.release(sequence)
    check_held(cache, {first: 1, second: 1}, "after release, where another user shares the first two pages")


@QUICK
@given(num_pages=st.integers(2, 24), P=st.integers(1, 4), happens=events)
def test_task_1_any_order_of_arrivals_steps_failures_and_endings_keeps_the_books(num_pages, P, happens):
    lab = door.active()
    arrivals = Arrivals(lab, base_of(lab, num_pages, P))
    play(arrivals, happens)
    check_equal(arrivals.found, 0, name="tokens that `match` found, where nothing is shared")


# Task 2: find a prefix


@sizes_of_pages
@at_edges
def test_task_2_at_least_one_token_is_left_to_compute(lab, P, k, edge):
    cache, known = trie_of(lab, 8, P), text(5 * P)
    path = plant(lab, cache, known)
    sequence, length = sequence_with(lab, cache), k * P + edge
    pages = max(0, length - 1) // P
    one_page = find(cache, sequence_with(lab, cache), known[:P])
    found = find(cache, sequence, known[:length])
    name = f"a prompt of {length} tokens, where the tree has its first {5 * P} in pages of {P}"
    whole = "the whole prompt was found: its last token must be computed"
    if one_page == 0:
        whole = "the whole prompt was found (not so if it is one page): before each page, count those found so far"
    check_equal(found, pages * P, name=f"tokens found of {name}", suspects={whole: length // P * P})
    check_equal(sequence.pages, pages_in(path[:pages]), name=f"the sequence's pages after match of {name}")
    check_equal(sequence.length, pages * P, name=f"the sequence's length after match of {name}")


@pytest.mark.parametrize("length", [0, 1, 3])
def test_task_2_short_prompts_find_nothing(lab, length):
    cache = trie_of(lab)
    plant(lab, cache, text(9))
    sequence = sequence_with(lab, cache)
    before = books(cache, [sequence])
    check_equal(find(cache, sequence, text(length)), 0, name=f"tokens found of a prompt of {length}, P = 3")
    check_books(cache, [sequence], before, f"after match of a prompt of {length} tokens")


def test_task_2_an_empty_tree_has_nothing(lab):
    cache = trie_of(lab)
    sequence = sequence_with(lab, cache)
    before = books(cache, [sequence])
    check_equal(find(cache, sequence, text(10)), 0, name="tokens found in an empty tree")
    check_books(cache, [sequence], before, "after match in an empty tree")


def test_task_2_a_page_is_found_only_with_all_its_tokens(lab):
    cache = trie_of(lab)
    known = text(9)
    plant(lab, cache, known)
    for wrong in range(9):
        prompt = [*known, 50]
        prompt[wrong] = 60
        sequence = sequence_with(lab, cache)
        name = f"tokens found of a prompt of 10 that differs at position {wrong}, P = 3"
        check_equal(find(cache, sequence, prompt), wrong // 3 * 3, name=name)
        check_equal(len(sequence.pages), wrong // 3, name=f"how many pages the sequence has: {name}")
        end = f"after match of a prompt that differs at position {wrong}"
        check_tip(cache, sequence, sequence.pages[-1] if sequence.pages else 0, 0, end)


def test_task_2_the_tokens_of_a_page_count_in_their_order(lab):
    cache = trie_of(lab)
    plant(lab, cache, text(6))
    for prompt, found in (([3, 2, 1, 4, 5, 6, 7], 0), ([1, 2, 3, 5, 4, 6, 7], 3)):
        sequence = sequence_with(lab, cache)
        check_equal(
            find(cache, sequence, prompt),
            found,
            name=f"tokens found of {prompt}, where the tree has {text(6)}",
        )


def test_task_2_a_page_is_found_only_behind_its_own_prefix(lab):
    cache, (one, two, three, four) = trie_of(lab), (text(3, seed=seed) for seed in range(4))
    for known in (one + two, three + four):
        plant(lab, cache, known)
    cases = {0: two + one, 3: one + one + two, 6: one + two + two}
    for found, prompt in [*cases.items(), (3, one + four), (3, three + two), (0, four + two)]:
        sequence, prompt = sequence_with(lab, cache), [*prompt, 9]
        name = f"tokens found of {prompt}, where the tree has {one + two} and {three + four}"
        check_equal(find(cache, sequence, prompt), found, name=name)


def test_task_2_tokens_that_repeat_are_found_page_by_page(lab):
    cache, one = trie_of(lab), text(3)
    a, b, _ = pages_in(plant(lab, cache, one * 3))
    sequence = sequence_with(lab, cache)
    check_equal(find(cache, sequence, one * 2 + [1]), 6, name="tokens found of a text that repeats itself")
    check_equal(sequence.pages, [a, b], name="the pages of a text that repeats itself")


def test_task_2_the_branch_with_the_right_tokens_is_taken(lab):
    cache, start = trie_of(lab), text(3)
    branches = [plant(lab, cache, start + text(6, seed=seed)) for seed in (1, 2, 3)]
    for seed, path in enumerate(branches, start=1):
        sequence = sequence_with(lab, cache)
        found = find(cache, sequence, start + text(7, seed=seed))
        check_equal(found, 9, name=f"tokens found of the text of branch {seed}")
        check_equal(sequence.pages, pages_in(path), name=f"the pages of branch {seed}")


def test_task_2_a_reference_is_taken_to_each_page_at_once(lab):
    cache = trie_of(lab)
    a, b, c, d = (node.page for node in plant(lab, cache, text(12)))
    sequence = sequence_with(lab, cache)
    find(cache, sequence, text(9))
    check_held(
        cache,
        {a: 2, b: 2, c: 1, d: 1},
        "after match found two of four pages: the tree's and the sequence's",
        {
            "the sequence took no reference": dict.fromkeys((a, b, c, d), 1),
            "only the last page found got a reference": {a: 1, b: 2, c: 1, d: 1},
            "with each page found, all pages of the sequence got a reference again": {a: 3, b: 2, c: 1, d: 1},
        },
    )
    check_tip(cache, sequence, b, 0, "after match found two of four pages")


def test_task_2_what_was_found_may_not_be_evicted(lab):
    cache = trie_of(lab)
    x, y = pages_in(plant(lab, cache, text(6, seed=1)))
    a, b, c, d = pages_in(plant(lab, cache, text(12)))
    check_unheld(cache, [y, x, d, c, b, a], "before match")
    sequence = sequence_with(lab, cache)
    find(cache, sequence, text(9))
    check_unheld(
        cache,
        [y, x, d, c],
        f"after match found the pages {a} and {b}",
        the_pages_that_were_found_are_still_there=[y, x, d, c, b, a],
    )
    check_sound(cache, [sequence], "after match found two of four pages that no sequence held")


def test_task_2_each_sequence_takes_its_own_references(lab):
    cache = trie_of(lab)
    a, b, c = pages_in(plant(lab, cache, text(9)))
    sequences = [sequence_with(lab, cache) for _ in range(3)]
    for sequence, length, found in zip(sequences, (10, 7, 9), (9, 6, 6), strict=True):
        check_equal(find(cache, sequence, text(length)), found, name=f"tokens found of a prompt of {length}")
    check_held(cache, {a: 4, b: 4, c: 2}, "when three sequences have found 3, 2 and 2 pages")
    check_unheld(cache, [], "when three sequences hold all pages")
    check_sound(cache, sequences, "when three sequences hold the same path")


def test_task_2_a_half_computed_prompt_goes_on_behind_its_path(lab):
    cache = trie_of(lab)
    path = plant(lab, cache, text(12))
    a, b, c, d = pages_in(path)
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path[:2])
    found = find(cache, sequence, text(14))
    name = "match of a prompt of 14 tokens, of which the sequence has 6 in two pages of the tree"
    again = {"the search began at the root again": [a, b, a, b, c, d]}
    check_equal(sequence.pages, [a, b, c, d], name=f"the sequence's pages after {name}", suspects=again)
    check_equal(sequence.length, 12, name=f"the sequence's length after {name}")
    suspects = {"all tokens that the sequence has now, not only those that were found": 12}
    check_equal(found, 6, name=f"what {name} gives", suspects=suspects)
    held = dict.fromkeys([a, b, c, d], 2)
    twice = {"the pages that the sequence had before got another reference": held | {a: 3, b: 3}}
    check_held(cache, held, f"after {name}", twice)
    check_tip(cache, sequence, d, b, f"after {name}")
    check_sound(cache, [sequence], f"after {name}")


@pytest.mark.parametrize("length", [4, 5, 6, 7, 9])
def test_task_2_what_was_found_once_is_not_found_again(lab, length):
    cache = trie_of(lab)
    plant(lab, cache, text(12))
    sequence = sequence_with(lab, cache)
    find(cache, sequence, text(length))
    before = books(cache, [sequence])
    check_equal(find(cache, sequence, text(length)), 0, name=f"what a second match of {length} tokens gives")
    check_books(cache, [sequence], before, f"after a second match of {length} tokens")


def test_task_2_a_longer_text_finds_the_page_that_was_left(lab):
    cache = trie_of(lab)
    path = plant(lab, cache, text(6))
    sequence = sequence_with(lab, cache)
    find(cache, sequence, text(6))
    check_equal(
        find(cache, sequence, text(7)), 3, name="tokens found when the text has grown from 6 to 7 tokens"
    )
    check_equal(sequence.pages, pages_in(path), name="the sequence's pages when the text has grown")


OWN = {
    "a full page of its own": (3, 1),
    "a page of its own, filled in part": (2, 1),
    "a page of its own without a token": (0, 1),
    "a full page of its own and an empty one": (3, 2),
}


@pytest.mark.parametrize("own", OWN, ids=OWN)
@pytest.mark.parametrize("depth", [0, 1])
def test_task_2_a_sequence_with_a_page_behind_its_path_finds_nothing(lab, depth, own):
    cache, (tokens, pages) = trie_of(lab), OWN[own]
    path = plant(lab, cache, text(12))
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path[:depth])
    compute(sequence, tokens, pages)
    before = books(cache, [sequence])
    name = f"match of a sequence that has {own} behind {depth} pages of the tree"
    check_equal(find(cache, sequence, text(12)), 0, name=f"what {name} gives")
    check_books(cache, [sequence], before, f"after {name}")


@pytest.mark.parametrize("length", [0, 2, 3, 5])
def test_task_2_a_sequence_whose_step_is_planned_finds_nothing(lab, length):
    """Its pages are published, and the model hasn't run: its length ends before its path does."""
    cache = trie_of(lab)
    path = plant(lab, cache, text(12))
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path[:2])
    sequence.length, cache.planned = length, path[1:2] if length >= 3 else path[:2]
    before = books(cache, [sequence])
    name = f"match of a sequence that has {length} tokens and has published two pages of 3 for this step"
    planned = "pages that the sequence published itself count as found: its length says what it has"
    check_equal(
        find(cache, sequence, text(14)),
        0,
        name=f"what {name} gives",
        suspects={planned: 12 - length},
    )
    check_books(cache, [sequence], before, f"after {name}")


def test_task_2_pages_that_were_planned_in_this_step_are_found(lab):
    cache = trie_of(lab)
    path = plant(lab, cache, text(9))
    check_equal(find(cache, sequence_with(lab, cache), text(10)), 9, name="tokens found when none is planned")
    publisher, sequence = sequence_with(lab, cache), sequence_with(lab, cache)
    hold(cache, publisher, path)
    cache.planned += path[1:]
    check_equal(
        find(cache, sequence, text(10)),
        9,
        name="tokens found, two of three pages planned in this step",
        suspects={
            "pages of this step count, too: each layer writes the keys of the whole step before it reads any": 3
        },
    )
    check_held(cache, dict.fromkeys(pages_in(path), 4), "after match found planned pages")
    check_equal(pages_in(cache.planned), pages_in(path[1:]), name="the pages in `planned` after match")


@pytest.mark.parametrize("kind", [list, tuple])
def test_task_2_the_tokens_may_be_a_list_or_a_tuple(lab, kind):
    cache = trie_of(lab)
    plant(lab, cache, text(9))
    sequence, prompt = sequence_with(lab, cache), kind(text(8))
    check_equal(find(cache, sequence, prompt), 6, name=f"tokens found of a {kind.__name__}")


def test_task_2_no_page_is_taken_and_no_node_is_added_or_lost(lab):
    cache = trie_of(lab)
    plant(lab, cache, text(9))
    known, free = tree(cache), list(cache.allocator.free_pages)
    find(cache, sequence_with(lab, cache), text(6) + text(6, seed=1))
    check_equal(cache.evicted, 0, name="how many pages were evicted so far (`evicted`), after match")
    check_equal(tree(cache), known, name="the tree after match")
    check_equal(cache.allocator.free_pages, free, name="the free pages after match")


# Task 3: publish, and take it back


@pytest.mark.parametrize("stop", range(1, 10))
def test_task_3_tokens_that_are_known_but_not_computed_are_not_published(lab, stop):
    cache = trie_of(lab)
    sequence, token_ids = sequence_with(lab, cache, 0, 5), text(15)
    cache.publish(sequence, token_ids, stop)
    check_equal(token_ids, text(15), name=f"the caller's list of tokens after publish up to token {stop}")
    check_equal(
        tree(cache),
        tree_of((text(15), sequence.pages[: stop // 3])),
        name=f"the tree (tokens: page) after publish up to token {stop} of 15, with 5 pages of 3",
        suspects={
            "a page that is filled only in part was published": tree_of(
                (text(15), sequence.pages[: -(-stop // 3)])
            ),
            "pages behind `stop` were published": tree_of((text(15), sequence.pages)),
        },
    )


@sizes_of_pages
@at_edges
def test_task_3_only_pages_that_will_be_full_are_published(lab, P, k, edge):
    cache, stop = trie_of(lab, 8, P), k * P + edge
    token_ids = text(5 * P)
    sequence = sequence_with(lab, cache, 0, pages_needed(stop, P))
    cache.publish(sequence, token_ids, stop)
    full = sequence.pages[: stop // P]
    name = f"after publish up to token {stop}, P = {P}"
    check_equal(tree(cache), tree_of((token_ids, full), P=P), name=f"the tree (tokens: page) {name}")
    check_equal(pages_in(cache.planned), full, name=f"the pages in `planned` {name}")
    rest = dict.fromkeys(sequence.pages[len(full) :], 1)
    check_held(cache, dict.fromkeys(full, 2) | rest, f"{name}: the sequence's, and the tree's")
    check_equal(sequence.length, 0, name=f"the sequence's length {name}: nothing is computed yet")
    check_tip(cache, sequence, full[-1] if full else 0, 0, name)
    cache.commit()
    compute(sequence, stop, 0)
    check_sound(cache, [sequence], f"{name}, and the step")


def test_task_3_chunk_by_chunk_each_page_is_published_once(lab):
    cache, token_ids = trie_of(lab), text(14)
    sequence = sequence_with(lab, cache)
    for start, stop, planned in ((0, 4, 1), (4, 5, 0), (5, 11, 2), (11, 12, 1), (12, 14, 0)):
        compute(sequence, 0, pages_needed(stop, 3) - len(sequence.pages))
        cache.publish(sequence, token_ids, stop)
        name = f"after publish of the chunk from token {start} to {stop}, P = 3"
        full = stop // 3
        new = range(full - planned, full)
        by_start = [sequence.pages[n] for n in new if n * 3 >= start]
        check_equal(
            pages_in(cache.planned),
            [sequence.pages[n] for n in new],
            name=f"`planned` {name}",
            suspects={
                "a page that the step fills to its end is planned, even if it begins before the step": by_start
            }
            if by_start
            else {},
        )
        check_equal(
            tree(cache), tree_of((token_ids, sequence.pages[:full])), name=f"the tree (tokens: page) {name}"
        )
        rest = dict.fromkeys(sequence.pages[full:], 1)
        check_held(cache, dict.fromkeys(sequence.pages[:full], 2) | rest, name)
        cache.commit()
        compute(sequence, stop - start, 0)
        check_sound(cache, [sequence], name)


def test_task_3_what_was_published_once_is_not_published_again(lab):
    cache = trie_of(lab)
    sequence = sequence_with(lab, cache, 0, 3)
    cache.publish(sequence, text(8), 8)
    before = books(cache, [sequence])
    cache.publish(sequence, text(8), 8)
    check_books(cache, [sequence], before, "after the same tokens were published a second time")


def test_task_3_pages_are_published_behind_the_path_that_was_found(lab):
    cache = trie_of(lab)
    path = plant(lab, cache, text(6))
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path)
    compute(sequence, 0, 2)
    cache.publish(sequence, text(13), 11)
    check_equal(tree(cache), tree_of((text(13), sequence.pages[:3])), name="the tree (tokens: page)")
    check_equal(
        pages_in(cache.planned), sequence.pages[2:3], name="the pages in `planned`: those of this step"
    )
    check_held(
        cache, dict.fromkeys(sequence.pages[:3], 2) | {sequence.pages[3]: 1}, "after publish behind a path"
    )
    check_tip(cache, sequence, sequence.pages[2], sequence.pages[1], "after publish behind a path")


def test_task_3_generated_tokens_are_published_like_those_of_the_prompt(lab):
    cache, token_ids = trie_of(lab), text(5)
    sequence = sequence_with(lab, cache, 0, 2)
    cache.publish(sequence, token_ids, 5)
    cache.commit()
    compute(sequence, 5, 0)
    token_ids.append(77)
    cache.publish(sequence, token_ids, 6)
    check_equal(
        tree(cache), {"1 2 3": sequence.pages[0], "1 2 3 | 4 5 77": sequence.pages[1]}, name="the tree"
    )


def test_task_3_the_page_of_another_request_stays_in_the_tree(lab):
    cache = trie_of(lab)
    theirs = plant(lab, cache, text(3))
    sequence = sequence_with(lab, cache, 3)
    compute(sequence, 0, 2)
    before, own = tree(cache), list(sequence.pages)
    cache.publish(sequence, text(9), 9)
    name = "where the tree has a page of another request with the sequence's first tokens"
    check_equal(sequence.pages, own, name=f"the sequence's pages after publish, {name}")
    check_equal(
        tree(cache),
        before,
        name=f"the tree (tokens: page) after publish, {name}",
        suspects={
            "the sequence's own pages took its place": tree_of((text(9), own)),
            "pages behind it were published: they hang on a page that the sequence doesn't hold": tree_of(
                (text(9), [theirs[0].page, *own[1:]])
            ),
        },
    )
    check_held(cache, dict.fromkeys([theirs[0].page, *own], 1), f"after publish, {name}")
    check_equal(pages_in(cache.planned), [], name=f"the pages in `planned`, {name}")
    check_unheld(cache, pages_in(theirs), f"after publish, {name}")
    check_sound(cache, [sequence], f"after publish, {name}")


def test_task_3_what_stands_before_the_page_of_another_request_is_published(lab):
    cache = trie_of(lab)
    path = plant(lab, cache, text(6))
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path[:1])
    compute(sequence, 3)
    compute(sequence, 0, 2)
    cache.publish(sequence, text(12), 12)
    check_equal(tree(cache), tree_of((text(6), pages_in(path))), name="the tree (tokens: page) after publish")
    check_equal(cache.tip(sequence).page, path[0].page, name="the last page on the sequence's path")
    cut(cache, path[1])
    cache.publish(sequence, text(12), 12)
    check_equal(
        tree(cache),
        tree_of((text(12), sequence.pages)),
        name="the tree (tokens: page) after publish, when the other's page had been evicted",
    )


def test_task_3_a_page_that_was_computed_before_is_published_when_the_other_is_gone(lab):
    cache = trie_of(lab)
    (theirs,) = plant(lab, cache, text(3))
    sequence = sequence_with(lab, cache, 7)
    compute(sequence, 0, 1)
    cache.publish(sequence, text(11), 8)
    check_equal(
        tree(cache), tree_of((text(3), [theirs.page])), name="the tree while the other's page is there"
    )
    cut(cache, theirs)
    cache.publish(sequence, text(11), 8)
    own = sequence.pages[:3]
    name = "after publish of two pages that were computed before, when the other's page was evicted"
    check_equal(tree(cache), tree_of((text(6), own[:2])), name=f"the tree (tokens: page) {name}")
    waits = {"pages that were computed in earlier steps wait for nothing": own[:2]}
    check_equal(pages_in(cache.planned), [], name=f"the pages in `planned` {name}", suspects=waits)
    check_tip(cache, sequence, own[1], 0, name)


def test_task_3_only_what_this_step_computes_is_planned_when_more_is_published(lab):
    cache = trie_of(lab)
    (theirs,) = plant(lab, cache, text(3))
    sequence = sequence_with(lab, cache, 7)
    compute(sequence, 0, 1)
    cut(cache, theirs)
    cache.publish(sequence, text(11), 10)
    own = sequence.pages[:3]
    check_equal(
        tree(cache), tree_of((text(9), own)), name="the tree (tokens: page) when the other's page was evicted"
    )
    check_equal(
        pages_in(cache.planned),
        own[2:],
        name=f"the pages in `planned`: {own[0]} and {own[1]} were full before this step",
        suspects={"pages that were computed in earlier steps wait for nothing": own},
    )


def test_task_3_the_tree_keeps_the_tokens_when_the_caller_changes_its_list(lab):
    cache, token_ids = trie_of(lab), text(7)
    sequence = sequence_with(lab, cache, 0, 3)
    cache.publish(sequence, token_ids, 7)
    check_equal(token_ids, text(7), name="the list of tokens after publish")
    token_ids[1] = 99
    check_equal(
        tree(cache), tree_of((text(6), sequence.pages[:2])), name="the tree, when the caller changed its list"
    )
    other = sequence_with(lab, cache, 0, 1)
    cache.publish(other, tuple(text(3, seed=1)), 3)
    check_equal(len(tree(cache)), 3, name="nodes in the tree when a tuple of tokens was published, too")


def test_task_3_sequences_that_differ_are_published_side_by_side(lab):
    cache, start = trie_of(lab), text(3)
    first, second = sequence_with(lab, cache, 0, 2), sequence_with(lab, cache)
    cache.publish(first, start + text(3, seed=1), 6)
    cache.match(second, start + text(4, seed=2))
    compute(second, 0, 2)
    cache.publish(second, start + text(4, seed=2), 7)
    expected = tree_of((start + text(3, seed=1), first.pages), (start + text(3, seed=2), second.pages[:2]))
    check_equal(tree(cache), expected, name="the tree (tokens: page) of two texts that begin alike")
    check_equal(
        pages_in(cache.planned),
        [*first.pages, second.pages[1]],
        name="the pages in `planned`: those of both sequences",
    )


def test_task_3_a_step_that_failed_leaves_nothing_in_the_tree(lab):
    cache = trie_of(lab)
    plant(lab, cache, text(6, seed=1))
    before, sequence = books(cache), sequence_with(lab, cache)
    compute(sequence, 0, 4)
    cache.publish(sequence, text(11), 11)
    withdraw_after_failure(cache, {sequence: 0})
    check_books(
        cache, [], before, "after a step that failed, its only sequence released and `withdraw` called"
    )
    check_sound(cache, [sequence], "after withdraw")


def test_task_3_a_page_that_a_sequence_keeps_is_its_own_again(lab):
    cache = trie_of(lab)
    sequence = sequence_with(lab, cache, 4)
    cache.publish(sequence, text(8), 3)
    cache.commit()
    before = books(cache, [sequence])
    compute(sequence, 0, 2)
    pages, name = list(sequence.pages), "after a step from token 4 to 12 failed (P = 3)"
    cache.publish(sequence, text(12), 12)
    withdraw_after_failure(cache, {sequence: 4})
    check_equal(
        tree(cache),
        tree_of((text(3), pages[:1])),
        name=f"the tree (tokens: page) {name}: page {pages[1]} has token 3 in it, and its sequence keeps it",
        suspects={
            "a planned node that isn't in `unheld`, because its sequence keeps the page, leaves the tree, too": (
                tree_of((text(6), pages[:2]))
            )
        },
    )
    check_books(cache, [sequence], before, name)


def test_task_3_the_earlier_pages_of_a_sequence_stay_when_its_step_fails(lab):
    cache = trie_of(lab)
    sequence = sequence_with(lab, cache, 0, 3)
    cache.publish(sequence, text(12), 7)
    cache.commit()
    compute(sequence, 7, 0)
    before = books(cache, [sequence])
    compute(sequence, 0, 1)
    cache.publish(sequence, text(12), 12)
    withdraw_after_failure(cache, {sequence: 7})
    check_books(cache, [sequence], before, "after a step from token 7 to 12 failed (P = 3)")
    check_sound(cache, [sequence], "after withdraw")
    compute(sequence, 0, 1)
    cache.publish(sequence, text(12), 12)
    check_equal(
        tree(cache), tree_of((text(12), sequence.pages)), name="the tree when the step is tried again"
    )
    check_equal(
        pages_in(cache.planned), sequence.pages[2:], name="the pages in `planned` when it is tried again"
    )


@pytest.mark.parametrize("publisher_first", [True, False], ids=["publisher first", "finder first"])
def test_task_3_planned_pages_that_another_sequence_found_are_taken_back(lab, publisher_first):
    cache = trie_of(lab)
    plant(lab, cache, text(3, seed=1))
    first, second = sequence_with(lab, cache), sequence_with(lab, cache)
    before = books(cache, [first, second])
    compute(first, 0, 3)
    cache.publish(first, text(8), 8)
    cache.match(second, text(6) + text(4, seed=2))
    compute(second, 0, 2)
    cache.publish(second, text(6) + text(4, seed=2), 10)
    sequences = [first, second] if publisher_first else [second, first]
    withdraw_after_failure(cache, dict.fromkeys(sequences, 0))
    check_books(
        cache,
        [first, second],
        before,
        "after a step failed in which one sequence found what the other planned",
    )
    check_sound(cache, [first, second], "after withdraw")


def test_task_3_a_page_of_an_earlier_step_that_was_published_late_stays(lab):
    cache = trie_of(lab)
    (theirs,) = plant(lab, cache, text(3))
    sequence = sequence_with(lab, cache, 6)
    cut(cache, theirs)
    compute(sequence, 0, 1)
    cache.publish(sequence, text(9), 9)
    withdraw_after_failure(cache, {sequence: 6})
    check_equal(
        tree(cache),
        tree_of((text(6), sequence.pages)),
        name="the tree (tokens: page) after the failed step: tokens 0 to 5 were computed before it",
        suspects={
            "pages that were computed before this step were taken back, too": {},
            "the page that ends with the last token computed before it was taken back, too": tree_of(
                (text(3), sequence.pages[:1])
            ),
        },
    )
    check_sound(cache, [sequence], "after withdraw")


def test_task_3_nothing_is_taken_back_after_a_step_that_ran(lab):
    cache = trie_of(lab)
    sequence = sequence_with(lab, cache, 0, 2)
    cache.publish(sequence, text(6), 6)
    cache.commit()
    compute(sequence, 6, 0)
    before = books(cache, [sequence])
    for when in ("after a withdraw when nothing was planned", "after a second one"):
        cache.withdraw()
        check_books(cache, [sequence], before, when)


def test_task_3_pages_are_taken_back_once(lab):
    cache = trie_of(lab)
    sequence = sequence_with(lab, cache, 0, 2)
    cache.publish(sequence, text(6), 6)
    withdraw_after_failure(cache, {sequence: 0})
    before = books(cache, [sequence])
    cache.withdraw()
    check_books(cache, [sequence], before, "after a second withdraw")
    check_held(cache, {}, "after a second withdraw")


def test_task_3_other_pages_may_be_evicted_in_the_order_that_they_had(lab):
    cache = trie_of(lab)
    x, y = pages_in(plant(lab, cache, text(6, seed=1)))
    (z,) = pages_in(plant(lab, cache, text(3, seed=2)))
    path = plant(lab, cache, text(6))
    plant(lab, cache, text(6, seed=1))  # once more: x and y are used again, after z
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path)
    compute(sequence, 0, 2)
    cache.publish(sequence, text(12), 12)
    withdraw_after_failure(cache, {sequence: 0})
    check_unheld(cache, [z, y, x, path[1].page, path[0].page], "after a step that failed")


# Task 4: release and evict


HELD = [(0, 0, 0), (2, 0, 1), (0, 3, 0), (2, 3, 2), (0, 5, 7), (4, 2, 0)]
"""Pages of the tree that sequences hold, pages that only the tree holds, and pages of another user."""


def test_task_4_free_pages_and_pages_that_no_sequence_holds_are_available(lab):
    found, expected, wrong = dict[str, int](), dict[str, int](), defaultdict[str, dict[str, int]](dict)
    for held, cached, others in HELD:
        cache = trie_of(lab)
        cache.allocator.allocate(others)
        path = plant(lab, cache, text(3 * held))
        hold(cache, sequence_with(lab, cache), path)
        cache.planned += path[1:]
        leaves, free = bool(plant(lab, cache, text(3 * cached, seed=1))), 12 - held - cached - others
        case = (
            f"pages available, where {free} are free, {cached} are only in the tree, sequences hold {held} of the "
            f"tree, and another user of the allocator {others}"
        )
        found[case], expected[case] = cache.available, free + cached
        for mistake, value in {
            "only the free pages were counted": free,
            "only the pages of the tree were counted": cached,
            "pages of the tree that a sequence holds were counted": free + cached + held,
            "of the tree only the leaves were counted": free + leaves,
        }.items():
            wrong[mistake][case] = value
    check_calls(found, expected, wrong)


@pytest.mark.parametrize("length", [3, 4, 5, 6, 7, 1, 2])
def test_task_4_full_pages_stay_in_the_tree_after_release(lab, length):
    cache = trie_of(lab)
    sequence = computed(lab, cache, text(length))
    full, free = sequence.pages[: length // 3], len(cache.allocator.free_pages)
    release(cache, sequence)
    name = f"after release of {length} tokens in pages of 3"
    check_equal(tree(cache), tree_of((text(length), full)), name=f"the tree (tokens: page) {name}")
    check_held(cache, dict.fromkeys(full, 1), name)
    part = int(length % 3 > 0)
    check_equal(len(cache.allocator.free_pages), free + part, name=f"how many pages are free {name}")
    early = {}
    if not cache.unheld and counts_too_early(lab):
        early["references were counted before the sequence gave up its own"] = list[int]()
    suspects = {"the beginning of the path would be evicted before its end": full} | early
    check_unheld(cache, full[::-1], name, **suspects)
    check_tip(cache, sequence, 0, full[-1] if full else 0, name)
    check_equal((sequence.pages, sequence.length), ([], 0), name=f"the sequence's pages and length {name}")
    check_sound(cache, [sequence], name)


def test_task_4_pages_that_another_sequence_holds_are_not_to_be_evicted(lab):
    cache = trie_of(lab)
    first = computed(lab, cache, text(9))
    second = computed(lab, cache, text(6) + text(5, seed=1))
    a, b, c = first.pages
    d = second.pages[2]
    release(cache, first)
    check_unheld(
        cache,
        [c],
        f"while another sequence holds {a} and {b}",
        pages_that_another_sequence_holds_are_there_too=[c, b, a],
    )
    check_held(
        cache, {a: 2, b: 2, c: 1, d: 2, second.pages[3]: 1}, "after the first of two sequences was released"
    )
    check_sound(cache, [first, second], "after the first of two sequences was released")
    release(cache, second)
    check_unheld(cache, [c, d, b, a], "after the second was released, too")
    check_sound(cache, [first, second], "after the second was released, too")


@pytest.mark.parametrize("others", [1, 2, 3])
def test_task_4_a_page_may_be_evicted_when_its_last_sequence_is_released(lab, others):
    cache = trie_of(lab)
    sequences = [computed(lab, cache, text(7)) for _ in range(1 + others)]
    pages = sequences[0].pages[:2]
    for left in reversed(range(1 + others)):
        release(cache, sequences[left])
        name = f"when {left} of {1 + others} sequences still hold the pages {pages[0]} and {pages[1]}"
        check_unheld(cache, [] if left else pages[::-1], name)
        check_sound(cache, sequences, name)


def test_task_4_a_request_that_begins_alike_finds_what_was_released(lab):
    cache = trie_of(lab)
    release(cache, computed(lab, cache, text(8)))
    sequence = sequence_with(lab, cache)
    check_equal(cache.match(sequence, text(8)), 6, name="tokens found after their request had ended")
    check_unheld(cache, [], "while the pages are held again")
    release(cache, sequence)
    check_sound(cache, [sequence], "after the second release")


def test_task_4_own_pages_of_a_sequence_are_freed(lab):
    cache = trie_of(lab)
    (theirs,) = plant(lab, cache, text(3))
    sequence = sequence_with(lab, cache, 3)
    compute(sequence, 5)
    cache.publish(sequence, text(8), 8)
    release(cache, sequence)
    check_held(cache, {theirs.page: 1}, "after release of a sequence none of whose pages was in the tree")
    check_unheld(cache, [theirs.page], "after release of a sequence none of whose pages was in the tree")


@pytest.mark.parametrize("keep", [0, 3, 6, 9])
def test_task_4_what_is_kept_stays_on_the_path(lab, keep):
    """The pages behind were found in this step; before it the sequence had `keep` tokens."""
    cache = trie_of(lab)
    path = plant(lab, cache, text(9))
    sequence = sequence_with(lab, cache)
    hold(cache, sequence, path[: keep // 3])
    cache.match(sequence, text(10))
    compute(sequence, 0, 1)
    release(cache, sequence, keep)
    pages, name = pages_in(path), f"after release(keep={keep}) of 9 tokens in pages of the tree"
    check_equal(sequence.pages, pages[: keep // 3], name=f"the sequence's pages {name}")
    check_equal(sequence.length, keep, name=f"the sequence's length {name}")
    check_unheld(cache, pages[keep // 3 :][::-1], name)
    check_held(cache, {page: 1 + (n < keep // 3) for n, page in enumerate(pages)}, name)
    check_sound(cache, [sequence], name)
    check_equal(cache.match(sequence, text(10)), 9 - keep, name=f"tokens that are found again {name}")
    check_sound(cache, [sequence], f"{name} and another match")


@pytest.mark.parametrize("keep", [4, 5])
def test_task_4_a_page_that_is_kept_in_part_leaves_the_path(lab, keep):
    """It was filled and published in the step that failed; before it the sequence had `keep` tokens."""
    cache = trie_of(lab)
    sequence = computed(lab, cache, text(keep))
    compute(sequence, 0, 1)
    a, b, c = sequence.pages
    cache.publish(sequence, text(9), 9)
    release(cache, sequence, keep)
    name = f"after release(keep={keep}) of 9 tokens in pages of 3"
    check_equal(sequence.pages, [a, b], name=f"the sequence's pages {name}")
    check_tip(cache, sequence, a, c, name, {"the page that is kept in part stays on the path": b})
    check_unheld(cache, [c], name)
    check_held(cache, {a: 2, b: 2, c: 1}, name)
    cache.withdraw()
    check_held(cache, {a: 2, b: 1}, f"{name} and withdraw")
    check_sound(cache, [sequence], f"{name} and withdraw")


def test_task_4_a_sequence_may_be_released_twice_and_used_again(lab):
    cache = trie_of(lab)
    other, sequence = computed(lab, cache, text(6)), computed(lab, cache, text(8))
    release(cache, sequence)
    before = books(cache, [other, sequence])
    release(cache, sequence)
    check_books(cache, [other, sequence], before, "after a second release")
    check_equal(cache.tips.get(sequence), None, name="what `tips` knows of a sequence without pages")
    check_equal(cache.match(sequence, text(5)), 3, name="tokens found by a sequence that was released")
    check_sound(cache, [other, sequence], "after a released sequence was used again")


def test_task_4_an_empty_sequence_may_be_released(lab):
    cache = trie_of(lab)
    plant(lab, cache, text(6))
    sequence = sequence_with(lab, cache)
    before = books(cache, [sequence])
    release(cache, sequence)
    check_books(cache, [sequence], before, "after release of a sequence without pages")


@pytest.mark.parametrize("length", [3, 6])
def test_task_4_the_least_recently_used_leaf_is_evicted_first(lab, length):
    cache = trie_of(lab)
    sequences = [computed(lab, cache, text(length, seed=seed)) for seed in (1, 2, 3)]
    pages = [list(sequence.pages) for sequence in sequences]
    for number in (1, 0, 2):
        release(cache, sequences[number])
    again = sequence_with(lab, cache)
    cache.match(again, text(length + 1, seed=2))
    release(cache, again)
    order = [page for number in (0, 2, 1) for page in pages[number][::-1]]
    for count, page in enumerate(order, start=1):
        before = set(tree(cache).values())
        cache.evict(1)
        check_equal(
            sorted(before - set(tree(cache).values())),
            [page],
            name=f"the page that was evicted as number {count}; least recently used first: {order}",
            suspects={"the most recently used was evicted": [order[-1]]} if count == 1 else {},
        )
        check_equal(cache.evicted, count, name="how many pages were evicted so far (`evicted`)")
        check_sound(cache, [*sequences, again], f"after {count} pages were evicted")
    check_held(cache, {}, "after all were evicted")


def test_task_4_a_page_is_evicted_after_the_pages_that_continue_it(lab):
    cache, start = trie_of(lab), text(3)
    first = computed(lab, cache, start + text(3, seed=1))
    second = computed(lab, cache, start + text(6, seed=2))
    a, b = first.pages
    _, c, d = second.pages
    release(cache, second)
    release(cache, first)
    check_unheld(cache, [d, c, b, a], "after release of two branches")
    cache.evict(3)
    check_equal(tree(cache), {"1 2 3": a}, name="the tree (tokens: page) after 3 of 4 were evicted")
    check_sound(cache, [], "after 3 of 4 pages were evicted")


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_task_4_as_many_pages_are_evicted_as_asked_for(lab, count):
    cache = trie_of(lab)
    plant(lab, cache, text(12))
    free = len(cache.allocator.free_pages)
    cache.evict(count)
    check_equal(len(tree(cache)), 4 - count, name=f"nodes in the tree after evict({count}) of 4")
    check_equal(
        len(cache.allocator.free_pages), free + count, name=f"how many pages are free after evict({count})"
    )
    check_equal(
        cache.evicted, count, name=f"how many pages were evicted so far (`evicted`), after evict({count})"
    )
    check_sound(cache, [], f"after evict({count})")


@pytest.mark.parametrize("count", [0, -1, -5])
def test_task_4_a_count_below_one_evicts_nothing(lab, count):
    cache = trie_of(lab)
    plant(lab, cache, text(12))
    before = books(cache)
    cache.evict(count)
    check_books(cache, [], before, f"after evict({count})")


def test_task_4_what_was_evicted_is_not_found(lab):
    cache = trie_of(lab)
    plant(lab, cache, text(9))
    cache.evict(2)
    check_equal(
        cache.match(sequence_with(lab, cache), text(10)),
        3,
        name="tokens found after 2 of 3 pages were evicted",
    )


@pytest.mark.parametrize("pages", [3, 2, 1])
def test_task_4_free_pages_are_taken_before_any_is_evicted(lab, pages):
    cache = trie_of(lab, num_pages=8)
    plant(lab, cache, text(12))
    before, sequence, count = tree(cache), sequence_with(lab, cache), 3 * pages - 2
    name = f"acquire of {pages} pages where 3 are free and 4 may be evicted"
    acquire(lab, cache, sequence, count, name)
    check_equal(len(sequence.pages), pages, name=f"how many pages the sequence got for {count} tokens, P = 3")
    check_equal(sequence.length, 0, name=f"the sequence's length after {name} (nothing is computed yet)")
    check_equal(tree(cache), before, name=f"the tree (tokens: page) after {name}")
    check_equal(cache.evicted, 0, name=f"how many pages were evicted so far (`evicted`), after {name}")


@pytest.mark.parametrize("count", [10, 12, 13, 15, 16, 18, 19, 21])
def test_task_4_only_what_the_free_pages_lack_is_evicted(lab, count):
    """Three pages are free, and four in the tree."""
    cache = trie_of(lab, num_pages=8)
    a, b, c, d = pages_in(plant(lab, cache, text(12)))
    sequence, lacking = sequence_with(lab, cache), pages_needed(count, 3)
    name = f"after acquire of {lacking} pages where 3 are free and 4 may be evicted"
    acquire(lab, cache, sequence, count, name.removeprefix("after "))
    check_equal(len(sequence.pages), lacking, name=f"how many pages the sequence has {name}")
    left = [a, b, c, d][: 7 - lacking]
    check_equal(tree(cache), tree_of((text(12), left)), name=f"the tree (tokens: page) {name}")
    check_equal(cache.evicted, lacking - 3, name=f"how many pages were evicted so far (`evicted`), {name}")
    check_sound(cache, [sequence], name)


def test_task_4_pages_that_the_sequence_has_are_not_lacking(lab):
    cache = trie_of(lab, num_pages=6)
    plant(lab, cache, text(9))
    sequence = sequence_with(lab, cache, 4)
    before = tree(cache)
    for count in (0, 1, 2):
        cache.acquire(sequence, count)
        check_equal(
            tree(cache), before, name=f"the tree after acquire of {more_tokens(count)} behind 4, P = 3"
        )
    check_equal(len(sequence.pages), 2, name="how many pages the sequence has")
    cache.acquire(sequence, 3)
    check_equal(len(tree(cache)), 2, name="nodes in the tree after acquire of one page when none is free")


@pytest.mark.parametrize(("held", "cached", "free"), [(0, 0, 2), (2, 3, 0), (1, 2, 2), (3, 0, 0), (0, 4, 1)])
def test_task_4_too_few_pages_are_refused_and_nothing_is_evicted(lab, held, cached, free):
    cache = trie_of(lab, num_pages=2 + held + cached + free)
    plant(lab, cache, text(3 * cached, seed=1))
    holder, sequence = computed(lab, cache, text(3 * held)), sequence_with(lab, cache, 1)
    sequences = [holder, sequence]
    lacking, before = cached + free + 1, books(cache, sequences)
    name = f"acquire of {lacking} pages where {free} are free, {cached} may be evicted and {held} are held"
    check_refused(lab, cache, sequence, 3 * lacking + 2, lacking, name)
    check_books(cache, sequences, before, f"after the refused {name}")
    cache.acquire(sequence, 3 * lacking - 1)
    check_equal(len(sequence.pages), lacking, name="how many pages it has after acquire of one page less")
    check_sound(cache, sequences, "after acquire of one page less")


def test_task_4_what_match_has_found_is_not_evicted_by_the_acquire_behind_it(lab):
    cache = trie_of(lab, num_pages=6)
    path = plant(lab, cache, text(9))
    plant(lab, cache, text(6, seed=1))
    a, b, c = pages_in(path)
    sequence = sequence_with(lab, cache)
    cache.match(sequence, text(9))
    cache.acquire(sequence, 9)
    name = "after match found two pages and acquire evicted the three others"
    check_equal(sequence.pages[:2], [a, b], name=f"the sequence's first pages {name}")
    check_equal(tree(cache), tree_of((text(6), [a, b])), name=f"the tree (tokens: page) {name}")
    check_sound(cache, [sequence], name)
    assert c in sequence.pages, f"page {c} was evicted, and the sequence has {sequence.pages}"


@pytest.mark.parametrize(("held", "cached", "others"), HELD)
def test_task_4_acquire_can_get_what_is_available_and_no_more(lab, held, cached, others):
    cache = trie_of(lab)
    cache.allocator.allocate(others)
    hold(cache, sequence_with(lab, cache), plant(lab, cache, text(3 * held)))
    plant(lab, cache, text(3 * cached, seed=1))
    available = cache.available
    name = f"acquire of one page more than the {available} that are available"
    sequence, kind = sequence_with(lab, cache), lab.paged.allocator.OutOfPages
    check_raises(kind, partial(cache.acquire, sequence, 3 * available + 1), name=name)
    cache.acquire(sequence, 3 * available)
    check_equal(
        len(sequence.pages), available, name=f"how many pages acquire gave of the {available} available"
    )
    check_equal(cache.available, 0, name="pages available when all are held")


def test_task_4_after_a_failed_step_nothing_is_left_of_it(lab):
    """With all of the cache: two requests, of which one found what the other planned, go back to what they had."""
    cache = trie_of(lab)
    first, second = computed(lab, cache, text(4)), sequence_with(lab, cache)
    before = books(cache, [first, second])
    cache.acquire(first, 6)
    cache.publish(first, text(10), 10)
    cache.match(second, text(8))
    cache.acquire(second, 2)
    cache.publish(second, text(8), 8)
    for sequence, keep in ((first, 4), (second, 0)):
        release(cache, sequence, keep)
    cache.withdraw()
    check_books(cache, [first, second], before, "after a step that failed: released, and withdrawn")
    check_sound(cache, [first, second], "after a step that failed")


@QUICK
@example(num_pages=12, P=3, happens=LATE)
@given(num_pages=st.integers(5, 24), P=st.integers(1, 4), happens=events)
def test_task_4_in_any_order_each_request_reads_its_own_tokens(num_pages, P, happens):
    lab = door.active()
    play(Arrivals(lab, trie_of(lab, num_pages, P)), happens)
