"""An engine of a few lines, without a model, in which a test can see every call, hold up a step, and let one fail."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from week_2.reading_model import fingerprints, scores_after

from .pages import allocator_of
from .patience import hangs, limit, mistake

INTERFACE = "allocator, max_positions, num_seats, token_budget, idle, requests, refusal, push, step, abort"


def toy_engine(lab: Any, *, seats: int = 3, pages: int = 40, budget: int = 64, positions: int = 64) -> Any:
    """Idle seats. A request holds one page. A step serves the requests in order, until the budget is spent."""

    class ToyEngine(lab.engine_core.EngineCore):
        """What the interface promises, and nothing else: any other name that is asked for is a mistake.

        While the gate is closed, each step waits at it. Names that begin with `toy_` are for the tests.
        """

        def __init__(self) -> None:
            self.allocator = allocator_of(lab, pages)
            self.max_positions = positions
            self.num_seats = seats
            self.token_budget = budget
            self.toy_calls: Counter[str] = Counter()
            self.toy_failures: dict[tuple[str, int], BaseException] = {}
            self.toy_begun = threading.Semaphore(0)
            self.toy_gate: threading.Semaphore | None = None
            self._computed: dict[Any, int] = {}
            self._pages: dict[Any, list[int]] = {}
            self._used = threading.Lock()

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise mistake(
                f"the engine was asked for `{name}`, which not every engine has. The batcher needs only what "
                f"EngineCore has: {INTERFACE}"
            )

        @property
        def idle(self) -> int:
            return seats - len(self._computed)

        @property
        def requests(self) -> list[Any]:
            return list(self._computed)

        def refusal(self, request: Any) -> str | None:
            if request.prompt_len == 13:
                return "a toy refuses prompts of 13 tokens"
            reason: str | None = request.refusal(positions)
            return reason

        def push(self, request: Any) -> None:
            with self._call("push"):
                self.require_entry(request)
                self._pages[request] = self.allocator.allocate(1)
                self._computed[request] = 0

        def step(self) -> Any:
            self.toy_begun.release()
            with self._call("step"):
                if self.toy_gate is not None and not self.toy_gate.acquire(timeout=limit()):
                    what = "the test has held up a step, and waits: does something wait for the step that must not?"
                    raise mistake(str(hangs(what)))
                if self.toy_calls["step"] > 4000:
                    raise mistake("4000 steps, and there is no end to it")
                left, issued = budget, list[tuple[Any, int]]()
                for request, computed in list(self._computed.items()):
                    count = min(len(request.token_ids) - computed, left)
                    if count:
                        left -= count
                        self._computed[request] += count
                        issued.append((request, count))
                for request, _ in issued:
                    if self._computed[request] == len(request.token_ids):
                        request.accept(lab.array(scores_after(fingerprints(request.token_ids)[-1])))
                finished = [request for request in self._computed if request.finished(positions)]
                self._leave(finished)
                return lab.engine_core.Step(issued, finished)

        def abort(self, requests: Collection[Any]) -> None:
            with self._call("abort"):
                self._leave(list(requests))

        def _leave(self, requests: list[Any]) -> None:
            for request in requests:
                if request in self._computed:
                    del self._computed[request]
                    self.allocator.free(self._pages.pop(request))

        @contextlib.contextmanager
        def _call(self, what: str) -> Iterator[None]:
            """Count a call, and let it fail if the test wants that. Only one thread may be in the engine."""
            if not self._used.acquire(blocking=False):
                raise mistake(
                    f"`{what}` was called while another thread is in the engine; only the loop's thread uses it"
                )
            try:
                self.toy_calls[what] += 1
                failure = self.toy_failures.get((what, self.toy_calls[what]))
                if failure is not None:
                    raise failure
                yield
            finally:
                self._used.release()

        def toy_fail(self, what: str, at: int, error: BaseException) -> None:
            """The call number `at` of push, step or abort, counted from 1, is to raise an error."""
            self.toy_failures[what, at] = error

        def toy_close(self) -> None:
            """From now on each step waits until the test lets it go on."""
            self.toy_begun, self.toy_gate = threading.Semaphore(0), threading.Semaphore(0)

        def toy_await(self) -> None:
            """Wait until one more step has begun."""
            if not self.toy_begun.acquire(timeout=limit()):
                raise hangs(f"the engine has made no step for {limit():g} s, and there are requests")

        def toy_let(self, steps: int) -> None:
            """Let this number of steps go on."""
            assert self.toy_gate is not None
            self.toy_gate.release(steps)

        def toy_open(self) -> None:
            """Let all steps go on, also those that wait."""
            gate, self.toy_gate = self.toy_gate, None
            if gate is not None:
                gate.release(1000)

        def toy_give_up(self) -> None:
            """Something has gone wrong: no test needs to wait for a step any more."""
            self.toy_begun.release(1000)

    return ToyEngine()
