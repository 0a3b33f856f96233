"""Day 4.3: which request loses its pages, preemption, ageing, resuming, and fairness between clients."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from coursekit import lab as door
from coursekit.check import CheckFailed, check_equal, check_raises
from coursekit.checking.wording import plural

from .preempting import (
    CACHES,
    books,
    check_books,
    check_lost,
    check_unchanged,
    name,
    names,
    plan,
    preempted,
    run,
    scheduler_of,
    take,
    text,
    wait,
)
from .short_of_pages import ShortOfPages, ids

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
both_caches = pytest.mark.parametrize("kind", CACHES)
P = 3
NEVER = 10**9  # a patience that no request's age reaches


# Task 1: which request loses its pages


def frees(scheduler, standing, what):
    """What `frees` says, which must be a bool and change nothing."""
    before = books(scheduler)
    said = scheduler.cache.frees(standing.sequence)
    assert isinstance(said, bool), f"frees for {what}: a bool expected, {said!r} found"
    check_unchanged(scheduler, before, f"after frees for {what}")
    return said


def in_tree(scheduler, standing):
    """Whether the tree has a reference to the last page of a request, in words."""
    nodes = scheduler.cache.nodes() if hasattr(scheduler.cache, "nodes") else ()
    tree = standing.sequence.pages[-1] in [node.page for node in nodes]
    return "one of them is that of the tree" if tree else "none is that of a tree"


def check_frees(scheduler, standing, expected, what):
    """Compare what `frees` says with what is expected, and with what a release does."""
    known, suspects, pages = "", dict[str, bool](), standing.sequence.pages
    if pages:
        count, tree = scheduler.cache.allocator.references[pages[-1]], in_tree(scheduler, standing)
        known = f" (references of its last page: {count}, {tree})"
        if (len(pages), count) == (1, 2) and expected:
            suspects[
                "of the two references of its only page, one is the tree's: no other sequence holds this page"
            ] = False
    check_equal(
        frees(scheduler, standing, what),
        expected,
        name=f"what frees says for {what}{known}",
        suspects=suspects,
    )
    before = scheduler.cache.available
    scheduler.cache.release(standing.sequence)
    check_equal(
        scheduler.cache.available > before, expected, name=f"whether a page became available by {what}"
    )


@both_caches
def test_task_1_a_sequence_without_pages_frees_none(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    check_frees(scheduler, wait(lab, scheduler, text(5), client="A"), False, "a sequence without pages")


@both_caches
@pytest.mark.parametrize("computed", [1, 2, 3, 4, 5, 6, 7])
def test_task_1_a_sequence_that_shares_nothing_frees_a_page(lab, kind, computed):
    scheduler = scheduler_of(lab, kind=kind)
    run(lab, scheduler, text(9, seed=1), 8, client="B")
    alone = run(lab, scheduler, text(9), computed, client="A")
    check_frees(
        scheduler,
        alone,
        True,
        f"a sequence with {plural(computed, 'token')} in pages of 3 that no other sequence holds",
    )


@both_caches
def test_task_1_pages_for_tokens_still_to_come_are_freed_too(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(9), 6, client="A", more=2)
    check_frees(scheduler, running, True, "a sequence with 6 tokens in 4 pages of 3")


@both_caches
@pytest.mark.parametrize("pages", [1, 2, 3])
def test_task_1_a_sequence_whose_pages_are_all_held_elsewhere_frees_none(lab, kind, pages):
    """Another user of the allocator holds them, too."""
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(12), pages * P, client="A")
    scheduler.cache.allocator.share(running.sequence.pages)
    said = frees(scheduler, running, "a sequence whose pages are all shared")
    check_equal(
        said,
        False,
        name=f"what frees says for a sequence with {plural(pages, 'page')} that another one holds, too",
    )


@both_caches
def test_task_1_pages_that_are_shared_before_the_last_one_do_not_matter(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(12), 8, client="A")
    scheduler.cache.allocator.share(running.sequence.pages[:2])
    said = frees(scheduler, running, "a sequence with 3 pages, the first two of which are shared")
    check_equal(
        said,
        True,
        name="what frees says for a sequence with 3 pages, where another one holds the first two, and not the last",
        suspects={"the last page decides, and this sequence alone holds it": False},
    )


@both_caches
def test_task_1_a_part_filled_page_that_another_holds_is_not_freed(lab, kind):
    """It is in no tree: both of its references are sequences'."""
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(9), 5, client="A")
    scheduler.cache.allocator.share(running.sequence.pages)
    said = frees(scheduler, running, "a sequence whose part-filled last page is shared")
    check_equal(
        said, False, name="what frees says for a sequence whose part-filled last page another one holds, too"
    )


def test_task_1_the_reference_of_the_tree_is_that_of_no_sequence(lab):
    """A full page in the tree has two references while one sequence holds it: released, it may be evicted."""
    scheduler = scheduler_of(lab)
    running = run(lab, scheduler, text(9), 6, client="A")
    count = scheduler.cache.allocator.references[running.sequence.pages[-1]]
    check_equal(count, 2, name="the references of a page in the tree that one sequence holds")
    check_frees(
        scheduler, running, True, "a sequence whose last page is in the tree, held by no other sequence"
    )


def test_task_1_of_two_sequences_on_one_path_only_the_longer_one_frees_a_page(lab):
    scheduler = scheduler_of(lab)
    short = run(lab, scheduler, text(12), 6, client="A")
    long = run(lab, scheduler, text(12), 10, client="B")
    check_equal(long.sequence.pages[:2], short.sequence.pages, name="the pages that both hold")
    check_frees(scheduler, short, False, "the shorter of two sequences on one path")
    check_frees(scheduler, long, True, "the longer one, when the shorter one is released")


def test_task_1_two_sequences_that_end_at_the_same_page_free_none(lab):
    scheduler = scheduler_of(lab)
    first = run(lab, scheduler, text(12), 6, client="A")
    second = run(lab, scheduler, [*text(6), *text(6, seed=1)], 6, client="B")
    check_equal(second.sequence.pages, first.sequence.pages, name="the pages of the second sequence")
    check_frees(scheduler, first, False, "the first of two sequences that end at the same page of the tree")
    check_frees(scheduler, second, True, "the second one, when the first one is released")


def test_task_1_a_full_page_of_its_own_beside_the_tree_is_freed(lab):
    """Another request has published the same tokens meanwhile: the tree has the other's page."""
    scheduler = scheduler_of(lab)
    own = run(lab, scheduler, text(9), 2, client="A")
    run(lab, scheduler, text(9), 7, client="B")
    scheduler.cache.acquire(own.sequence, 1)
    scheduler.cache.publish(own.sequence, own.request.token_ids, 3)
    own.sequence.advance(1)
    check_frees(scheduler, own, True, "a sequence with a full page that is not in the tree")


def check_victim(scheduler, requester, expected, what, suspects=None):
    """Whom `victim` chooses, by name; None is no one. It must change nothing."""
    before, asks = books(scheduler), name(requester)
    chosen = name(scheduler.victim(requester))
    check_unchanged(scheduler, before, "after victim was asked: it only answers")
    if chosen == expected:
        return
    lines = [f"{what}, victim gives {chosen}; {expected or None} expected"]
    known = [why for why, given in (suspects or {}).items() if given == chosen]
    if chosen == asks:
        known = [f"{asks} is the request that needs the page: it can't take its own"]
    if expected is not None:
        lines.append(
            f"{expected} stands lowest of the requests below {asks} that run, are not in this step, and free a page"
        )
    else:
        lines.append(f"no request below {asks} runs, is not in this step, and frees a page")
    if known:
        lines.append(f"likely cause: {'; or '.join(known)}")
    raise CheckFailed("\n  ".join(lines))


LINES = {
    "the latest of one level": ({"A": 0, "B": 0, "C": 0}, "A", "C"),
    "a lower level before a later arrival": ({"A": 1, "B": 0, "C": 1}, "A", "B"),
    "the lowest level, not the highest": ({"A": 3, "B": 2, "C": 1, "D": 2}, "A", "C"),
    "the latest of the lowest level": ({"A": 3, "B": 1, "C": 2, "D": 1, "E": 2}, "A", "D"),
    "a lower level that came earlier": ({"A": 0, "B": 1}, "B", "A"),
    "not one of the same level that came earlier": ({"A": 1, "B": 1}, "B", None),
    "not one of a higher level that came later": ({"A": 1, "B": 2, "C": 3}, "A", None),
    "not itself, though it stands lowest": ({"A": 2, "B": 1, "C": 0}, "C", None),
    "one below, though the lowest of all is the one that asks": ({"A": 0, "B": 1, "C": 1}, "B", "A"),
}


@pytest.mark.parametrize("what", list(LINES))
def test_task_1_the_victim_stands_lowest_below_the_one_that_asks(lab, what):
    levels, asks, expected = LINES[what]
    scheduler = scheduler_of(lab)
    line = {
        each: run(lab, scheduler, text(5, seed=n), 4, client=each, level=levels[each])
        for n, each in enumerate(levels)
    }
    below = sorted((level, -ord(each), each) for each, level in levels.items() if each != asks)
    usual = {
        "the highest of those below was taken": below[-1][2] if below else None,
        "the earliest of the lowest level was taken: of one level the latest goes": min(
            (level, ord(each), each) for level, _, each in below
        )[2],
        "the latest arrival was taken, whatever its level: the level comes first": max(
            each for each in levels if each != asks
        ),
        f"{below[0][2]} stands above {asks}": below[0][2] if expected is None else None,
    }
    if expected is None:  # there is no choice to make wrong
        usual = {why: given for why, given in usual.items() if "stands above" in why}
    suspects = {why: given for why, given in usual.items() if given not in (None, expected)}
    told = ", ".join(f"{each} has level {level}" for each, level in levels.items())
    what = f"where {asks} needs a page, they came in the order of the alphabet, and {told}"
    check_victim(scheduler, line[asks], expected, what, suspects)


def test_task_1_the_order_of_arrival_is_not_that_of_the_list(lab):
    """A request that has resumed stands at the end of `running`, and has the number that it came with."""
    scheduler = scheduler_of(lab)
    line = [run(lab, scheduler, text(5, seed=n), 4, client="ABCD"[n]) for n in range(4)]
    scheduler.running = [line[0], line[2], line[3], line[1]]
    by_list = {
        "the last of `running` was taken: a request that has resumed stands there, and came earlier": "B"
    }
    what = "where A, B, C and D came in this order and B has just resumed"
    check_victim(scheduler, line[0], "D", f"{what}, and A needs a page", by_list)
    check_victim(scheduler, line[3], None, f"{what}, and D needs a page")


@pytest.mark.parametrize("decodes", [True, False])
def test_task_1_decodes_and_prompts_are_victims_alike(lab, decodes):
    scheduler = scheduler_of(lab)
    line = [
        run(lab, scheduler, text(4, n), 4 if own else 3, client="ABC"[n], generated=[7] if own else [])
        for n, own in enumerate([True, not decodes, decodes])
    ]
    what = f"where A needs a page, {'C' if decodes else 'B'} decodes, and {'B' if decodes else 'C'} is still a prompt"
    check_victim(scheduler, line[0], "C", what, {"whether it decodes makes no difference: C came last": "B"})


def test_task_1_a_request_that_waits_has_no_pages_to_lose(lab):
    scheduler = scheduler_of(lab)
    first = run(lab, scheduler, text(5), 4, client="A")
    wait(lab, scheduler, text(5, seed=1), client="B")
    check_victim(scheduler, first, None, "where A needs a page, and only B is below, and waits")


def test_task_1_the_level_counts_not_the_priority_that_it_came_with(lab):
    scheduler = scheduler_of(lab)
    first = run(lab, scheduler, text(5), 4, client="A", level=2)
    aged = run(lab, scheduler, text(5, seed=1), 4, client="B", level=3)
    run(lab, scheduler, text(5, seed=2), 4, client="C", level=1).request.priority = 3
    aged.request.priority = 0
    what = "where A needs a page (level 2), B has priority 0 and level 3 by now, C priority 3 and level 1"
    by_priority = {"the request's priority was compared: its level is what has aged": "B"}
    check_victim(scheduler, first, "C", what, by_priority)


