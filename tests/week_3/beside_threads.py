"""What only the process of the learner's code can tell about its threads, its log and its batchers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from coursekit.beside import beside


@beside
def tell_thread_errors(note: Callable[[BaseException], object]) -> Callable[[], None]:
    """From now on call `note` with what ends a thread, instead of printing it; returns what ends that."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None:
            note(arguments.exc_value)

    def end() -> None:
        threading.excepthook = before

    threading.excepthook = hook
    return end


class Errors(logging.Handler):
    """Keeps the exceptions that are logged with their tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])


@beside
def logged_errors(function: Callable[[], object]) -> list[BaseException]:
    """The exceptions that are logged while a function runs."""
    handler = Errors()
    logging.getLogger().addHandler(handler)
    try:
        function()
    finally:
        logging.getLogger().removeHandler(handler)
    return handler.errors


@beside
def tickets_of(batcher: Any) -> tuple[int, int, bool, bool]:
    """How many requests a batcher's engine has, and how many tickets the batcher; whether these are the tickets of
    these requests; whether each ticket is under its own request."""
    requests, tickets = batcher.core.requests, dict(batcher.tickets)
    own = all(ticket.request is request for request, ticket in tickets.items())
    return len(requests), len(tickets), set(requests) == set(tickets), own
