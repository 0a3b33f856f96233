"""Why the batcher doesn't take a request, or ends one (given code, Day 3.7)."""

from __future__ import annotations

CLOSED = "the server is shutting down: it takes no new requests"
FULL = "{} requests are waiting already: try again later"


class QueueFull(Exception):
    """As many requests wait as may wait; the caller may try again later."""


class Closed(Exception):
    """The batcher was stopped: it takes no more requests, and those that it had not finished end with this error."""


class EngineFailed(Exception):
    """A step of the engine has failed; the text names its error. Each request in the engine ends with one of its own.

    It has no traceback: a future that kept the step's own error would keep all tensors of that step alive.
    """