def test_task_1_a_request_that_is_in_this_step_keeps_its_pages(lab):
    scheduler = scheduler_of(lab)
    line = [run(lab, scheduler, text(5, seed=n), 4, client="ABC"[n]) for n in range(3)]
    plan(lab, scheduler, line[2])
    in_step = {
        "C is in the step that is being planned: the model is to write into its pages (`planned` lists Chunks; the "
        "request of a chunk is its `running`)": "C"
    }
    check_victim(scheduler, line[0], "B", "where A needs a page, and C is in this step", in_step)
    plan(lab, scheduler, line[1])
    check_victim(scheduler, line[0], None, "where A needs a page, and B and C are in this step")


@both_caches
def test_task_1_a_request_without_pages_is_passed_over(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    first = run(lab, scheduler, text(5), 4, client="A")
    run(lab, scheduler, text(5, seed=1), 4, client="B")
    run(lab, scheduler, text(5, seed=2), 0, client="C")
    nothing = {"C was taken, and that frees no page": "C"}
    check_victim(scheduler, first, "B", "where A needs a page, and C, which came last, has none", nothing)


def test_task_1_a_request_whose_pages_others_hold_is_passed_over(lab):
    scheduler = scheduler_of(lab)
    first = run(lab, scheduler, text(12, seed=1), 4, client="A")
    run(lab, scheduler, text(5, seed=2), 4, client="B")
    run(lab, scheduler, text(12), 9, client="C", level=1)
    run(lab, scheduler, text(12), 3, client="D")
    what = "where A needs a page, and C holds the only page of D, too, and stands above"
    nothing = {"D was taken, and that frees no page: C still holds it": "D"}
    check_victim(scheduler, first, "B", what, nothing)


@QUICK
@given(data=st.data(), count=st.integers(1, 7))
def test_task_1_the_victim_is_the_right_one_in_any_line(data, count):
    lab = door.active()
    scheduler = scheduler_of(lab, pages=40)
    line = []
    for number in range(count):
        seed = data.draw(st.integers(0, 2), label="text")
        options = {"client": "ABCDEFG"[number], "level": data.draw(st.integers(0, 3), label="level")}
        computed, tokens = data.draw(st.integers(0, 9), label="computed"), text(12, seed)
        if computed and data.draw(st.booleans(), label="decodes"):
            options["generated"] = [tokens[computed]]
            tokens = tokens[:computed]
        line.append(run(lab, scheduler, tokens, computed, **options))
    scheduler.running = data.draw(st.permutations(line))
    in_step = data.draw(st.sets(st.sampled_from(line)))
    for each in sorted(in_step, key=lambda each: each.rank):
        scheduler.planned.append(lab.scheduling.standing.Chunk(each, 1, each.sequence.length, 0, True))
    asks = data.draw(st.sampled_from(line))
    held = [page for each in line for page in each.sequence.pages]
    able = [
        each
        for each in line
        if (each.level, -each.rank) < (asks.level, -asks.rank)
        and each not in in_step
        and any(held.count(page) == 1 for page in each.sequence.pages)
    ]
    able.sort(key=lambda each: (each.level, -each.rank))
    told = ", ".join(f"{name(each)}: level {each.level}, pages {each.sequence.pages}" for each in line)
    planned = sorted(str(name(each)) for each in in_step)
    what = f"where {name(asks)} needs a page, by arrival {told}; in this step: {planned}"
    check_victim(scheduler, asks, name(able[0]) if able else None, what)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_task_1_a_level_rises_by_one_each_time_that_patience_steps_were_waited(lab, patience):
    scheduler = scheduler_of(lab, patience=patience)
    waiting = wait(lab, scheduler, text(5), client="A")
    seen = []
    for _ in range(4 * patience + 2):
        scheduler.age()
        seen.append(waiting.level)
    check_equal(
        seen,
        [min(step // patience, 3) for step in range(1, 4 * patience + 3)],
        name=f"the level of a request that waits, after each step, with a patience of {plural(patience, 'step')}",
        suspects={
            "the level is not capped: 3 is the highest": [
                step // patience for step in range(1, 4 * patience + 3)
            ],
        },
    )
    check_equal(waiting.waited, 4 * patience + 2, name="how many steps it has waited")


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_task_1_no_level_is_above_the_highest_and_none_falls(lab, level, resumes):
    scheduler = scheduler_of(lab, patience=2)
    waiting = wait(lab, scheduler, text(5), client="A", level=level, resumes=resumes)
    seen = []
    for _ in range(10):
        scheduler.age()
        seen.append(waiting.level)
    expected = [min(level + step // 2, 3) for step in range(1, 11)]
    check_equal(
        seen,
        expected,
        name=f"the level of a request that waits{' to resume' * resumes}, after each step, from level {level} on",
    )


def test_task_1_a_request_that_runs_does_not_age(lab):
    scheduler = scheduler_of(lab, patience=1)
    running = run(lab, scheduler, text(5), 4, client="A")
    waiting = wait(lab, scheduler, text(5, seed=1), client="B")
    scheduler.age()
    check_equal(
        [running.level, waiting.level],
        [0, 1],
        name="the levels of a request that runs and of one that waits, after a step, with a patience of 1",
        suspects={"a request that runs has aged: it doesn't wait": [1, 1]},
    )


def test_task_1_of_the_requests_of_a_client_at_a_level_only_the_first_ages(lab):
    scheduler = scheduler_of(lab, patience=2)
    line = [
        wait(lab, scheduler, text(5, seed=n), client=client, level=level)
        for n, (client, level) in enumerate([("A", 0), ("A", 0), ("B", 0), ("A", 1), ("A", 0), ("B", 0)])
    ]
    scheduler.waiting.reverse()
    told = (
        "where client A's requests had the levels 0, 0, 1, 0 (numbers 0, 1, 3, 4) and client B's 0, 0 (2, 5)"
    )
    scheduler.age()
    check_equal(
        [each.waited for each in line],
        [1, 0, 1, 1, 0, 0],
        name=f"how long each request has `waited` after a step, {told}",
        suspects={
            "all requests that wait have aged: a client with many would fill the highest level": [1] * 6,
            "one request of a client has aged, of all its levels": [1, 0, 1, 0, 0, 0],
            "the last of a client's requests has aged, not the first that came": [0, 0, 0, 1, 1, 1],
            "one request of a level has aged, of all clients: each client has a first": [1, 0, 0, 1, 0, 0],
        },
    )
    scheduler.age()
    early = "a level has risen before it was known which requests age: first find these, then let them age"
    check_equal(
        [each.level for each in line],
        [1, 0, 1, 2, 0, 0],
        name=f"the levels after 2 steps with a patience of 2, {told}",
        suspects={early: [1, 0, 1, 1, 0, 0]},
    )
    for _ in range(2):
        scheduler.age()
    check_equal(
        [each.level for each in line],
        [2, 1, 2, 3, 0, 1],
        name="the levels after 4 steps: the next request of a level ages when the first one has risen",
    )


# Task 2: preempt


def only_one(suspects):
    """The suspects of which no two give the same: where two do, neither can be named."""
    given_ = list(suspects.values())
    return {why: value for why, value in suspects.items() if given_.count(value) == 1}


@both_caches
@pytest.mark.parametrize("available", [0, 1, 2])
@pytest.mark.parametrize("computed", [0, 1, 2, 3, 4, 5, 6])
def test_task_2_room_is_what_its_pages_and_the_available_ones_hold_beyond_its_tokens(
    lab, kind, computed, available
):
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(30), computed, client="A")
    take(scheduler, available)
    pages = len(running.sequence.pages)
    check_equal(
        scheduler.room(running),
        (pages + available) * P - computed,
        name=f"the room of a request with {plural(computed, 'token')} in {plural(pages, 'page')} of 3, where "
        f"{plural(available, 'further page')} can be had",
        suspects=only_one(
            {
                "its own last page still has room": available * P,
                "the pages that it has beyond its tokens count, and those that are available": pages * P
                - computed,
                "room is counted in tokens, not in pages": pages + available,
            }
        ),
    )


def test_task_2_room_counts_pages_that_may_be_evicted_and_pages_for_tokens_to_come(lab):
    scheduler = scheduler_of(lab)
    running = run(lab, scheduler, text(30), 4, client="A", more=1)
    gone = run(lab, scheduler, text(9, seed=1), 7, client="B")
    scheduler.cache.release(gone.sequence)
    scheduler.running.remove(gone)
    take(scheduler)
    check_equal(
        scheduler.room(running),
        3 * P - 4 + 2 * P,
        name="the room of a request with 4 tokens in 3 pages of 3, where no page is free and 2 may be evicted",
        suspects={"only free pages were counted: those that may be evicted are available, too": 3 * P - 4},
    )


@both_caches
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("computed", [2, 3, 4])
def test_task_2_where_there_are_pages_they_are_taken_and_no_request_is_preempted(lab, kind, computed, count):
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(30), computed, client="A")
    run(lab, scheduler, text(5, seed=1), 4, client="B")
    got = scheduler.take_pages(running, count)
    when = f"for {plural(count, 'token')} of a request with {computed}, with pages enough"
    check_equal(got, count, name=f"how many tokens take_pages gives {when}")
    check_equal(
        len(running.sequence.pages), -(-(computed + count) // P), name=f"how many pages it has, {when}"
    )
    check_equal(running.sequence.length, computed, name=f"how many tokens are computed, {when}")
    check_equal(preempted(scheduler), [], name=f"who was preempted {when}")
    check_equal(scheduler.short, False, name=f"whether `short` notes that a page was lacking, {when}")
    check_books(scheduler, f"after take_pages {when}")


@both_caches
@pytest.mark.parametrize(
    ("computed", "available", "expected"), [(4, 0, 2), (5, 0, 1), (3, 1, 3), (5, 1, 4), (0, 2, 6)]
)
def test_task_2_fewer_tokens_come_before_a_request_is_preempted(lab, kind, computed, available, expected):
    scheduler = scheduler_of(lab, kind=kind)
    running = run(lab, scheduler, text(30), computed, client="A", level=3)
    run(lab, scheduler, text(9, seed=1), 8, client="B")
    take(scheduler, available)
    got = scheduler.take_pages(running, 9)
    when = f"where 9 tokens are wanted behind {computed}, and {plural(available, 'further page')} of 3 can be had"
    check_equal(
        (got, preempted(scheduler)),
        (expected, []),
        name=f"how many tokens take_pages gives, and who was preempted, {when}",
        suspects={"B was preempted although there was room for some tokens": (9, ["B"])},
    )
    check_equal(scheduler.cache.available, 0, name=f"how many pages are left, {when}")
    check_books_with(scheduler, when)


def check_books_with(scheduler, when):
    """Each request that runs has pages for its tokens, and none is held twice."""
    held = [page for each in scheduler.running for page in each.sequence.pages]
    check_equal(len(held), len(set(held)), name=f"how many pages two requests hold, {when}")
    scheduler.cache.allocator.check()


@both_caches
def test_task_2_one_victim_is_preempted_where_there_is_no_room_for_a_single_token(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    line = [run(lab, scheduler, text(9, seed=n), 6, client="ABCD"[n]) for n in range(4)]
    take(scheduler)
    got = scheduler.take_pages(line[0], 9)
    check_lost(scheduler, "after take_pages, where no page was available")
    check_equal(
        (got, preempted(scheduler)),
        (6, ["D"]),
        name="how many tokens take_pages gives where 9 are wanted and no page is available, and who was preempted "
        "(each has two pages of 3)",
        suspects={
            "requests were preempted until all tokens had room: one token is enough": (9, ["D", "C"]),
            "D was preempted, and no page taken": (0, ["D"]),
            "a single token was planned, though the victim's pages have room for more": (1, ["D"]),
        },
    )
    check_equal(len(line[0].sequence.pages), 4, name="how many pages the request has then")
    check_equal(names(scheduler.running), ["A", "B", "C"], name="who runs then")
    check_equal(names(scheduler.waiting), ["D"], name="who waits then")
    check_equal(
        scheduler.short, True, name="whether `short` notes that A lacked a page, and D was preempted for it"
    )


@both_caches
def test_task_2_without_a_victim_nothing_is_taken(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    line = [run(lab, scheduler, text(9, seed=n), 6, client="ABC"[n]) for n in range(3)]
    take(scheduler)
    before = books(scheduler)
    got = scheduler.take_pages(line[2], 2)
    check_equal(
        got, 0, name="how many tokens take_pages gives where no page is available and no request stands below"
    )
    check_unchanged(scheduler, before, "after take_pages has given 0")


@both_caches
@pytest.mark.parametrize("computed", [0, 1, 2, 3, 5, 6, 7])
def test_task_2_a_preempted_request_waits_without_pages(lab, kind, computed):
    scheduler = scheduler_of(lab, kind=kind)
    first = run(lab, scheduler, text(5, seed=1), 4, client="A")
    victim = run(lab, scheduler, text(9), computed, client="B", level=2, more=1, generated=text(2, 5))
    victim.waited = 5
    victim.charged = computed
    tokens = list(victim.request.token_ids)
    scheduler.had = {each: each.sequence.length for each in scheduler.running}  # as in a step
    scheduler.preempt(victim)
    when = f"after a request with {plural(computed, 'token')} in pages of 3 was preempted"
    check_lost(scheduler, when)
    check_equal(names(scheduler.running), ["A"], name=f"who runs {when}")
    check_equal(names(scheduler.waiting), ["B"], name=f"who waits {when}")
    check_equal(preempted(scheduler), ["B"], name=f"whom `preempted` names {when}")
    check_equal(scheduler.preemptions, 1, name=f"how many preemptions are counted {when}")
    check_equal(victim.resumes, True, name=f"whether it `resumes`, {when}")
    check_equal(first.resumes, False, name=f"whether the other one `resumes`, {when}")
    check_equal(victim.request.token_ids, tokens, name=f"its tokens {when}")
    for field, had in {"level": 2, "waited": 5, "charged": computed, "rank": 1}.items():
        check_equal(getattr(victim, field), had, name=f"its `{field}`, which stays, {when}")
    check_books(scheduler, when)
    check_equal(scheduler.cache.available, 10, name=f"how many of 12 pages are available {when}")


@pytest.mark.parametrize("computed", [2, 3, 4, 5, 6, 7])
def test_task_2_its_full_pages_can_still_be_found(lab, computed):
    scheduler = scheduler_of(lab)
    victim = run(lab, scheduler, text(9), computed, client="A")
    pages = victim.sequence.pages[: computed // P]
    scheduler.preempt(victim)
    found = scheduler.cache.match(victim.sequence, victim.request.token_ids)
    check_equal(
        (found, victim.sequence.pages),
        (computed // P * P, pages),
        name=f"what the cache finds of a request that was preempted with {plural(computed, 'token')}, and in which "
        "pages",
    )


def test_task_2_what_others_share_with_it_stays_theirs(lab):
    scheduler = scheduler_of(lab)
    first = run(lab, scheduler, text(9), 6, client="A")
    victim = run(lab, scheduler, text(9), 8, client="B")
    pages = list(first.sequence.pages)
    check_equal(victim.sequence.pages[:2], pages, name="the pages that both hold")
    scheduler.preempt(victim)
    check_equal(first.sequence.pages, pages, name="the pages of the other request, afterwards")
    check_books(scheduler, "after one of two requests that share pages was preempted")


def test_task_2_several_that_are_preempted_are_all_told(lab):
    scheduler = scheduler_of(lab)
    wait(lab, scheduler, text(5, seed=7), client="W")
    line = [run(lab, scheduler, text(5, seed=n), 4, client="ABC"[n]) for n in range(3)]
    scheduler.preempt(line[2])
    scheduler.preempt(line[0])
    check_equal(preempted(scheduler), ["C", "A"], name="whom `preempted` names after two preemptions")
    check_equal(scheduler.preemptions, 2, name="how many preemptions are counted after two")
    check_equal(sorted(names(scheduler.waiting)), ["A", "C", "W"], name="who waits after two preemptions")
    check_equal(names(scheduler.running), ["B"], name="who runs after two preemptions")


def test_task_2_what_was_waited_before_counts_on_after_a_preemption(lab):
    scheduler = scheduler_of(lab, patience=4)
    victim = wait(lab, scheduler, text(5), client="A")
    for _ in range(3):
        scheduler.age()
    scheduler.waiting.remove(victim)
    scheduler.running.append(victim)
    scheduler.age()
    check_equal(victim.level, 0, name="the level of a request that has waited 3 steps and run for one")
    scheduler.preempt(victim)
    scheduler.age()
    check_equal(victim.level, 1, name="its level when it was preempted and has waited a fourth step")


# Task 3: begin and resume


def test_task_3_higher_levels_are_served_first_then_decodes_then_the_first_that_came(lab):
    scheduler = scheduler_of(lab, pages=40)
    wanted = {}
    for number, (level, decodes) in enumerate(
        [(0, True), (1, False), (3, False), (1, True), (0, False), (3, True), (1, True), (3, False)]
    ):
        called = "ABCDEFGH"[number]
        generated = [7] if decodes else []
        run(
            lab,
            scheduler,
            text(7, number),
            7 if decodes else 6,
            client=called,
            level=level,
            generated=generated,
        )
        wanted[called] = (-level, not decodes, number)
    told = ", ".join(
        f"{each} (level {-level}, {'a prompt' if prompt else 'a decode'})"
        for each, (level, prompt, _) in wanted.items()
    )
    check_equal(
        names(scheduler.line()),
        sorted(wanted, key=lambda each: wanted[each]),
        name=f"the line of {told}",
        suspects={
            "decodes come before higher levels: a level's decodes come first among those of their level only": sorted(
                wanted, key=lambda each: (wanted[each][1], wanted[each][0], wanted[each][2])
            ),
            "the decodes of a level don't come first": sorted(wanted, key=lambda each: wanted[each][::2]),
            "a prompt whose last token is due was taken for a decode": sorted(
                wanted, key=lambda each: wanted[each][::2]
            ),
            "the decodes of a level come last": sorted(
                wanted, key=lambda each: (wanted[each][0], not wanted[each][1], wanted[each][2])
            ),
            "the lowest level comes first": sorted(
                wanted, key=lambda each: (-wanted[each][0], *wanted[each][1:])
            ),
            "the levels don't count": sorted(wanted, key=lambda each: wanted[each][1:]),
        },
    )


def test_task_3_in_a_level_the_first_that_came_is_first_wherever_it_stands_in_the_list(lab):
    scheduler = scheduler_of(lab, pages=40)
    line = [run(lab, scheduler, text(5, seed=n), 3, client="ABC"[n]) for n in range(3)]
    scheduler.running = [line[2], line[0], line[1]]
    as_listed = {"the order of `running` was kept: one that has resumed stands at its end": ["C", "A", "B"]}
    check_equal(
        names(scheduler.line()),
        ["A", "B", "C"],
        name="the line, where `running` is C, A, B",
        suspects=as_listed,
    )
    check_equal(
        names(scheduler.running),
        ["C", "A", "B"],
        name="the order of `running`, after the line was walked",
        suspects={"`running` itself was sorted, and not a copy of it": ["A", "B", "C"]},
    )


def test_task_3_a_request_that_is_preempted_while_the_line_is_walked_is_left_out(lab):
    scheduler = scheduler_of(lab, pages=40)
    line = [run(lab, scheduler, text(5, seed=n), 4, client="ABCD"[n]) for n in range(4)]
    served = []
    for each in scheduler.line():
        served.append(name(each))
        if each is line[1]:
            scheduler.preempt(line[3])
            check_lost(scheduler, "after D was preempted")
    check_equal(preempted(scheduler), ["D"], name="whom `preempted` names after D was preempted")
    check_equal(
        served,
        ["A", "B", "C"],
        name="the line, where D is preempted while B is served",
        suspects={"D was served after it was preempted: it has no pages, and waits": ["A", "B", "C", "D"]},
    )


def order_of(scheduler, got=None):
    """The waiting requests by their turn."""
    scheduler.got.update(got or {})
    return names(sorted(scheduler.waiting, key=scheduler.turn))


def test_task_3_the_turn_goes_by_level_then_resuming_then_service_then_arrival(lab):
    scheduler = scheduler_of(lab)
    wanted = {}
    for number in range(16):
        called = "ABCDEFGHIJKLMNOP"[number]
        level, resumes, served = number % 2, number // 2 % 2 == 1, 10 * (number // 4 % 2)
        waiting = wait(lab, scheduler, text(5, number), client=called, level=level, resumes=resumes)
        waiting.request.priority = number // 8
        scheduler.fairness.served[called] = served
        wanted[called] = (-level, not resumes, served, number)
    order = [3, 0, 1, 2]
    mixed = {
        "the level doesn't count": sorted(wanted, key=lambda each: wanted[each][1:]),
        "the priority of the request was compared: its level may have risen": sorted(
            wanted, key=lambda each: (-(wanted[each][3] // 8), *wanted[each][1:])
        ),
        "of one level, those that resume don't come first": sorted(
            wanted, key=lambda each: (wanted[each][0], *wanted[each][2:])
        ),
        "of one level, those come last that resume": sorted(
            wanted, key=lambda each: (wanted[each][0], not wanted[each][1], *wanted[each][2:])
        ),
        "the client that was served most comes first": sorted(
            wanted, key=lambda each: (*wanted[each][:2], -wanted[each][2], wanted[each][3])
        ),
        "how much each client was served doesn't count": sorted(
            wanted, key=lambda each: (*wanted[each][:2], wanted[each][3])
        ),
        "the lowest level comes first": sorted(
            wanted, key=lambda each: (-wanted[each][0], *wanted[each][1:])
        ),
        "those that resume come before higher levels": sorted(
            wanted, key=lambda each: (wanted[each][1], wanted[each][0], *wanted[each][2:])
        ),
        "arrival comes before everything": sorted(wanted, key=lambda each: [wanted[each][n] for n in order]),
    }
    check_turns(
        order_of(scheduler),
        sorted(wanted, key=lambda each: wanted[each]),
        {
            each: f"{each} (level {-level}{'' if fresh else ', resumes'}, client served {served}, number {number})"
            for each, (level, fresh, served, number) in wanted.items()
        },
        mixed,
    )


def check_turns(found, expected, told, suspects):
    """Compare the order of some requests, and name the first two that stand in the wrong order."""
    if found == expected:
        return
    early, late = next(pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1])
    known = [why for why, order in suspects.items() if order == found]
    cause = f"\n  likely cause: {'; or '.join(known)}" if known else ""
    raise CheckFailed(f"the turn of {told[early]} should come before that of {told[late]}{cause}")


def test_task_3_what_a_client_gets_in_this_step_counts_for_its_turn(lab):
    scheduler = scheduler_of(lab)
    for number, called in enumerate("ABC"):
        wait(lab, scheduler, text(5, number), client=called)
        scheduler.fairness.served[called] = 10 * number
    check_equal(order_of(scheduler), ["A", "B", "C"], name="the turns of A, B, C, served 0, 10 and 20 tokens")
    check_equal(
        order_of(scheduler, {"A": 15, "B": 3}),
        ["B", "A", "C"],
        name="the turns of A, B, C, served 0, 10 and 20 tokens, when A has got 15 and B 3 in this step already",
        suspects={"what a client has got in this step was left out": ["A", "B", "C"]},
    )


@both_caches
@pytest.mark.parametrize("tokens", [2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("available", [1, 2])
def test_task_3_a_request_may_begin_where_there_are_pages_for_all_that_is_due(lab, kind, tokens, available):
    scheduler = scheduler_of(lab, kind=kind, chunk_size=1)
    run(lab, scheduler, text(9, seed=1), 4, client="A")
    waiting = wait(lab, scheduler, text(tokens), client="B")
    take(scheduler, available)
    before = books(scheduler)
    told = f"{tokens} tokens are due and {plural(available, 'page')} of 3 can be had, with chunks of 1 token"
    check_equal(
        scheduler.may_begin(waiting),
        tokens <= available * P,
        name=f"whether a request may begin where {told}",
        suspects={
            "there is a page for its first tokens, not for all that is due": True,
            **({"as many pages as are lacking are enough": False} if -(-tokens // P) == available else {}),
        },
    )
    check_unchanged(scheduler, before, f"after may_begin, where {told}")


def test_task_3_pages_that_may_be_evicted_are_available_too(lab):
    scheduler = scheduler_of(lab)
    scheduler.preempt(run(lab, scheduler, text(9, seed=1), 7, client="A"))
    waiting = wait(lab, scheduler, text(6), client="B")
    take(scheduler)
    check_equal(
        scheduler.may_begin(waiting),
        True,
        name="whether a request may begin with 6 tokens, where no page of 3 is free and 2 may be evicted",
    )


def test_task_3_pages_that_were_found_are_not_lacking(lab):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 7, client="A")
    waiting = wait(lab, scheduler, text(9), client="B")
    take(scheduler, 1)
    found = scheduler.cache.match(waiting.sequence, waiting.request.token_ids)
    check_equal(found, 6, name="how many of 9 tokens the cache finds")
    check_equal(
        scheduler.may_begin(waiting),
        True,
        name="whether a request may begin with 6 of 9 tokens found and 1 page",
    )


@pytest.mark.parametrize("generated", [0, 1, 4])
def test_task_3_a_request_that_resumes_needs_room_for_its_output_too(lab, generated):
    scheduler = scheduler_of(lab)
    waiting = wait(lab, scheduler, text(5), client="A", generated=text(generated, 5), resumes=True)
    take(scheduler, 2)
    check_equal(
        scheduler.may_begin(waiting),
        5 + generated <= 6,
        name=f"whether a request with 5 tokens of prompt and {generated} of output may resume on 2 pages of 3 (all "
        f"{5 + generated} are due)",
    )


def test_task_3_the_reference_of_the_tree_keeps_no_page_of_a_request_that_makes_room(lab):
    """Without a tree the same request makes room, too: so if only that one may begin, it is the reference."""
    for kind in CACHES:
        scheduler = scheduler_of(lab, kind=kind)
        run(lab, scheduler, text(9), 6, client="A")
        waiting = wait(lab, scheduler, text(3, 7), client="W", level=1)
        take(scheduler)
        where = " (a tree has a reference to each of them, too)" if kind == "trie" else ""
        tree = {"the reference of the tree is that of no request: such a page may be evicted": False}
        check_equal(
            scheduler.may_begin(waiting),
            True,
            name="whether W (level 1) may begin with 3 tokens due, where no page of 3 is available, and A (level 0) "
            f"alone holds 2{where}",
            suspects=tree if kind == "trie" else None,
        )


# How many tokens are due, the levels of the waiting request and of those that run: 4 tokens each, in 2 pages of 3
MAY = {
    "one of a lower level has as many": (6, 1, {"A": 0}, True),
    "one of a lower level has one too few": (7, 1, {"A": 0}, False),
    "one of a lower level, which came first, has as many": (6, 3, {"A": 2, "B": 3}, True),
    "two of lower levels have as many together": (12, 2, {"A": 0, "B": 1}, True),
    "two of lower levels have one too few together": (13, 2, {"A": 0, "B": 1}, False),
    "one of a lower level has too few, and one of its own level has the others": (
        9,
        1,
        {"A": 0, "B": 1},
        False,
    ),
    "only its own level runs": (3, 1, {"A": 1, "B": 1}, False),
    "only higher levels run": (3, 0, {"A": 1, "B": 3}, False),
    "nothing runs": (3, 3, {}, False),
}


@both_caches
@pytest.mark.parametrize("what", list(MAY))
def test_task_3_without_pages_only_lower_levels_can_make_room(lab, kind, what):
    tokens, level, others, expected = MAY[what]
    scheduler = scheduler_of(lab, kind=kind)
    for number, (called, its) in enumerate(others.items()):
        run(lab, scheduler, text(9, number), 4, client=called, level=its)
    waiting = wait(lab, scheduler, text(tokens, 7), client="W", level=level)
    take(scheduler)
    before = books(scheduler)
    check_equal(
        scheduler.may_begin(waiting),
        expected,
        name=f"whether a request of level {level} may begin with {tokens} tokens due, where no page of 3 is "
        f"available, and of those that it lacks {what}",
    )
    check_unchanged(scheduler, before, "after may_begin, which only answers")


def test_task_3_a_later_request_of_the_same_level_makes_no_room_for_one_that_waits(lab):
    """It runs already: to preempt it would win nothing."""
    scheduler = scheduler_of(lab)
    waiting = wait(lab, scheduler, text(5), client="A", level=1)
    run(lab, scheduler, text(9, 1), 4, client="B", level=1)
    take(scheduler)
    check_equal(
        scheduler.may_begin(waiting),
        False,
        name="whether A may begin, where no page is available and B runs, of A's level, which came later",
        suspects={"a request of the same level would be preempted: it must be of a lower one": True},
    )


def test_task_3_pages_that_are_there_and_those_of_lower_levels_count_together(lab):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(9), 4, client="A")
    fits, not_quite = (
        wait(lab, scheduler, text(tokens, 7), client="W", level=1, max_tokens=2) for tokens in (9, 10)
    )
    take(scheduler, 1)
    check_equal(
        [scheduler.may_begin(fits), scheduler.may_begin(not_quite)],
        [True, False],
        name="whether requests of level 1 may begin with 9 and 10 tokens due, where 1 page of 3 is available, and A "
        "(level 0) has 2",
    )


def test_task_3_a_request_in_this_step_does_not_count_as_one_that_can_make_room(lab):
    scheduler = scheduler_of(lab)
    plan(lab, scheduler, run(lab, scheduler, text(9), 4, client="A"))
    waiting = wait(lab, scheduler, text(3, 7), client="W", level=1)
    take(scheduler)
    check_equal(
        scheduler.may_begin(waiting),
        False,
        name="whether a request of level 1 may begin, where no page is available and A (level 0) is in this step",
        suspects={"A was counted: a request that has a part in this step keeps its pages": True},
    )


@pytest.mark.parametrize(("tokens", "expected"), [(12, True), (13, False)])
def test_task_3_a_page_that_two_of_lower_levels_hold_makes_room_once(lab, tokens, expected):
    """A and B hold two pages together, and one more each: four become available."""
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 8, client="A")
    run(lab, scheduler, [*text(6), *text(6, 1)], 8, client="B")
    waiting = wait(lab, scheduler, text(tokens, 7), client="W", level=1)
    take(scheduler)
    check_equal(
        scheduler.may_begin(waiting),
        expected,
        name=f"whether W (level 1) may begin with {tokens} tokens due, where A and B (level 0) have 3 pages of 3 "
        "each, two of them the same",
        suspects={
            "the pages of each were counted: one that both hold becomes available once": True,
            "only pages that a single request holds were counted: if all that hold a page lose it, it is available": (
                False
            ),
        },
    )


@pytest.mark.parametrize(("tokens", "expected"), [(3, True), (4, False)])
def test_task_3_a_page_that_another_request_keeps_makes_no_room(lab, tokens, expected):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 8, client="A")
    run(lab, scheduler, [*text(6), *text(6, 1)], 8, client="B", level=1)
    waiting = wait(lab, scheduler, text(tokens, 7), client="W", level=1)
    take(scheduler)
    check_equal(
        scheduler.may_begin(waiting),
        expected,
        name=f"whether W (level 1) may begin with {tokens} tokens due, where A (level 0) has 3 pages of 3, of which "
        "B (level 1) holds two, too",
        suspects={"all pages of A were counted: B keeps two of them": True},
    )


@pytest.mark.parametrize(("tokens", "expected"), [(9, True), (10, False)])
def test_task_3_a_page_that_was_found_for_the_request_itself_makes_no_room(lab, tokens, expected):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 8, client="A")
    waiting = wait(lab, scheduler, [*text(6), *text(tokens - 6, 1)], client="W", level=1)
    take(scheduler)
    found = scheduler.cache.match(waiting.sequence, waiting.request.token_ids)
    check_equal(found, 6, name=f"how many of W's {tokens} tokens the cache finds")
    check_equal(
        scheduler.may_begin(waiting),
        expected,
        name=f"whether W (level 1) may begin with 6 of {tokens} tokens found, where A (level 0) has 3 pages of 3, "
        "and W's two are among them",
        suspects={"all pages of A were counted: W needs two of them itself": True},
    )


@both_caches
@pytest.mark.parametrize(
    ("levels", "expected"), [((0, 2), True), ((2, 0), True), ((1, 1), False), ((1, 2), False)]
)
def test_task_3_without_a_seat_only_a_lower_level_can_give_one(lab, kind, levels, expected):
    scheduler = scheduler_of(lab, kind=kind, num_seats=2)
    for number, level in enumerate(levels):
        run(lab, scheduler, text(9, number), 4, client="AB"[number], level=level)
    waiting = wait(lab, scheduler, text(5, 7), client="W", level=1)
    before = books(scheduler)
    low = "AB"[levels.index(min(levels))]
    check_equal(
        scheduler.may_begin(waiting),
        expected,
        name=f"whether W (level 1) may begin, where there are pages, and A and B (levels {levels[0]} and "
        f"{levels[1]}) "
        "run in the only 2 seats",
        suspects={
            "there are pages; no seat is free, and no request of a lower level has one": True,
            f"there are pages; no seat is free, and {low} can give its own": False,
        },
    )
    check_unchanged(scheduler, before, "after may_begin, which only answers")


def test_task_3_a_seat_can_be_had_from_one_that_frees_no_page(lab):
    scheduler = scheduler_of(lab, num_seats=2)
    run(lab, scheduler, text(12), 8, client="A", level=2)
    run(lab, scheduler, text(12), 6, client="B")
    waiting = wait(lab, scheduler, text(5, 7), client="W", level=1)
    check_equal(
        scheduler.may_begin(waiting),
        True,
        name="whether W (level 1) may begin, where there are pages and no seat, and B (level 0) has pages that A "
        "(level "
        "2) holds, too",
        suspects={"what is lacking is a seat: B can give it, though it frees no page": False},
    )


def way_for(scheduler, waiting):
    """Who was preempted when way was made for a waiting request."""
    line = list(scheduler.running)
    scheduler.make_way(waiting)
    for each in line:
        if name(each) not in preempted(scheduler) and not (each in scheduler.running and each.sequence.pages):
            raise CheckFailed(
                f"after make_way: {name(each)} has lost its pages or its seat, and `preempted` doesn't name it: "
                f"`preempt` "
                "does all that belongs to it"
            )
    check_lost(scheduler, "after make_way")
    return preempted(scheduler)


def until_room(line, tokens):
    """Who is preempted in some order, until pages for so many tokens are there: one is, A has 3, the others 2."""
    room, gone = 1, list[str]()
    for called in line:
        if room * P >= tokens:
            break
        gone.append(called)
        room += 3 if called == "A" else 2
    return gone


@both_caches
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(3, []), (4, ["D"]), (9, ["D"]), (10, ["D", "A"]), (18, ["D", "A"]), (19, ["D", "A", "B"])],
)
def test_task_3_the_lowest_are_preempted_until_there_is_room(lab, kind, tokens, expected):
    """B, of level 1, came later than A, of level 0: the level comes first."""
    scheduler = scheduler_of(lab, kind=kind)
    for number, level in enumerate([0, 1, 2, 0, 3]):
        run(lab, scheduler, text(9, number), 7 if number == 0 else 4, client="ABCDE"[number], level=level)
    waiting = wait(lab, scheduler, text(tokens, 7), client="W", level=2, max_tokens=2)
    take(scheduler, 1)
    enough = until_room("DAB", tokens)
    check_equal(
        way_for(scheduler, waiting),
        expected,
        name=f"who is preempted for W (level 2, {tokens} tokens due), where 1 page of 3 is available, and A, B, "
        f"C, D, "
        "E (levels 0, 1, 2, 0, 3) have 3, 2, 2, 2, 2 pages",
        suspects={
            "the highest of the lower levels lose their pages first": until_room("BAD", tokens),
            "the last that came loses its pages first, whatever its level: the lowest level comes first": (
                until_room("DBA", tokens)
            ),
            "of one level the last that came must lose its pages first, however few it has": until_room(
                "ADB", tokens
            ),
            "all requests of lower levels were preempted: stop when there is room": ["D", "A", "B"],
            "one more was preempted than was needed": ["D", "A", "B"][: len(enough) + 1],
            "pages are lacking, and no request was preempted": [],
            **(
                {"stopped after one victim, though pages are still lacking": ["D"]}
                if len(expected) > 1
                else {}
            ),
        },
    )
    check_equal(
        scheduler.short,
        False,
        name="whether a request that runs was `short` of a page, after way was made for one that waits",
    )


def test_task_3_where_only_pages_are_lacking_a_request_that_frees_none_is_passed_over(lab):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 8, client="A", level=2)
    run(lab, scheduler, text(9, 1), 4, client="B")
    run(lab, scheduler, text(12), 6, client="C")
    waiting = wait(lab, scheduler, text(5, 7), client="W", level=1)
    take(scheduler)
    check_equal(
        way_for(scheduler, waiting),
        ["B"],
        name="who is preempted for W (level 1, 2 pages lacking), where B (level 0) has 2 pages, and C (level 0, the "
        "last that came) has 2 that A (level 2) holds, too",
        suspects={"C was preempted, and that frees no page: A still holds them": ["C", "B"]},
    )


def test_task_3_it_is_asked_anew_each_time_which_request_frees_a_page(lab):
    """A holds the pages of B, and one more: when it has lost them, B's become available."""
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 8, client="A")
    run(lab, scheduler, text(12), 6, client="B")
    waiting = wait(lab, scheduler, text(9, 7), client="W", level=1)
    take(scheduler)
    check_equal(
        way_for(scheduler, waiting),
        ["A", "B"],
        name="who is preempted for W (level 1, 3 pages lacking), where A and B (level 0) hold 3 pages and 2 of these",
        suspects={
            "B frees no page while A holds its pages, and frees two afterwards: ask again after each victim": [
                "A"
            ],
            "stopped after one victim, though pages are still lacking": ["A"],
            "B was preempted while A held its pages: first the lowest that frees a page": ["B", "A"],
        },
    )


def test_task_3_a_seat_is_given_by_the_lowest_even_if_it_frees_no_page(lab):
    scheduler = scheduler_of(lab, num_seats=3)
    run(lab, scheduler, text(12), 8, client="A", level=2)
    run(lab, scheduler, text(9, 1), 4, client="B")
    run(lab, scheduler, text(12), 6, client="C")
    waiting = wait(lab, scheduler, text(5, 7), client="W", level=1)
    check_equal(
        way_for(scheduler, waiting),
        ["C"],
        name="who is preempted for W (level 1), where there are pages and no seat, B (level 0) has pages, and C "
        "(level "
        "0, the last that came) has some that A (level 2) holds, too",
        suspects={
            "C was passed over because it frees no page: what is lacking is a seat": ["B"],
            "no seat was free, and none was made": [],
            "one seat is enough": ["C", "B"],
        },
    )


def test_task_3_who_gives_a_seat_gives_its_pages_too(lab):
    scheduler = scheduler_of(lab, num_seats=3)
    for number in range(3):
        run(lab, scheduler, text(9, number), 4, client="ABC"[number])
    waiting = wait(lab, scheduler, text(5, 7), client="W", level=1)
    take(scheduler)
    check_equal(
        way_for(scheduler, waiting),
        ["C"],
        name="who is preempted for W (level 1, 2 pages and a seat lacking), where A, B, C (level 0) have 2 pages "
        "each",
        suspects={"one was preempted for the seat, and another one for the pages": ["C", "B"]},
    )


def test_task_3_a_request_in_this_step_is_not_preempted_for_one_that_waits(lab):
    scheduler = scheduler_of(lab, num_seats=2)
    run(lab, scheduler, text(9), 4, client="A")
    plan(lab, scheduler, run(lab, scheduler, text(9, 1), 4, client="B"))
    waiting = wait(lab, scheduler, text(5, 7), client="W", level=1)
    check_equal(
        way_for(scheduler, waiting),
        ["A"],
        name="who is preempted for W (level 1), where A and B (level 0) run in the only 2 seats, and B is in this "
        "step",
        suspects={"B is in the step that is being planned: the model is to write into its pages": ["B"]},
    )


def admitted(scheduler, budget=50, **options):
    """Who begins, with a budget, in a step in which nothing else is planned."""
    scheduler.planned, scheduler.begun, scheduler.preempted, scheduler.left = [], [], [], budget
    scheduler.short = False
    scheduler.got.clear()
    scheduler.admit(**options)
    for each in scheduler.waiting:
        if each.sequence.pages:
            raise CheckFailed(
                f"after admit: {name(each)} waits, and has the pages {each.sequence.pages}: what is found for a "
                f"request "
                "that has to wait is given back"
            )
    return names(scheduler.begun)


def test_task_3_requests_begin_in_their_turn(lab):
    scheduler = scheduler_of(lab, pages=40)
    for number, level in enumerate([0, 2, 1, 2]):
        wait(lab, scheduler, text(5, number), client="ABCD"[number], level=level, resumes=number == 3)
    check_equal(
        admitted(scheduler),
        ["D", "B", "C", "A"],
        name="who begins, where D (level 2) resumes, B has level 2, C level 1 and A level 0",
    )
    check_equal(
        [chunk.count for chunk in scheduler.planned], [5, 5, 5, 5], name="how many tokens each brings"
    )
    check_books_with(scheduler, "after four have begun")


@pytest.mark.parametrize(
    ("seats", "budget", "expected"), [(2, 50, "A"), (9, 4, "A"), (9, 6, "AB"), (4, 50, "ABC"), (1, 50, "")]
)
def test_task_3_seats_and_budget_are_kept(lab, seats, budget, expected):
    scheduler = scheduler_of(lab, pages=40, num_seats=seats)
    run(lab, scheduler, text(5, 9), 4, client="R")
    for number in range(3):
        wait(lab, scheduler, text(5, number), client="ABC"[number])
    too_many = {
        "the seats were counted wrong: with the requests that run, no more may run than there are seats": [
            "ABC"[: seats - 1 + extra] for extra in (1, 2, 3)
        ],
        "`left` was not looked at: a request has begun with nothing left of the budget": ["ABC"],
    }
    few = dict(zip(too_many, (seats < 4, budget < 10), strict=True))
    found = "".join(admitted(scheduler, budget))
    check_equal(
        list(found),
        list(expected),
        name=f"who begins, where one of {plural(seats, 'seat')} is taken, {budget} tokens are left and A, B, C bring "
        "5 each",
        suspects={why: list(found) for why, given in too_many.items() if few[why] and found in given},
    )


def test_task_3_a_request_that_has_to_wait_is_not_overtaken_and_gives_back_what_was_found(lab):
    scheduler = scheduler_of(lab, pages=8)
    run(lab, scheduler, text(12), 7, client="R")
    wait(lab, scheduler, [*text(6), *text(9, 1)], client="A")
    wait(lab, scheduler, text(2, 2), client="B")
    take(scheduler, 1)
    before = books(scheduler)
    began = admitted(scheduler)
    check_equal(
        began,
        [],
        name="who begins, where 1 page is available, A (first) lacks 3 pages and B (behind it) lacks 1",
        suspects={"A was overtaken": ["B"]},
    )
    check_unchanged(scheduler, before, "after the first one had to wait: what was found for it is given back")


def test_task_3_pages_that_are_found_are_not_lacking_when_a_request_begins(lab):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(12), 7, client="A")
    wait(lab, scheduler, text(9), client="B")
    take(scheduler, 1)
    check_equal(
        admitted(scheduler),
        ["B"],
        name="who begins, where 1 page is available and 6 of B's 9 tokens are found in pages that A holds",
        suspects={"the pages that are found were counted as lacking": []},
    )
    check_equal(
        [(chunk.had, chunk.found) for chunk in scheduler.planned],
        [(0, 6)],
        name="how many tokens B had before the step, and how many were found in it",
        suspects={"`begin` was not told how many tokens `match` has found": [(6, 0)]},
    )


def test_task_3_no_request_begins_in_a_step_in_which_one_that_runs_lacked_a_page(lab):
    scheduler = scheduler_of(lab)
    line = [run(lab, scheduler, text(9, number), 6, client="AB"[number]) for number in range(2)]
    wait(lab, scheduler, text(2, 7), client="C", level=3)
    take(scheduler)
    scheduler.planned, scheduler.begun, scheduler.left = [], [], 50
    scheduler.add(line[0])
    check_equal(preempted(scheduler), ["B"], name="who was preempted when A lacked a page")
    scheduler.admit()
    check_equal(
        names(scheduler.begun),
        [],
        name="who begins in a step in which A, which runs, lacked a page, and B was preempted for it",
        suspects={
            "a request begins in the step in which one that runs lacked a page (`short`): what the victim gave up "
            "will "
            "be needed by those that run": ["C"],
        },
    )


@both_caches
@pytest.mark.parametrize("seats", [3, 9])
def test_task_3_requests_of_higher_levels_push_in(lab, kind, seats):
    """A, B, C hold all pages, and with 3 seats all seats."""
    scheduler = scheduler_of(lab, kind=kind, num_seats=seats)
    for number in range(3):
        run(lab, scheduler, text(9, number), 6, client="ABC"[number])
    wait(lab, scheduler, text(8, 7), client="H", level=2)
    wait(lab, scheduler, text(2, 8), client="I", level=1, resumes=True)
    wait(lab, scheduler, text(2, 9), client="J")
    take(scheduler)
    began = admitted(scheduler)
    nobody = "H and I were not let in: they may take seats and pages from lower levels"
    check_equal(
        (began, preempted(scheduler)),
        (["H", "I"], ["C", "B"]),
        name="who begins and who is preempted, where A, B, C (level 0) hold all pages, two of 3 each, in "
        f"{plural(seats, 'seat')}, and H (level 2, 8 tokens), I (level 1, 2 tokens, resumes) and J (level 0) wait",
        suspects={
            nobody: ([], []),
            "only one request has pushed in: where one has begun, the next one may, too": (["H"], ["C", "B"]),
        },
    )
    check_equal([chunk.count for chunk in scheduler.planned], [8, 2], name="how many tokens H and I bring")
    check_books_with(scheduler, "after two have begun on the pages of others")


@both_caches
def test_task_3_no_request_is_preempted_for_one_that_all_lower_ones_together_can_not_make_room_for(lab, kind):
    scheduler = scheduler_of(lab, kind=kind)
    for number, level in enumerate([1, 0, 0]):
        run(lab, scheduler, text(9, number), 6, client="ABC"[number], level=level)
    wait(lab, scheduler, [*text(3, 1), *text(13, 7)], client="H", level=1)
    take(scheduler)
    before = books(scheduler)
    check_equal(
        (admitted(scheduler), preempted(scheduler)),
        ([], []),
        name="who begins and who is preempted, where A, B, C (levels 1, 0, 0) have 2 pages of 3 each, and H "
        "(level 1) "
        "lacks 5 or more",
        suspects={
            "B and C were preempted in vain: their pages are too few for all that is due of H": (
                [],
                ["C", "B"],
            ),
            "H has begun with fewer pages than it needs for all that is due": (["H"], ["C", "B"]),
        },
    )
    check_unchanged(scheduler, before, "after a request had to wait: what was found for it is given back")


def test_task_3_one_that_was_preempted_in_this_step_does_not_begin_again_in_it(lab):
    """H takes a page for its first chunk only, of the 4 that it lacks: there would be room for C again."""
    scheduler = scheduler_of(lab, chunk_size=3)
    run(lab, scheduler, text(9), 6, client="A")
    run(lab, scheduler, text(12, 1), 11, client="C")
    wait(lab, scheduler, text(12, 7), client="H", level=1)
    wait(lab, scheduler, text(2, 8), client="W")
    take(scheduler, 2)
    check_equal(
        (admitted(scheduler), preempted(scheduler)),
        (["H"], ["C"]),
        name="who begins and who is preempted with chunks of 3 tokens, where 2 pages of 3 are available, A and C "
        "(level "
        "0) have 2 and 4, and H (level 1, 12 tokens) and W (level 0, 2 tokens) wait",
        suspects={
            "C has begun again in the step that has preempted it: H will need these pages for its next chunks": (
                ["H", "C"],
                ["C"],
            ),
            "C has begun again in the step that has preempted it, and W, too: H will need these pages": (
                ["H", "C", "W"],
                ["C"],
            ),
            "C was overtaken by W: it has lost its pages, and is the next of its level": (["H", "W"], ["C"]),
        },
    )


@pytest.mark.parametrize(("above", "expected"), [(-1, "DBCA"), (0, "DBC"), (1, "DB"), (2, ""), (3, "")])
def test_task_3_only_requests_above_a_level_begin(lab, above, expected):
    scheduler = scheduler_of(lab, pages=40)
    for number, level in enumerate([0, 2, 1, 2]):
        wait(lab, scheduler, text(5, number), client="ABCD"[number], level=level, resumes=number == 3)
    at_it = {-1: "DBCA", 0: "DBCA", 1: "DBC", 2: "DB", 3: ""}[above]
    check_equal(
        list("".join(admitted(scheduler, above=above))),
        list(expected),
        name=f"who begins, where only those above level {above} may, A has level 0, C 1, and B and D 2",
        suspects={
            "`above` was not looked at": list("DBCA"),
            f"those of level {above} itself have begun, too": list(at_it),
        },
    )


def test_task_3_nothing_is_held_for_a_request_that_is_not_above_the_level(lab):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(9), 7, client="A", level=1)
    wait(lab, scheduler, text(9), client="W", level=1)
    before = books(scheduler)
    check_equal(admitted(scheduler, above=1), [], name="who begins above level 1, where W (level 1) waits")
    check_unchanged(scheduler, before, "after W had to wait")


def test_task_3_a_level_is_served_before_those_below_begin_and_before_those_below_are_served(lab):
    """In each level first those that run, then those that wait: then the next level."""
    scheduler = scheduler_of(lab, pages=40)
    for number, level in enumerate([0, 2, 1]):
        run(lab, scheduler, text(4, number), 3, client="ABC"[number], level=level)
    for number, level in enumerate([0, 2, 1, 3]):
        wait(lab, scheduler, text(4, 4 + number), client="wxyz"[number], level=level)
    scheduler.plan()
    check_equal(
        [name(chunk.running) for chunk in scheduler.planned],
        list("zBxCyAw"),
        name="the order in which requests are planned, where A, B, C run (levels 0, 2, 1) and w, x, y, z wait "
        "(levels 0, "
        "2, 1, 3)",
        suspects={
            "all that run were served before a request could begin: those that wait at a level come before those "
            "that "
            "run below it": list("BCAzxyw"),
            "those that wait at a level come after those that run there": list("zxByCwA"),
        },
    )


def test_task_3_the_line_looks_for_a_request_that_begins_once_for_each_level(lab):
    """Each look may match a long prompt."""
    scheduler, levels = scheduler_of(lab, pages=40), []
    for number in range(6):
        run(lab, scheduler, text(4, number), 3, client="ABCDEF"[number], level=number % 2)
    scheduler.admit = lambda above=-1: levels.append(above)
    served = names(scheduler.line())
    check_equal(served, list("BDFACE"), name="the line of A, C, E (level 0) and B, D, F (level 1)")
    check_equal(
        levels,
        [1, 0],
        name="with which `above` the line of three requests of level 1 and three of level 0 calls `admit`",
        suspects={
            "it was called for each request, not for each level: each call may match a long prompt": [1] * 3
            + [0] * 3,
            "it was not called: a request that waits can't push in when all below it are served": [],
        },
    )


def test_task_3_a_request_that_begins_while_the_line_is_walked_is_not_named_in_it(lab):
    scheduler = scheduler_of(lab, pages=40)
    run(lab, scheduler, text(4), 3, client="A")
    wait(lab, scheduler, text(4, 1), client="H", level=1)
    scheduler.planned, scheduler.begun, scheduler.left = [], [], 50
    served = names(scheduler.line())
    check_equal(
        names(scheduler.begun), ["H"], name="who begins before A (level 0) is served, where H (level 1) waits"
    )
    check_equal(served, ["A"], name="the line then: H has its chunk already")


def test_task_3_what_a_client_got_in_this_step_decides_who_begins_next(lab):
    scheduler = scheduler_of(lab, pages=40)
    for number, called in enumerate(["A", "A", "B", "A"]):
        wait(lab, scheduler, text(6, number), client=called)
    order = []
    admitted(scheduler, 18)
    order = [each.rank for each in scheduler.begun]
    check_equal(
        order,
        [0, 2, 1],
        name="which numbers begin with a budget for three, where 0, 1, 3 are client A's and 2 is client B's",
        suspects={"what client A has got in this step was forgotten": [0, 1, 2]},
    )


def test_task_3_what_a_request_takes_of_the_budget_counts_not_what_is_due(lab):
    """A chunk of 3 tokens each, of 6 that are due: client A has got 3, and then 6; client B had 4 before."""
    scheduler = scheduler_of(lab, pages=40, chunk_size=3)
    for number, called in enumerate("AABA"):
        wait(lab, scheduler, text(6, number), client=called)
    scheduler.fairness.served["B"] = 4
    admitted(scheduler, 12)
    check_equal(
        [each.rank for each in scheduler.begun],
        [0, 1, 2, 3],
        name="which numbers begin with a chunk of 3 tokens each, where 0, 1, 3 are client A's, served 0 before, and "
        "2 is client B's, served 4",
        suspects={
            "all 6 tokens that were due counted, and not only the 3 that were taken of the budget": [
                0,
                2,
                1,
                3,
            ],
            "what client A's requests took was not added up: each counted as one token, or only the last one, or "
            "none": [0, 1, 3, 2],
        },
    )


def test_task_3_a_request_that_resumes_keeps_its_place_if_the_step_fails(lab):
    scheduler = scheduler_of(lab, num_seats=1)
    wait(lab, scheduler, text(5), client="A")
    resuming = wait(lab, scheduler, text(5, 1), client="B", resumes=True)
    scheduler.plan()
    check_equal(names(scheduler.running), ["B"], name="who begins on the only seat, where B resumes")
    check_equal(
        resuming.resumes,
        True,
        name="whether B `resumes`, once it has begun again (if the step fails, it must wait in the same place)",
    )
    scheduler.undo()
    check_equal(
        resuming.resumes, True, name="whether B `resumes`, after a step in which it began, and which failed"
    )
    check_turns(order_of(scheduler), ["B", "A"], {"A": "A", "B": "B, which resumes and has failed once,"}, {})


def test_task_3_only_tokens_that_are_computed_count_as_got_in_this_step(lab):
    """Client A's first request finds 6 of its 7 tokens in the cache, and computes one; client B had 2 before."""
    scheduler = scheduler_of(lab, pages=40)
    run(lab, scheduler, text(7), 6, client="R")
    for prompt, called in [(text(7), "A"), (text(4, 1), "B"), (text(5, 2), "B"), (text(5, 3), "A")]:
        wait(lab, scheduler, prompt, client=called)
    scheduler.fairness.served["B"] = 2
    admitted(scheduler)
    check_equal(
        [each.rank for each in scheduler.begun],
        [1, 4, 2, 3],
        name="which numbers begin, where 1 and 4 are client A's, served 0 before, 2 and 3 client B's, served 2, and "
        "6 of the 7 tokens of number 1 are found",
        suspects={"tokens that were found count as if they had been computed": [1, 2, 3, 4]},
    )


def crowd(engine, seed=0, count=8, most=14, clients=("",)):
    """Requests that don't fit together; every other one draws its tokens at a temperature."""
    draw = random.Random(seed)
    return [
        engine.push(
            [draw.randrange(2) for _ in range(draw.randint(1, 9))],
            draw.randint(4, most),
            seed=number if number % 2 else None,
            priority=draw.choice([0, 0, 1, 3]),
            client=clients[number % len(clients)],
        )
        for number in range(count)
    ]


@both_caches
@pytest.mark.parametrize("patience", [1, 5, NEVER])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_task_3_every_request_gets_the_tokens_that_it_gets_alone(lab, kind, patience, seed):
    engine = ShortOfPages(lab, pages=8, kind=kind, patience=patience, token_budget=9)
    crowd(engine, seed)
    engine.finish()
    assert engine.preempted, "this pool is too small for all requests, and none was ever preempted"


@both_caches
@pytest.mark.parametrize("sampler_seed", [None, 5])
def test_task_3_a_preempted_request_goes_on_as_if_nothing_had_happened(lab, kind, sampler_seed):
    engine = ShortOfPages(lab, pages=6, kind=kind)
    high = engine.push(ids(4, 1), 12, priority=1, client="High")
    low = engine.push(ids(4), 9, seed=sampler_seed, client="Low")
    while not engine.preempted and engine.core.requests:
        before = low.output
        engine.step()
    check_equal(engine.times(), {"Low": 1}, name="how often each request was preempted")
    check_equal(low.output, before, name="the tokens that the request had before it was preempted")
    engine.finish()
    check_equal(high.num_generated, 12, name="how many tokens the other request got")


def high_over_low(lab, kind):
    """A pool of 5 pages of 3 tokens; in the sixth step, High needs the third page that Low has filled."""
    engine = ShortOfPages(lab, pages=5, kind=kind)
    high = engine.push(ids(2, 1), 8, priority=1, client="High")
    low = engine.push(ids(7), 5, client="Low")
    for _ in range(5):
        engine.step()
    check_equal(
        (low.num_generated, engine.times()), (3, {}), name="Low's tokens and the preemptions after 5 steps"
    )
    return engine, high, low


@pytest.mark.parametrize(("kind", "found"), [("trie", 6), ("base", 0)])
def test_task_3_a_request_resumes_at_what_the_cache_still_holds(lab, kind, found):
    """High took one of the three pages that Low had filled. A tree still has the other two."""
    engine, high, _ = high_over_low(lab, kind)
    while high in engine.core.requests:
        engine.step()
    check_equal(engine.times(), {"Low": 1}, name="how often each request was preempted")
    resumed = engine.step()
    check_equal(
        (engine.scheduler.reused, [count for _, count in resumed.issued]),
        (found, [10 - found]),
        name="how many of the 10 tokens of a request that resumes were found, and how many it computes",
    )
    engine.finish()


@both_caches
@pytest.mark.parametrize("patience", [1, 2, 3, 7, NEVER])
@pytest.mark.parametrize("priorities", [(0, 0), (0, 1), (1, 0), (3, 3)])
def test_task_3_two_requests_do_not_take_pages_from_each_other_for_ever(lab, kind, patience, priorities):
    """Each needs 5 of 6 pages, so they can't both end at once; together they compute fewer than 40 tokens."""
    engine = ShortOfPages(lab, pages=6, kind=kind, patience=patience)
    for number, priority in enumerate(priorities):
        engine.push(ids(4, number), 11, priority=priority)
    engine.finish(most=120)


@both_caches
@pytest.mark.parametrize("patience", [1, 4, NEVER])
def test_task_3_many_requests_in_a_pool_for_one_all_end(lab, kind, patience):
    engine = ShortOfPages(lab, pages=5, kind=kind, patience=patience, token_budget=4, num_seats=3, limit=16)
    crowd(engine, 4, count=12, most=6)
    engine.finish(most=400)


def under_a_stream(lab, patience, most, priority=0, client=""):
    """Whether a request ends while requests of the highest priority come all the time."""
    engine = ShortOfPages(lab, pages=6, patience=patience, token_budget=8)
    draw = random.Random(1)
    low = engine.push(ids(5), 6, priority=priority, client=client)
    for _ in range(most):
        while len(engine.core.requests) < 5:
            engine.push([draw.randrange(20) for _ in range(5)], 5, priority=3)
        engine.step()
        if low not in engine.core.requests:
            return True
    return False


@pytest.mark.parametrize("client", ["", "another"])
@pytest.mark.parametrize("patience", [1, 4, 10])
def test_task_3_a_low_priority_ends_under_a_stream_of_high_ones(lab, patience, client):
    most = 6 * patience + 60
    assert under_a_stream(lab, patience, most, client=client), (
        f"with a patience of {plural(patience, 'step')}, a request of priority 0 has not ended after {most} steps in "
        "which requests of priority 3 came all the time: its level should have risen to theirs"
    )


def test_task_3_a_higher_priority_begins_before_lower_ones_that_came_before_it(lab):
    engine = ShortOfPages(lab, pages=6, patience=NEVER)
    lows = [engine.push(ids(4, number), 12) for number in range(4)]
    for _ in range(3):
        engine.step()
    high = engine.push(ids(4, 7), 3, priority=2)
    engine.finish()
    assert engine.began[high] < engine.began[lows[-1]], (
        f"the last of four requests of priority 0 began in step {engine.began[lows[-1]]}, and one of priority 2, "
        f"which came in step 4, only in step {engine.began[high]}"
    )


@both_caches
@pytest.mark.parametrize("highs", [1, 2, 3])
@pytest.mark.parametrize("short_of", ["pages", "seats", "pages and seats"])
def test_task_3_higher_priorities_begin_in_the_next_step_where_lower_ones_have_everything(
    lab, kind, highs, short_of
):
    seats = 4 if "seats" in short_of else 9
    pages = 8 if "pages" in short_of else 40
    engine = ShortOfPages(lab, pages=pages, kind=kind, patience=NEVER, num_seats=seats)
    for number in range(4):
        engine.push(ids(4, number), 9, priority=number % 2)
    engine.step()
    engine.step()
    check_equal(
        len(engine.scheduler.running), 4, name="how many requests of priority 0 and 1 run after two steps"
    )
    line = [engine.push(ids(2 + number, 5 + number), 4, priority=2) for number in range(highs)]
    engine.step()
    check_equal(
        [request in engine.began for request in line],
        [True] * highs,
        name=f"which requests of priority 2 have begun one step after they came, where those of priorities 0 and "
        f"1 had "
        f"all {short_of}",
    )
    engine.finish()


def test_task_3_a_long_prompt_of_a_lower_level_does_not_take_the_budget_or_the_pages_before(lab):
    engine = ShortOfPages(lab, pages=10, patience=NEVER, token_budget=6)
    engine.push(ids(27), 2)
    engine.step()
    high = engine.push(ids(5, 1), 3, priority=1)
    step = engine.step()
    check_equal(
        [(request is high, count) for request, count in step.issued],
        [(True, 5), (False, 1)],
        name="which requests (high or not) bring how many tokens under a budget of 6, where one of priority 0 "
        "still has "
        "21 tokens of prompt due, and one of priority 1 with 5 has come",
    )
    engine.finish()


def test_task_3_a_request_of_the_same_priority_waits_until_there_is_room(lab):
    engine = ShortOfPages(lab, pages=4, patience=NEVER)
    for number in range(2):
        engine.push(ids(4, number), 9, priority=1)
    late = engine.push(ids(8, 5), 2, priority=1)
    for _ in range(3):
        engine.step()
    check_equal(
        (late in engine.began, engine.times()),
        (False, {}),
        name="whether a third request has begun after 3 steps, and who was preempted, where two of the same priority "
        "have the pages",
    )
    engine.finish()


@both_caches
@pytest.mark.parametrize("short_of", ["pages", "seats"])
def test_task_3_a_step_that_fails_after_a_request_has_pushed_in_puts_it_back(lab, kind, short_of):
    seats, pages = (2, 40) if short_of == "seats" else (9, 4)
    engine = ShortOfPages(lab, pages=pages, kind=kind, patience=NEVER, num_seats=seats)
    low = [engine.push(ids(4, number), 3, client="AB"[number]) for number in range(2)]
    engine.step()
    high = engine.push(ids(5, 5), 4, priority=1, client="High")
    before = [list(request.token_ids) for request in low]
    engine.fail(KeyError("the model"))
    check_equal(
        (names(engine.scheduler.running), {name(each) for each in engine.scheduler.waiting}),
        (["A"], {"B", "High"}),
        name="who runs and who waits, after High pushed in, B was preempted for it, and the model failed",
    )
    check_equal([list(request.token_ids) for request in low], before, name="the tokens of A and B then")
    engine.step()
    check_equal(
        high in engine.began, True, name="whether High has begun in the step after the one that failed"
    )
    engine.finish()


def test_task_3_a_preempted_request_resumes_before_others_of_its_level_begin(lab):
    engine = ShortOfPages(lab, pages=6, patience=NEVER, kind="base")
    first = engine.push(ids(6), 8)
    second = engine.push(ids(6, 1), 8)
    engine.step()
    third = engine.push([1], 1)
    while third in engine.core.requests:
        engine.step()
    ended = [first not in engine.core.requests, second.num_generated > 1]
    assert engine.preempted, "no request was preempted, though the requests don't fit together"
    check_equal(
        ended,
        [True, True],
        name="whether the first request has ended and the preempted one goes on, when a "
        "third one, which came last, has ended",
    )


def test_task_3_a_step_that_fails_ages_no_request_and_loses_no_token(lab):
    engine = ShortOfPages(lab, pages=8, patience=3)
    crowd(engine, 3)
    for number in range(60):
        before = {each.request: (each.level, each.waited) for each in engine.scheduler.waiting}
        engine.fail(KeyError(number))
        after = {each.request: (each.level, each.waited) for each in engine.scheduler.waiting}
        check_equal(
            [after[request] for request in before],
            list(before.values()),
            name="level and waited steps of the requests that wait, after a step that failed",
        )
        if not engine.core.requests:
            break
        engine.step()
        if not engine.core.requests:
            break
    engine.finish()


@both_caches
def test_task_3_what_a_failed_step_has_preempted_resumes_later(lab, kind):
    engine, _, low = high_over_low(lab, kind)
    engine.fail(ZeroDivisionError())
    check_equal(
        names(engine.scheduler.waiting),
        ["Low"],
        name="the requests that wait after a step that has preempted Low and failed",
    )
    check_equal(low.num_generated, 3, name="how many tokens Low has then")
    engine.finish()


@both_caches
def test_task_3_preempted_requests_can_be_aborted_and_pushed_again(lab, kind):
    engine = ShortOfPages(lab, pages=8, kind=kind, patience=5)
    everybody = crowd(engine, 1)
    aborted = set()
    while engine.core.requests:
        step = engine.step()
        aborted.update(step.preempted[:1])
        engine.abort(step.preempted[:1])
        check_equal(
            [request in engine.core.requests for request in step.preempted[:1]],
            [False] * len(step.preempted[:1]),
            name="whether a preempted request that was aborted is still in the engine",
        )
    assert aborted, "no request was preempted in a pool that is too small for all"
    for request in everybody:
        if request in aborted:
            engine.core.push(request)
    engine.finish()
    for request in everybody:
        engine.check_output(request)


PUSHING = st.one_of(
    st.tuples(
        st.just("push"),
        st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=9),
        st.integers(1, 9),
        st.integers(0, 3),
    ),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("fail")),
)


