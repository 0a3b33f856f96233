"""Calls of a page cache, with what is known before and after them, made where the cache is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coursekit.beside import beside

from .beside_prefixes import prefixes

Tree = dict[tuple[int, ...], int]
State = tuple[int, list[int]]  # of a sequence: its length, its pages
Books = tuple[int, list[int], int, int, int]  # the same, evicted so far, free pages, available pages


def _state(sequence: Any) -> State:
    return sequence.length, list(sequence.pages)


@beside
def match(cache: Any, sequence: Any, token_ids: list[int]) -> tuple[Tree, State, int, State]:
    """The tree and the sequence before `match`, what it gives, and the sequence after it."""
    known, before = prefixes(cache), _state(sequence)
    return known, before, cache.match(sequence, token_ids), _state(sequence)


@beside
def acquire(
    cache: Any, sequence: Any, count: int, refusal: type[Exception]
) -> tuple[Books, str | None, Books]:
    """The books before and after `acquire`, and between them the message of the error, if it was refused."""

    def books() -> Books:
        return *_state(sequence), cache.evicted, len(cache.allocator.free_pages), cache.available

    before, refused = books(), None
    try:
        cache.acquire(sequence, count)
    except refusal as error:
        refused = str(error)
    return before, refused, books()


@beside
def publish(cache: Any, sequence: Any, token_ids: tuple[int, ...], stop: int) -> tuple[Tree, Tree, int]:
    """The tree before and after `publish`, and the sequence's length then."""
    before = prefixes(cache)
    cache.publish(sequence, token_ids, stop)
    return before, prefixes(cache), sequence.length


@beside
def release(cache: Any, sequence: Any, keep: int) -> tuple[State, State]:
    """The sequence before and after `release`."""
    before = _state(sequence)
    cache.release(sequence, keep)
    return before, _state(sequence)


@beside
def advance(cache: Any, counts: Sequence[tuple[Any, int]]) -> None:
    """A step has run: sequences advance by so many tokens each, and the cache keeps what was published."""
    for sequence, count in counts:
        sequence.advance(count)
    cache.commit()


@beside
def places(wanted: Sequence[tuple[Any, int, int]]) -> list[list[int]]:
    """The places of some tokens, from one number to another, of each sequence."""
    return [list(sequence.places(start, stop)) for sequence, start, stop in wanted]


@beside
def check(cache: Any, other: Any, pages: list[int], sequences: Sequence[Any]) -> Tree:
    """Let the cache check its books, where another user has some pages in a sequence; then its tree."""
    other.pages = pages
    cache.check([*sequences, other])
    return prefixes(cache)
