"""What an onlooker sees of a stage that runs: the requests in their seats, and how far each has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_llm.engine_core import Step
    from tiny_llm.request import Request


@dataclass(frozen=True)
class Seen:
    """The requests after one step."""

    seats: Sequence[Request | None] = ()
    prefilling: Request | None = None  # the request in no seat whose prompt is being computed
    computed: Mapping[Request, int] = field(default_factory=dict)  # tokens of each prompt, where known
    finished: set[Request] = field(default_factory=set)  # so far


Observe = Callable[[Seen], object]
"""Called after each step of a stage."""


class Seats:
    """Gives each request that an engine runs a seat to be shown in: it stays there for as long as it runs."""

    def __init__(self, count: int) -> None:
        """All seats are idle."""
        self._seats: list[Request | None] = [None] * count
        self._computed: Counter[Request] = Counter()
        self._finished: set[Request] = set()

    def after(self, step: Step) -> Seen:
        """Take in a step: requests that finished before it have left, and new ones take the idle seats."""
        self._seats = [None if request in self._finished else request for request in self._seats]
        for request, count in step.issued:
            self._computed[request] += count
            if request not in self._seats:
                self._seats[self._seats.index(None)] = request
        self._finished.update(step.finished)
        return Seen(list(self._seats), None, self._computed, set(self._finished))