# A whole engine runs in each example: to look for a smaller one that fails, too, would take ten seconds.
@settings(QUICK, max_examples=100, phases=[Phase.generate])
@given(
    size=st.integers(1, 4),
    pages=st.integers(3, 12),
    options=st.fixed_dictionaries(
        {
            "kind": st.sampled_from(CACHES),
            "num_seats": st.integers(1, 4),
            "token_budget": st.sampled_from([1, 3, 12]),
            "patience": st.sampled_from([1, 3, NEVER]),
        }
    ),
    actions=st.lists(PUSHING, min_size=4, max_size=30),
)
def test_task_3_a_request_above_all_that_run_begins_in_the_next_step_and_all_get_their_tokens(
    size, pages, options, actions
):
    """`ShortOfPages.step` proves it after each step, and that each step brings tokens."""
    engine = ShortOfPages(door.active(), pages=pages, P=size, limit=20, **options)
    for action, *rest in actions:
        if action == "push" and len(rest[0]) + rest[1] - 1 <= min(size * pages, 19):
            engine.push(rest[0], rest[1], priority=rest[2])
        elif action == "step":
            for _ in range(rest[0]):
                engine.step()
        elif action == "fail" and engine.core.requests:
            engine.fail(KeyError("the model"))
    engine.finish()


