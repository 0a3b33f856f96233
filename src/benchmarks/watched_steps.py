"""What each step of a running engine spends on which part of its work, measured from outside."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from benchmarks.rounds import Values
from benchmarks.stopwatch import Stopwatch

if TYPE_CHECKING:
    from tiny_llm.engine.completion import Completion
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine_core import Step
    from tiny_llm.model import Transformer

MODEL_PARTS = ("model", "head")
HOST_PARTS = ("planning", "sampling", "text", "loop")
"""What the batcher's thread does besides: the step apart from the rest; choosing tokens and their probabilities; from
tokens to texts, and their delivery; whatever the loop does between two steps."""
SECONDS_TO_COME = 60.0


class WatchedSteps:
    """Times the steps of an engine in which all of some requests bring one token each.

    The engine waits until all of these requests have come, so that they run together from the first step on.
    """

    def __init__(self, llm: LLM, requests: int, at_step: Callable[[], object] = lambda: None) -> None:
        """Watch an engine that has had no request.

        Args:
            llm: its model is nobody else's, see :func:`own_copy`.
            requests: how many there will be.
            at_step: called at the end of each step that is timed.
        """
        self.steps: list[dict[str, float]] = []
        self._llm = llm
        self._requests = requests
        self._at_step = at_step
        self._left = requests  # how many requests have still to come
        self._changed = threading.Condition()
        self._watch = Stopwatch(llm.batcher.thread)
        self._full = False  # whether all requests brought one token each to the step before
        self._started = 0.0
        self._take_hold()

    def _take_hold(self) -> None:
        """Put the watch around the methods that the engine's thread calls."""
        llm, watch = self._llm, self._watch
        core: Any = llm.core
        watch.time(core.runner.model, "hidden", "model")
        watch.time(core.runner.model, "logits", "head")
        watch.time(core, "sample", "sampling")
        core.step = watch.timed(self._noted(core.step), "planning")
        self._complete, self._admit, self._submit = llm.completion, llm.batcher.admit, llm.batcher.submit
        for owner, name, mine in (
            (llm, "completion", self._completion),
            (llm.batcher, "admit", self._admit_together),
            (llm.batcher, "submit", self._note_submitted),
        ):
            setattr(owner, name, mine)

    def _completion(self, *arguments: Any, **named: Any) -> Completion:
        made = self._complete(*arguments, **named)
        self._watch.time(made, "push", "text")
        return made

    def _note_submitted(self, *arguments: Any, **named: Any) -> Any:
        future = self._submit(*arguments, **named)
        with self._changed:
            self._left -= 1
            self._changed.notify_all()
        return future

    def _admit_together(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._left <= 0, SECONDS_TO_COME)
        self._admit()

    def _noted(self, make_step: Any) -> Any:
        """A core's step that begins a new entry; the one before has lasted until then."""

        def step() -> Step:
            now = time.perf_counter()
            if self._full:
                seconds = self._watch.seconds
                self.steps.append({**seconds, "step": now - self._started})
                self._at_step()
            self._watch.seconds, self._started = {}, now
            made: Step = make_step()
            self._full = [count for _, count in made.issued] == [1] * self._requests
            return made

        return step


def own_copy(model: Transformer) -> Transformer:
    """The same model as an object of its own, whose methods can be watched without the others'."""
    return copy(model)


def shares(steps: Sequence[dict[str, float]], event_loop: float = 0.0) -> Values:
    """What the parts take of a step, by the medians over the steps; nothing if there are none.

    Args:
        steps: seconds by part, and of the whole "step".
        event_loop: seconds of the processor per step that another thread spends on the requests.
    """
    if not steps:
        return {}
    whole = statistics.median(each["step"] for each in steps)
    seconds = {
        part: statistics.median(each.get(part, 0.0) for each in steps)
        for part in (*MODEL_PARTS, *HOST_PARTS[:-1])
    }
    seconds["loop"] = statistics.median(
        each["step"] - sum(each.get(part, 0.0) for part in seconds) for each in steps
    )
    seconds["http"] = event_loop
    host = sum(seconds[part] for part in (*HOST_PARTS, "http"))
    return {
        **{part: value / whole for part, value in seconds.items()},
        "step": whole,
        "host_seconds": host,
        "host": host / whole,
    }
