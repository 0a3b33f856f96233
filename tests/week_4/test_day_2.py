"""Day 4.2: steps under a budget of tokens, on shared pages: planning, undoing, the engine, and the padded form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import V, alone
from week_3.pages import pages_needed

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_raises

from .beside_schedules import books, ran, shares, tree
from .random_steps import Dry, Engine, happenings, play, schedules
from .schedules import (
    check_books,
    check_plan,
    check_sound,
    counts,
    leave_free,
    open_step,
    plant,
    prefix,
    ranks,
    run,
    scheduler_of,
    text,
    wait,
)
from .toy_runner import check_tokens, engine_of, step, to_the_end
from .undoing import lengths, undo

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
both_caches = pytest.mark.parametrize("trie", [True, False], ids=["with the tree", "without sharing"])
both_modes = pytest.mark.parametrize("separate", [False, True], ids=["in one run", "in two runs"])


def line_of(scheduler: Any) -> list[int]:
    return ranks(scheduler.line())


def fails(core: Any, error: BaseException, name: str) -> None:
    """Require that the step fails with this very exception, and is undone."""
    __tracebackhide__ = True
    called, undo, commit = list[str](), core.scheduler.undo, core.scheduler.commit

    def undoes() -> None:
        __tracebackhide__ = True
        called.append("undo")
        undo()

    def commits() -> None:
        called.append("commit")
        commit()

    core.scheduler.undo, core.scheduler.commit = undoes, commits
    try:
        comes_through(core.step, error, name)
    finally:
        core.scheduler.undo, core.scheduler.commit = undo, commit
    kind = "" if isinstance(error, Exception) else "; Ctrl-C is a KeyboardInterrupt, which is no Exception"
    assert "undo" in called, f"{name}: the step failed, and was not undone (`undo` was not called){kind}"
    assert called[0] != "commit", f"{name}: the step was committed before the model had run on it"
    assert "commit" not in called, f"{name}: the step failed, was undone, and was committed then"


def comes_through(call: Any, error: BaseException, name: str) -> None:
    """Require that this very exception comes through, KeyboardInterrupt among them; another one is shown itself."""
    __tracebackhide__ = True
    try:
        call()
    except BaseException as caught:
        if caught is not error:
            raise
        caught.__traceback__ = None  # it holds no frames any more, and nothing that is in them
    else:
        raise CheckFailed(f"{name}: {error!r} should come through; the call returned")


# Task 1: what one request brings


def test_task_1_decodes_come_first_and_both_kinds_in_order_of_arrival(lab):
    scheduler = scheduler_of(lab, seats=8)
    run(lab, scheduler, text(9, 0), 3)  # half of a prompt
    run(lab, scheduler, text(4, 1), 4, output=[7])  # a decode
    run(lab, scheduler, text(2, 2))  # a whole prompt
    run(lab, scheduler, text(2, 3), 3, output=[7, 8])  # a decode
    run(lab, scheduler, text(8, 4), 3)
    check_equal(
        line_of(scheduler),
        [1, 3, 0, 2, 4],
        name="the requests in line; 1 and 3 decode",
        suspects={
            "the order of arrival alone: decodes come before all others": [0, 1, 2, 3, 4],
            "the decodes come last": [0, 2, 4, 1, 3],
            "each kind is turned round: the request that came first is served first": [3, 1, 4, 2, 0],
            "those with the fewest tokens due come first; prompts keep the order of arrival": [1, 3, 2, 4, 0],
            "the prompts are turned round: the one that came first is served first": [1, 3, 4, 2, 0],
        },
    )
    check_equal(
        ranks(scheduler.running),
        [0, 1, 2, 3, 4],
        name="`running` after `line`, which only looks at it",
        suspects={"`line` has sorted `running` itself; `sorted` makes a new list": [1, 3, 0, 2, 4]},
    )


def test_task_1_requests_that_wait_are_not_in_the_line(lab):
    scheduler = scheduler_of(lab, seats=8)
    run(lab, scheduler, text(9, 0), 3)
    run(lab, scheduler, text(4, 1), 4, output=[7])
    wait(lab, scheduler, text(5, 2))
    check_equal(
        line_of(scheduler),
        [1, 0],
        name="the line: 0 is a prompt, 1 decodes, and 2 waits",
        suspects={
            "a request that waits is in the line; only those in `running` may be": [1, 0, 2],
            "a request that waits is in the line, and comes first": [2, 1, 0],
        },
    )


def test_task_1_the_longest_prompt_waits_for_its_turn_like_any_other(lab):
    scheduler = scheduler_of(lab, seats=8)
    for seed, (length, computed) in enumerate([(9, 0), (3, 0), (30, 28), (30, 0), (4, 3)]):
        run(lab, scheduler, text(length, seed), computed)
    check_equal(
        line_of(scheduler),
        [0, 1, 2, 3, 4],
        name="five prompts in line, 9, 3, 2, 30 and 1 tokens of them due",
        suspects={"a prompt with one token due was taken for a decode": [4, 0, 1, 2, 3]},
    )


@pytest.mark.parametrize(
    ("computed", "output", "what"),
    [
        (0, [], "a prompt of one token, of which nothing is computed"),
        (3, [], "a prompt whose last token alone is due"),
        (2, [7], "a request that resumes with one token of output, two due"),
        (0, [7, 8], "a request that resumes from the start"),
        (4, [7, 8, 9], "a request that resumes behind its prompt, three due"),
    ],
)
def test_task_1_what_is_no_decode_keeps_its_place_among_the_prompts(lab, computed, output, what):
    scheduler = scheduler_of(lab, seats=8)
    prompt = text({0: 1, 3: 4, 2: 3, 4: 4}[computed], 1)
    run(lab, scheduler, text(9, 0))
    run(lab, scheduler, prompt, computed, output=output)
    run(lab, scheduler, text(5, 2), 5, output=[7])
    check_equal(
        line_of(scheduler),
        [2, 0, 1],
        name=f"the line: 0 is a prompt, 1 is {what}, 2 decodes",
        suspects={f"request 1 was taken for a decode; it is {what}": [1, 2, 0]},
    )


def test_task_1_without_requests_the_line_is_empty(lab):
    check_equal(line_of(scheduler_of(lab)), [], name="the line of a scheduler without requests")


@pytest.mark.parametrize(
    ("length", "computed", "left", "chunk", "wanted"),
    [
        (5, 0, 12, 12, 5),
        (9, 4, 12, 12, 5),
        (20, 0, 12, 30, 12),
        (20, 6, 1, 30, 1),
        (20, 0, 12, 7, 7),
        (20, 3, 12, 1, 1),
        (20, 17, 12, 7, 3),
        (6, 0, 6, 6, 6),
        (7, 0, 6, 6, 6),
    ],
)
@both_caches
def test_task_1_a_request_brings_the_least_of_three_numbers(lab, trie, length, computed, left, chunk, wanted):
    scheduler = scheduler_of(lab, trie=trie, chunk=chunk, budget=40)
    each = run(lab, scheduler, text(length), computed)
    open_step(scheduler, left)
    scheduler.add(each)
    name = f"{length - computed} tokens due, {left} left of the budget, chunks of {chunk}: "
    check_equal(
        shares(scheduler.planned),
        [(0, computed, 0, wanted)],
        name=f"{name}the plan, as (request, had, found, count)",
        suspects={
            "what is left of the budget was passed over": [(0, computed, 0, min(length - computed, chunk))],
            "the chunk size was passed over": [(0, computed, 0, min(length - computed, left))],
        }
        | (
            {"nothing was planned, since not the whole chunk fits what is left: a part of it does": []}
            if 1 < left < min(length - computed, chunk)
            else {}
        ),
    )
    check_equal(
        scheduler.left,
        left - wanted,
        name=f"{name}what is left of it afterwards",
        suspects={"the tokens of the chunk were not taken off `left`": left},
    )
    check_equal(
        each.sequence.length, computed, name=f"{name}the tokens in the pool: the model has not run yet"
    )
    pages = pages_needed(computed + wanted, 3)
    check_equal(
        len(each.sequence.pages),
        pages,
        name=f"{name}its pages of 3, for {computed + wanted} tokens after the step",
        suspects={
            "the pages for the whole prompt were taken": pages_needed(length, 3),
            "no page was taken": pages_needed(computed, 3),
        },
    )


def test_task_1_a_decode_brings_one_token_and_is_noted_as_one(lab):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(5), 5, output=[7])
    open_step(scheduler, 12)
    scheduler.add(each)
    check_equal(shares(scheduler.planned), [(0, 5, 0, 1)], name="the plan, as (request, had, found, count)")
    (chunk,) = scheduler.planned
    assert chunk.running is each, "the chunk's `running` should be the one that was added"
    check_equal(chunk.decode, True, name="`decode` of a request whose newest token alone is due")


@pytest.mark.parametrize(
    ("prompt", "computed", "output"),
    [(6, 0, []), (6, 5, []), (1, 0, []), (5, 3, [7]), (4, 0, [7, 8]), (4, 4, [7, 8, 9])],
    ids=[
        "a prompt",
        "the last token of a prompt",
        "a prompt of one",
        "three due",
        "one that resumes",
        "behind the prompt",
    ],
)
def test_task_1_a_prompt_is_not_noted_as_a_decode(lab, prompt, computed, output):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(prompt), computed, output=output)
    open_step(scheduler, 12)
    scheduler.add(each)
    due = prompt + len(output) - computed
    check_equal(
        scheduler.planned[0].decode,
        False,
        name=f"`decode` of its chunk: a prompt of {prompt} tokens, {len(output)} tokens of output, {due} due",
        suspects={
            "a prompt with one token due is no decode"
            if due == 1
            else "a request with more than one token due is no decode": True
        },
    )


@both_caches
def test_task_1_output_that_is_due_is_brought_like_a_prompt(lab, trie):
    """A request that resumes: its prompt and what it had generated are computed again."""
    scheduler = scheduler_of(lab, trie=trie)
    each = run(lab, scheduler, text(4), 2, output=[7, 8, 9])
    open_step(scheduler, 12)
    scheduler.add(each)
    check_equal(
        shares(scheduler.planned),
        [(0, 2, 0, 5)],
        name="the plan, as (request, had, found, count): 2 tokens of the prompt and 3 of the output are due",
        suspects={
            "only the rest of the prompt was brought": [(0, 2, 0, 2)],
            "a request with output brought one token; it is no decode while more are due": [(0, 2, 0, 1)],
        },
    )


def test_task_1_what_the_tree_knows_is_taken_and_not_computed(lab):
    scheduler = scheduler_of(lab)
    plant(lab, scheduler, text(7))
    known = list(tree(scheduler.cache).values())
    each = run(lab, scheduler, text(9))
    open_step(scheduler, 12)
    scheduler.add(each)
    check_equal(
        shares(scheduler.planned),
        [(0 + 1, 0, 6, 3)],
        name="the plan, as (request, had, found, count): 6 of 9 tokens are known",
        suspects={
            "the cache was not asked": [(1, 0, 0, 9)],
            "`had` counts what was found in this step, too": [(1, 6, 6, 3)],
            "`found` was not counted": [(1, 0, 0, 3)],
            "the count was made before the cache was asked": [(1, 0, 6, 9)],
        },
    )
    check_equal(each.sequence.pages[:2], known, name="its first two pages, which are the tree's")
    check_equal(len(each.sequence.pages), 3, name="how many pages of 3 it has for 9 tokens")
    check_equal(
        scheduler.left,
        9,
        name="what is left of a budget of 12: tokens that are found cost nothing",
        suspects={"the tokens that were found were taken off `left`, too": 3},
    )


def test_task_1_a_prompt_that_is_half_computed_asks_again(lab):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(14), 3)
    plant(lab, scheduler, text(9))
    open_step(scheduler, 8)
    scheduler.add(each)
    check_equal(
        shares(scheduler.planned),
        [(0, 3, 6, 5)],
        name="the plan, as (request, had, found, count): another request has computed 9 of 14 tokens meanwhile",
        suspects={
            "the cache was not asked, for a request that has begun": [(0, 3, 0, 8)],
            "the cache was asked as far as the budget goes; tokens that are found cost nothing": [
                (0, 3, 3, 8)
            ],
        },
    )


@pytest.mark.parametrize("computed", [0, 3])
def test_task_1_what_admit_has_found_already_is_counted_and_is_not_what_it_had(lab, computed):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(11), computed)
    plant(lab, scheduler, text(7))
    found = scheduler.cache.match(each.sequence, each.request.token_ids)
    open_step(scheduler, 12)
    scheduler.add(each, found)
    check_equal(
        shares(scheduler.planned),
        [(0, computed, 6 - computed, 5)],
        name=f"the plan, as (request, had, found, count), after add(running, found={found})",
        suspects={
            "`had` counts what was found in this step, too": [(0, 6, 6 - computed, 5)],
            "what was found before `add` is not counted": [(0, computed, 0, 5)],
        },
    )


def test_task_1_what_is_found_does_not_count_for_the_chunk(lab):
    """A chunk of at most 5 tokens, behind 6 that are found, 3 of them before `add`."""
    scheduler = scheduler_of(lab, chunk=5)
    plant(lab, scheduler, text(4))
    each = run(lab, scheduler, text(13))
    found = scheduler.cache.match(each.sequence, each.request.token_ids)
    plant(lab, scheduler, text(7))
    open_step(scheduler, 12)
    scheduler.add(each, found)
    check_equal(
        shares(scheduler.planned),
        [(1, 0, 6, 5)],
        name="the plan, as (request, had, found, count): 6 of 13 tokens are found, and a chunk has at most 5",
        suspects={
            "the tokens that are found were taken off the chunk size": [(1, 0, 6, 1)],
            "the tokens that were found before `add` were taken off the chunk size": [(1, 0, 6, 2)],
        },
    )


def test_task_1_where_tokens_are_found_the_pages_behind_them_are_published(lab):
    """The pool holds what is found, too, after the step."""
    scheduler = scheduler_of(lab)
    plant(lab, scheduler, text(4))
    each = run(lab, scheduler, text(13))
    open_step(scheduler, 7)
    scheduler.add(each)
    check_equal(
        list(tree(scheduler.cache)),
        [prefix(text(3 * k)) for k in (1, 2, 3)],
        name="the prefixes in the tree: 3 tokens were found, and the request brings 7 more (pages of 3)",
        suspects={
            "a page that this step fills was not published: the tokens that are found count, too": [
                prefix(text(3)),
                prefix(text(6)),
            ],
            "the pages that this step fills were not published": [prefix(text(3))],
        },
    )


def test_task_1_a_request_that_is_planned_has_not_run(lab):
    """What is published may still be withdrawn, and what is found counts only when the step is committed."""
    scheduler = scheduler_of(lab)
    plant(lab, scheduler, text(4))
    each = run(lab, scheduler, text(13))
    open_step(scheduler, 12)
    scheduler.add(each)
    check_equal(scheduler.reused, 0, name="the tokens found in all steps: `commit` counts them")
    scheduler.cache.release(each.sequence)
    scheduler.cache.withdraw()
    check_equal(
        list(tree(scheduler.cache)),
        [prefix(text(3))],
        name="the tree after `add`, when the request was released and the cache told to withdraw",
        suspects={
            "`add` told the cache to commit; the model has not run yet": [
                prefix(text(3 * k)) for k in (1, 2, 3, 4)
            ]
        },
    )


def test_task_1_one_that_resumes_and_lacks_its_last_token_only_is_no_decode(lab):
    """Whether the tokens were found before `add`, or in it: it may read what other chunks of its step write."""
    for before in (True, False):
        scheduler = scheduler_of(lab)
        plant(lab, scheduler, [*text(4), 7, 8, 9, 7, 8])
        each = run(lab, scheduler, text(4), output=[7, 8, 9, 7, 8, 9])
        found = scheduler.cache.match(each.sequence, each.request.token_ids) if before else 0
        open_step(scheduler, 12)
        scheduler.add(each, found)
        when = "before `add`" if before else "in `add`"
        check_equal(
            shares(scheduler.planned),
            [(1, 0, 9, 1)],
            name=f"the plan, 9 of 10 tokens found {when}, 4 of the prompt and 5 of the output",
            suspects={
                "the cache was asked for the tokens of the prompt only; output is found, too": [(1, 0, 3, 7)],
                "the cache was not asked about all tokens; `match` itself leaves one to compute": [
                    (1, 0, 6, 4)
                ],
                "the cache was not asked for a request with output": [(1, 0, 0, 10)],
            },
        )
        check_equal(
            scheduler.planned[0].decode,
            False,
            name=f"`decode` of its chunk, 9 of 10 tokens found {when}",
            suspects={
                "`found` was passed over: a request for which tokens were found in this step is no decode"
                if before
                else "whether it decodes was asked after the match, when only its newest token is due": True
            },
        )


@pytest.mark.parametrize("left", [2, 3, 4, 5, 6, 7])
def test_task_1_others_find_at_once_what_this_step_will_fill(lab, left):
    """A page is published as soon as it is planned: up to the step's end, and not further."""
    scheduler = scheduler_of(lab)
    first = run(lab, scheduler, text(11))
    open_step(scheduler, left)
    scheduler.add(first)
    full = [prefix(text(3 * k)) for k in range(1, left // 3 + 1)]
    check_equal(
        list(tree(scheduler.cache)),
        full,
        name=f"the prefixes in the tree, after a request with 11 tokens brings {left} (pages of 3)",
        suspects={
            "the whole prompt was published: only what is computed in this step may be": [
                prefix(text(3 * k)) for k in (1, 2, 3)
            ],
            "the pages that this step fills were not published: `publish` goes up to the tokens that the pool "
            "holds after the step": [],
        },
    )
    other = run(lab, scheduler, [*text(9), 5, 5, 5])
    scheduler.left = 20
    scheduler.add(other)
    check_equal(
        shares(scheduler.planned)[1:],
        [(1, 0, 3 * (left // 3), 12 - 3 * (left // 3))],
        name=f"what another request with the same 9 tokens brings, after one that brings {left} in the same step",
    )


def test_task_1_a_page_that_is_full_only_with_this_step_is_published_with_it(lab):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(9), 2)
    open_step(scheduler, 1)
    scheduler.add(each)
    check_equal(
        list(tree(scheduler.cache)),
        [prefix(text(3))],
        name="the prefixes in the tree: 2 of 3 tokens were there, and the step adds the third",
        suspects={"the page that this step fills was not published": []},
    )


def test_task_1_a_page_with_output_is_published_too(lab):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(4), 5, output=[7, 8])
    open_step(scheduler, 12)
    scheduler.add(each)
    check_equal(
        list(tree(scheduler.cache)),
        [prefix(text(3)), prefix([*text(4), 7, 8])],
        name="the prefixes in the tree, after a decode whose token fills a page of 3",
        suspects={
            "pages with output were not published, only those of the prompt": [prefix(text(3))],
            "`publish` was given the tokens of the prompt only": [prefix(text(3)), prefix(text(4))],
        },
    )


@both_caches
def test_task_1_nothing_is_left_of_the_budget(lab, trie):
    scheduler = scheduler_of(lab, trie=trie)
    plant(lab, scheduler, text(7))
    run(lab, scheduler, text(9))
    open_step(scheduler, 0)
    before = books(scheduler)
    scheduler.add(scheduler.running[0])
    check_books(scheduler, before, "after `add` where 0 is left of the budget")


def test_task_1_where_nothing_is_left_nothing_is_looked_for(lab):
    """The tree's order of eviction, too, is as it was."""
    scheduler = scheduler_of(lab)
    plant(lab, scheduler, text(7))
    plant(lab, scheduler, text(4, 1))
    order = [node.page for node in scheduler.cache.unheld]
    each = run(lab, scheduler, text(9))
    open_step(scheduler, 0)
    scheduler.add(each)
    check_equal(
        [node.page for node in scheduler.cache.unheld],
        order,
        name="the pages in the order of eviction, after `add` where 0 is left",
        suspects={"the cache was asked, and nothing is left of the budget": [3, 2, 1]},
    )


def stingy(lab: Any) -> Any:
    """A scheduler that takes pages for 4 tokens at most."""

    class Stingy(lab.scheduling.scheduler.Scheduler):
        def take_pages(self, running: Any, count: int) -> int:
            part = min(count, 4)
            self.cache.acquire(running.sequence, part)
            return part

    return Stingy


def test_task_1_a_request_gets_pages_for_a_part_of_its_tokens(lab):
    """Day 4.3 has another `take_pages`: it says for how many tokens there are pages."""
    scheduler = stingy(lab)(scheduler_of(lab).cache, 64)
    each = run(lab, scheduler, text(11), 3)
    open_step(scheduler, 12)
    scheduler.add(each)
    when = "of 8 tokens that are due, where `take_pages` returns 4"
    check_equal(
        shares(scheduler.planned),
        [(0, 3, 0, 4)],
        name=f"the plan, as (request, had, found, count), {when}",
        suspects={"what `take_pages` returned was passed over": [(0, 3, 0, 8)]},
    )
    check_equal(scheduler.left, 8, name=f"what is left of a budget of 12, {when}")
    check_equal(list(tree(scheduler.cache)), [prefix(text(3)), prefix(text(6))], name=f"the tree, {when}")


@pytest.mark.parametrize("computed", [0, 3, 4, 6])
@both_caches
def test_task_1_a_request_without_pages_has_what_it_had(lab, trie, computed):
    """What the tree has is all that is available: once it is found, no page is left for the rest."""
    scheduler = scheduler_of(lab, trie=trie)
    each = run(lab, scheduler, text(13), computed)
    decode = run(lab, scheduler, text(4, 1), 4, output=[7])
    plant(lab, scheduler, text(10))
    other = leave_free(lab, scheduler, 0)
    open_step(scheduler, 12)
    before = books(scheduler)
    scheduler.add(each)
    when = "after `add` of a request for which there is no page"
    found = 9 - computed if trie and computed != 4 else 0
    suspects = {
        "how many tokens of each are in the pool": {
            "what was found in this step was kept: the request goes back to what it had before the match": [
                computed + found,
                4,
            ],
            "the request gave up all that it had; it goes back to what it had before the match": [0, 4],
        },
        "the step being planned": {"a chunk without tokens was planned": [(0, computed, found, 0)]},
    }
    check_books(scheduler, before, when, other, suspects=suspects)
    check_equal(scheduler.left, 12, name=f"what is left of the budget, {when}")
    scheduler.add(decode)
    check_equal(
        shares(scheduler.planned),
        [(1, 4, 0, 1)],
        name=f"the plan, {when} and of one whose last page has room",
    )


# Task 2: which request may begin


def admit(scheduler: Any, left: int = 12) -> list[tuple[int, int]]:
    """Who begins in a step of which so much of the budget is left, and with how many tokens."""
    __tracebackhide__ = True
    open_step(scheduler, left)
    scheduler.admit()
    brought = dict(counts(scheduler.planned))
    assert len(brought) == len(scheduler.planned), (
        f"the plan, as (request, tokens), is {counts(scheduler.planned)}: a request is in it twice; `begin` plans "
        "its first chunk"
    )
    unknown = sorted(set(brought) - set(ranks(scheduler.begun)))
    assert not unknown, f"requests {unknown} are in the plan, and not in `begun`: `begin` lets a request run"
    return [(each.rank, brought.get(each.rank, 0)) for each in scheduler.begun]


def check_lists(scheduler: Any, running: int, begin: int, everyone: int) -> None:
    """Of all requests the first ones ran before, the next ones begin, the others wait; each in order of arrival."""
    __tracebackhide__ = True
    begun = list(range(running, running + begin))
    seats = f"where {running} ran, and {begin} may begin"
    check_equal(ranks(scheduler.begun), begun, name=f"the requests in `begun`, {seats}")
    check_equal(
        ranks(chunk.running for chunk in scheduler.planned), begun, name=f"the requests in the plan, {seats}"
    )
    check_equal(
        ranks(scheduler.running), list(range(running + begin)), name=f"the requests that run, {seats}"
    )
    waiting = list(range(running + begin, everyone))
    check_equal(ranks(scheduler.waiting), waiting, name=f"the requests that wait, {seats}")


@both_caches
def test_task_2_requests_begin_in_order_until_the_budget_is_used_up(lab, trie):
    scheduler = scheduler_of(lab, trie=trie, seats=9)
    for seed, length in enumerate([4, 1, 1, 6, 5]):
        wait(lab, scheduler, text(length, seed))
    check_equal(
        admit(scheduler, 8),
        [(0, 4), (1, 1), (2, 1), (3, 2)],
        name="who begins with how many tokens: prompts of 4, 1, 1, 6 and 5, and 8 left of the budget",
        suspects={
            "only requests whose whole prompt fits the budget begin": [(0, 4), (1, 1), (2, 1)],
            "only one request begins in a step": [(0, 4)],
            "a request begins only where a whole chunk fits what is left of the budget": [],
            "a request begins where nothing is left of the budget": [(0, 4), (1, 1), (2, 1), (3, 2), (4, 0)],
            "the request that came last begins first": [(4, 5), (3, 3)],
        },
    )
    check_equal(scheduler.left, 0, name="what is left of the budget")
    check_lists(scheduler, 0, 4, 5)


def test_task_2_one_token_of_the_budget_is_enough_to_begin(lab):
    scheduler = scheduler_of(lab)
    for seed in range(2):
        wait(lab, scheduler, text(5, seed))
    check_equal(
        admit(scheduler, 1), [(0, 1)], name="who begins with how many tokens: two prompts of 5, and 1 left"
    )


@both_caches
def test_task_2_the_pages_for_the_longest_that_a_request_may_become_have_to_be_there(lab, trie):
    for pages, expected in ((4, [(0, 2)]), (3, [])):
        found, with_one_more = (_begin_with(lab, trie, n) for n in (pages, pages + 1))
        suspects = {"the longest that it may become needs 4 pages, and it begins with fewer": [(0, 2)]}
        if with_one_more:
            suspects["it may begin where it needs all pages that are available, and not one more"] = []
        check_equal(
            found,
            expected,
            name=f"who begins with {pages} pages free: the one that waits needs 1 at once, and up to 4",
            suspects=suspects,
        )


def _begin_with(lab: Any, trie: bool, pages: int) -> list[tuple[int, int]]:
    """Who begins, where one request waits that needs up to 4 pages."""
    scheduler = scheduler_of(lab, trie=trie, pages=pages)
    wait(lab, scheduler, text(2), 11)
    return admit(scheduler)


@both_caches
def test_task_2_what_a_request_holds_once_it_has_begun_is_promised_no_more(lab, trie):
    scheduler = scheduler_of(lab, trie=trie, pages=8)
    for seed in range(2):
        wait(lab, scheduler, text(2, seed), 11)
    check_equal(
        admit(scheduler),
        [(0, 2), (1, 2)],
        name="who begins with 8 pages free: each of the two needs up to 4, and 1 of them at once",
        suspects={
            "the page that the first has taken by now counts as promised to it: count what it may still need after "
            "`begin`": [(0, 2)]
        },
    )


def test_task_2_none_begins_where_nothing_is_left_of_the_budget(lab):
    scheduler = scheduler_of(lab)
    plant(lab, scheduler, text(7))
    wait(lab, scheduler, text(9))
    before = books(scheduler)
    admit(scheduler, 0)
    check_books(scheduler, before, "after `admit` where 0 is left of the budget")


def test_task_2_none_begins_where_none_waits(lab):
    scheduler = scheduler_of(lab)
    run(lab, scheduler, text(9), 4)
    before = books(scheduler)
    admit(scheduler)
    check_books(scheduler, before, "after `admit` where no request waits")


@pytest.mark.parametrize("running", [0, 1, 2, 3])
def test_task_2_no_more_begin_than_there_are_seats(lab, running):
    scheduler = scheduler_of(lab, seats=3)
    for seed in range(running):
        run(lab, scheduler, text(4, seed), 2)
    for seed in range(5):
        wait(lab, scheduler, text(1, 10 + seed))
    admit(scheduler)
    check_equal(
        len(scheduler.running), 3, name=f"the requests that run in 3 seats, of which {running} were taken"
    )
    check_lists(scheduler, running, 3 - running, running + 5)


@both_caches
def test_task_2_a_request_that_has_to_wait_is_not_overtaken(lab, trie):
    scheduler = scheduler_of(lab, trie=trie, pages=9)
    run(lab, scheduler, text(4), 4, 3)  # holds 2 of the 2 pages that it may need
    wait(lab, scheduler, text(18, 1), 7)
    wait(lab, scheduler, text(1, 2), 1)
    before = books(scheduler)
    check_equal(
        admit(scheduler),
        [],
        name="who begins, where the first that waits needs up to 8 pages of 7, and the second 1",
        suspects={
            "the second overtakes the first": [(2, 1)],
            "the first begins, and may come to need more pages than there are": [(1, 12)],
        },
    )
    check_books(
        scheduler,
        before,
        "after `admit` where the first has to wait",
        suspects={
            "the requests that wait": {"the one that has to wait was put behind the other": [2, 1]},
        },
    )


@pytest.mark.parametrize(("pages", "begins"), [(7, False), (13, True), (12, False)])
@both_caches
def test_task_2_the_pages_that_running_requests_may_still_need_are_promised(lab, trie, pages, begins):
    """Request 0 holds 2 pages and may need 8; request 1 may need 5 in all, the first ones at once."""
    scheduler = scheduler_of(lab, trie=trie, pages=pages)
    run(lab, scheduler, text(4), 4, 21)
    wait(lab, scheduler, text(5, 1), 11)
    expected = [(1, 5)] if begins else []
    check_equal(
        admit(scheduler),
        expected,
        name=f"who begins with {pages - 2} of {pages} pages free, of which 6 are promised and 5 may be needed",
        suspects={
            "the pages promised to the requests that run were passed over, or only those of the prompt counted": [
                (1, 5)
            ]
        }
        if pages == 7
        else {"more was promised to request 0 than the 6 pages that it may still need": []},
    )


@both_caches
def test_task_2_what_a_request_in_the_step_may_still_need_is_promised(lab, trie):
    """Request 0 holds 2 pages and may need 6; it is planned before the others may begin."""
    scheduler = scheduler_of(lab, trie=trie, pages=10)
    each = run(lab, scheduler, text(5), 4, 14)
    wait(lab, scheduler, text(5, 1), 11)  # up to 5 pages
    open_step(scheduler, 12)
    scheduler.add(each)
    scheduler.admit()
    check_equal(
        ranks(scheduler.begun),
        [],
        name="who begins with 8 of 10 pages free; 4 are promised to request 0, which is in the step already, and 5 "
        "may be needed",
        suspects={"what is promised to a request that is in the step already was passed over": [1]},
    )


@pytest.mark.parametrize(("pages", "begins"), [(13, True), (12, False)])
def test_task_2_the_promises_of_all_that_run_are_added_up(lab, pages, begins):
    """A decode, half a prompt and a decode hold 2, 1 and 1 pages; they may need 4, 3 and 3."""
    scheduler = scheduler_of(lab, pages=pages)
    run(lab, scheduler, text(4), 4, 8, output=[7])
    run(lab, scheduler, text(6, 1), 3, 4)
    run(lab, scheduler, text(2, 2), 2, 8, output=[7])
    wait(lab, scheduler, text(5, 3), 5)  # up to 3 pages
    check_equal(
        [rank for rank, _ in admit(scheduler)],
        [3] if begins else [],
        name=f"who begins with {pages - 4} pages free; 2 are promised to each of three that run, and 3 may be needed",
    )


@both_caches
def test_task_2_those_that_begin_in_the_same_step_have_promises_too(lab, trie):
    scheduler = scheduler_of(lab, trie=trie, pages=11, seats=12)
    for seed in range(10):
        wait(lab, scheduler, text(2, seed), 11)  # up to 4 pages each
    check_equal(
        [rank for rank, _ in admit(scheduler, 40)],
        [0, 1],
        name="who begins with 11 pages free: each of ten needs up to 4, and 1 at once",
        suspects={
            "what the first ones may still need is not counted": list(range(8)),
            "what the first may still need is not counted, only what the one before may": list(range(5)),
            "the pages that the first ones have taken meanwhile count as available": [0, 1, 2],
        },
    )
    check_equal(scheduler.cache.available, 9, name="the pages that are available after two have taken 1 each")


@both_caches
def test_task_2_all_pages_may_be_promised(lab, trie):
    scheduler = scheduler_of(lab, trie=trie, pages=12)
    for seed in range(3):
        wait(lab, scheduler, text(2, seed), 11)
    check_equal(
        admit(scheduler), [(0, 2), (1, 2), (2, 2)], name="who begins with 12 pages: each needs up to 4"
    )


@pytest.mark.parametrize(("limit", "begins"), [(15, True), (16, True), (17, False)])
def test_task_2_no_request_needs_more_than_all_positions(lab, limit, begins):
    """At the limit of 16 positions 15 tokens get into the pool: 5 pages."""
    scheduler = scheduler_of(lab, pages=5, limit=limit)
    wait(lab, scheduler, text(2), 100)
    expected = [(0, 2)] if begins else []
    check_equal(
        admit(scheduler), expected, name=f"who begins with 5 pages of 3, where there are {limit} positions"
    )


def test_task_2_pages_that_another_request_holds_are_found_and_not_lacking(lab):
    scheduler = scheduler_of(lab, pages=6)
    run(lab, scheduler, text(12), 12, 1)
    wait(lab, scheduler, [*text(12), 5, 5], 2)
    check_equal(
        admit(scheduler),
        [(1, 2)],
        name="who begins with 2 pages free: it needs 5, and 4 of them are found",
        suspects={"the pages that are found count as lacking": []},
    )
    check_equal(
        shares(scheduler.planned),
        [(1, 0, 12, 2)],
        name="the plan, as (request, had, found, count)",
        suspects={"`begin` was not told how many tokens were found": [(1, 12, 0, 2)]},
    )


def test_task_2_output_is_found_too(lab):
    """A request that has output already, and waits; another one holds the pages with the same tokens."""
    scheduler = scheduler_of(lab, pages=5)
    run(lab, scheduler, [*text(4), 7, 8, 9, 7, 8], 9, 1)
    wait(lab, scheduler, text(4), 8, output=[7, 8, 9, 7, 8, 9])
    check_equal(
        admit(scheduler),
        [(1, 1)],
        name="who begins with 2 pages free: it needs up to 4, and 3 of them are found, 2 with output",
        suspects={
            "only the tokens of its prompt were looked for; output is found, too": [],
        },
    )


@pytest.mark.parametrize(("free", "begins"), [(0, False), (1, False), (2, True)])
def test_task_2_a_page_that_was_found_can_no_more_be_evicted(lab, free, begins):
    """Of 6 pages, 4 are found: they were available before, and are not afterwards."""
    scheduler = scheduler_of(lab, pages=9)
    plant(lab, scheduler, text(12))
    wait(lab, scheduler, [*text(12), 5, 5], 5)
    other = leave_free(lab, scheduler, free)
    before = books(scheduler)
    expected = [(1, 2)] if begins else []
    check_equal(
        admit(scheduler),
        expected,
        name=f"who begins with {free} pages free, where 2 more than the 4 in the tree are needed",
        suspects={}
        if begins
        else {
            "the 4 pages that are found count as available, too: ask what is available once they are found": [
                (1, 2 * free)
            ]
        },
    )
    if not begins:
        check_books(
            scheduler,
            before,
            "after `admit` of a request that has to wait: it gives back what was found",
            other,
            suspects={
                "how many tokens of each are in the pool": {
                    "the request waits, and still holds what was found: release it": [12]
                }
            },
        )


def test_task_2_pages_that_may_be_evicted_are_available(lab):
    scheduler = scheduler_of(lab, pages=6)
    plant(lab, scheduler, text(18))
    wait(lab, scheduler, text(13, 1), 6)
    check_equal(
        admit(scheduler, 20),
        [(1, 12)],
        name="who begins where all 6 pages are in the tree, no request holds them, and 6 are needed",
        suspects={"only pages that are free count, not those that may be evicted": []},
    )


def test_task_2_pages_found_again_in_vain_are_given_back_each_time(lab):
    scheduler = scheduler_of(lab, pages=9)
    plant(lab, scheduler, text(12))
    wait(lab, scheduler, [*text(12), 5, 5], 5)
    other = leave_free(lab, scheduler, 1)
    before = books(scheduler)
    for time in (1, 2, 3):
        admit(scheduler)
        check_books(scheduler, before, f"after the request had to wait for the {time}. time", other)


def test_task_2_two_that_begin_alike_share_their_pages_within_the_step(lab):
    scheduler = scheduler_of(lab, budget=40)
    wait(lab, scheduler, [*text(10), 5])
    wait(lab, scheduler, [*text(10), 6, 6, 6])
    wait(lab, scheduler, text(10))
    admit(scheduler, 40)
    check_equal(
        shares(scheduler.planned),
        [(0, 0, 0, 11), (1, 0, 9, 4), (2, 0, 9, 1)],
        name="the plan, as (request, had, found, count): 10 tokens of each are the same",
    )
    check_equal(
        scheduler.left,
        40 - 11 - 4 - 1,
        name="what is left of a budget of 40: tokens that are found cost nothing",
        suspects={"the tokens that were found were taken off `left`, too": 40 - 11 - 13 - 10},
    )
    first, *others = [each.sequence.pages[:3] for each in scheduler.running]
    check_equal(
        others, [first, first], name="the first three pages of the second and the third: those of the first"
    )


def test_task_2_shared_pages_make_room_for_a_request_that_would_not_fit_alone(lab):
    scheduler = scheduler_of(lab, pages=6, budget=40)
    wait(lab, scheduler, text(10), 2)
    wait(lab, scheduler, [*text(9), 5], 2)
    wait(lab, scheduler, [*text(9), 6], 2)
    wait(lab, scheduler, [*text(9), 7], 2)
    check_equal(
        admit(scheduler, 40),
        [(0, 10), (1, 1), (2, 1)],
        name="who begins with 6 pages: each needs 4, of which the last three find 3",
        suspects={"the pages that are found count as lacking": [(0, 10)]},
    )


# Task 3: a step, and its way back


def plan_of(lab: Any, scheduler: Any) -> Any:
    """A plan where there are pages enough."""
    __tracebackhide__ = True
    budget = scheduler.token_budget
    try:
        return scheduler.plan()
    except lab.paged.allocator.OutOfPages as error:
        if scheduler.planned or scheduler.left == budget:
            raise
        raise CheckFailed(
            f"OutOfPages was raised; nothing is planned, and `left` is {scheduler.left} of a budget of {budget}: "
            "each plan begins with the whole budget"
        ) from error


@both_caches
def test_task_3_the_walkthrough_of_the_chapter(lab, trie):
    scheduler = scheduler_of(lab, pages=40, P=16, budget=256, chunk=128, trie=trie)
    first, second = (wait(lab, scheduler, text(n, seed), 1) for seed, n in enumerate([250, 300]))
    steps = [([(0, 0, 0, 128), (1, 0, 0, 128)], (8, 8)), ([(0, 128, 0, 122), (1, 128, 0, 128)], (16, 16))]
    for number, (expected, pages) in enumerate(steps):
        plan = plan_of(lab, scheduler)
        check_equal(
            shares(plan),
            expected,
            name=f"step {number}, as (request, had, found, count)",
            suspects={"a request brings two chunks to one step": [*expected, (1, 128, 0, 6)]},
        )
        held = tuple(len(each.sequence.pages) for each in (first, second))
        check_equal(held, pages, name=f"the pages of 16 that the two hold in step {number}")
        ran(scheduler, plan)
    check_equal(ranks(scheduler.running), [1], name="the requests that run: the first has got its token")
    plan = scheduler.plan()
    check_equal(shares(plan), [(1, 256, 0, 44)], name="step 2, as (request, had, found, count)")
    check_equal(len(second.sequence.pages), 19, name="the pages of 16 that 300 tokens need")
    check_equal(ran(scheduler, plan), [1], name="the requests that are finished after step 2")


def test_task_3_decodes_then_prompts_then_those_that_begin(lab):
    scheduler = scheduler_of(lab, seats=9, budget=12, chunk=5)
    run(lab, scheduler, text(9, 0), 3)
    run(lab, scheduler, text(4, 1), 4, output=[7])
    run(lab, scheduler, text(3, 2), 2)
    run(lab, scheduler, text(2, 3), 3, output=[7, 8])
    wait(lab, scheduler, text(20, 4))
    wait(lab, scheduler, text(2, 5))
    plan = scheduler.plan()
    check_equal(
        counts(scheduler.planned),
        [(1, 1), (3, 1), (0, 5), (2, 1), (4, 4)],
        name="`planned`, as (request, tokens): 0 to 3 run, 1 and 3 of them decode, 4 and 5 wait",
        suspects={
            "those that run are served in the order of arrival; `line` says in which order": [
                (0, 5),
                (1, 1),
                (2, 1),
                (3, 1),
                (4, 4),
            ],
            (
                "no request begins beside those that run"
                if scheduler.left
                else "the budget was used up before any request could begin"
            ): [(1, 1), (3, 1), (0, 5), (2, 1)],
            "requests begin before those that run are served": [(4, 5), (5, 2), (1, 1), (3, 1), (0, 3)],
        },
    )
    check_equal(
        counts(plan),
        counts(scheduler.planned),
        name="what `plan` returned, which should be `planned`",
        suspects={
            "it was sorted by arrival; the model gets the tokens in the order of planning": [
                (0, 5),
                (1, 1),
                (2, 1),
                (3, 1),
                (4, 4),
            ]
        },
    )
    check_equal(ranks(scheduler.begun), [4], name="the requests that have begun in this step")
    check_sound_step(scheduler, "when the step was planned")


def check_sound_step(scheduler: Any, when: str) -> None:
    """After the step has run, the pages are all accounted for."""
    __tracebackhide__ = True
    ran(scheduler, list(scheduler.planned))
    check_sound(scheduler, f"{when}, and had run")


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 30])
@pytest.mark.parametrize("chunk", [None, 1, 3])
@both_caches
def test_task_3_whatever_the_budget_each_step_makes_progress_and_all_end(lab, trie, budget, chunk):
    """Three decodes and two prompts; also where the budget is less than the number of decodes."""
    scheduler = scheduler_of(lab, seats=5, budget=budget, chunk=chunk, trie=trie)
    for seed, length in enumerate([9, 3, 2, 8, 1, 4]):
        if seed < 3:
            run(lab, scheduler, text(length, seed), length, output=[7])
        else:
            wait(lab, scheduler, text(length, seed))
    gone: list[int] = []
    for number in range(120):
        if not scheduler.num_requests:
            break
        line, when = list(scheduler.line()), f"step {number}"
        plan = scheduler.plan()
        assert plan, f"{when}: no request brings a token"
        check_plan(scheduler, plan, line, when)
        gone += ran(scheduler, plan)
        check_sound(scheduler, f"after {when}")
    check_equal(
        sorted(gone),
        [0, 1, 2, 3, 4, 5],
        name=f"the requests that ended in 120 steps with a budget of {budget}",
    )


def test_task_3_without_requests_there_is_nothing_to_plan(lab):
    check_equal(scheduler_of(lab).plan(), [], name="the plan of a scheduler without requests")


def test_task_3_each_plan_begins_anew(lab):
    scheduler = scheduler_of(lab, budget=4)
    wait(lab, scheduler, text(3, 0))
    wait(lab, scheduler, text(9, 1))
    ran(scheduler, scheduler.plan())
    plan = scheduler.plan()
    check_equal(
        shares(plan), [(0, 3, 0, 1), (1, 1, 0, 3)], name="the second step, with a budget of 4 of its own"
    )
    check_equal(ranks(scheduler.begun), [], name="the requests that have begun in the second step")


def test_task_3_what_is_noted_of_another_step_is_forgotten(lab):
    """Lists and dictionary are new ones: who holds those of the last step still has them as they were."""
    scheduler = scheduler_of(lab, seats=3)
    first, second = (run(lab, scheduler, text(4, seed), 4, output=[7]) for seed in (0, 1))
    wait(lab, scheduler, text(2, 2))
    planned = list(scheduler.plan())
    noted = [scheduler.planned, scheduler.begun]
    scheduler.running.remove(second)
    scheduler.cache.release(second.sequence)
    plan = scheduler.plan()
    when = "of a plan that follows another one, of which 1 has left meanwhile"
    check_equal(
        counts(plan),
        [(0, 1), (2, 2)],
        name=f"the step, as (request, tokens), {when}",
        suspects={
            "the chunks of the other plan are still there: begin with a new list": [
                *counts(planned),
                (0, 1),
                (2, 2),
            ]
        },
    )
    check_equal(ranks(scheduler.begun), [], name=f"the requests in `begun` {when}")
    check_equal(
        {each.rank: had for each, had in scheduler.had.items()},
        {0: 4, 2: 0},
        name=f"`had` {when}",
        suspects={
            "what the other plan noted of 1 is still there: begin with a new dictionary": {0: 4, 1: 4, 2: 0}
        },
    )
    check_equal(
        [counts(noted[0]), ranks(noted[1])],
        [counts(planned), [2]],
        name="the lists `planned` and `begun` of the other plan, which nothing should have changed",
    )
    check_equal(first.sequence.length, 4, name="the tokens of request 0 in the pool")


@both_caches
def test_task_3_where_others_hold_the_pages_and_none_can_go_on_it_says_so(lab, trie):
    scheduler = scheduler_of(lab, trie=trie)
    run(lab, scheduler, text(6, 0), 6, output=[7])
    wait(lab, scheduler, text(4, 1))
    other = leave_free(lab, scheduler, 0)
    out_of_pages = lab.paged.allocator.OutOfPages
    check_raises(out_of_pages, scheduler.plan, name="a plan where others hold all pages")
    scheduler.undo()
    other.release()
    check_equal(
        counts(scheduler.plan()),
        [(0, 1), (1, 4)],
        name="the plan after it was undone, and the others gave their pages back",
        suspects={"request 0 has lost what it had before the step that was undone": [(0, 7), (1, 4)]},
    )


@both_caches
def test_task_3_requests_that_only_run_and_have_no_pages_are_out_of_pages_too(lab, trie):
    scheduler = scheduler_of(lab, trie=trie)
    for seed in range(2):
        run(lab, scheduler, text(6, seed), 6, output=[7])
    leave_free(lab, scheduler, 0)
    check_raises(
        lab.paged.allocator.OutOfPages,
        scheduler.plan,
        name="a plan where two run, and none of them has a page for its token; none waits",
    )


@both_caches
def test_task_3_requests_that_only_wait_in_vain_are_out_of_pages_too(lab, trie):
    scheduler = scheduler_of(lab, trie=trie)
    wait(lab, scheduler, text(4, 1))
    leave_free(lab, scheduler, 1)
    check_raises(
        lab.paged.allocator.OutOfPages, scheduler.plan, name="a plan where none runs, and none can begin"
    )


@both_caches
def test_task_3_one_request_without_pages_does_not_stop_the_others(lab, trie):
    scheduler = scheduler_of(lab, trie=trie)
    run(lab, scheduler, text(6, 0), 6, output=[7])
    run(lab, scheduler, text(4, 1), 4, output=[7])
    leave_free(lab, scheduler, 0)
    check_equal(counts(scheduler.plan()), [(1, 1)], name="the step: no page is free for 0, and 1 needs none")


def shrinking(lab: Any) -> Any:
    """A scheduler whose line leaves out a request right behind one that was just planned."""

    class Shrinking(lab.scheduling.scheduler.Scheduler):
        def line(self) -> Any:
            for each in list(self.running):
                if not self.planned or self.planned[-1].running.rank != each.rank - 1:
                    yield each

    return Shrinking


def test_task_3_the_line_is_asked_for_one_request_after_the_other(lab):
    """Day 4.3's line leaves out a request that lost its pages to one before it."""
    scheduler = shrinking(lab)(scheduler_of(lab).cache, 64, 8, 20)
    for seed in range(4):
        run(lab, scheduler, text(3, seed))
    name = "the step, where the line leaves out a request behind one that was just planned"
    check_equal(
        counts(scheduler.plan()),
        [(0, 3), (2, 3)],
        name=name,
        suspects={
            "the line was made as a whole before the first was added": [(0, 3), (1, 3), (2, 3), (3, 3)]
        },
    )
    check_equal(
        {each.rank: had for each, had in scheduler.had.items()},
        {0: 0, 1: 0, 2: 0, 3: 0},
        name="`had` of the four that run",
        suspects={"only those in the line were noted; note all that run": {0: 0, 2: 0}},
    )


def test_task_3_two_equal_prompts_leapfrog(lab):
    """Each takes over what the other has just planned: between them they compute the prompt once."""
    scheduler = scheduler_of(lab, budget=6, chunk=3)
    for _ in range(2):
        wait(lab, scheduler, text(13), 1)
    steps = [
        [(0, 0, 0, 3), (1, 0, 3, 3)],
        [(0, 3, 3, 3), (1, 6, 3, 3)],
        [(0, 9, 3, 1), (1, 12, 0, 1)],
    ]
    for number, expected in enumerate(steps):
        plan = scheduler.plan()
        name = f"step {number} of two prompts of the same 13 tokens, as (request, had, found, count)"
        check_equal(shares(plan), expected, name=name)
        ran(scheduler, plan)
    check_equal(scheduler.reused, 3 + 6 + 3, name="the tokens found in all steps")


def busy(lab: Any, trie: bool = True, **options: Any) -> Any:
    """A decode, two prompts in the middle, one of which will find more, and three that wait, two of them alike."""
    scheduler = scheduler_of(lab, trie=trie, seats=8, budget=30, chunk=7, **options)
    run(lab, scheduler, text(4, 0), 4, output=[7])
    run(lab, scheduler, text(14, 1), 4)
    run(lab, scheduler, text(14, 2), 3)
    plant(lab, scheduler, text(9, 2))
    wait(lab, scheduler, text(8, 3))
    wait(lab, scheduler, text(11, 3))
    wait(lab, scheduler, text(30, 4))
    return scheduler


def test_task_3_those_that_began_wait_again_before_all_others(lab):
    scheduler = scheduler_of(lab, seats=3, budget=30)
    for seed in range(5):
        wait(lab, scheduler, text(4, seed))
    scheduler.plan()
    check_equal(ranks(scheduler.begun), [0, 1, 2], name="the requests that have begun in the step")
    scheduler.undo()
    check_equal(
        ranks(scheduler.waiting),
        [0, 1, 2, 3, 4],
        name="the requests that wait after `undo`",
        suspects={
            "those that had begun stand behind the others": [3, 4, 0, 1, 2],
            "those that had begun are turned round": [2, 1, 0, 3, 4],
            "those that had begun are lost": [3, 4],
        },
    )
    check_equal(ranks(scheduler.running), [], name="the requests that run after `undo`")


def test_task_3_what_the_requests_had_is_noted_before_anything_is_planned(lab):
    scheduler = busy(lab)
    scheduler.plan()
    noted = {each.rank: had for each, had in scheduler.had.items()}
    now = {each.rank: each.sequence.length for each in scheduler.running}
    check_equal(
        noted,
        {0: 4, 1: 4, 2: 3},
        name="`had` when the step is planned: how many tokens of each that ran before it were in the pool",
        suspects={
            "it was noted when requests had been planned; note it first": {
                rank: now[rank] for rank in range(3)
            },
            "it was noted when all had been planned, and requests had begun; note it first": now,
            "it was not noted": {},
        },
    )


@both_caches
def test_task_3_undo_puts_everything_back(lab, trie):
    scheduler = busy(lab, trie)
    before, had = books(scheduler), lengths(scheduler.running)
    first = shares(scheduler.plan())
    assert scheduler.begun, "the test wants requests to begin in the step"
    undo(scheduler, had, "a step")
    check_books(scheduler, before, "after a step was planned and undone")
    check_equal(shares(scheduler.plan()), first, name="the same step, planned once more after `undo`")


@both_caches
def test_task_3_undone_twice_and_again_it_goes_on_as_if_nothing_had_happened(lab, trie):
    scheduler, other = busy(lab, trie), busy(lab, trie)
    for number in range(12):
        for _ in range(2):
            before, had = books(scheduler), lengths(scheduler.running)
            scheduler.plan()
            undo(scheduler, had, f"step {number}")
            check_books(scheduler, before, f"after step {number} was undone")
        plan, expected = scheduler.plan(), other.plan()
        check_equal(
            shares(plan), shares(expected), name=f"step {number}, undone twice, and where it never was"
        )
        ran(scheduler, plan)
        ran(other, expected)
        if not scheduler.num_requests:
            break


def test_task_3_pages_that_were_evicted_stay_evicted(lab):
    scheduler = scheduler_of(lab, pages=6, budget=30)
    plant(lab, scheduler, text(12))
    wait(lab, scheduler, text(12, 1), 4)
    scheduler.plan()
    check_equal(scheduler.cache.evicted, 2, name="the pages evicted for 4, where 2 were free")
    undo(scheduler, {}, "a step for which pages were evicted")
    check_sound(scheduler, "after `undo` of a step for which pages were evicted")
    check_equal(scheduler.cache.evicted, 2, name="the pages evicted so far, after `undo`")
    check_equal(list(tree(scheduler.cache)), [prefix(text(3)), prefix(text(6))], name="the tree after `undo`")
    check_equal(scheduler.cache.available, 6, name="the pages that are available after `undo`")


@pytest.mark.parametrize(
    ("what", "calls"),
    [
        *(("match", n) for n in range(1, 9)),
        *((what, n) for what in ("acquire", "publish") for n in range(1, 7)),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@both_caches
def test_task_3_a_plan_that_failed_half_way_is_undone_too(lab, trie, what, calls, before):
    """Ctrl-C comes right before or after the page cache has done something for a request."""
    scheduler = busy(lab, trie)
    known, had = books(scheduler), lengths(scheduler.running)
    whole, seen = getattr(scheduler.cache, what), list[Any]()

    def interrupted(*arguments: Any) -> Any:
        seen.append(arguments)
        if before and len(seen) == calls:
            raise KeyboardInterrupt
        result = whole(*arguments)
        if len(seen) == calls:
            raise KeyboardInterrupt
        return result

    setattr(scheduler.cache, what, interrupted)
    check_raises(
        KeyboardInterrupt, scheduler.plan, name=f"a plan in which Ctrl-C comes in a call of `{what}`"
    )
    delattr(scheduler.cache, what)
    undo(scheduler, had, f"a plan in which Ctrl-C came in a call of `{what}`")
    check_books(scheduler, known, f"after `undo` of a plan in which Ctrl-C came in a call of `{what}`")
    plan, line = scheduler.plan(), busy(lab, trie)
    check_equal(
        shares(plan), shares(line.plan()), name="the step, planned once more, and where Ctrl-C never came"
    )


def preempting(lab: Any) -> Any:
    """A scheduler that takes all pages from request 1 when it looks for pages for request 2, as Day 4.3's may."""

    class Preempting(lab.scheduling.scheduler.Scheduler):
        def take_pages(self, running: Any, count: int) -> int:
            if running.rank == 2:
                victim = next(each for each in self.running if each.rank == 1)
                self.cache.release(victim.sequence)
                self.running.remove(victim)
                self.waiting.append(victim)
            return int(super().take_pages(running, count))

        def line(self) -> Any:
            return [each for each in self.running if each.rank != 1]

        def admit(self) -> None:
            pass

    return Preempting


@both_caches
def test_task_3_a_request_that_lost_its_pages_in_the_step_does_not_get_them_back(lab, trie):
    scheduler = preempting(lab)(scheduler_of(lab, trie=trie).cache, 64)
    for seed in range(3):
        run(lab, scheduler, text(9, seed), 4)
    wait(lab, scheduler, text(5, 3))
    scheduler.plan()
    scheduler.undo()
    when = "after `undo` of a step in which request 1 lost its pages"
    check_sound(scheduler, when)
    check_equal(ranks(scheduler.waiting), [3, 1], name=f"the requests that wait {when}")
    check_equal(
        [each.sequence.length for each in scheduler.running], [4, 4], name=f"what the others have {when}"
    )


def test_task_3_undo_without_a_plan_changes_nothing(lab):
    scheduler, what = busy(lab), "how many tokens of each are in the pool"
    before = books(scheduler)
    scheduler.undo()
    lost = {
        "requests were released to nothing, of which `had` says nothing: outside of a step it is empty": [
            0 for _ in before[what]
        ]
    }
    check_books(scheduler, before, "after `undo` before any step was planned", suspects={what: lost})
    ran(scheduler, scheduler.plan())
    before = books(scheduler)
    scheduler.undo()
    check_books(scheduler, before, "after `undo` right behind a step that has run", suspects={what: lost})


@both_caches
def test_task_3_requests_leave_whether_they_wait_or_run(lab, trie):
    scheduler = busy(lab, trie)
    everyone = scheduler.running + scheduler.waiting
    stay = [each for each in everyone if each.rank not in (0, 1, 4, 6)]
    held = [list(each.sequence.pages) for each in stay]
    gone = [each.request for each in everyone if each not in stay]
    tokens = [list(request.token_ids) for request in gone]
    scheduler.remove([gone[2], new_request(lab, text(4, 1), 4), gone[0], gone[3], gone[1]])
    when = "after 0, 1, 4 and 6 were removed"
    skips = "either the loop ends there, or it takes requests out of the list that it walks through, and skips one"
    check_equal(
        ranks(scheduler.running),
        [2],
        name=f"the requests that run, {when}",
        suspects={f"0 was removed, and 1 was not: {skips}": [1, 2], "those that run stay": [0, 1, 2]},
    )
    check_equal(
        ranks(scheduler.waiting),
        [5],
        name=f"the requests that wait, {when}",
        suspects={"those that wait stay": [4, 5, 6]},
    )
    left = {each.rank: list(each.sequence.pages) for each in everyone if each not in stay}
    check_equal(
        left,
        {0: [], 1: [], 4: [], 6: []},
        name="the pages of the requests that were removed, which should be released",
    )
    check_equal([each.sequence.pages for each in stay], held, name="the pages of the requests that stay")
    check_equal(
        [request.token_ids for request in gone],
        tokens,
        name="the tokens of the requests that were removed, which they keep",
    )
    check_equal(
        [request.error for request in gone],
        [None] * len(gone),
        name="the `error` of the requests that were removed: none of them has failed",
    )
    check_sound(scheduler, "after two requests that ran and two that waited were removed")


def test_task_3_a_request_that_leaves_leaves_its_full_pages_in_the_tree(lab):
    scheduler = scheduler_of(lab)
    each = run(lab, scheduler, text(7), 7)
    before, available = tree(scheduler.cache), scheduler.cache.available
    scheduler.remove([each.request])
    check_equal(tree(scheduler.cache), before, name="the tree after a request was removed")
    check_equal(
        scheduler.cache.available, available + 3, name="the pages available after a request with 3 left"
    )
    check_sound(scheduler, "after a request was removed")


def test_task_3_unknown_requests_and_none_at_all_are_passed_over(lab):
    scheduler = busy(lab)
    before = books(scheduler)
    for some in ([], [new_request(lab, text(4), 4)], set[Any]()):
        scheduler.remove(some)
        check_books(scheduler, before, f"after `remove` of {len(some)} requests that are not here")


def test_task_3_equal_requests_are_not_the_same(lab):
    scheduler = scheduler_of(lab)
    for _ in range(2):
        run(lab, scheduler, text(7), 4)
    for _ in range(2):
        wait(lab, scheduler, text(7))
    scheduler.remove({scheduler.running[0].request, scheduler.waiting[1].request})
    check_equal(
        ranks(scheduler.waiting), [2], name="the requests that wait, of two with equal tokens, after one left"
    )
    check_equal(
        ranks(scheduler.running), [1], name="the requests that run, of two with equal tokens, after one left"
    )


@QUICK
@given(schedules, happenings)
def test_task_3_any_arrivals_are_planned_as_the_rules_say(options, happens):
    play(Dry(door.active(), options), happens)


# Task 4: the engine


def push(lab: Any, core: Any, prompt: Any, max_tokens: int = 4, **options: Any) -> Any:
    request = new_request(lab, prompt, max_tokens, **options)
    core.push(request)
    return request


def arrivals(lab: Any, core: Any) -> list[Any]:
    """Requests of many lengths; some of them begin alike."""
    common = prompt_of(11, 1)
    prompts = [common, [*common, 3], prompt_of(2, 2), [*common[:7], 4, 5], prompt_of(19, 3), common, [1]]
    return [push(lab, core, prompt, 1 + 3 * n % 8) for n, prompt in enumerate(prompts)]


@pytest.mark.parametrize(("budget", "chunk"), [(12, None), (1, None), (5, 3), (64, 4)])
@both_modes
@both_caches
def test_task_4_each_request_gets_the_tokens_that_it_gets_alone(lab, trie, separate, budget, chunk):
    core = engine_of(lab, trie=trie, separate=separate, budget=budget, chunk=chunk, pages=40)
    requests = arrivals(lab, core)
    to_the_end(core)
    check_tokens(requests, core.max_positions, "compared with what it gets alone")
    check_equal(core.scheduler.cache.available, 40, name="the pages that are available at the end")


def test_task_4_a_request_ends_with_the_last_position_and_with_an_end_token(lab):
    core = engine_of(lab, limit=9)
    ending = alone(prompt_of(3, 1), 5)
    one, two = push(lab, core, prompt_of(6), 9), push(lab, core, prompt_of(3, 1), 6, end_ids=[ending[2]])
    to_the_end(core)
    check_equal(one.num_generated, 3, name="the tokens of a prompt of 6, where there are 9 positions")
    check_tokens([one, two], 9, "where there are 9 positions, and an end token")


@pytest.mark.parametrize("budget", [2, 30])
@both_modes
def test_task_4_a_request_goes_on_behind_the_output_that_it_has(lab, budget, separate):
    core = engine_of(lab, budget=budget, separate=separate)
    prompt = prompt_of(5)
    requests = [push(lab, core, prompt, 6, output=alone(prompt, n)) for n in (4, 3, 1)]
    to_the_end(core)
    check_tokens(requests, core.max_positions, "that came with some output")


def by_arrival(lab: Any) -> Any:
    """A scheduler whose line has no decodes first; Day 4.3's may be such a one."""

    class ByArrival(lab.scheduling.scheduler.Scheduler):
        def line(self) -> Any:
            return list(self.running)

    return ByArrival


@both_modes
def test_task_4_decodes_need_not_be_the_first_in_a_plan(lab, separate):
    """In two runs they are the first to be run, and each request gets its own row nevertheless."""
    core = engine_of(lab, separate=separate, budget=5, chunk=3)
    core.scheduler = core.runner.scheduler = by_arrival(lab)(core.scheduler.cache, 64, 4, 5, 3)
    requests = [push(lab, core, prompt_of(n, n), 9) for n in (8, 1, 11)]
    to_the_end(core)
    check_tokens(requests, core.max_positions, "where the plan does not begin with the decodes")


@both_caches
def test_task_4_requests_come_while_others_run(lab, trie):
    core = engine_of(lab, trie=trie, budget=7, seats=3)
    common, requests = prompt_of(10), []
    for number in range(12):
        requests.append(push(lab, core, [*common[: 10 - number % 4], number], 5))
        step(core, f"step {number}")
    to_the_end(core)
    check_tokens(requests, core.max_positions, "compared with what it gets alone")


def test_task_4_the_step_says_what_took_part_and_what_has_finished(lab):
    core = engine_of(lab, budget=12, chunk=6)
    one, two, three = (push(lab, core, prompt_of(n, n), count) for n, count in ((4, 1), (9, 3), (3, 2)))
    done = core.step()
    assert isinstance(done, lab.engine_core.Step), f"a Step should come back, not {done!r}"
    check_equal(
        [count for _, count in done.issued], [4, 6, 2], name="the tokens that each brought to the step"
    )
    found = [request for request, _ in done.issued]
    assert found == [one, two, three], "`issued` should list the requests of the plan, in its order"
    assert done.finished == [one], (
        "`finished` should list the first request, which wanted 1 token, and no other"
    )
    check_equal(done.preempted, [], name="`preempted`: no request loses its pages before Day 4.3")
    check_equal(ranks(core.scheduler.running), [1, 2], name="the requests that run after the step")
    assert core.requests == [two, three], "the first request is finished, so it should have left the engine"


def test_task_4_the_lost_pages_of_the_scheduler_are_told(lab):
    """Day 4.3's scheduler lists them in `preempted`."""
    core, before, other = engine_of(lab), new_request(lab, [1], 1), new_request(lab, [2], 1)
    push(lab, core, prompt_of(4))
    core.scheduler.preempted = [before]
    plan = core.scheduler.plan

    def preempts() -> Any:
        core.scheduler.preempted = [other]
        return plan()

    core.scheduler.plan = preempts
    lost = core.step().preempted
    assert lost != [before], (
        "`preempted` of the Step is that of the step before: look when the step is planned"
    )
    assert lost == [other], "`preempted` of a Step should be the scheduler's `preempted`"


def test_task_4_without_requests_the_model_does_not_run(lab):
    core = engine_of(lab)
    done = core.step()
    assert done is not None, "None came back from a step without requests; a Step should"
    check_equal(
        (done.issued, done.finished, done.preempted), ([], [], []), name="the Step of an empty engine"
    )
    check_equal((core.runner.runs, core.runner.head_rows), ([], []), name="the runs of model and head")


@both_modes
def test_task_4_only_requests_with_no_token_due_sample_from_one_run_of_the_head(lab, separate):
    core = engine_of(lab, budget=9, chunk=4, separate=separate)
    lengths = (3, 4, 9, 6)
    requests = [push(lab, core, prompt_of(n, n), 6) for n in lengths]
    generated = []
    for number in range(4):
        step(core, f"step {number}")
        generated.append([request.num_generated for request in requests])
    # (3, 4, 2, 0), then (1, 1, 4, 3), (1, 1, 3, 3) and (1, 1, 1, 1)
    expected = [[1, 1, 0, 0], [2, 2, 0, 0], [3, 3, 1, 1], [4, 4, 2, 2]]
    check_equal(generated, expected, name="how many tokens each has after each of four steps")
    check_equal(
        core.runner.head_rows,
        [2, 2, 4, 4],
        name="how many rows the head ran on, in each run",
        suspects={
            "the head ran once for each request": [1] * 12,
            "the head ran on the rows of all requests, also of those with tokens due": [3, 4, 4, 4],
        },
    )


def test_task_4_where_no_request_samples_the_head_does_not_run(lab):
    core = engine_of(lab, budget=4)
    push(lab, core, prompt_of(9))
    for number in range(2):
        step(core, f"step {number}")
    check_equal(core.runner.head_rows, [], name="how many rows the head ran on, in the middle of a prompt")


def test_task_4_sampling_sees_the_logits_of_its_own_request(lab):
    seen: dict[int, list[Any]] = {0: [], 1: [], 2: []}

    def sampler(number: int) -> Any:
        def sample(logits: Any, token_ids: list[int]) -> int:
            seen[number].append((lab.numpy(logits).argmax(), list(token_ids)))
            return number

        return sample

    core = engine_of(lab, budget=5)
    prompts = [prompt_of(n, n) for n in (2, 7, 3)]
    for number, prompt in enumerate(prompts):
        push(lab, core, prompt, 3, sample=sampler(number))
    to_the_end(core)
    for number, prompt in enumerate(prompts):
        ids = [[*prompt, *[number] * n] for n in range(3)]
        check_equal(
            [given for _, given in seen[number]], ids, name=f"the tokens that request {number}'s sampler saw"
        )
        wanted = [alone(given, 1)[0] for given in ids]
        check_equal(
            [int(top) for top, _ in seen[number]],
            wanted,
            name=f"the best of the logits that request {number} got",
        )


def failing(lab: Any, core: Any, error: BaseException, at: int) -> Any:
    """A request whose sampler raises an error instead of its token number `at`, counted from 0."""

    def sample(logits: Any, token_ids: list[int]) -> int:
        if len(token_ids) == 5 + at:
            raise error
        return int(lab.numpy(logits).argmax())

    return push(lab, core, prompt_of(5, 9), 6, sample=sample)


def step_beside(core: Any, kind: type[Exception]) -> Any:
    """A step in which a sampler may fail with such an exception, which must not come out of it."""
    __tracebackhide__ = True
    try:
        return core.step()
    except kind as error:
        raise CheckFailed(
            f"the {kind.__name__} of a sampler came out of the step; it should end its request alone"
        ) from error


@pytest.mark.parametrize("at", [0, 2])
@both_caches
def test_task_4_a_sampler_that_fails_ends_its_request_alone(lab, trie, at):
    core = engine_of(lab, trie=trie, budget=20)
    before, bad, after = (
        push(lab, core, prompt_of(4), 6),
        failing(lab, core, ValueError("no token will do"), at),
        push(lab, core, prompt_of(8), 6),
    )
    steps = [step_beside(core, ValueError) for _ in range(at + 1)]
    told = bad in steps[-1].finished
    assert told, "the request whose sampler failed should be in `finished` of that step"
    assert bad not in core.requests, "the request whose sampler failed should have left the engine"
    assert bad.error is not None, "its `error` should say why it failed; it is None"
    check_equal(
        bad.error,
        "ValueError: no token will do",
        name="its `error`, which should say why: the exception's name and message",
        suspects={
            "the message alone; the name of the exception is missing": "no token will do",
            "what `repr` gives": "ValueError('no token will do')",
            "the name alone; the message is missing": "ValueError",
        },
    )
    check_equal(bad.output, alone(bad.prompt_ids, at), name="its output: what it had before")
    check_sound(core.scheduler, "after a sampler failed")
    check_equal(
        [each.num_generated for each in (before, after)], [at + 1] * 2, name="the tokens of the two others"
    )
    to_the_end(core)
    check_tokens([before, after], core.max_positions, "beside one whose sampler failed")
    check_equal([each.error for each in (before, after)], [None, None], name="the `error` of the two others")


def test_task_4_a_request_that_has_failed_may_be_pushed_again_and_goes_on(lab):
    core = engine_of(lab, budget=20)
    bad = failing(lab, core, ValueError("not yet"), 2)
    for _ in range(3):
        step_beside(core, ValueError)
    bad.sample = lab.generate.greedy
    core.push(bad)
    to_the_end(core)
    check_equal(bad.error, None, name="the `error` of a request that failed, was pushed again, and has ended")
    check_tokens([bad], core.max_positions, "after one of them had failed and was pushed again")


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, ArithmeticError, StopIteration])
def test_task_4_any_exception_of_a_sampler_ends_its_request_also_one_without_a_message(lab, kind):
    core = engine_of(lab, budget=20)
    bad, other = failing(lab, core, kind(), 1), push(lab, core, prompt_of(4), 6)
    step_beside(core, kind)
    step_beside(core, kind)
    assert isinstance(bad.error, str), f"the request's `error` should be a str; it is {bad.error!r}"
    assert kind.__name__ in bad.error, (
        f"the request's `error` should have the name of the exception, {kind.__name__}; it is {bad.error!r}"
    )
    check_equal(bad.num_generated, 1, name="the tokens of the request whose sampler failed at its second")
    to_the_end(core)
    check_tokens([other], core.max_positions, "beside one whose sampler failed")


@both_caches
def test_task_4_ctrl_c_in_a_sampler_comes_through(lab, trie):
    core, error = engine_of(lab, trie=trie, budget=20), KeyboardInterrupt()
    other, bad = push(lab, core, prompt_of(4), 6), failing(lab, core, error, 0)
    comes_through(core.step, error, "Ctrl-C in a sampler")
    check_equal(bad.error, None, name="the `error` of the request: Ctrl-C is none of its own")
    assert not core.scheduler.planned, (
        "after Ctrl-C in a sampler, the step is not committed: commit it before the requests sample"
    )
    check_sound(core.scheduler, "after Ctrl-C in a sampler")
    assert core.requests == [other, bad], (
        "after Ctrl-C in a sampler, a request has left; none of them is finished"
    )
    check_equal(
        [each.sequence.length for each in core.scheduler.running],
        [4, 5],
        name="the tokens in the pool of the two that run, after Ctrl-C in a sampler: the model has run on them",
        suspects={
            "the step was undone, and the model had run on it: only planning and the run are undone": []
        },
    )
    core.abort([bad])
    to_the_end(core)
    check_tokens([other], core.max_positions, "beside one in whose sampler Ctrl-C came")


@pytest.mark.parametrize(
    "error", [KeyError("a model failed"), KeyboardInterrupt()], ids=["KeyError", "Ctrl-C"]
)
@both_modes
@both_caches
def test_task_4_a_model_that_fails_leaves_all_as_it_was(lab, trie, separate, error):
    core = engine_of(lab, trie=trie, separate=separate, budget=9, chunk=4, pages=40)
    requests = arrivals(lab, core)
    for number in range(60):
        if not core.requests:
            break
        before, told = books(core.scheduler), [list(request.token_ids) for request in requests]
        core.runner.failure = error
        fails(core, error, f"{error!r} in the model in step {number}")
        check_books(
            core.scheduler,
            before,
            f"after the model failed in step {number}",
            suspects={
                "the requests that wait": {"the requests were thrown out; a failed step is undone": []}
            },
        )
        check_equal(
            [request.token_ids for request in requests], told, name="the tokens after the model failed"
        )
        step(core, f"step {number}, after the model had failed in it once")
    check_equal(len(core.requests), 0, name="the requests that are left after 60 steps")
    check_tokens(requests, core.max_positions, "with a model that failed in each step")


def test_task_4_the_second_run_of_a_step_fails_and_the_first_does_not_count(lab):
    """In two runs, the decodes have advanced when the others fail."""
    core = engine_of(lab, separate=True, budget=9, chunk=4)
    requests = [push(lab, core, prompt_of(n, n), 5) for n in (3, 11, 2)]
    step(core)
    before, whole, error = books(core.scheduler), core.runner.run, KeyError("the second run")

    def fails_on_chunks(sequences: Any, tables: Any, tokens: Any, q_lens: Any) -> Any:
        if max(q_lens) > 1:
            raise error
        return whole(sequences, tables, tokens, q_lens)

    core.runner.run = fails_on_chunks
    fails(core, error, "an error in the second run of a step")
    core.runner.run = whole
    check_books(core.scheduler, before, "after the second run of a step failed, and the first did not")
    to_the_end(core)
    check_tokens(requests, core.max_positions, "after the second run of a step failed")


def test_task_4_a_plan_that_fails_is_undone(lab):
    core = engine_of(lab)
    push(lab, core, prompt_of(4), 2)
    other = leave_free(lab, core.scheduler, 1)
    before = books(core.scheduler)
    undone, whole = list[str](), core.scheduler.undo

    def watched() -> None:
        __tracebackhide__ = True
        undone.append("once")
        whole()

    core.scheduler.undo = watched
    check_raises(lab.paged.allocator.OutOfPages, core.step, name="a step where others hold all pages but one")
    assert undone, "planning failed, and the step was not undone (`undo` was not called)"
    check_books(core.scheduler, before, "after a step for which there were no pages", other)
    check_equal(core.runner.runs, [], name="the runs of the model: there was no plan")


def test_task_4_ctrl_c_while_a_step_is_planned_undoes_it(lab):
    core, error, seen = engine_of(lab, budget=20), KeyboardInterrupt(), []
    for n in (4, 9):
        push(lab, core, prompt_of(n, n))
    before, acquire = books(core.scheduler), core.scheduler.cache.acquire

    def interrupted(sequence: Any, count: int) -> None:
        acquire(sequence, count)
        seen.append(sequence)
        if len(seen) == 2:
            raise error

    core.scheduler.cache.acquire = interrupted
    fails(core, error, "Ctrl-C while a step is planned")
    core.scheduler.cache.acquire = acquire
    check_books(core.scheduler, before, "after Ctrl-C came while a step was planned")


def test_task_4_the_pages_of_a_finished_request_stay_in_the_tree(lab):
    core, prompt = engine_of(lab, budget=20), prompt_of(10)
    push(lab, core, prompt, 4)
    to_the_end(core)
    ids = [*prompt, *alone(prompt, 4)]
    expected = [prefix(ids[: 3 * k]) for k in (1, 2, 3, 4)]
    check_equal(
        list(tree(core.scheduler.cache)), expected, name="the tree: 10 + 3 tokens were computed, pages of 3"
    )
    again = push(lab, core, ids, 2)
    check_equal(step(core), [(1, 0, 12, 2)], name="what a request with the same 14 tokens brings")
    to_the_end(core)
    check_tokens([again], core.max_positions, "after it found 12 of its 14 tokens")


def test_task_4_what_was_found_is_counted_only_where_the_model_ran(lab):
    core, prompt = engine_of(lab, budget=20), prompt_of(10)
    push(lab, core, prompt, 1)
    to_the_end(core)
    push(lab, core, prompt, 1)
    core.runner.failure = error = KeyError("a model failed")
    fails(core, error, "an error of the model")
    check_equal(core.scheduler.reused, 0, name="the tokens found in all steps; the last one failed")
    step(core)
    check_equal(core.scheduler.reused, 9, name="the tokens found in all steps")


@pytest.mark.parametrize(
    ("pages", "P", "what"),
    [(60, 4, "pages of another size"), (59, 3, "fewer pages"), (61, 3, "more pages")],
)
def test_task_4_a_scheduler_for_another_pool_is_refused(lab, pages, P, what):
    core, scheduler = engine_of(lab), scheduler_of(lab, pages=pages, P=P)
    kind = lab.scheduling.batch.ExtendBatch
    check_raises(
        ValueError, lambda: kind(core.runner, scheduler), name=f"a scheduler with {what} than the pool"
    )


@pytest.mark.parametrize("most", [0, -3])
def test_task_4_an_engine_without_room_is_refused(lab, most):
    check_raises(ValueError, lambda: engine_of(lab, max_requests=most), name=f"max_requests={most}")


@pytest.mark.parametrize("option", ["seats", "budget", "chunk"])
@pytest.mark.parametrize("number", [0, -1])
def test_task_4_a_scheduler_without_seats_budget_or_chunks_is_refused(lab, option, number):
    options = {option: number}
    check_raises(ValueError, lambda: scheduler_of(lab, **options), name=f"a scheduler with {option} {number}")


@pytest.mark.parametrize(
    ("prompt", "count", "output", "what"),
    [
        ([], 3, [], "an empty prompt"),
        ([1] * 12, 3, [], "a prompt that leaves no position"),
        ([1] * 8, 4, [], "too few pages in the pool"),
        ([1, V], 3, [], "a token that the model doesn't have"),
        ([1], 0, [], "no output wanted"),
        ([1] * 5, 2, [7, 8], "all its tokens"),
        ([1] * 5, 3, [9], "an end token"),
    ],
)
def test_task_4_the_engine_refuses_what_it_cannot_run(lab, prompt, count, output, what):
    core = engine_of(lab, pages=3, limit=12)
    push(lab, core, prompt_of(3))
    request, before = new_request(lab, prompt, count, (9,), output), books(core.scheduler)
    check_raises(
        ValueError, lambda: core.push(request), name=f"a request with {what} (3 pages of 3, 12 positions)"
    )
    check_books(core.scheduler, before, f"after the refusal of a request with {what}")


def test_task_4_the_engine_takes_a_request_once_and_no_more_than_it_has_room_for(lab):
    core = engine_of(lab, seats=1, max_requests=3)
    first = push(lab, core, prompt_of(4))
    check_raises(ValueError, lambda: core.push(first), name="a request that waits already")
    step(core)
    check_raises(ValueError, lambda: core.push(first), name="a request that runs already")
    others = [push(lab, core, prompt_of(4)) for _ in range(2)]
    check_equal(core.idle, 0, name="how many more may be pushed, of 3")
    assert core.requests == [first, *others], "`requests` should list all, in the order in which they came"
    late = new_request(lab, prompt_of(2), 3)
    check_raises(ValueError, lambda: core.push(late), name="a fourth request where there is room for 3")
    to_the_end(core)
    check_equal(core.idle, 3, name="how many may be pushed when all are done")
    check_raises(ValueError, lambda: core.push(first), name="a request that is finished")


@both_caches
def test_task_4_requests_are_aborted_whether_they_wait_or_run(lab, trie):
    core = engine_of(lab, trie=trie, seats=3, budget=20, pages=40)
    requests = arrivals(lab, core)
    step(core)
    kept = [list(request.token_ids) for request in requests]
    core.abort([requests[1], requests[4], requests[6], new_request(lab, [1], 1)])
    check_sound(core.scheduler, "after some were aborted")
    check_equal(
        [request.token_ids for request in requests], kept, name="the tokens of all, after some were aborted"
    )
    again = requests[1]
    core.push(again)
    to_the_end(core)
    check_tokens([requests[n] for n in (0, 1, 2, 3, 5)], core.max_positions, "after others were aborted")
    check_equal([requests[n].num_generated for n in (4, 6)], [0, 0], name="the tokens of two that never ran")


def test_task_4_generate_all_brings_all_to_their_ends(lab):
    core = engine_of(lab, seats=2, budget=5, max_requests=4)
    requests = [new_request(lab, prompt_of(n, n), n) for n in (3, 8, 1, 5, 2, 7)]
    lab.engine_core.generate_all(core, requests)
    check_tokens(requests, core.max_positions, "in `generate_all`")


@QUICK
@given(schedules, happenings, st.booleans())
def test_task_4_any_arrivals_failures_and_aborts(options, happens, separate):
    play(Engine(door.active(), options, separate), happens)


def sequence_of(lab: Any, pages: list[int], length: int = 0) -> Any:
    sequence = lab.paged.sequence.PagedSequence(None, 3)
    sequence.pages, sequence.length = list(pages), length
    return sequence


def check_tables(lab: Any, tables: Any, sequences: list[Any], when: str) -> None:
    """A row for each, with its pages in order, filled up with the null page."""
    __tracebackhide__ = True
    width = tables.rows.shape[1]
    rows = [[*each.pages, *[0] * (width - len(each.pages))] for each in sequences]
    check(
        lab.numpy(tables.table(sequences)),
        np.array(rows),
        name=f"the table {when}",
        axes="B M",
        framework="numpy",
        dtype="int32",
    )


def test_task_4_tables_are_kept_up_to_date_as_pages_come_and_go(lab):
    tables = lab.scheduling.block_tables.BlockTables(3, 5)
    one, two = sequence_of(lab, [4]), sequence_of(lab, [7, 2, 9])
    check_tables(lab, tables, [one, two], "of the first step")
    one.pages += [5, 1]
    check_tables(lab, tables, [two, one], "after one has grown by 2, in another order")
    two.pages = two.pages[:1]
    check_tables(lab, tables, [two], "after one was cut to its first page")
    two.pages.append(3)
    check_tables(lab, tables, [one, two], "after the one that was cut has grown again")
    two.pages = []
    three, four = sequence_of(lab, [8, 6]), sequence_of(lab, [2])
    check_tables(lab, tables, [four, three, one], "with two new ones, after one has given up all its pages")
    four.pages, three.pages = [], []
    two.pages = [9]
    check_tables(lab, tables, [two, one], "after the one without pages came back")


@pytest.mark.parametrize("count", [3, 5, 9])
def test_task_4_there_are_more_rows_when_more_sequences_have_pages(lab, count):
    tables = lab.scheduling.block_tables.BlockTables(2, 3)
    some = [sequence_of(lab, [n + 1, n + 20]) for n in range(count)]
    check_tables(lab, tables, some[:2], "of as many sequences as rows were asked for")
    check_tables(lab, tables, some, f"of {count} sequences, where 2 rows were asked for")
    for each in some:
        each.pages.append(50 + each.pages[0])
    check_tables(lab, tables, some[::-1], "after all have grown, in another order")
    for each in some[1:]:
        each.pages = []
    later = [sequence_of(lab, [70 + n]) for n in range(count)]
    check_tables(
        lab, tables, [*later, some[0]], "after all but one have given up their pages, and others came"
    )


def test_task_4_a_table_is_a_copy(lab):
    tables, one = lab.scheduling.block_tables.BlockTables(2, 3), sequence_of(lab, [4, 5])
    tables.table([one])[:] = 9
    check_tables(lab, tables, [one], "after the one of the step before was written to")


# Task 5: the padded form


def padded(lab: Any, plan: Any, P: int) -> Any:
    return lab.scheduling.padded.PaddedArguments.build(plan, P)


def check_arguments(found: Any, suspects: dict[str, Any] | None = None, **expected: Any) -> None:
    """All five arguments, in numbers; for each there may be mistakes, with what they would make of it."""
    __tracebackhide__ = True
    axes = {"tokens": "B L", "seq_block_ids": "B pages"}
    for name, values in expected.items():
        check(
            door.active().numpy(getattr(found, name)),
            np.array(values),
            name=f"`{name}`",
            axes=axes.get(name, "B"),
            framework="numpy",
            dtype="int32",
            suspects={cause: np.array(given) for cause, given in (suspects or {}).get(name, {}).items()},
        )


def chunk_of(lab: Any, prompt: list[int], pages: list[int], had: int, count: int, rank: int = 0) -> Any:
    """A chunk of a request in pages that the test chooses."""
    standing = lab.scheduling.standing
    running = standing.Standing(new_request(lab, prompt, 4), sequence_of(lab, pages, had), rank)
    return standing.Chunk(running, count, had, 0, False)


@pytest.mark.parametrize("P", [1, 3, 16])
def test_task_5_rows_are_padded_to_whole_pages(lab, P):
    for k in (1, 2):
        for count in sorted({k * P - 1, k * P, k * P + 1} - {0}):
            pages = pages_needed(count, P)
            plan = [chunk_of(lab, text(count), list(range(1, 1 + pages)), 0, count) for _ in range(3)]
            arguments, width = padded(lab, plan, P), pages_needed(count, P)
            shape = tuple(arguments.tokens.shape)
            check_equal(
                shape,
                (3, width * P),
                name=f"the shape of `tokens`: three chunks of {count} tokens, pages of {P}",
                suspects={
                    "rows are as long as the longest chunk, not padded to whole pages": (3, count),
                    "a page too many where the longest chunk fills its pages": (3, (count // P + 1) * P),
                },
            )
            check_arguments(
                arguments,
                q_lens=[count] * 3,
                suspects={"q_lens": {"the padding is counted, too": [width * P] * 3}},
            )
            shape = tuple(arguments.seq_block_ids.shape)
            check_equal(
                shape, (3, width), name=f"the shape of `seq_block_ids`: three chunks of {count} tokens"
            )
            check_equal(
                arguments.computed, 3 * width * P, name="`computed`, the tokens that the model is run on"
            )
            check_equal(
                arguments.in_vain,
                3 * (width * P - count),
                name=f"`in_vain`, the columns of padding: three chunks of {count} tokens, pages of {P}",
            )


def test_task_5_a_step_of_two_prompts_from_their_beginning(lab):
    plan = [chunk_of(lab, [1, 2, 3, 4, 5], [42, 43], 0, 5), chunk_of(lab, [10, 11, 12], [44], 0, 3)]
    check_arguments(
        padded(lab, plan, 3),
        tokens=[[1, 2, 3, 4, 5, 0], [10, 11, 12, 0, 0, 0]],
        start_positions=[0, 0],
        q_lens=[5, 3],
        seq_lens=[5, 3],
        seq_block_ids=[[42, 43], [44, 0]],
        suspects={
            "tokens": {
                "the padding comes first; it follows the tokens": [[0, 1, 2, 3, 4, 5], [0, 0, 0, 10, 11, 12]],
            },
            "start_positions": {"these are where the chunks end": [5, 3]},
            "seq_block_ids": {"only the pages that are full": [[42, 0], [44, 0]]},
        },
    )


def test_task_5_the_rows_stand_in_the_order_of_the_plan(lab):
    """Whatever their lengths are, and whichever came first."""
    plan = [
        chunk_of(lab, [5, 6], [3], 0, 2, rank=1),
        chunk_of(lab, [7, 8, 9], [4], 0, 3, rank=2),
        chunk_of(lab, [1], [2], 0, 1, rank=0),
    ]
    rows = [[5, 6, 0], [7, 8, 9], [1, 0, 0]]
    check_arguments(
        padded(lab, plan, 3),
        tokens=rows,
        q_lens=[2, 3, 1],
        seq_block_ids=[[3], [4], [2]],
        suspects={
            "tokens": {
                "the rows were sorted by arrival; they stand in the order of the plan": [rows[2], *rows[:2]],
                "the rows were sorted, the longest first; they stand in the order of the plan": [
                    rows[1],
                    rows[0],
                    rows[2],
                ],
            }
        },
    )


def test_task_5_pages_that_are_not_needed_yet_make_no_column(lab):
    """A request may have more pages than the tokens of the step fill."""
    plan = [chunk_of(lab, text(9), [3, 8, 4], 0, 4), chunk_of(lab, text(2), [5], 0, 2)]
    found = tuple(padded(lab, plan, 3).seq_block_ids.shape)
    check_equal(
        found,
        (2, 2),
        name="the shape of `seq_block_ids`: the longest has 4 tokens after the step, and 3 pages of 3",
        suspects={"as many columns as the longest has pages; its 4 tokens fill 2": (2, 3)},
    )


def test_task_5_chunks_from_the_middle_and_a_decode(lab):
    """Only new tokens, but all pages: the longest chunk and the longest sequence need not be the same."""
    plan = [
        chunk_of(lab, [5, 6, 7, 8, 9, 1, 2], [3, 8, 4], 6, 1),
        chunk_of(lab, [7, 6, 5, 4, 3, 2], [6, 2, 9], 1, 4),  # its third page is not needed yet
        chunk_of(lab, [9, 8, 7, 6, 5], [5], 0, 2),  # more are due
    ]
    check_arguments(
        padded(lab, tuple(plan), 3),
        tokens=[[2, 0, 0, 0, 0, 0], [6, 5, 4, 3, 0, 0], [9, 8, 0, 0, 0, 0]],
        start_positions=[6, 1, 0],
        q_lens=[1, 4, 2],
        seq_lens=[7, 5, 2],
        seq_block_ids=[[3, 8, 4], [6, 2, 0], [5, 0, 0]],
        suspects={
            "tokens": {
                "rows have tokens beyond their `count`: as many as the longest chunk has": [
                    [2, 0, 0, 0, 0, 0],
                    [6, 5, 4, 3, 0, 0],
                    [9, 8, 7, 6, 0, 0],
                ],
                "rows have all tokens that are due, not `count` of them": [
                    [2, 0, 0, 0, 0, 0],
                    [6, 5, 4, 3, 2, 0],
                    [9, 8, 7, 6, 5, 0],
                ],
            },
            "q_lens": {"these are the lengths of the sequences after the step: `seq_lens`": [7, 5, 2]},
            "seq_lens": {
                "these are the lengths of the chunks: `q_lens`": [1, 4, 2],
                "these are the lengths of the sequences before the step: `start_positions`": [6, 1, 0],
            },
        },
    )


def test_task_5_a_token_may_have_the_number_of_the_padding(lab):
    found = padded(lab, [chunk_of(lab, [0, 4, 0, 0], [5, 6], 0, 4)], 3)
    check_arguments(found, tokens=[[0, 4, 0, 0, 0, 0]])
    check_equal(
        found.in_vain,
        2,
        name="`in_vain`: 4 tokens, three of which are 0, in 2 pages of 3",
        suspects={"tokens whose id is 0 count as padding": 5},
    )


def test_task_5_what_the_walkthrough_computes_in_vain(lab):
    scheduler = scheduler_of(lab, pages=40, P=16, budget=256, chunk=128)
    for seed, length in enumerate([250, 300]):
        wait(lab, scheduler, text(length, seed), 1)
    wanted = [((2, 128), (2, 8), 256, 0), ((2, 128), (2, 16), 256, 6), ((1, 48), (1, 19), 48, 4)]
    for number, expected in enumerate(wanted):
        plan = scheduler.plan()
        one = padded(lab, plan, 16)
        shapes = tuple(one.tokens.shape), tuple(one.seq_block_ids.shape)
        name = f"step {number}: the shapes of `tokens` and `seq_block_ids`, `computed`, `in_vain`"
        check_equal((*shapes, one.computed, one.in_vain), expected, name=name)
        starts = [chunk.running.sequence.length for chunk in plan]
        check_arguments(one, start_positions=starts, q_lens=[chunk.count for chunk in plan])
        ran(scheduler, plan)


def test_task_5_a_decode_costs_a_page_in_this_form(lab):
    scheduler = scheduler_of(lab, P=16, seats=9)
    for seed, length in enumerate([3, 16, 40]):
        run(lab, scheduler, text(length, seed), length, output=[7])
    one = padded(lab, scheduler.plan(), 16)
    check_equal((one.computed, one.in_vain), (48, 45), name="`computed` and `in_vain` of three decodes")
    check_arguments(one, start_positions=[3, 16, 40], q_lens=[1, 1, 1], seq_lens=[4, 17, 41])
    check(
        lab.numpy(one.tokens[:, :2]),
        np.array([[7, 0]] * 3),
        name="two columns of `tokens`",
        axes="B 2",
        framework="numpy",
        dtype="int32",
    )


def test_task_5_a_decode_beside_a_chunk_costs_as_much_as_the_chunk(lab):
    scheduler = scheduler_of(lab, P=16, budget=128)
    run(lab, scheduler, text(9), 9, output=[7])
    wait(lab, scheduler, text(100, 1))
    one = padded(lab, scheduler.plan(), 16)
    check_equal(
        (one.computed, one.in_vain),
        (224, 123),
        name="`computed` and `in_vain` of 1 and 100 tokens",
    )


def test_task_5_a_request_starts_behind_what_was_found(lab):
    scheduler = scheduler_of(lab)
    plant(lab, scheduler, text(7))
    each = wait(lab, scheduler, text(8))
    before = scheduler.plan()
    found = padded(lab, before, 3)
    check_arguments(
        found,
        tokens=[[7, 8, 0]],
        start_positions=[6],
        q_lens=[2],
        seq_lens=[8],
        seq_block_ids=[each.sequence.pages],
        suspects={
            "start_positions": {
                "the chunk starts behind what the request had (`had`); it starts behind what was found, too": [
                    0
                ]
            }
        },
    )


def test_task_5_the_arguments_change_nothing(lab):
    scheduler = busy(lab)
    plan, before = list(scheduler.plan()), books(scheduler)
    found = padded(lab, plan, 3)
    expected = [list(chunk.running.sequence.pages) for chunk in plan]
    for values in (found.tokens, found.seq_block_ids, found.q_lens, found.start_positions, found.seq_lens):
        values[:] = 99
    now = [list(chunk.running.sequence.pages) for chunk in plan]
    check_equal(now, expected, name="the pages of the requests after the arguments were written to")
    check_equal(books(scheduler), before, name="what is known after the arguments were built")