# Task 4: fair to clients


def tokens_of(lab, **served):
    """Counters of some clients that are present, served so much."""
    fairness = lab.scheduling.fairness.VirtualTokens()
    fairness.served = dict(served)
    return fairness


@pytest.mark.parametrize(("prompt", "output", "cost"), [(4, 2, 8), (5, 0, 5), (0, 3, 6), (0, 0, 0)])
def test_task_4_an_output_token_costs_twice_what_a_prompt_token_costs(lab, prompt, output, cost):
    fairness = tokens_of(lab, A=10, B=1)
    fairness.charge("A", prompt, output)
    check_equal(
        [fairness.served[each] for each in "AB"],
        [10 + cost, 1],
        name=f"the counters of A and B, 10 and 1 before, after A was charged for {prompt} prompt and {output} output "
        "tokens",
        suspects={
            "all tokens cost the same": [10 + prompt + output, 1],
            "the weights have changed places": [10 + 2 * prompt + output, 1],
            "the counter was set, not raised": [cost, 1],
        },
    )


def test_task_4_the_first_client_starts_at_nothing(lab):
    fairness = tokens_of(lab)
    fairness.arrive("A", [])
    check_counted(fairness, "A", "after the first client has come")
    check_equal(fairness.served, {"A": 0}, name="the counters after the first client has come")


