"""Requests from many threads, one engine: a queue, a loop, and a future for each request (Day 3.7)."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from tiny_llm.batch import Request
from tiny_llm.model import Transformer
from tiny_llm.ragged.batch import mixed_step
from tiny_llm.ragged.metrics import Metrics, Stats, mean, percentile
from tiny_llm.ragged.sampling_state import SamplingState
from tiny_llm.ragged.ticket import OnToken, Ticket


class QueueFull(Exception):
    """As many requests are waiting as may wait. Try again later."""


class Closed(Exception):
    """The batcher was stopped: it takes nothing more, and what it had not finished is lost."""


class Batcher:
    """Runs mixed steps on a thread of its own, for as long as anybody waits for tokens.

    Callers use :meth:`submit`, :meth:`stop` and :meth:`stats`, from any thread. Model, state and slots are the loop's
    alone. What both sides touch, the queue, the two flags and the counts of how requests ended, is touched under
    ``changed``.
    """

    def __init__(
        self, model: Transformer, state: SamplingState, capacity: int = 128, max_queue: int = 256
    ) -> None:
        """Nothing runs before :meth:`start`.

        Args:
            model: the model.
            state: with idle slots only.
            capacity: how many tokens a step has room for.
            max_queue: how many requests may wait for a slot.

        Raises:
            ValueError: ``capacity`` or ``max_queue`` is below 1.
        """
        if capacity < 1 or max_queue < 1:
            raise ValueError(f"capacity {capacity}, a queue of {max_queue}: both must be at least 1")
        self.model = model
        self.state = state
        self.capacity = capacity
        self.max_queue = max_queue
        self.metrics = Metrics()
        self.request_queue: deque[Ticket] = deque()  # who waits for a slot
        self.tickets: list[Ticket | None] = [None] * len(state.requests)  # who has one, by slot
        self.closed = False  # nothing more is taken
        self.abandoned = False  # and nobody waits for the rest
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
            the future of its output. If it is cancelled, slot and pages are free after the step that runs just then.
            A request that asks for no token has its (empty) output at once.

        Raises:
            ValueError: it can't ever run here; the message says why.
            QueueFull: ``max_queue`` requests are waiting.
            Closed: the batcher was stopped.
        """
        reason = self.state.refusal(request)
        if reason is not None:
            raise ValueError(reason)
        ticket = Ticket(request, on_token, self.metrics)
        with self.changed:
            if self.closed:
                raise Closed("the server is shutting down: it takes no new requests")
            complete = ticket.request.finished(self.state.max_positions)
            if not complete:
                if len(self.request_queue) >= self.max_queue:
                    self.metrics.refused += 1
                    raise QueueFull(f"{self.max_queue} requests are waiting already: try again later")
                self.request_queue.append(ticket)
                self.changed.notify_all()
        if complete:
            self.end(ticket)
        return ticket.future

    def stop(self, drain: bool = True, timeout: float | None = None) -> bool:
        """Take nothing more, and end the loop. Not for the batcher's own thread, which can't wait for itself.

        Args:
            drain: first finish all that waits and runs; otherwise it ends with Closed after the step that runs.
            timeout: seconds to wait for the end of the loop; None: as long as it takes.

        Returns:
            whether it has ended.
        """
        with self.changed:
            self.closed = True
            self.abandoned = self.abandoned or not drain
            self.changed.notify_all()
        if self.thread.ident is None:  # it was never started
            self.abandon()
            return True
        self.thread.join(timeout)
        return not self.thread.is_alive()

    def loop(self) -> None:
        """Step after step until stopped. However it ends, nothing is taken any more and every future is settled."""
        try:
            while self.wait():
                self.join()
                self.step()
                self.leave()
        finally:
            self.abandon()

    def wait(self) -> bool:
        """Sleep until there is work, or the batcher is stopped.

        Returns:
            whether to go on: there is work, and it was not abandoned.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.request_queue or any(self.tickets))
            return not self.abandoned and (bool(self.request_queue) or any(self.tickets))

    def join(self) -> None:
        """Let those that wait take the idle slots, first come first served; those that were cancelled leave."""
        with self.changed:
            # Asked once for each: a caller may cancel between two questions.
            marked = [(ticket, ticket.over) for ticket in self.request_queue]
            self.request_queue = deque(ticket for ticket, over in marked if not over)
        for ticket, over in marked:
            if over:
                self.end(ticket)
        with self.changed:
            while self.request_queue and self.state.idle:
                ticket = self.request_queue[0]
                self.tickets[self.state.push(ticket.request)] = ticket
                self.request_queue.popleft()  # only now: whatever fails, somebody has it, and its future is settled

    def step(self) -> None:
        """Run the model once. If that fails, so have all that are in slots: nobody knows whose fault it was."""
        try:
            lens = mixed_step(self.model, self.state, self.capacity)
        except Exception as error:
            for ticket in self.tickets:
                if ticket is not None:
                    ticket.error = error
        else:
            if any(lens):  # if all were cancelled in the queue, the model was not run
                self.metrics.step(sum(lens), self.capacity)

    def leave(self) -> None:
        """Whoever is complete, failed or cancelled gives slot and pages back; then its future is settled."""
        pairs = list(zip(self.tickets, self.state.completed_mask(), strict=True))
        mask = [ticket is not None and (complete or ticket.over) for ticket, complete in pairs]
        self.release(mask)

    def release(self, mask: list[bool]) -> None:
        """Make the marked slots idle first, then settle the futures of those who had them, whatever happens."""
        pairs = list(zip(self.tickets, mask, strict=True))
        leaving = [ticket for ticket, mark in pairs if mark and ticket is not None]
        try:
            self.state.release(mask)
        finally:
            self.tickets = [None if mark else ticket for ticket, mark in pairs]
            for ticket in leaving:
                self.end(ticket)

    def abandon(self) -> None:
        """Take nothing more, and let all that are left end with Closed."""
        with self.changed:
            self.closed = True
            waiting = list(self.request_queue)
            self.request_queue.clear()
        for ticket in [*waiting, *self.tickets]:
            if ticket is not None:
                ticket.error = ticket.error or Closed("the server was stopped before the answer was complete")
        for ticket in waiting:
            self.end(ticket)
        self.release([True] * len(self.tickets))

    def end(self, ticket: Ticket) -> None:
        """Settle a future, then count how it ended. Called by the loop, and by those who submit."""
        wanted = ticket.settle()
        with self.changed:
            if not wanted:
                self.metrics.cancelled += 1
            elif ticket.error is not None:
                self.metrics.failed += 1
            else:
                self.metrics.finished += 1

    def stats(self) -> Stats:
        """How things stand."""
        pages, metrics = self.state.pages, self.metrics
        return Stats(
            waiting=len(self.request_queue),
            running=sum(ticket is not None for ticket in self.tickets),
            slots=len(self.tickets),
            free_pages=len(pages.available_page_indices),
            pages=pages.num_pages - 1,
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
