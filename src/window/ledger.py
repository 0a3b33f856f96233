"""What is kept of each request from step to step, on the thread that runs the steps."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from window.looking import Before, num_tokens, prompt_len
from window.notes import ENDED, RATE_SECONDS, Part, RequestNote, State

if TYPE_CHECKING:
    from tiny_llm.engine_core import Step
    from tiny_llm.paged.running import Running
    from tiny_llm.request import Request

LAST_ENDED = 32
"""So many requests are still shown after they have ended."""
LAST_CHUNKS = 64
TAIL_TOKENS = 200
TAIL_LETTERS = 400


@dataclass(eq=False)
class Record:
    """What is kept of one request."""

    number: int
    request: Request
    prompt_ids: list[int]
    came: float
    state: State = State.WAITING
    began: float | None = None  # when it first ran
    prompt: int = 0
    computed: int = 0
    generated: int = 0
    preemptions: int = 0
    chunks: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=LAST_CHUNKS))

    def note(self, now: float, running: Running | None = None) -> RequestNote:
        """A copy of it, with the pages that it holds."""
        request = self.request
        pages = () if running is None else tuple(dict.fromkeys(running.sequence.pages))
        since = now if self.began is None else self.began
        return RequestNote(
            self.number,
            getattr(getattr(request, "completion", None), "name", ""),
            self.state,
            self.prompt_ids,
            self.prompt,
            self.computed,
            request.num_generated,
            tail(request),
            pages,
            since - self.came,
            self.preemptions,
            request.priority,
            request.client,
            tuple(self.chunks),
        )


def tail(request: Request) -> str | list[int]:
    """The end of an answer: its text, if the request knows it, or else its last token ids."""
    completion = getattr(request, "completion", None)
    if completion is not None:
        return str(completion.text[-TAIL_LETTERS:])
    return request.token_ids[max(request.prompt_len, len(request.token_ids) - TAIL_TOKENS) :]


class Ledger:
    """A record of each request that is there, notes of the last ones that ended, and counts."""

    def __init__(self, started: float) -> None:
        """Begin without requests.

        Args:
            started: when the watch began (``time.perf_counter``).
        """
        self.started = started
        self.steps = 0
        self.batch: list[Part] = []  # of the last step
        self.records: dict[Request, Record] = {}
        self.ended: deque[RequestNote] = deque(maxlen=LAST_ENDED)
        self.counts: Counter[str] = Counter()
        self.tokens_at: dict[int, int] = {}  # seconds since the start -> output tokens
        self._numbers = 0

    @property
    def now(self) -> float:
        """Seconds since the watch began."""
        return time.perf_counter() - self.started

    def enter(self, request: Request, came: float | None = None) -> Record:
        """The record of a request; a new one if it has none yet.

        Args:
            request: it waits, or is pushed.
            came: when it came, in seconds since the watch began; None: now.
        """
        record = self.records.get(request)
        if record is None:
            self._numbers += 1
            came = self.now if came is None else came
            record = Record(self._numbers, request, request.prompt_ids, came, prompt=request.prompt_len)
            record.generated = request.num_generated
            self.records[request] = record
        return record

    def step(self, before: dict[Request, Before], step: Step) -> None:
        """Note what a step has done."""
        now, finished = self.now, set(step.finished)
        self.steps += 1
        self.batch = [
            self._part(before[request], count, request in finished, now) for request, count in step.issued
        ]
        for request in step.preempted:
            record = self.enter(request)
            record.state, record.computed = State.PREEMPTED, 0
            record.preemptions += 1
            self.counts["preempted"] += 1

    def _part(self, before: Before, count: int, finished: bool, now: float) -> Part:
        running, request = before.running, before.running.request
        record = self.enter(request)
        new = request.num_generated - record.generated
        # One that has finished has given its pages back: all of it was computed except for its newest token.
        computed = num_tokens(running) - new if finished else running.sequence.length
        found = max(0, computed - before.length - count)
        if record.began is None:
            record.began = now
        record.state, record.computed, record.generated = State.RUNNING, computed, request.num_generated
        record.prompt = prompt_len(running)
        record.chunks.append((self.steps, computed - count, count, found))
        self._count_tokens(now, new)
        return Part(record.number, count, computed - count, found, before.decoding)

    def _count_tokens(self, now: float, new: int) -> None:
        if new:
            second = int(now)
            self.tokens_at[second] = self.tokens_at.get(second, 0) + new
            while len(self.tokens_at) > RATE_SECONDS:
                del self.tokens_at[next(iter(self.tokens_at))]

    def leave(self, request: Request, state: State) -> None:
        """Note that a request has ended; one without a record is passed over."""
        record = self.records.pop(request, None)
        if record is not None:
            record.state = state
            self.counts[state] += 1
            self.ended.append(record.note(self.now))

    def totals(self) -> dict[str, int]:
        """How many requests are how, now or in all."""
        there = Counter(record.state for record in self.records.values())
        waiting = there[State.WAITING] + there[State.PREEMPTED]
        return {
            "waiting": waiting,
            "running": there[State.RUNNING],
            **{state: self.counts[state] for state in ENDED},
            "preempted": self.counts["preempted"],
        }
