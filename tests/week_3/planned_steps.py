"""How many tokens each seat brings to a step: dealt out one by one, with a page for each where one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .bankers import all_can_end, with_more
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


def line_of(state: Any) -> list[InLine]:
    """The requests of a sampling state in order of arrival, read off the seats."""
    P, limit = state.decode_state.page_size, state.max_positions
    by_rank = {}
    for seat, running in enumerate(state.seats):
        if running is not None:
            tokens, prompt = len(running.request.token_ids), running.request.prompt_len
            longest = min(prompt + running.request.max_tokens, limit) - 1
            computed, held = running.sequence.length, len(running.sequence.pages)
            by_rank[running.rank] = InLine(
                seat, computed, tokens - computed, tokens - prompt, held, pages_needed(longest, P)
            )
    return [by_rank[rank] for rank in sorted(by_rank)]


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


def planned(state: Any, budget: int) -> list[int]:
    """How many tokens each seat must bring to the next step."""
    plan = _plan(state, budget)
    return [plan.counts.get(seat, 0) for seat in range(len(state.seats))]


def _plan(state: Any, budget: int) -> Plan:
    return _new_plan(state, budget).deal()


def _new_plan(state: Any, budget: int) -> Plan:
    decode_state = state.decode_state
    return Plan(line_of(state), decode_state.page_size, len(decode_state.allocator.free_pages), budget)


def usual_slips(state: Any, budget: int) -> dict[str, list[int]]:
    """How many tokens the seats would bring by the usual mistakes."""
    seats = range(len(state.seats))
    line, right = line_of(state), _plan(state, budget)
    fifo = _new_plan(state, budget).deal(decodes_first=False)
    by_line = [right.counts[each.seat] for each in line]
    return {
        "the line was served in order of arrival: decodes come before all others": [
            fifo.counts.get(seat, 0) for seat in seats
        ],
        "the counts are in the order of the line: they belong to seats": [
            *by_line,
            *[0] * (len(state.seats) - len(line)),
        ],
    }


def situation(state: Any, budget: int) -> str:
    """What a scheduler sees, in words, with the numbers of the banker before the first request takes a page."""
    free, P = len(state.decode_state.allocator.free_pages), state.decode_state.page_size
    told, found, limit = [], free, free  # pages that the next one in line finds, and may take
    for each in line_of(state):
        lacks = each.most - each.held
        numbers = f"lacks {lacks}, finds {found}, so {found - lacks} to spare; may take {limit}"
        told.append(f"{each}: {numbers})")
        found, limit = found + each.held, min(limit, found - lacks)
    line = ", ".join(told) or "no request"
    return f"a budget of {budget}, {free} pages of {P} free; in order of arrival {line}"


def check_plan(state: Any, lens: Sequence[int], budget: int, when: str) -> None:
    """Compare what the seats bring with the oracle, before the step is run."""
    __tracebackhide__ = True
    plan, told = _plan(state, budget), f"{when}: {situation(state, budget)}"
    due = sum(each.due for each in line_of(state))
    assert sum(lens) <= budget, f"{told}: {list(lens)} is more than the budget"
    assert any(lens) or not due, f"{told}: no seat brings a token, so nothing will ever change"
    wanted = [plan.counts.get(seat, 0) for seat in range(len(state.seats))]
    slips = usual_slips(state, budget).items()
    cause = "; or ".join(slip for slip, given in slips if list(lens) == given)
    assert list(lens) == wanted, (
        f"{when}: the seats should bring {wanted} tokens, not {list(lens)}"
        + (f"\n  likely cause: {cause}" if cause else "")
        + f"\n  {situation(state, budget)}"
    )
    full = min(budget, due)
    assert plan.short_of_pages or sum(lens) == full, f"{told}: {sum(lens)} tokens, and {full} would fit"


def check_all_can_end(state: Any, when: str) -> None:
    """If each request runs to its end, the first in line first, each finds the pages that it may still need."""
    __tracebackhide__ = True
    line, free = line_of(state), len(state.decode_state.allocator.free_pages)
    held, most = [each.held for each in line], [each.most for each in line]
    assert all_can_end(free, held, most), (
        f"{when}: {free} pages are free, the requests in line hold {held} and may need {most}: not all can end"
    )
