"""A connection over which two processes call each other, on as many lanes as there are threads that call.

A *lane* is a conversation of one thread with one thread of the other side: a call, the calls back that it leads
to, and its answer, like one stack of frames that is spread over two processes. A thread that calls for the first time
opens a lane; the other side serves it in a thread of its own. Lane 0 is the grader's first; the worker serves it in
its main thread.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import IO, Any

from grading.link.side import Side, Ticket
from grading.link.wire import MOST_BYTES, WireError

CALL, ANSWER, ERROR = "call", "answer", "error"
FIRST = 0
"""The lane that the worker's main thread serves."""
MOST_LANES = 1000
"""Open at a time: each is a thread."""
_SIZE = 8
"""Bytes that give the length of a message, and as many that name its lane."""
_PAUSE = 0.002
"""Seconds after which the thread of the connection looks again whether it must read itself."""


class Gone(Exception):
    """The other side has ended, or has sent what is no message."""


class RemoteError(Exception):
    """Something has failed on the other side; ``error`` is what that side has raised, as an exception of this one."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("an error of the other side")
        self.error = error


class Lanes:
    """One end of the connection."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes], side: Side, grader: bool) -> None:
        """Begin to read, in a thread of its own.

        Args:
            incoming: a pipe without a buffer.
            outgoing: a pipe with one, so that a write is whole.
            side: what this end does.
            grader: whether this is the grader's end: it opens the lanes with even numbers, the worker the others.
        """
        self._in, self._out, self._side = incoming, outgoing, side
        self._write = threading.Lock()
        self._lanes: dict[int, SimpleQueue[Any]] = {} if grader else {FIRST: SimpleQueue()}
        self._next = FIRST if grader else FIRST + 1
        self._mine = threading.local()
        self._finished: deque[int] = deque()
        self._gone: str | None = None
        self._reading = threading.Lock()
        threading.Thread(target=self._read_unasked, name="link", daemon=True).start()

    @property
    def gone(self) -> str | None:
        """Why there is no other side any more; None while there is one."""
        return self._gone

    def call(self, operation: str, *arguments: Any) -> Any:
        """Let the other side do something, and serve it meanwhile.

        Raises:
            RemoteError: it has failed there.
            WireError: the arguments can't cross.
            Gone: there is no other side any more.
        """
        lane = self._lane()
        self._send(lane, CALL, operation, arguments)
        while True:
            kind, *rest = self._next_message(lane)
            if kind == CALL:
                self._answer(lane, *rest)
            elif kind == ANSWER:
                return rest[0]
            elif isinstance(rest[0], BaseException):
                raise RemoteError(rest[0])
            else:
                raise WireError("an error that is none")

    def serve_first(self) -> None:
        """Serve lane 0 in this thread until the other side has ended."""
        self._serve_lane(FIRST)

    def close(self) -> None:
        """Close the pipes: the other side sees the end, and whatever waits here raises :class:`Gone`."""
        self._gone = self._gone or "the connection was closed"
        for pipe in (self._out, self._in):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()

    def _lane(self) -> int:
        ticket = getattr(self._mine, "ticket", None)
        if ticket is None:
            with self._write:
                lane, self._next = self._next, self._next + 2
                self._lanes[lane] = SimpleQueue()
            ticket = self._mine.ticket = Ticket(lane, self._finished)
        return int(ticket.lane)

    def _next_message(self, lane: int) -> Any:
        queue = self._lanes.get(lane)
        message = self._wait(queue) if queue is not None else None
        if message is None:
            raise Gone(self._gone)
        if isinstance(message, WireError):
            raise message
        return message

    def _send(self, lane: int, *message: Any) -> None:
        with self._write:  # packed in the order in which it is sent, too: what is new is told once
            if self._gone:
                raise Gone(self._gone)
            data = self._side.pack(message)
            try:
                while self._finished:
                    finished = self._finished.popleft()
                    del self._lanes[finished]
                    self._write_frame(finished, b"")
                self._write_frame(lane, data)
                self._out.flush()
            except (OSError, ValueError) as error:
                raise Gone(f"{type(error).__name__}: {error}") from error

    def _write_frame(self, lane: int, data: bytes) -> None:
        """Write a message; one without content ends the lane."""
        self._out.write((len(data) + _SIZE).to_bytes(_SIZE, "little") + lane.to_bytes(_SIZE, "little") + data)

    def _answer(self, lane: int, operation: str, arguments: tuple[Any, ...]) -> None:
        try:
            kind, value = ANSWER, self._side.serve(operation, arguments)
        except BaseException as error:
            kind, value = ERROR, error
        try:
            self._send(lane, kind, value)
        except WireError as error:
            self._send(lane, ERROR, error)

    def _serve_lane(self, lane: int) -> None:
        self._mine.ticket = Ticket(lane, deque())  # the other side's to end
        with contextlib.suppress(Gone):
            while True:
                try:
                    _, operation, arguments = self._next_message(lane)
                except WireError as error:
                    self._send(lane, ERROR, error)
                else:
                    self._answer(lane, operation, arguments)

    def _wait(self, queue: SimpleQueue[Any]) -> Any:
        """The next message of a lane. Where no other thread is reading, this one does: then none must be woken."""
        while True:
            if not self._reading.acquire(blocking=False):
                return queue.get()
            try:
                while queue.empty() and self._gone is None:
                    self._read_frame()
            finally:
                self._reading.release()
            if self._gone is not None and queue.empty():
                return None
            return queue.get()

    def _read_unasked(self) -> None:
        """Read while no other thread does."""
        while self._gone is None:
            try:
                select.select([self._in], [], [])
            except (OSError, ValueError) as error:
                self._end(error)
            if not self._reading.acquire(blocking=False):
                time.sleep(_PAUSE)
                continue
            try:
                if select.select([self._in], [], [], 0)[0]:  # another may have read it meanwhile
                    self._read_frame()
            except (OSError, ValueError) as error:
                self._end(error)
            finally:
                self._reading.release()

    def _read_frame(self) -> None:
        """Read one message and give it to its lane."""
        try:
            size = int.from_bytes(self._exactly(_SIZE), "little")
            if not _SIZE <= size <= MOST_BYTES + _SIZE:
                raise WireError(f"a message of {size:,} bytes; {MOST_BYTES:,} are allowed")
            lane = int.from_bytes(self._exactly(_SIZE), "little")
            self._take(lane, self._exactly(size - _SIZE))
        except (EOFError, OSError, ValueError) as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        self._gone = self._gone or str(error) or type(error).__name__
        for queue in list(self._lanes.values()):
            queue.put(None)

    def _take(self, lane: int, data: bytes) -> None:
        queue = self._lanes.get(lane)
        if not data:
            if queue is not None and lane != FIRST:
                del self._lanes[lane]
                queue.put(None)
            return
        if queue is None:
            if lane % 2 == self._next % 2 or len(self._lanes) >= MOST_LANES:
                raise WireError(f"a message on lane {lane}, which isn't open")
            queue = self._lanes[lane] = SimpleQueue()
            threading.Thread(target=self._serve_lane, args=(lane,), name=f"lane {lane}", daemon=True).start()
        queue.put(self._unpacked(data))

    def _unpacked(self, data: bytes) -> Any:
        """A message, or why it is none. Messages are unpacked in the order in which they were packed, whatever lane
        they are for: one may give back what an earlier one still names."""
        try:
            return self._side.unpack(data)
        except WireError as error:
            return error
        except Exception as error:  # or a message of an unforeseen form would end the lanes
            return WireError(f"a message can't be unpacked: {type(error).__name__}: {error}")

    def _exactly(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            part = self._in.read(min(left, 2**20))
            if not part:
                raise EOFError("the other side has ended")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