def test_task_4_a_new_client_starts_at_the_least_served_one(lab):
    fairness = tokens_of(lab, A=70, B=30, C=50, gone=10)
    fairness.arrive("D", ["A", "B", "C"])
    check_counted(fairness, "D", "after D has come")
    check_equal(
        fairness.served["D"],
        30,
        name="the counter of a new client, where those present have 70, 30 and 50, and one that has left had 10",
        suspects={
            "the floor was taken of all counters: a client that isn't present doesn't count": 10,
            "a newcomer starts at 0: it would shut the others out until it has had as much as they": 0,
            "a newcomer starts at the most served client: it would have to wait for all others": 70,
        },
    )


def test_task_4_a_client_that_is_present_keeps_its_counter(lab):
    fairness = tokens_of(lab, A=70, B=30)
    fairness.arrive("B", ["A", "B"])
    fairness.arrive("A", ["A", "B"])
    check_equal(
        fairness.served, {"A": 70, "B": 30}, name="the counters after further requests of A and B have come"
    )
    fairness.served["B"] = 5
    fairness.arrive("B", ["B"])
    check_counted(fairness, "B", "after a further request of B, which alone is present")
    check_equal(
        fairness.served["B"], 5, name="B's counter after a further request of B, which alone is present"
    )


def test_task_4_a_new_client_in_an_empty_engine_starts_where_the_last_one_left(lab):
    found = history(lab, ["+A", ("A", 30), "-A", "+B", "+A"])
    zero = {"in an empty engine a newcomer starts at 0, and A, which comes back, has to wait for it": [30, 0]}
    check_equal(
        [found["A"], found["B"]],
        [30, 30],
        name="the counters of A and B, where A had 30 and left, B came to an empty engine, and A came back",
        suspects=zero,
    )


