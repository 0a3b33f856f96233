"""Requests from many threads, one engine: a queue, a loop, and a future for each request (Day 3.7)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future

from tiny_llm.engine_core import EngineCore
from tiny_llm.ragged.errors import CLOSED, FULL, Closed, EngineFailed, QueueFull
from tiny_llm.ragged.metrics import Metrics, Stats, stats_of
from tiny_llm.ragged.ticket import OnToken, Ticket
from tiny_llm.request import Request

log = logging.getLogger(__name__)


class Batcher:
    """Runs the steps of an engine on a thread of its own, the loop, while there are requests.

    Callers use :meth:`submit`, :meth:`stop` and :meth:`stats`, from any thread. Only the loop uses the engine, apart
    from its ``refusal``, and the tickets of the requests in it. Callers and the loop both touch the queue, the two
    flags and the counts of how requests ended, always under the lock ``changed``.
    """

    def __init__(self, core: EngineCore, max_queue: int = 256) -> None:
        """Nothing runs before :meth:`start`.

        Args:
            core: any engine, without requests.
            max_queue: how many requests may wait for room in the engine.

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
        self.closed = False  # no more requests are taken
        self.abandoned = False  # and the requests that are left are not finished
        self.changed = threading.Condition()
        self.ended: Future[None] = Future()  # settled when the loop has ended, however that comes
        self.thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def start(self) -> None:
        """Start the loop, once (given code). Requests may be submitted before.

        Raises:
            Closed: the batcher was stopped before.
        """
        with self.changed:  # `stop` comes either before or after, never in between
            if self.closed:
                raise Closed("the server was stopped before it was started")
            self.thread.start()

    def _run(self) -> None:
        """What the thread does (given code)."""
        try:
            self.loop()
        finally:
            self.ended.set_result(None)

    def require_room(self) -> None:
        """Raise at once what :meth:`submit` would raise now for any request, before work is spent on it (given code).

        Raises:
            QueueFull: ``max_queue`` requests are waiting.
            Closed: the batcher was stopped.
        """
        with self.changed:
            if self.closed:
                raise Closed(CLOSED)
            if len(self.request_queue) >= self.max_queue:
                self.metrics.refused += 1
                raise QueueFull(FULL.format(self.max_queue))

    def submit(self, request: Request, on_token: OnToken = lambda token: None) -> Future[list[int]]:
        """Put a request at the end of the queue.

        Args:
            request: what to generate. A copy of it is run, from its prompt on; the request itself is left as it is.
            on_token: called with each token as soon as it is known, all before the future is settled.

        Returns:
            the future of its output. If the caller cancels the future, the request's seat and pages are free after
            the step that is running. A request with ``max_tokens`` 0 has its (empty) output at once.

        Raises:
            ValueError: the request can't ever run here; the message says why.
            Closed: the batcher was stopped, also when the queue is full; the message is ``CLOSED``.
            QueueFull: ``max_queue`` requests are waiting; the message is ``FULL`` with that number.
        """
        raise NotImplementedError("Week 3 Day 7 Task 2: Through the door")

    def stop(self, drain: bool = True, timeout: float | None = None) -> bool:
        """Take no more requests, and end the loop. It may be called again, but not on the batcher's own thread.

        Args:
            drain: first finish the requests that wait and run. Otherwise they end with Closed, after the step that is
                running. Once the requests were given up in this way, a later call can't save them.
            timeout: seconds to wait for the end of the loop; None: as long as it takes.

        Returns:
            whether the loop has ended.
        """
        raise NotImplementedError("Week 3 Day 7 Task 2: Through the door")

    def loop(self) -> None:
        """Step after step, until the batcher is stopped.

        However the loop ends, no request is taken after it, and every future is settled. An exception that ends it
        goes on.
        """
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def wait_for_work(self) -> bool:
        """Sleep until there is work, or the batcher is stopped.

        Returns:
            whether to go on: requests wait or run, and they were not abandoned.
        """
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def admit(self) -> None:
        """Settle cancelled requests in the queue; then push the others, in order, while the engine has room."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def step(self) -> Sequence[Request]:
        """Let the engine make a step, and note in the metrics how many tokens it issued, if any.

        If the step fails with an Exception, every request in the engine has failed, since any of them may be the
        cause. The error is logged once, with its traceback. Each ticket that has no error yet gets an EngineFailed of
        its own, whose text is the type's name and the error's text.

        Returns:
            the requests that are complete now.
        """
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def retire(self, finished: Collection[Request]) -> None:
        """Release the requests in the engine that are complete, have failed or were cancelled."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def release(self, leaving: Sequence[Ticket]) -> None:
        """Free the seats and pages of some requests, then forget their tickets, then settle their futures.

        If the engine fails, the tickets are forgotten and the futures settled as well, and the exception goes on.
        """
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def abandon(self) -> None:
        """Take no more requests. Each that is left ends with its error, or a Closed of its own that has a text."""
        raise NotImplementedError("Week 3 Day 7 Task 3: The loop")

    def settle(self, ticket: Ticket) -> None:
        """Settle a ticket, then count it as cancelled, failed or finished. Called without the lock, by any thread."""
        raise NotImplementedError("Week 3 Day 7 Task 2: Through the door")

    def stats(self) -> Stats:
        """The batcher's figures at this moment (given code).

        The queue and the counts are read under the lock. The loop changes the rest without it: these figures may be
        a step old, and of different moments.
        """
        with self.changed:
            return stats_of(
                self.core, self.metrics, waiting=len(self.request_queue), running=len(self.tickets)
            )
