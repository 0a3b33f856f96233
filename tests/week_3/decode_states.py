"""Decode states as the tests handle them, and a plain account of which seat holds which pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from coursekit.check import CheckFailed, check_equal, check_raises

from .pages import allocator_of, pages_needed

Held = dict[int, tuple[list[int], int]]
"""For each seat that isn't empty: its pages, and how many tokens are in them."""


def state_of(
    lab: Any, num_pages: int = 9, P: int = 3, seats: int = 4, most: int = 5, held: Held | None = None
) -> Any:
    """A state with an allocator of its own, with some seats filled by hand; each may hold `most` pages."""
    allocator = allocator_of(lab, num_pages)
    return fill(lab.ragged.decode_state.DecodeState(allocator, P, seats, most), held or {})


def fill(state: Any, held: Held) -> Any:
    """Give seats these very pages and lengths, as if they had been allocated and filled; seats may share pages."""
    allocator = state.allocator
    for seat, (pages, length) in held.items():
        for column, page in enumerate(pages):
            state.page_indices[seat, column] = page
            if page in allocator.free_pages:
                allocator.free_pages.remove(page)
            allocator.references[page] += 1
        state.sequences[seat].pages = list(pages)
        state.sequences[seat].length = length
    return state


def interrupted(lab: Any, num_pages: int, calls: int) -> Any:
    """An allocator whose `allocate` is interrupted by Ctrl-C when it is called for this time."""

    class Interrupted(lab.paged.allocator.PageAllocator):
        left = calls

        def allocate(self, count: int) -> list[int]:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().allocate(count)

    return Interrupted(num_pages)


def tables(state: Any) -> dict[str, Any]:
    """All that a state knows: two of these are equal where nothing has changed."""
    return {
        "the pages of each seat": pages_of(state),
        "the rows of page_indices": state.page_indices.tolist(),
        "the lengths": lengths_of(state),
        "the free pages": list(state.allocator.free_pages),
        "the references of the pages": list(state.allocator.references),
    }


def pages_of(state: Any) -> list[list[int]]:
    """The pages of each seat, in order."""
    return [list(sequence.pages) for sequence in state.sequences]


def lengths_of(state: Any) -> list[int]:
    return [sequence.length for sequence in state.sequences]


def refused(
    state: Any, error: type[BaseException], call: Callable[[], Any], *, name: str, why: str = "was refused"
) -> BaseException:
    """The call raises such an error and changes nothing; the error."""
    __tracebackhide__ = True
    before = tables(state)
    raised = check_raises(error, call, name=name)
    check_unchanged(state, before, f"after {name}, which {why}: nothing may change")
    return raised


def check_unchanged(state: Any, before: dict[str, Any], when: str) -> None:
    """Each part of the state is as it was; the failure shows the part that isn't."""
    __tracebackhide__ = True
    for part, now in tables(state).items():
        check_equal(by_seat(now), by_seat(before[part]), name=f"{part} {when}")


def by_seat(part: list[Any]) -> Any:
    """Rows as a dictionary: the failure names the seat whose row differs."""
    return dict(enumerate(part)) if part and isinstance(part[0], list) else part


def check_rows(state: Any, when: str) -> None:
    """The table is int32 [B, M], on the host, and each row lists its seat's pages and then the null page."""
    __tracebackhide__ = True
    table = state.page_indices
    wanted = {
        seat: pages + [0] * (state.max_pages - len(pages)) for seat, pages in enumerate(pages_of(state))
    }
    check_equal(dict(enumerate(table.tolist())), wanted, name=f"the rows of page_indices {when}")
    where = (str(table.dtype).rpartition(".")[2], str(getattr(table, "device", "cpu")))
    check_equal(where, ("int32", "cpu"), name=f"dtype and device of page_indices {when}")


def check_free(state: Any, pages: Sequence[int], *, when: str) -> None:
    """These very pages are free, each listed once, as plain integers."""
    __tracebackhide__ = True
    free = state.allocator.free_pages
    strange = [page for page in free if type(page) is not int]
    if strange:
        raise CheckFailed(
            f"{when}, the allocator's free pages should be plain integers; {strange[0]!r} is a "
            f"{type(strange[0]).__name__}. An element of a row is a view of the table: use the sequence's own list"
        )
    check_equal(sorted(free), list(pages), name=f"the free pages {when}")