def check_counted(fairness, client, when):
    """A client that is present has a counter."""
    if client not in fairness.served:
        raise CheckFailed(
            f"{when}: client {client} is present, and has no counter in `served`: it was forgotten"
        )


def history(lab, events):
    """Counters after some events: "+A" comes, "-A" leaves, ("A", n) gets n prompt tokens."""
    fairness, present = lab.scheduling.fairness.VirtualTokens(), list[str]()
    for number, event in enumerate(events):
        if not isinstance(event, str):
            fairness.charge(event[0], event[1], 0)
        elif event[0] == "+":
            fairness.arrive(event[1], tuple(present))
            present += [event[1]] * (event[1] not in present)
        else:
            present.remove(event[1])
            fairness.depart(event[1], tuple(present))
        for client in present:
            check_counted(fairness, client, f"after {events[: number + 1]}")
    return {client: fairness.served[client] for client in present}


RETURNS = {
    "with more than the one that stayed": (
        ["+A", "+B", ("A", 50), "-A", ("B", 20), "+A"],
        {"B": 20, "A": 50},
    ),
    "with less than the one that stayed": (["+A", "+B", ("A", 5), "-A", ("B", 20), "+A"], {"B": 20, "A": 20}),
    "with as much as the one that stayed": (["+A", "+B", ("A", 9), "-A", ("B", 9), "+A"], {"B": 9, "A": 9}),
    "after all have left, with more than the last": (
        ["+A", "+B", ("A", 50), "-A", ("B", 20), "-B", "+A"],
        {"A": 50},
    ),
    "after all have left, with less than the last": (
        ["+A", "+B", ("A", 5), "-A", ("B", 20), "-B", "+A"],
        {"A": 20},
    ),
    "with more than another one that came meanwhile": (
        ["+A", "+B", ("A", 50), "-A", ("B", 20), "+C", ("C", 5), "+A"],
        {"B": 20, "C": 25, "A": 50},
    ),
    "after all have left, and another one has come": (
        ["+A", "+B", ("A", 50), "-A", ("B", 20), "-B", "+C", "+A"],
        {"C": 20, "A": 50},
    ),
    "to an engine that was empty twice": (
        ["+A", ("A", 30), "-A", "+B", ("B", 10), "-B", "+C", "+A"],
        {"C": 40, "A": 40},
    ),
    "as the last one that left": (["+A", ("A", 30), "-A", "+A"], {"A": 30}),
    "and leaves without having been served": (
        ["+A", ("A", 9), "+B", "-B", ("A", 9), "+B"],
        {"A": 18, "B": 18},
    ),
}


