"""Calls of a page cache that tell the cause where the mistake behind a failure is certain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from week_3.decode_states import check_says
from week_3.pages import pages_needed

from coursekit.check import CheckFailed, check_equal, check_raises

from .prefixes import computed, fails, pages_in, text, trie_of


def more_tokens(count: int) -> str:
    return f"{count} more token{'' if count == 1 else 's'}"


def check_calls(found: dict[str, Any], expected: dict[str, Any], suspects: dict[str, dict[str, Any]]) -> None:
    """Each call gives what it should. A mistake is named only if it explains what all of the calls gave.

    Args:
        found: call, in the learner's words -> what it gave.
        expected: what it should give.
        suspects: mistake -> what each call would give with it.
    """
    __tracebackhide__ = True
    causes = {mistake: values for mistake, values in suspects.items() if values == found}
    for call, value in expected.items():
        check_equal(
            found[call], value, name=call, suspects={cause: values[call] for cause, values in causes.items()}
        )


def acquire(lab: Any, cache: Any, sequence: Any, count: int, name: str) -> None:
    """`acquire` where enough pages are available; a refusal says what was lacking."""
    __tracebackhide__ = True
    P, available = cache.page_size, cache.available
    wanted = pages_needed(sequence.length + count, P)
    lacking = max(0, wanted - len(sequence.pages))
    try:
        cache.acquire(sequence, count)
    except lab.paged.allocator.OutOfPages as error:
        by_tokens = f"pages lacking: {count}," in str(error) and count not in (lacking, wanted)
        cause = f"\n  {count} is a number of tokens; `require_available` takes a number of pages"
        raise CheckFailed(
            f"{name}: lacks {lacking} pages of the {available} that are available, and was refused: {error}"
            f"{cause if by_tokens else ''}"
        ) from error


def check_refused(lab: Any, cache: Any, sequence: Any, count: int, lacking: int, name: str) -> None:
    """`acquire` refuses, with the error of `require_available`, and evicts nothing."""
    __tracebackhide__ = True
    available, evicted, kind = cache.available, cache.evicted, lab.paged.allocator.OutOfPages
    pages = list(sequence.pages)
    try:
        error = check_raises(kind, lambda: cache.acquire(sequence, count), name=name)
    except CheckFailed as failure:
        if isinstance(failure.__cause__, KeyError) and failure.__cause__.args == ("dictionary is empty",):
            raise CheckFailed(
                f"{name}: `evict` emptied `unheld` and looked for more; `acquire` must refuse first"
            ) from failure.__cause__
        raise
    if cache.evicted > evicted:
        raise CheckFailed(
            f"{name}: {cache.evicted - evicted} pages were evicted before it was refused; `acquire` must refuse first"
        )
    check_equal(sequence.pages, pages, name=f"the sequence's pages after the refused {name}")
    check_says(error, lacking, f"how many pages the sequence lacks, {lacking}")
    check_says(error, available, f"how many pages are available, {available}")
    try:
        cache.require_available(lacking)
    except kind as refusal:
        wanted = str(refusal)
    suspects = {}
    try:
        cache.allocator.allocate(lacking)
    except kind as refusal:
        suspects["the allocator refused, not `require_available`"] = str(refusal)
    check_equal(str(error), wanted, name=f"the message of the refused {name}", suspects=suspects)


def find(cache: Any, sequence: Any, token_ids: Sequence[int]) -> Any:
    """`match`, for the tests of its task."""
    __tracebackhide__ = True
    before = list(token_ids)
    try:
        found = cache.match(sequence, token_ids)
    except KeyError as error:
        _explain_not_unheld(cache, error, "match")
        raise
    check_equal(
        list(token_ids), before, name="the tokens that `match` was called with, which stay as they are"
    )
    return found


def withdraw_after_failure(cache: Any, had: dict[Any, int]) -> None:
    """The step has failed: its sequences are released by hand, then `withdraw` is called."""
    __tracebackhide__ = True
    try:
        fails(cache, had)
    except KeyError as error:
        _explain_not_unheld(cache, error, "withdraw")
        raise


def release(cache: Any, sequence: Any, keep: int = 0) -> None:
    """`release`, for the tests of a tree."""
    __tracebackhide__ = True
    on_a_path, old, had = sequence in cache.tips, sequence.pages, list(sequence.pages)
    try:
        cache.release(sequence, keep)
    except AttributeError as error:
        if on_a_path and error.obj is None and error.name in ("depth", "page", "parent"):
            raise CheckFailed(
                f"release(keep={keep}): the climb went past the root, whose parent is None; "
                "the root has depth 0, so the climb must end there at the latest"
            ) from error
        raise
    check_new_list(sequence, old, had, f"after release(keep={keep})")


def check_new_list(sequence: Any, old: list[int], had: list[int], when: str) -> None:
    """A sequence that has given up pages has a new list of them; the old list is as it was."""
    __tracebackhide__ = True
    if len(sequence.pages) < len(had):
        check_equal(
            old,
            had,
            name=f"the list of pages that the sequence had before, {when}",
            suspects={
                "the list was cut in place: a sequence that gives up pages gets a new list": had[
                    : len(sequence.pages)
                ]
            },
        )


def check_tip(
    cache: Any, sequence: Any, expected: int, before: int, when: str, suspects: dict[str, int] | None = None
) -> None:
    """The sequence's path ends at the node of this page; page 0 is the root's."""
    __tracebackhide__ = True
    check_equal(
        cache.tip(sequence).page,
        expected,
        name=f"the last page on the sequence's path (its `tip`; the root has page 0) {when}",
        suspects={"the path ends where it ended before: `_move` notes where it ends now": before}
        | (suspects or {}),
    )


def counts_too_early(lab: Any) -> bool:
    """Whether a `release` that adds no node to `unheld` adds all where the sequence has given up its pages before.

    Then it looks for one reference, the tree's, as it should; but it looks while the sequence has another.
    """
    cache = trie_of(lab)
    sequence = computed(lab, cache, text(6))
    pages, sequence.pages = sequence.pages, []
    cache.allocator.free(pages)
    with suppress(ValueError):
        cache.release(sequence)
    return pages_in(cache.unheld) == pages[::-1]


def _explain_not_unheld(cache: Any, error: KeyError, method: str) -> None:
    """`unheld` is the only dictionary with nodes as its keys."""
    __tracebackhide__ = True
    node = error.args[0] if error.args else None
    if node is not None and hasattr(node, "page") and node not in cache.unheld:
        raise CheckFailed(
            f"`{method}` takes the node of page {node.page} out of `unheld`, where it isn't: "
            "a node that a sequence holds is not there"
        ) from error
