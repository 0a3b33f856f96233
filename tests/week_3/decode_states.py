"""Decode states as the tests handle them, and a plain account of which slot holds which pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from coursekit.check import check_equal, check_raises
from coursekit.checking.comparison import CheckFailed

from .batch_model import RaggedModel
from .pages import LAYERS, pages_needed, pool_of, spoil

Held = dict[int, tuple[list[int], int]]
"""Of each slot that isn't empty: its pages, and how many tokens are in them."""


def state_of(
    lab: Any,
    num_pages: int = 9,
    P: int = 3,
    slots: int = 4,
    most: int = 5,
    held: Held | None = None,
    **rest: Any,
) -> Any:
    """A state over a pool full of NaN, with some slots filled by hand; each may hold `most` pages."""
    pool = pool_of(lab, num_pages, P, LAYERS)
    return fill(lab.ragged.decode_state.DecodeState(pool, slots, most, **rest), held or {})


def fill(state: Any, held: Held) -> Any:
    """Give slots these very pages and lengths, as if they had been allocated and filled."""
    for slot, (pages, length) in held.items():
        for place, page in enumerate(pages):
            state.page_indices[slot, place] = page
            state.available_page_indices.remove(page)
        state.lengths[slot] = length
    return state


def model_state(
    lab: Any, model: RaggedModel, num_pages: int = 40, P: int = 3, slots: int = 4, most: int = 9
) -> Any:
    """A state for a model whose attention reads the pages token by token."""
    pool = lab.paged.pool.KvPool(model.config, num_pages, P, device=lab.device)
    spoil(pool)
    return lab.ragged.decode_state.DecodeState(pool, slots, most, model.read)


class SlotModel(RaggedModel):
    """The model of Day 3.2's tests, with today's caches."""

    @property
    def cache_kind(self) -> Any:
        return self.lab.ragged.forward.RaggedCache


def tables(state: Any) -> dict[str, Any]:
    """All that a state knows: two of these are equal where nothing has changed."""
    return {
        "page_indices": state.page_indices.tolist(),
        "lengths": state.lengths.tolist(),
        "available_page_indices": list(state.available_page_indices),
    }


def pages_of(state: Any) -> list[list[int]]:
    """The pages of each slot, in order."""
    return [[page for page in row if page] for row in state.page_indices.tolist()]


def refused(state: Any, error: type[Exception], call: Any, *, name: str) -> BaseException:
    """The call raises such an error and changes nothing; the error."""
    __tracebackhide__ = True
    before = tables(state)
    raised = check_raises(error, call, name=name)
    check_unchanged(state, before, f"after {name}, which was refused: nothing may change")
    return raised


def check_unchanged(state: Any, before: dict[str, Any], when: str) -> None:
    """Each of the tables is as it was; the failure shows the one that isn't."""
    __tracebackhide__ = True
    now = tables(state)
    rows, rows_before = (dict(enumerate(each["page_indices"])) for each in (now, before))
    check_equal(rows, rows_before, name=f"rows of page_indices {when}")
    for field in ("lengths", "available_page_indices"):
        check_equal(now[field], before[field], name=f"{field} {when}")


def check_says(error: BaseException, number: int, what: str) -> None:
    """The message of an error names a number."""
    __tracebackhide__ = True
    if not re.search(rf"(?<![\w-]){number}\b", str(error)):
        raise CheckFailed(f"the {type(error).__name__} should say {what}; its message is {str(error)!r}")


class Account:
    """Who holds how many pages, as plain lists. Every call goes to the state, and what it does is checked."""

    def __init__(self, lab: Any, num_pages: int, P: int, slots: int, most: int) -> None:
        self.out_of_blocks = lab.paged.allocator.OutOfPages
        self.state = state_of(lab, num_pages, P, slots, most)
        self.num_pages, self.P, self.most = num_pages, P, most
        self.held: list[list[int]] = [[] for _ in range(slots)]
        self.lengths = [0] * slots

    @property
    def free(self) -> list[int]:
        """The pages that nobody holds."""
        taken = {page for pages in self.held for page in pages}
        return [page for page in range(1, self.num_pages) if page not in taken]

    def allocate(self, q_lens: Sequence[int]) -> bool:
        """Whether it could be; what is lacking was taken then, and nothing else."""
        wanted = [pages_needed(past + new, self.P) for past, new in zip(self.lengths, q_lens, strict=True)]
        lacking = [max(0, want - len(has)) for want, has in zip(wanted, self.held, strict=True)]
        name = (
            f"allocate({list(q_lens)}), with {self.lengths} tokens in {[len(has) for has in self.held]} pages"
        )
        error = self.out_of_blocks if sum(lacking) > len(self.free) else None
        if max(wanted) > self.most:  # that can never be, whatever is free
            error = ValueError
        if error is not None:
            refused(self.state, error, lambda: self.state.allocate(q_lens), name=name)
            return False
        free = self.free
        try:
            self.state.allocate(q_lens)
        except self.out_of_blocks as refusal:
            what = f"{sum(lacking)} pages are lacking" if any(lacking) else "nothing is lacking here"
            rows = self.state.page_indices.tolist()
            raise CheckFailed(
                f"{name}: OutOfPages was raised ({refusal}), but {what} and {len(free)} are free; "
                f"what a slot holds is what its row lists: page_indices {rows}"
            ) from refusal
        found = pages_of(self.state)
        for slot, (has, count) in enumerate(zip(self.held, lacking, strict=True)):
            fresh = found[slot][len(has) :]
            check_equal(found[slot][: len(has)], has, name=f"the pages that slot {slot} held before {name}")
            check_equal(len(fresh), count, name=f"how many pages slot {slot} got from {name}")
            valid = set(fresh) <= set(free) and len(set(fresh)) == len(fresh)
            assert valid, f"{name} gave slot {slot} pages {fresh}; the pages that were free: {free}"
            free = [page for page in free if page not in fresh]
        self.held = found
        self._check(name)
        return True

    def advance(self, q_lens: Sequence[int]) -> None:
        """The model has run on the tokens."""
        for slot, count in enumerate(q_lens):
            self.state.lengths[slot] += count
            self.lengths[slot] += count

    def release(self, mask: Sequence[bool]) -> None:
        name = f"release({list(mask)}), with {self.held} held"
        self.state.release(mask)
        for slot, marked in enumerate(mask):
            if marked:
                self.held[slot], self.lengths[slot] = [], 0
        self._check(name)

    def _check(self, name: str) -> None:
        state = self.state
        filled = [pages + [0] * (self.most - len(pages)) for pages in self.held]
        check_equal(state.page_indices.tolist(), filled, name=f"page_indices after {name}")
        check_equal(state.lengths.tolist(), self.lengths, name=f"lengths after {name}")
        check_free(state, self.free, when=f"after {name}")


def check_plain(state: Any, when: str) -> None:
    """The stack is a list of plain integers."""
    __tracebackhide__ = True
    stack = state.available_page_indices
    if not isinstance(stack, list):
        raise CheckFailed(f"{when}, available_page_indices should be a list; it is {stack!r}")
    for page in stack:
        if type(page) is not int:
            raise CheckFailed(
                f"{when}, available_page_indices should hold plain integers; {page!r} is a {type(page).__name__}. "
                "An element of a row is a view: once the row is emptied it is 0. Use `.tolist()`"
            )


def check_free(state: Any, pages: Sequence[int], *, when: str) -> None:
    """These very pages are on the stack, each once, as plain integers."""
    __tracebackhide__ = True
    check_plain(state, when)
    check_equal(sorted(state.available_page_indices), list(pages), name=f"the free pages {when}")
