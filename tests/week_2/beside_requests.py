"""What requests say of themselves, read beside the learner's code: a test that asked each would wait for it."""

from __future__ import annotations

from typing import Any

from coursekit.beside import beside


@beside
def progress(requests: tuple[Any, ...], limit: int) -> tuple[tuple[int, bool], ...]:
    """How many tokens each request has generated, and whether it has finished; a model has `limit` positions."""
    return tuple((request.num_generated, request.finished(limit)) for request in requests)
