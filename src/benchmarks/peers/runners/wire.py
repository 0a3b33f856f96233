"""What `pdm run bench peers` and an engine's process say to one another: JSON lines on standard input and output.

    engine → bench   {"ready": true, "memory": 123456789}
    bench → engine   {"requests": [{"prompt": [17, 4, …], "max_tokens": 128}, …], "room": 1028}
    engine → bench   {"seconds": 3.2, "tokens": [128, …], "first": [0.05, …], "memory": 234567890}

`room` is how many tokens the longest request of the workload has, prompt and output: in the warm-up, too, so that an
engine can make room for the workload before it is measured. Memory is in bytes, the most since the message before, or
null where the system does not tell. `first` has each request's seconds to its first token, or null where the engine
does not tell. The engine ends when its input does.

This folder is not part of a package: an engine's process finds its runner and this module here, by their file, with
another Python and without the course's packages. So only the standard library is used.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True)
class Request:
    """Token ids to continue greedily by exactly so many tokens, also past the end of a text."""

    prompt: list[int]
    max_tokens: int


@dataclass
class Answer:
    """What became of a request."""

    tokens: int = 0
    first: float | None = None  # when its first token was there, as time.perf_counter() tells


Run = Callable[[list[Request], int], list[Answer]]
"""Brings requests to their ends, all at once; gives an answer for each, in their order. The number is the room."""

Start = Callable[[dict[str, Any]], Run]
"""Loads the engine with the settings that the bench gives."""


def serve(start: Start) -> None:
    """Load the engine, then answer the bench until it closes the input."""
    bench = _private_output()
    run = start(json.loads(sys.argv[1]))
    _say(bench, {"ready": True, "memory": take_peak_memory()})
    for line in sys.stdin:
        message = json.loads(line)
        requests = [Request(**each) for each in message["requests"]]
        _say(bench, _measured(run, requests, message["room"]))
    # Engines with threads of their own may hang, or crash, while Python takes itself apart.
    os._exit(0)


def _measured(run: Run, requests: list[Request], room: int) -> dict[str, Any]:
    started = time.perf_counter()
    answers = run(requests, room)
    seconds = time.perf_counter() - started
    firsts = [None if each.first is None else each.first - started for each in answers]
    return {
        "seconds": seconds,
        "tokens": [each.tokens for each in answers],
        "first": firsts,
        "memory": take_peak_memory(),
    }


def _private_output() -> TextIO:
    """Standard output for the bench alone: what the engine's libraries print goes to standard error."""
    bench = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return bench


def _say(bench: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=bench, flush=True)


def take_peak_memory() -> int | None:
    """The most memory that this process and those that it has started have had since the last call, in bytes.

    Each process's own peak counts, so what several have in common counts several times. Where there is no Linux, it
    is this process's peak since it began, or None where the system does not tell.
    """
    try:
        return sum(_take_peak(process) for process in _family(os.getpid()))
    except OSError:
        return _peak_elsewhere()


def _family(process: int) -> list[int]:
    """A process and all that come from it."""
    children: list[int] = []
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file:
            children += map(int, file.read().split())
    return [process, *(each for child in children for each in _family(child))]


def _take_peak(process: int) -> int:
    with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
        found = next((line.split()[1] for line in status if line.startswith("VmHWM:")), "0")
    with open(f"/proc/{process}/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")  # the peak begins anew
    return int(found) * 1024


def _peak_elsewhere() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
