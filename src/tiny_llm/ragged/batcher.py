"""Requests from many threads, one engine: a queue, a loop, and a future for each request (Day 3.7)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future

from tiny_llm.engine_core import EngineCore
from tiny_llm.ragged.metrics import Metrics, Stats, mean, percentile
from tiny_llm.ragged.ticket import OnToken, Ticket
from tiny_llm.request import Request


class QueueFull(Exception):
    """As many requests are waiting as may wait. Try again later."""


class Closed(Exception):
    """The batcher was stopped: it takes nothing more, and what it had not finished is lost."""


class Batcher:
    """Runs the steps of an engine on a thread of its own, for as long as any caller waits for tokens.

    Callers use :meth:`submit`, :meth:`stop` and :meth:`stats`, from any thread. The engine and the tickets of its
    requests are the loop's alone. What both sides touch, the queue, the two flags and the counts of how requests
    ended, is touched under ``changed``.
    """

    def __init__(self, core: EngineCore, max_queue: int = 256) -> None:
        """Nothing runs before :meth:`start`.

        Args:
            core: any engine, without requests.
            max_queue: how many requests may wait until the engine has room.

        Raises:
            ValueError: ``max_queue`` is below 1.
        """
        if max_queue < 1:
            raise ValueError(f"a queue of {max_queue}: it must have room for at least 1 request")
        self.core = core
        self.max_queue = max_queue
        self.metrics = Metrics()
        self.request_queue: deque[Ticket] = deque()  # the tickets whose requests wait for the engine
        self.tickets: dict[Request, Ticket] = {}  # the tickets whose requests are in the engine
        self.closed = False  # nothing more is taken
        self.abandoned = False  # and no caller waits for the rest
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.loop, name="batcher", daemon=True)

    def start(self) -> None:
        """Start the loop, once. Requests may be submitted before."""
        self.thread.start()

    def submit(self, request: Request, on_token: OnToken = lambda token: None) -> Future[list[int]]:
        """Put a request at the end of the queue.

        Args:
            request: what to generate; it is left as it is.
            on_token: called with each token as soon as it is known, all before the future is settled.

        Returns:
            the future of its output. If the caller cancels it, seat and pages are free after the step that runs just
            then. A request that asks for no token has its (empty) output at once.

        Raises:
            ValueError: it can't ever run here; the message says why.
            QueueFull: ``max_queue`` requests are waiting.
            Closed: the batcher was stopped.
        """
        raise NotImplementedError("Week 3 Day 7 Task 2: Through the door")

    def stop(self, drain: bool = True, timeout: float | None = None) -> bool:
        """Take nothing more, and end the loop. Not for the batcher's own thread, which can't wait for itself.

        Args:
            drain: first finish all that waits and runs; otherwise it ends with Closed after the step that runs.
            timeout: seconds to wait for the end of the loop; None: as long as it takes.

        Returns:
            whether it has ended.
        """
        raise NotImplementedError("Week 3 Day 7 Task 2: Through the door")

    def loop(self) -> None:
        """Step after step until stopped. However it ends, nothing is taken any more and every future is settled."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def wait_for_work(self) -> bool:
        """Sleep until there is work, or the batcher is stopped.

        Returns:
            whether to go on: there is work, and it was not abandoned.
        """
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def admit(self) -> None:
        """Push waiting requests while the engine has room, first come first served; cancelled ones leave the line."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def step(self) -> Sequence[Request]:
        """Let the engine make a step. If that fails, every request in it has failed: the cause is not known.

        Returns:
            the requests that are complete now.
        """
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def retire(self, finished: Collection[Request]) -> None:
        """Let the requests go that are complete, failed or cancelled."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def release(self, leaving: Sequence[Ticket]) -> None:
        """Free the seats and pages of some requests first, then settle their futures, even if the engine fails."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def abandon(self) -> None:
        """Take nothing more, and let all requests that are left end with Closed."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def settle(self, ticket: Ticket) -> None:
        """Settle a future, then count how it ended. Called by the loop, and by callers that submit."""
        raise NotImplementedError("Week 3 Day 7 Task 2: Through the door")

    def stats(self) -> Stats:
        """How things stand."""
        allocator, metrics = self.core.allocator, self.metrics
        return Stats(
            waiting=len(self.request_queue),
            running=len(self.tickets),
            seats=self.core.num_seats,
            free_pages=len(allocator.free_pages),
            pages=allocator.num_pages - 1,
            finished=metrics.finished,
            cancelled=metrics.cancelled,
            failed=metrics.failed,
            refused=metrics.refused,
            tokens=metrics.tokens,
            steps=metrics.steps,
            occupancy=mean(metrics.occupancies),
            first_token=mean(metrics.first_tokens),
            first_token_95=percentile(metrics.first_tokens, 95),
            per_token=mean(metrics.gaps),
        )
