"""Messages of several lanes, and classes of the grader's with properties that can be set."""

from __future__ import annotations

import os
import threading
from typing import Any

from two_ends import linked

from grading.link.lanes import CALL, Lanes
from grading.link.side import Side
from grading.link.wire import WireError

SIZE = 8


def frame(lane: int, data: bytes) -> bytes:
    return (len(data) + SIZE).to_bytes(SIZE, "little") + lane.to_bytes(SIZE, "little") + data


def test_messages_are_unpacked_in_their_order_though_the_thread_of_a_lane_is_busy():
    unpacked, served, go_on = list[str](), threading.Event(), threading.Event()

    def unpack(data: bytes) -> tuple[Any, ...]:
        unpacked.append(data.decode())
        return CALL, data.decode(), ()

    def serve(operation: str, arguments: Any) -> None:
        if operation == "first":
            go_on.wait(10)
        if operation == "third":
            served.set()

    (there, to_there), (here, to_here) = os.pipe(), os.pipe()
    side = Side(lambda message: b"an answer", unpack, serve)
    lanes = Lanes(os.fdopen(here, "rb", buffering=0), os.fdopen(to_there, "wb"), side, grader=True)
    try:
        os.write(to_here, frame(1, b"first") + frame(1, b"second") + frame(3, b"third"))
        assert served.wait(10)
        assert unpacked == ["first", "second", "third"]
    finally:
        go_on.set()
        os.close(to_here)
        lanes.close()
        os.close(there)


def test_a_call_that_is_no_message_is_answered_with_an_error():
    sent, told = list[Any](), threading.Event()

    def pack(message: tuple[Any, ...]) -> bytes:
        sent.append(message)
        told.set()
        return b"an answer"

    def unpack(data: bytes) -> tuple[Any, ...]:
        raise WireError("no message")

    (there, to_there), (here, to_here) = os.pipe(), os.pipe()
    side = Side(pack, unpack, lambda operation, arguments: None)
    lanes = Lanes(os.fdopen(here, "rb", buffering=0), os.fdopen(to_there, "wb"), side, grader=True)
    try:
        os.write(to_here, frame(1, b"?"))
        assert told.wait(10)
        kind, error = sent[0]
        assert kind == "error"
        assert str(error) == "no message"
    finally:
        os.close(to_here)
        lanes.close()
        os.close(there)


class Shelf:
    """The learner's: it puts things on itself."""

    def put(self, value: Any) -> None:
        self.value = value

    def look(self) -> Any:
        return self.value


class Code:
    Shelf = Shelf


def test_a_property_of_a_derived_class_is_set_and_read_by_the_code_above_it():
    put = list[Any]()
    with linked(Code) as (code, _):

        class Noting(code.Shelf):  # type: ignore[name-defined]
            @property
            def value(self) -> Any:
                return put[-1]

            @value.setter
            def value(self, value: Any) -> None:
                put.append(value)

        shelf = Noting()
        shelf.put(3)
        shelf.put([4])
        assert put == [3, [4]]
        assert shelf.look() == [4]