@pytest.mark.parametrize("what", list(RETURNS))
def test_task_4_a_client_that_comes_back_has_saved_nothing_up(lab, what):
    events, expected = RETURNS[what]
    back = str(events[-1][1])
    least = min((count for client, count in expected.items() if client != back), default=expected[back])
    check_equal(
        history(lab, events),
        expected,
        name=f"the counters, where a client comes back {what}: {events}",
        suspects={
            f"{back} starts at the lowest counter, though it left with more: what it was served is not forgotten": {
                **expected,
                back: least,
            }
        },
    )


@settings(QUICK, max_examples=200)
@given(events=st.lists(st.tuples(st.sampled_from("ABCD"), st.integers(0, 3), st.integers(0, 9)), max_size=40))
def test_task_4_what_is_forgotten_would_have_changed_nothing(events):
    """Beside counters that forget nothing."""
    lab = door.active()
    fairness, present = lab.scheduling.fairness.VirtualTokens(), list[str]()
    full, floor = dict[str, int](), 0
    for client, what, count in events:
        if what == 0 and client in present:
            present.remove(client)
            fairness.depart(client, tuple(present))
            floor = floor if present else full[client]
        elif what < 3:
            fairness.arrive(client, tuple(present))
            if client not in present:
                floor = min((full[each] for each in present), default=floor)
                full[client] = max(full.get(client, 0), floor)
                present.append(client)
        elif client in present:
            fairness.charge(client, count, 1)
            full[client] += count + 2
        for each in present:
            check_counted(fairness, each, f"after {events}")
        check_equal(
            {each: fairness.served[each] for each in present},
            {each: full[each] for each in present},
            name=f"the counters of the clients that are present, after {events}",
        )


