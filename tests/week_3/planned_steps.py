"""How many tokens each seat brings to a step: dealt out one by one, with a page for each where one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .bankers import all_can_end, with_more
from .beside_seats import seats_now
from .pages import pages_needed


@dataclass(frozen=True)
class InLine:
    """A request in a seat, as a scheduler has to know it."""

    seat: int
    computed: int  # tokens in its pages
    due: int
    generated: int
    held: int  # pages
    most: int  # pages that it may come to hold

    @property
    def decodes(self) -> bool:
        return self.due == 1 and self.generated > 0

    def __str__(self) -> str:
        kind = "a decode" if self.decodes else f"{self.due} due"
        return f"seat {self.seat} ({kind}; {self.computed} computed; {self.held} held, at most {self.most}"


@dataclass(frozen=True)
class Situation:
    """What a scheduler sees: the requests in order of arrival, and the pages."""

    line: tuple[InLine, ...]
    P: int
    free: int
    seats: int

    @classmethod
    def of(cls, state: Any) -> Situation:
        """The situation of a sampling state, read off the seats."""
        P, free, limit, seats = seats_now(state)
        by_rank = {}
        for seat, found in enumerate(seats):
            if found is not None:
                _, rank, tokens, prompt, max_tokens, computed, held = found
                most = pages_needed(min(prompt + max_tokens, limit) - 1, P)
                by_rank[rank] = InLine(seat, computed, tokens - computed, tokens - prompt, held, most)
        return cls(tuple(by_rank[rank] for rank in sorted(by_rank)), P, free, len(seats))

    @property
    def due(self) -> int:
        return sum(each.due for each in self.line)

    def plan(self, budget: int) -> Plan:
        """A plan in which nothing is dealt out yet."""
        return Plan(list(self.line), self.P, self.free, budget)

    def planned(self, budget: int) -> list[int]:
        """How many tokens each seat must bring to the next step."""
        return self.by_seat(self.plan(budget).deal())

    def by_seat(self, plan: Plan) -> list[int]:
        return [plan.counts.get(seat, 0) for seat in range(self.seats)]

    def usual_slips(self, budget: int) -> dict[str, list[int]]:
        """How many tokens the seats would bring by the usual mistakes."""
        right, fifo = self.plan(budget).deal(), self.plan(budget).deal(decodes_first=False)
        by_line = [right.counts[each.seat] for each in self.line]
        return {
            "the line was served in order of arrival: decodes come before all others": self.by_seat(fifo),
            "the counts are in the order of the line: they belong to seats": [
                *by_line,
                *[0] * (self.seats - len(self.line)),
            ],
        }

    def told(self, budget: int) -> str:
        """It in words, with the numbers of the banker before the first request takes a page."""
        told, found, limit = [], self.free, self.free  # pages that the next one in line finds, and may take
        for each in self.line:
            lacks = each.most - each.held
            numbers = f"lacks {lacks}, finds {found}, so {found - lacks} to spare; may take {limit}"
            told.append(f"{each}: {numbers})")
            found, limit = found + each.held, min(limit, found - lacks)
        line = ", ".join(told) or "no request"
        return f"a budget of {budget}, {self.free} pages of {self.P} free; in order of arrival {line}"


@dataclass
class Plan:
    """Tokens dealt out one by one to a line: first to decodes, then to the others."""

    line: list[InLine]
    P: int
    free: int
    budget: int
    counts: dict[int, int] = field(default_factory=dict)  # seat -> tokens
    short_of_pages: bool = False  # whether a request got fewer tokens for want of pages

    def deal(self, decodes_first: bool = True) -> Plan:
        decodes = [n for n, each in enumerate(self.line) if each.decodes]
        others = [n for n, each in enumerate(self.line) if not each.decodes]
        for rank in decodes + others if decodes_first else range(len(self.line)):
            each = self.line[rank]
            self.counts[each.seat] = 0
            while self.budget and self.counts[each.seat] < each.due:
                if not self._has_room(rank):
                    self.short_of_pages = True
                    break
                self.counts[each.seat] += 1
                self.budget -= 1
        return self

    def _has_room(self, rank: int) -> bool:
        """Whether the next token of a request has room; it takes a page if it needs one and may have one."""
        each = self.line[rank]
        if pages_needed(each.computed + self.counts[each.seat] + 1, self.P) <= each.held:
            return True
        held, most = [other.held for other in self.line], [other.most for other in self.line]
        if self.free < 1 or not all_can_end(self.free - 1, with_more(held, rank, 1), most):
            return False
        self.free -= 1
        self.line[rank] = replace(each, held=each.held + 1)
        return True


def check_plan(now: Situation, lens: Sequence[int], budget: int, when: str) -> None:
    """Compare what the seats bring with the oracle, before the step is run."""
    __tracebackhide__ = True
    plan, told = now.plan(budget).deal(), f"{when}: {now.told(budget)}"
    assert sum(lens) <= budget, f"{told}: {list(lens)} is more than the budget"
    assert any(lens) or not now.due, f"{told}: no seat brings a token, so nothing will ever change"
    wanted = now.by_seat(plan)
    slips = now.usual_slips(budget).items()
    cause = "; or ".join(slip for slip, given in slips if list(lens) == given)
    assert list(lens) == wanted, (
        f"{when}: the seats should bring {wanted} tokens, not {list(lens)}"
        + (f"\n  likely cause: {cause}" if cause else "")
        + f"\n  {now.told(budget)}"
    )
    full = min(budget, now.due)
    assert plan.short_of_pages or sum(lens) == full, f"{told}: {sum(lens)} tokens, and {full} would fit"


def check_all_can_end(state: Any, when: str) -> None:
    """If each request runs to its end, the first in line first, each finds the pages that it may still need."""
    __tracebackhide__ = True
    now = Situation.of(state)
    held, most = [each.held for each in now.line], [each.most for each in now.line]
    assert all_can_end(now.free, held, most), (
        f"{when}: {now.free} pages are free, the requests in line hold {held} and may need {most}: not all can end"
    )