def check_says(error: BaseException, number: int, what: str) -> None:
    """The message of an error names a number."""
    __tracebackhide__ = True
    if not re.search(rf"(?<![\w-]){number}\b", str(error)):
        raise CheckFailed(f"the {type(error).__name__} should say {what}; its message is {str(error)!r}")


class Account:
    """Who holds which pages, as plain lists. Every call goes to the state, and what it does is checked."""

    def __init__(self, lab: Any, num_pages: int, P: int, seats: int, most: int) -> None:
        self.out_of_pages = lab.paged.allocator.OutOfPages
        self.state = state_of(lab, num_pages, P, seats, most)
        self.num_pages, self.P, self.most = num_pages, P, most
        self.held: list[list[int]] = [[] for _ in range(seats)]
        self.lengths = [0] * seats
        self.others: list[int] = []  # pages that another user of the same allocator holds

    @property
    def free(self) -> list[int]:
        """The pages that are not held."""
        taken = {page for pages in [*self.held, self.others] for page in pages}
        return [page for page in range(1, self.num_pages) if page not in taken]

    def allocate(self, q_lens: Sequence[int]) -> bool:
        """Whether the step got its pages; then each seat got what it lacked, and nothing else has changed."""
        __tracebackhide__ = True
        wanted = [pages_needed(past + new, self.P) for past, new in zip(self.lengths, q_lens, strict=True)]
        lacking = [max(0, want - len(has)) for want, has in zip(wanted, self.held, strict=True)]
        free, name = self.free, self._named("allocate", q_lens)
        error = self.out_of_pages if sum(lacking) > len(free) else None
        if max(wanted) > self.most:  # that can never be, whatever is free
            error = ValueError
        if error is not None:
            refused(self.state, error, lambda: self.state.allocate(q_lens), name=name)
            return False
        try:
            self.state.allocate(q_lens)
        except (self.out_of_pages, ValueError) as refusal:
            raise CheckFailed(
                f"{name}: {type(refusal).__name__} was raised ({refusal}), where {sum(lacking)} pages are lacking, "
                f"{len(free)} are free, and a seat may hold {self.most}"
            ) from refusal
        found = pages_of(self.state)
        for seat, (has, count) in enumerate(zip(self.held, lacking, strict=True)):
            fresh = found[seat][len(has) :]
            check_equal(found[seat][: len(has)], has, name=f"the pages that seat {seat} held before {name}")
            check_equal(len(fresh), count, name=f"how many pages seat {seat} got from {name}")
            valid = set(fresh) <= set(free) and len(set(fresh)) == len(fresh)
            assert valid, f"{name} gave seat {seat} the pages {fresh}; the pages that were free: {free}"
            free = [page for page in free if page not in fresh]
        self.held = found
        self._check(f"after {name}")
        return True

    def advance(self, q_lens: Sequence[int]) -> None:
        """The model has run on the tokens."""
        for seat, count in enumerate(q_lens):
            self.state.sequences[seat].advance(count)
            self.lengths[seat] += count

    def release(self, mask: Sequence[bool]) -> None:
        __tracebackhide__ = True
        name = self._named("release", mask)
        self.state.release(mask)
        for seat, marked in enumerate(mask):
            if marked:
                self.held[seat], self.lengths[seat] = [], 0
        self._check(f"after {name}")

    def others_take(self, count: int) -> None:
        """Another user of the allocator takes some pages, as many as are free at most."""
        self.others += self.state.allocator.allocate(min(count, len(self.free)))

    def others_give_back(self) -> None:
        self.state.allocator.free(self.others)
        self.others = []

    def _named(self, method: str, argument: Sequence[int]) -> str:
        """The call, and the state that it meets."""
        held = [len(has) for has in self.held]
        return f"{method}({list(argument)}), with {self.lengths} tokens in {held} pages of {self.P}"

    def _check(self, when: str) -> None:
        __tracebackhide__ = True
        check_equal(by_seat(pages_of(self.state)), by_seat(self.held), name=f"the pages of each seat {when}")
        check_equal(lengths_of(self.state), self.lengths, name=f"the lengths {when}")
        check_rows(self.state, when)
        check_free(self.state, self.free, when=when)
        references = self.state.allocator.references
        kept = [(page, references[page]) for page in self.others]
        check_equal(kept, [(page, 1) for page in self.others], name=f"pages of another user {when}")
