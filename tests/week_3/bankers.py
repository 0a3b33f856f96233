"""Who may take how many pages, and who issues how much: by trying, one page and one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .pages import pages_needed


def all_can_end(free: int, held: Sequence[int], most: Sequence[int]) -> bool:
    """Whether each in line, the first one first, finds what it may still need, and gives back all that it holds."""
    for holds, needs in zip(held, most, strict=True):
        if needs - holds > free:
            return False
        free += holds
    return True


def with_more(held: Sequence[int], place: int, count: int) -> list[int]:
    return [holds + count * (n == place) for n, holds in enumerate(held)]


def most_for(free: int, held: Sequence[int], most: Sequence[int], place: int) -> int:
    """The most pages that may go to the one at a place, so that everybody can still end."""
    return max(
        count
        for count in range(free + 1)
        if count == 0 or all_can_end(free - count, with_more(held, place, count), most)
    )


@dataclass(frozen=True)
class Seat:
    """A request in a slot, as a scheduler has to know it."""

    slot: int
    prompt: int  # tokens of the prompt
    tokens: int  # of prompt and output, so far
    position: int  # tokens that were issued
    held: int  # pages
    most: int  # pages that it may come to hold
    complete: bool = False

    @property
    def decodes(self) -> bool:
        return self.position >= self.prompt

    @property
    def due(self) -> int:
        return 0 if self.complete else self.tokens - self.position


@dataclass
class Plan:
    """Tokens dealt out one by one: the line in the order in which its requests came, and what is free."""

    line: list[Seat]
    P: int
    free: int
    capacity: int
    lens: dict[int, int] = field(default_factory=dict)  # slot -> tokens
    short_of_pages: bool = False  # whether somebody got fewer tokens for want of pages

    def deal(self) -> Plan:
        order = [n for n, seat in enumerate(self.line) if seat.decodes]
        order += [n for n, seat in enumerate(self.line) if not seat.decodes]
        for place in order:
            slot, due = self.line[place].slot, self.line[place].due
            self.lens[slot] = 0
            while self.capacity and self.lens[slot] < due:
                if not self._has_place(place):
                    self.short_of_pages = True
                    break
                self.lens[slot] += 1
                self.capacity -= 1
        return self

    def _has_place(self, place: int) -> bool:
        """Whether the next token of the one at `place` has room; it takes a page if it needs one and may have it."""
        seat = self.line[place]
        if pages_needed(seat.position + self.lens[seat.slot] + 1, self.P) <= seat.held:
            return True
        held, most = [each.held for each in self.line], [each.most for each in self.line]
        if self.free < 1 or not all_can_end(self.free - 1, with_more(held, place, 1), most):
            return False
        self.free -= 1
        self.line[place] = replace(seat, held=seat.held + 1)
        return True


def line_of(state: Any) -> list[Seat]:
    """The requests of a sampling state, the first one first, read off what it knows of each slot."""
    held, P, limit = held_by(state), state.pages.page_size, state.max_positions
    seats = {}
    for slot, request in enumerate(state.requests):
        if request is not None:
            n = len(request.prompt_ids)
            longest = min(n + request.max_tokens, limit) - 1
            seats[state.rank[slot]] = Seat(
                slot,
                n,
                n + len(request.output),
                state.position[slot],
                held[slot],
                pages_needed(longest, P),
                request.finished(limit),
            )
    return [seats[rank] for rank in sorted(seats)]


def held_by(state: Any) -> list[int]:
    """How many pages each slot holds, counted in the table."""
    return [sum(page != 0 for page in row) for row in state.pages.page_indices.tolist()]


def plan_for(state: Any, capacity: int) -> Plan:
    return Plan(
        line_of(state), state.pages.page_size, len(state.pages.available_page_indices), capacity
    ).deal()


def lens_of(plan: Plan, slots: int) -> list[int]:
    return [plan.lens.get(slot, 0) for slot in range(slots)]
