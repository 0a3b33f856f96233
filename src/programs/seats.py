"""What an onlooker sees of a stage that runs: the requests in their seats, and how far each has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_llm.engine_core import EngineCore, Step
    from tiny_llm.prefix.page_cache import BasePageCache
    from tiny_llm.request import Request
    from tiny_llm.scheduling.scheduler import Scheduler


@dataclass(frozen=True)
class Sharing:
    """What an engine has counted whose requests share pages, and which pages they hold."""

    cache: BasePageCache
    reused: int  # tokens that were found, and not computed, so far
    preemptions: int | None  # so far; None: the engine never preempts
    held: Mapping[Request, Sequence[int]]  # by the requests that run

    @classmethod
    def of(cls, scheduler: Scheduler) -> Sharing:
        """The state between two steps."""
        held = {each.request: tuple(each.sequence.pages) for each in scheduler.running}
        return cls(scheduler.cache, scheduler.reused, getattr(scheduler, "preemptions", None), held)

    @property
    def counts(self) -> dict[str, int]:
        """What was counted, by name."""
        counted = {"tokens reused": self.reused, "pages evicted": self.cache.evicted}
        return counted if self.preemptions is None else {**counted, "preemptions": self.preemptions}


@dataclass(frozen=True)
class Seen:
    """The requests after one step."""

    seats: Sequence[Request | None] = ()
    prefilling: Request | None = None  # the request in no seat whose prompt is being computed
    computed: Mapping[Request, int] = field(default_factory=dict)  # tokens of each prompt, where known
    finished: set[Request] = field(default_factory=set)  # so far
    preempted: Collection[Request] = ()  # those that had a seat, and wait for one again
    sharing: Sharing | None = None  # of an engine whose requests share pages


Observe = Callable[[Seen], object]
"""Called after each step of a stage."""


class Seats:
    """Gives each request that an engine runs a seat to be shown in: it stays there for as long as it runs."""

    def __init__(self, core: EngineCore) -> None:
        """All seats are idle."""
        self._scheduler: Scheduler | None = getattr(core, "scheduler", None)  # Week 4's engines have one
        self._seats: list[Request | None] = [None] * core.num_seats
        self._computed: Counter[Request] = Counter()
        self._finished: set[Request] = set()
        self._preempted: dict[Request, None] = {}  # in order

    def after(self, step: Step) -> Seen:
        """Take in a step: requests that finished before it, or were preempted in it, have left; new ones sit down."""
        left = self._finished.union(step.preempted)
        self._seats = [None if request in left else request for request in self._seats]
        for request in step.preempted:
            self._computed[request] = 0
            self._preempted[request] = None
        for request, count in step.issued:
            self._preempted.pop(request, None)
            self._computed[request] += count
            if request not in self._seats:
                self._seats[self._seats.index(None)] = request
        self._finished.update(step.finished)
        sharing = None if self._scheduler is None else self._note(self._scheduler)
        return Seen(
            list(self._seats), None, self._computed, set(self._finished), list(self._preempted), sharing
        )

    def _note(self, scheduler: Scheduler) -> Sharing:
        """Note what the pool holds of each request that runs: what was found is there, too."""
        for each in scheduler.running:
            self._computed[each.request] = each.sequence.length
        return Sharing.of(scheduler)