def test_task_4_clients_that_have_left_are_forgotten_in_time(lab):
    fairness = tokens_of(lab)
    fairness.arrive("stays", [])
    for number in range(300):
        client = f"client {number}"
        fairness.arrive(client, ["stays"])
        fairness.charge(client, 3, 3)
        fairness.charge("stays", 3, 3)
        fairness.depart(client, ["stays"])
    assert len(fairness.served) < 10, (
        f"300 clients came, were served as much as one that stayed, and left; {len(fairness.served)} counters are "
        "kept. A counter that is not above the least served client's says nothing any more"
    )


def test_task_4_a_counter_that_is_not_above_the_floor_is_forgotten(lab):
    fairness = tokens_of(lab, present=30, above=31, at=30, below=29)
    fairness.arrive("new", ["present"])
    check_equal(
        sorted(fairness.served),
        ["above", "new", "present"],
        name="of which clients there are counters after a new one has come, where the only one present has 30, "
        "and those "
        "that have left had 31, 30 and 29",
        suspects={
            "a counter as high as the floor says nothing: every newcomer starts there": [
                "above",
                "at",
                "new",
                "present",
            ]
        },
    )


def test_task_4_an_engine_keeps_nothing_of_clients_that_have_left(lab):
    engine = ShortOfPages(lab, pages=8, fair=True)
    for number in range(40):
        engine.push(ids(3, number % 5), 2, client=f"client {number}")
        engine.step()
        engine.step()
    check_equal(
        [len(engine.scheduler.clients), len(engine.scheduler.fairness.served) < 10],
        [0, True],
        name="how many clients are noted as present, and whether fewer than 10 counters are kept, after 40 clients",
    )


# stop, count, charged before, and what is paid for: prompt and output tokens of a request with a prompt of 10
CHARGES = {
    "the first chunk of a prompt": (4, 4, 0, (4, 0)),
    "the next chunk": (7, 3, 4, (3, 0)),
    "the end of the prompt": (10, 3, 7, (3, 0)),
    "a decode": (11, 1, 10, (0, 1)),
    "a later decode": (15, 1, 14, (0, 1)),
    "the last token of the prompt, one by one": (10, 1, 9, (1, 0)),
    "a chunk behind 6 tokens that were found": (9, 3, 0, (3, 0)),
    "tokens that are computed again": (6, 6, 12, (0, 0)),
    "all tokens again, and a new one": (13, 13, 12, (0, 1)),
    "prompt tokens again, and new ones": (8, 8, 5, (3, 0)),
    "prompt and output, from the middle of the prompt on": (13, 7, 0, (4, 3)),
    "prompt and output, where some was charged": (13, 13, 8, (2, 3)),
    "output again, in a chunk": (12, 5, 12, (0, 0)),
}


def parts(start, stop):
    """How many of the positions of a request with a prompt of 10 tokens belong to the prompt, and to the output."""
    return max(0, min(stop, 10) - min(start, 10)), max(0, stop - max(start, 10))


@pytest.mark.parametrize("what", list(CHARGES))
def test_task_4_only_tokens_that_are_computed_for_the_first_time_are_charged(lab, what):
    stop, count, charged, expected = CHARGES[what]
    scheduler = scheduler_of(lab, pages=12, fair=True)
    called = wait(lab, scheduler, text(10), client="A", generated=text(6, 2))
    called.sequence.length, called.charged = stop, charged
    paid = []
    scheduler.fairness.charge = lambda client, prompt, output: paid.append((client, prompt, output))
    scheduler.charge(called, count)
    name_ = (
        f"what is charged for {what}: tokens {stop - count} to {stop - 1} were computed, with a prompt of 10 tokens, "
        f"and those before {charged} were charged already"
    )
    mistakes = {
        "tokens that were charged before are charged again": (stop - count, stop),
        "`count` was added to the length of the sequence: the step has advanced it already": (
            max(stop, charged),
            stop + count,
        ),
        "tokens that were found are charged, too": (min(charged, stop), stop),
    }
    suspects = {why: parts(*span) for why, span in mistakes.items()}
    suspects["output tokens count as tokens of the prompt, which ends at `prompt_len`"] = (sum(expected), 0)
    prompt, output = (sum(each[which] for each in paid) for which in (1, 2))
    if min(prompt, output) < 0:
        raise CheckFailed(
            f"{name_}: {prompt} prompt tokens and {output} output tokens were charged; neither may be below 0"
        )
    check_equal(
        {"prompt tokens": prompt, "output tokens": output},
        {"prompt tokens": expected[0], "output tokens": expected[1]},
        name=name_,
        suspects={
            why: {"prompt tokens": ours, "output tokens": theirs} for why, (ours, theirs) in suspects.items()
        },
    )
    check_equal({each[0] for each in paid} - {"A"}, set(), name="the clients that were charged beside A")
    check_equal(
        called.charged,
        max(charged, stop),
        name=f"`charged` afterwards ({what})",
        suspects={
            "`count` was added to the length of the sequence: the step has advanced it already": stop + count,
            "it went down: what was paid for stays so when it is computed again": stop,
        },
    )


def test_task_4_a_client_pays_once_for_each_token_however_often_it_is_preempted(lab):
    for kind in CACHES:
        engine = ShortOfPages(lab, pages=8, kind=kind, fair=True, patience=NEVER, token_budget=9)
        everybody = [engine.push(ids(5, n), 8, client=f"client {n}") for n in range(6)]
        paid = dict[Any, int]()
        while engine.core.requests:
            before = dict(engine.scheduler.fairness.served)
            step = engine.step()
            after = engine.scheduler.fairness.served
            for request, _ in step.issued:
                more = after.get(request.client, 0) - before[request.client]
                paid[request.client] = paid.get(request.client, 0) + max(0, more)
        assert engine.preempted, "no request was preempted in a pool that is too small for all"
        check_equal(
            [paid[each.client] for each in everybody][:-1],
            [5 + 2 * 7] * 5,
            name="what each client paid for 5 prompt and 7 output tokens that were computed for the first time",
        )


def steps_until_it_begins(lab, before, patience, seats=2):
    """A client with 100 requests is served for some steps; then another one comes with one request."""
    engine = ShortOfPages(lab, pages=20, fair=True, patience=patience, num_seats=seats, token_budget=16)
    for number in range(100):
        engine.push(ids(4, number % 7), 5, client="many")
    for _ in range(before):
        engine.step()
    one = engine.push(ids(4, 8), 5, client="one")
    first = engine.steps
    while one not in engine.began and engine.steps - first < 300:
        engine.step()
    return engine.steps - first


@pytest.mark.parametrize("before", [0, 1, 30, 100])
@pytest.mark.parametrize("patience", [10, 64, NEVER])
def test_task_4_a_client_with_100_requests_does_not_shut_out_one_with_1(lab, before, patience):
    """Each request takes 5 steps, in two seats. A few of the 100 may have aged, and stand above it."""
    steps = steps_until_it_begins(lab, before, patience)
    assert steps <= 20, (
        f"a client with 100 requests was served for {plural(before, 'step')}; then the one request of another client "
        f"came, and began {plural(steps, 'step')} later. With 2 seats and 5 steps a request it had to begin within 20"
    )


def test_task_4_a_client_that_was_served_before_waits_until_the_other_has_caught_up(lab):
    engine = ShortOfPages(lab, pages=20, fair=True, patience=NEVER, num_seats=1)
    for number in range(6):
        engine.push(ids(4, number), 3, client="A")
    for _ in range(6):
        engine.step()
    for number in range(2):
        engine.push(ids(4, 10 + number), 3, client="B")
    engine.finish()
    check_equal(
        [request.client for request in engine.began],
        list("AAABABAA"),
        name="whose requests began, in order, where A's six came first and B's two 6 steps later",
    )


BAD = [-1, 4, 1.5, 1.0, True, False, "1", None]


@pytest.mark.parametrize("priority", BAD, ids=repr)
def test_task_4_a_priority_that_is_none_is_refused(lab, priority):
    engine = ShortOfPages(lab, pages=8, fair=True)
    request = lab.request.Request(ids(3), 2, priority=priority)
    check_raises(
        ValueError, partial(engine.core.push, request), name=f"a priority of {priority!r}", match="priority"
    )
    check_equal(
        len(engine.core.requests), 0, name="how many requests are in the engine, after one was refused"
    )
    check_equal(
        len(engine.scheduler.clients),
        0,
        name="how many clients are present, after the only request was refused",
    )


@pytest.mark.parametrize("client", [None, 7, ["a"]], ids=repr)
def test_task_4_a_client_that_is_no_string_is_refused(lab, client):
    engine = ShortOfPages(lab, pages=8, fair=True)
    request = lab.request.Request(ids(3), 2, client=client)
    check_raises(ValueError, partial(engine.core.push, request), name=f"a client {client!r}", match="client")
    check_equal(
        len(engine.core.requests), 0, name="how many requests are in the engine, after one was refused"
    )


def test_task_4_every_priority_from_0_to_3_is_taken(lab):
    engine = ShortOfPages(lab, pages=20, fair=True)
    for priority in (0, 3, 1, 2):
        engine.push(ids(3, priority), 2, priority=priority)
    engine.finish()
    check_equal(lab.scheduling.levels.HIGHEST, 3, name="the highest priority")


@both_caches
@pytest.mark.parametrize("separate", [False, True])
def test_task_4_where_half_of_the_requests_are_preempted_all_get_their_tokens(lab, kind, separate):
    engine = ShortOfPages(
        lab, pages=9, kind=kind, fair=True, patience=20, separate=separate, token_budget=24, num_seats=12
    )
    draw = random.Random(3)
    for number in range(12):
        prompt = [draw.randrange(3) for _ in range(draw.randint(1, 7))]
        engine.push(
            prompt, draw.randint(9, 14), seed=number, client="ABC"[number % 3], priority=number % 4 // 2
        )
    engine.finish()
    assert len(engine.preempted) >= 6, (
        f"{len(engine.preempted)} of 12 requests were preempted in a pool that has room for about 2 of them"
    )


ACTIONS = st.one_of(
    st.tuples(
        st.just("push"),
        st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=11),
        st.integers(1, 9),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from("ABC"),
    ),
    st.tuples(st.just("step"), st.integers(1, 5)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("abort"), st.integers(0, 9)),
)


@settings(max_examples=100, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
@given(
    size=st.integers(1, 4),
    pages=st.integers(3, 12),
    options=st.fixed_dictionaries(
        {
            "kind": st.sampled_from(CACHES),
            "num_seats": st.integers(1, 6),
            "token_budget": st.sampled_from([1, 2, 5, 12]),
            "chunk_size": st.sampled_from([None, 1, 3]),
            "patience": st.sampled_from([1, 2, 7, NEVER]),
            "separate": st.booleans(),
        }
    ),
    actions=st.lists(ACTIONS, max_size=30),
)
def test_task_4_whatever_happens_books_and_tokens_are_right_and_every_step_goes_on(
    size, pages, options, actions
):
    engine = ShortOfPages(door.active(), pages=pages, P=size, limit=20, fair=True, **options)
    room = size * pages
    for action, *rest in actions:
        if action == "push":
            prompt, most, seed, priority, client = rest
            if len(prompt) + most - 1 <= min(room, 19):
                engine.push(prompt, most, seed, priority=priority, client=client)
        elif action == "step":
            for _ in range(rest[0]):
                engine.step()
        elif action == "fail" and engine.core.requests:
            engine.fail(KeyError("the model"))
        elif action == "abort":
            engine.abort(engine.core.requests[rest[0] : rest[0] + 1])
    engine.finish()
    check_equal(
        len(engine.scheduler.clients), 0, name="how many clients are present when all requests have ended"
    )
