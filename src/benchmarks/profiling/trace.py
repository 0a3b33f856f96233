"""The recorded steps as a file for perfetto.dev and chrome://tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.profiling.measuring import Profiled
from benchmarks.profiling.spans import KINDS, PROFILE, Piece

ROWS = (*KINDS, PROFILE)


def trace(profiles: Sequence[Profiled], **about: Any) -> dict[str, Any]:
    """All steps of all profiles, as trace events in microseconds: a process for each profile, a row for each kind."""
    events: list[dict[str, Any]] = []
    for process, profiled in enumerate(profiles, start=1):
        events.append(_name("process_name", process, 0, profiled.title))
        events += [_name("thread_name", process, row, kind) for row, kind in enumerate(ROWS, start=1)]
        start = profiled.steps[0].pieces[0].start
        for step in profiled.steps:
            events += [_event(process, piece, start) for piece in step.pieces]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _name(what: str, process: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": row, "args": {"name": name}}


def _event(process: int, piece: Piece, start: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": piece.name,
        "cat": piece.kind,
        "pid": process,
        "tid": 1 + ROWS.index(piece.kind),
        "ts": round(1e6 * (piece.start - start), 3),
        "dur": round(1e6 * piece.seconds, 3),
        "args": {"shapes": piece.detail} if piece.detail else {},
    }
