"""`undo` as the tests of Day 4.2 call it: where a request is not released, they say which mistake it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from week_3.pages import pages_needed

from coursekit.check import CheckFailed, check_equal

from .beside_schedules import books, check_pages, tree

TASK = "`undo`, which is Task 4.2.3's:"
OF_PAGES = ("the tree", "the references of the pages", "the pages available")  # evicted pages don't come back


def lengths(some: Iterable[Any]) -> dict[Any, int]:
    """How many tokens of each are in the pool."""
    return {each: each.sequence.length for each in some}


def undo(scheduler: Any, had: Mapping[Any, int], what: str) -> None:
    """`undo`. When it calls the cache's `withdraw`, each request has what it had before the step; others had nothing.

    Only then may a cache withdraw. What they have is compared as (tokens, pages).
    """
    __tracebackhide__ = True
    cache, seen = scheduler.cache, list[list[tuple[int, int]]]()
    everyone = sorted(scheduler.running + scheduler.waiting, key=lambda each: each.rank)
    now = _held(everyone)
    before = [(n, pages_needed(n, cache.page_size)) for n in (had.get(each, 0) for each in everyone)]
    planned = [chunk.running for chunk in scheduler.planned]
    suspects = {
        "no request was released": now,
        "the requests that ran before the step were not released (was `had` emptied too early?)": [
            held if each in had else was for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "what was found in this step stays: release to what the request had before the match": [
            (held[0], pages_needed(held[0], cache.page_size)) if each in had else was
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "only the requests in the plan were released; one that has matched may have no chunk yet": [
            was if each in planned or each in scheduler.waiting else held
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "the requests that have begun in the step were not released": [
            held if each in scheduler.begun else was
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "the requests that wait were not released; one of them may have matched": [
            held if each in scheduler.waiting else was
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
    }
    whole = cache.withdraw

    def watched() -> None:
        seen.append(_held(everyone))
        whole()

    cache.withdraw = watched
    try:
        scheduler.undo()
    finally:
        del cache.withdraw
    assert seen, (
        f"`undo` of {what}: the cache was not told to `withdraw` what was published, and never computed"
    )
    name = f"the (tokens, pages) of each request when `undo` of {what} calls `withdraw`"
    if seen[0] != before and _held(everyone) == before:
        which = "no request was released before" if seen[0] == now else "requests were released only after"
        suspects = {f"{which} `withdraw`: release all of them first": seen[0]}
    check_equal(seen[0], before, name=name, suspects=suspects)


def _held(everyone: Iterable[Any]) -> list[tuple[int, int]]:
    """How many tokens and pages each has."""
    return [(each.sequence.length, len(each.sequence.pages)) for each in everyone]


def watch_undo(scheduler: Any) -> None:
    """Task 4's tests look at what Task 3's `undo` has done: where it fails, they say so.

    Pages that were evicted in the step stay evicted, and requests that were preempted in it stay preempted: after
    such a step nothing is compared. Where others hold pages, the books of the pages are not looked at.
    """
    plan, whole, commit, noted = scheduler.plan, scheduler.undo, scheduler.commit, dict[str, Any]()

    def planned() -> Any:
        noted.update(books=books(scheduler), sound=_unsound(scheduler) is None)
        return plan()

    def watched() -> None:
        __tracebackhide__ = True
        whole()
        if not noted or scheduler.preempted:
            return
        before, now = noted["books"], books(scheduler)
        if now["the tokens of each"] != before["the tokens of each"]:
            return  # the step has sampled: it should not be undone any more
        for what in [what for what in before if what not in OF_PAGES]:
            check_equal(now[what], before[what], name=f"{TASK} {what}, after it")
        new = sorted(set(tree(scheduler.cache).items()) - set(before["the tree"].items()))
        assert not new, (
            f"{TASK} prefixes that were published in the step are still in the tree, as (tokens, page): {new}"
        )
        fault = _unsound(scheduler) if noted["sound"] else None
        if fault is not None:
            raise CheckFailed(f"{TASK} after it, the books of the pages don't balance: {fault}") from fault

    def committed() -> None:
        noted.clear()
        commit()

    scheduler.plan, scheduler.undo, scheduler.commit = planned, watched, committed


def _unsound(scheduler: Any) -> RuntimeError | None:
    """Why the books of the pages don't balance, if only those that run hold any."""
    try:
        check_pages(scheduler, [])
    except RuntimeError as error:
        return error
    return None
