"""What a connection does with frames that the other side should not have sent, and at its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from grading.link import lanes as lanes_module
from grading.link.lanes import CALL, Gone, Lanes
from grading.link.side import Side
from grading.link.wire import MOST_BYTES

SIZE = 8


class Peer:
    """The grader's end, and the other side as bare bytes."""

    def __init__(self, close: Callable[[int], object]) -> None:
        (self.there, to_there), (here, self.to_here) = os.pipe(), os.pipe()
        self.served = list[str]()
        self.go_on, self.ended = threading.Event(), threading.Event()
        self.message: Callable[[bytes], Any] = lambda data: (CALL, data.decode(), ())
        side = Side(lambda message: b"sent", lambda data: self.message(data), self._serve)
        self.lanes = Lanes(os.fdopen(here, "rb", buffering=0), os.fdopen(to_there, "wb"), side, grader=True)
        close(self.there)

    def _serve(self, operation: str, arguments: Any) -> None:
        self.served.append(operation)
        self.go_on.wait(10)

    def send(self, lane: int, data: bytes) -> None:
        os.write(
            self.to_here, (len(data) + SIZE).to_bytes(SIZE, "little") + lane.to_bytes(SIZE, "little") + data
        )

    def gone(self) -> str:
        """Why the connection has ended, once it has."""
        for _ in range(1000):
            if self.lanes.gone is not None:
                return self.lanes.gone
            time.sleep(0.01)
        pytest.fail("the connection goes on")


@pytest.fixture
def peer() -> Iterator[Peer]:
    with ExitStack() as stack:
        peer = Peer(lambda pipe: stack.callback(os.close, pipe))
        try:
            yield peer
        finally:
            peer.go_on.set()
            os.close(peer.to_here)
            peer.lanes.close()


def test_more_lanes_than_there_may_be_end_the_connection(peer, monkeypatch):
    monkeypatch.setattr(lanes_module, "MOST_LANES", 3)
    for lane in (1, 3, 5, 7):
        peer.send(lane, b"call")
    assert peer.gone() == "a message on lane 7, which isn't open"


def test_a_lane_that_only_this_side_opens_is_not_opened_by_the_other(peer):
    peer.send(2, b"call")
    assert peer.gone() == "a message on lane 2, which isn't open"
    assert peer.served == []


@pytest.mark.parametrize("size", [0, SIZE - 1, MOST_BYTES + SIZE + 1, 2**63])
def test_a_frame_of_a_size_that_there_is_not_ends_the_connection(peer, size):
    os.write(peer.to_here, size.to_bytes(SIZE, "little") + bytes(SIZE))
    assert peer.gone().startswith(f"a message of {size:,} bytes")


def test_the_first_lane_is_not_the_other_sides_to_end(peer):
    peer.message = lambda data: ("answer", data.decode())
    peer.send(1, b"")  # nor is one that isn't open
    answers = []
    caller = threading.Thread(target=lambda: answers.append(peer.lanes.call("ask")))
    caller.start()
    os.read(peer.there, 100)  # the call
    peer.send(0, b"")
    peer.send(0, b"yes")
    caller.join(10)
    assert answers == ["yes"]


def test_an_error_that_is_none_is_refused(peer):
    peer.message = lambda data: ("error", "no error")
    caught = list[BaseException]()

    def call() -> None:
        try:
            peer.lanes.call("ask")
        except ValueError as error:
            caught.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    os.read(peer.there, 100)
    peer.send(0, b"x")
    caller.join(10)
    assert [str(error) for error in caught] == ["an error that is none"]


def test_the_end_of_the_other_side_wakes_whoever_waits_and_keeps_its_reason(peer):
    caught = list[BaseException]()

    def call() -> None:
        try:
            peer.lanes.call("ask")
        except Gone as error:
            caught.append(error)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
        os.read(peer.there, 100)
    os.close(peer.to_here)
    peer.to_here = os.open(os.devnull, os.O_WRONLY)
    for caller in callers:
        caller.join(10)
    assert [str(error) for error in caught] == ["the other side has ended"] * 3
    peer.lanes.close()
    assert peer.lanes.gone == "the other side has ended"
