"""An engine core that can be stopped between two steps, and of which notes are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tiny_llm.engine_core import EngineCore, Step
from tiny_llm.request import Request
from window.gate import Gate, Mode
from window.ledger import Ledger
from window.looking import Look, prompt_len
from window.notes import Note, State

PATIENCE = 0.05
"""Seconds that a step waits at the gate at most, before the thread that runs it looks after its other work."""

NOTE_SECONDS = 0.04
"""In play, so long passes between two notes at least: a page is sent no more than 20 snapshots a second."""

Outside = Callable[[], Sequence[tuple[Request, float]]]
"""The requests that wait for the engine and aren't in it yet, and when each came (``time.perf_counter``)."""


class WatchedCore(EngineCore):
    """Any engine core from Day 3.6 on, with a gate before each of its steps, and a note after it.

    Whatever drives the engine drives this one in the same way. While the gate is shut, :meth:`step` returns after
    ``PATIENCE`` with nothing done, as a step without work does. So its driver goes on with its loop: requests that
    were cancelled leave and free their pages, new ones come in, and a driver that is to end does so, all within that
    time, and without a step. Requests are never run, pushed or aborted under a lock.

    Notes are taken on the driver's thread alone, and are copies: any thread may read ``latest``. While nothing
    watches, only counts and chunks are kept, and the pages are noted when the engine becomes empty. In play, steps
    that follow one another quickly share a note.
    """

    def __init__(self, core: EngineCore, mode: Mode = Mode.PLAY) -> None:
        """Watch an engine core.

        Args:
            core: without requests.
            mode: how steps go through at first.
        """
        self.core = core
        self.allocator = core.allocator
        self.max_positions = core.max_positions
        self.num_seats = core.num_seats
        self.token_budget = core.token_budget
        self.gate = Gate(mode)
        self.ledger = Ledger(time.perf_counter())
        self.watchers = 0  # how many watch now
        self.outside: Outside = lambda: ()
        self.failed: Callable[[Request], bool] = lambda request: request.error is not None
        self.version = 0  # one more with each note
        self._look = Look(core)
        self._changed = False  # since the last note
        self._broken = False  # whether the last step has failed
        self.note_seconds = NOTE_SECONDS
        self._queue: set[Request] = set()  # what was outside at the last look
        self.latest = Note()
        self._note()

    def __getattr__(self, name: str) -> Any:
        """What the engine has beside what every engine has."""
        return getattr(self.__dict__["core"], name)

    @property
    def idle(self) -> int:
        """As the engine says."""
        return self.core.idle

    @property
    def requests(self) -> list[Request]:
        """As the engine says."""
        return self.core.requests

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs. It may be asked from any thread."""
        return bool(self.ledger.records) or bool(self.outside())

    @property
    def stale(self) -> bool:
        """Whether something has changed since the newest note. It may be asked from any thread."""
        return self._changed

    def refusal(self, request: Request) -> str | None:
        """As the engine says."""
        return self.core.refusal(request)

    def push(self, request: Request) -> None:
        """Push a request, and note that it is there."""
        self.core.push(request)
        self.ledger.enter(request)
        self._queue.discard(request)
        self._changed = True

    def abort(self, requests: Collection[Request]) -> None:
        """Let some requests leave, and note how each of them has ended."""
        there = [request for request in requests if request in self.ledger.records]
        try:
            self.core.abort(requests)
        finally:
            for request in there:
                failed = self._broken or self.failed(request)
                self.ledger.leave(request, State.FAILED if failed else State.CANCELLED)
            self._changed = self._changed or bool(there)
            self._note_if_wanted()

    def step(self) -> Step:
        """Wait at the gate, let the engine make a step, and note what it has done.

        Returns:
            what the engine's step returns; nothing, if the gate was shut for as long as ``PATIENCE``.
        """
        self._look_outside()
        self._note_if_wanted()
        if self.core.requests and not self.gate.wait(PATIENCE):
            return Step([], [])
        before, self._broken = self._look.before(), True
        step = self.core.step()
        self._broken = False
        if step.issued:
            self.ledger.step(before, step)
            for request in step.finished:
                self.ledger.leave(request, State.FAILED if self.failed(request) else State.FINISHED)
            self._changed = True
            self._note_if_wanted()
        return step

    def _look_outside(self) -> None:
        """Note which requests wait for the engine; one that waits no more, and was not pushed, was cancelled."""
        outside = self.outside()
        now = {request for request, _ in outside}
        for request, came in outside:
            if request not in self.ledger.records:
                self.ledger.enter(request, came - self.ledger.started)
                self._changed = True
        for request in self._queue - now:
            self.ledger.leave(request, State.CANCELLED)
            self._changed = True
        self._queue = now

    def _note_if_wanted(self) -> None:
        """Take a note if something has changed, and something watches; or the engine is empty, and may sleep now."""
        if not self._changed:
            return
        soon = self.gate.mode is Mode.PLAY and self.ledger.now - self.latest.time < self.note_seconds
        if not self.ledger.records or (self.watchers and not soon):
            self._note()

    def _note(self) -> None:
        """Take a note."""
        ledger, look, now = self.ledger, self._look, self.ledger.now
        notes = []
        inside = set()
        for running, state in look.states():
            record = ledger.enter(running.request)
            record.state, record.prompt = state, prompt_len(running)
            inside.add(running.request)
            notes.append(record.note(now, running))
        rest = [record.note(now) for request, record in ledger.records.items() if request not in inside]
        self.latest = Note(
            ledger.steps,
            now,
            ledger.batch,
            [*ledger.ended, *notes, *rest],
            look.free,
            look.cached(),
            look.tree(),
            {**ledger.totals(), "evicted": look.evicted, "reused": look.reused},
            dict(ledger.tokens_at),
        )
        self.version += 1
        self._changed = False


def watch_batcher(watched: WatchedCore, batcher: Any) -> None:
    """Let a watch know the queue of the batcher that drives it, and open its gate when the batcher ends.

    Args:
        watched: what the batcher drives.
        batcher: Day 3.7's.
    """

    def outside() -> list[tuple[Request, float]]:
        if batcher.closed:
            watched.gate.open_for_good()
        with batcher.changed:
            return [(ticket.request, ticket.last) for ticket in batcher.request_queue]

    def failed(request: Request) -> bool:
        ticket = batcher.tickets.get(request)
        return request.error is not None or (ticket is not None and ticket.error is not None)

    watched.outside, watched.failed = outside, failed
