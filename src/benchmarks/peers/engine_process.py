"""An engine in a process of its own: started, asked, ended."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from benchmarks.peers.environment import end
from benchmarks.peers.workloads import PeerRequest

LAST_LINES = 8
SECONDS_TO_END = 5.0


class EngineFailed(Exception):
    """What an engine has failed of, with the last that it said."""


@dataclass(frozen=True)
class EngineCommand:
    """How an engine is started."""

    words: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Measured:
    """What an engine says about a workload."""

    seconds: float
    first: float | None  # the mean of the seconds to a request's first token
    memory: int | None  # bytes, the most during it


class EngineProcess:
    """A running engine; use it in a `with` statement."""

    def __init__(self, command: EngineCommand, limit: float) -> None:
        """Start it, and wait until it is ready.

        Args:
            command: how.
            limit: seconds that it may take to be ready, and then for each workload.

        Raises:
            EngineFailed: it has ended, takes too long, or says what is no message.
        """
        self._limit = limit
        self._said: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        started = time.perf_counter()
        self._process = subprocess.Popen(
            command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=dict(command.environment),
            start_new_session=True,  # Ctrl-C comes to the bench alone, which ends it
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.memory: int | None = self._message("ready")["memory"]
        except BaseException:
            self.close()
            raise
        self.seconds_to_ready = time.perf_counter() - started

    def __enter__(self) -> Self:
        """Give the engine itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End the process and all that it has started."""
        end(self._process)
        self._said.close()

    def run(self, requests: Sequence[PeerRequest], room: int) -> Measured:
        """Let it answer all of the requests.

        Args:
            requests: they come all at once.
            room: the most tokens that a request of their workload has, prompt and output.

        Raises:
            EngineFailed: it has ended, takes too long, says what is no message, or gave other numbers of tokens.
        """
        assert self._process.stdin is not None
        line = json.dumps({"requests": [each.to_json() for each in requests], "room": room})
        try:
            print(line, file=self._process.stdin, flush=True)
        except OSError:
            raise EngineFailed(self._with_last_words("it has ended")) from None
        message = self._message("seconds")
        self._check_tokens(message["tokens"], requests)
        firsts = [each for each in message["first"] if each is not None]
        first = sum(firsts) / len(firsts) if len(firsts) == len(requests) else None
        return Measured(message["seconds"], first, message["memory"])

    def _check_tokens(self, tokens: Sequence[int], requests: Sequence[PeerRequest]) -> None:
        wanted = [each.max_tokens for each in requests]
        if len(tokens) != len(wanted):
            raise EngineFailed(f"it gave {len(tokens)} answers to {len(wanted)} requests")
        for number, (given, asked) in enumerate(zip(tokens, wanted, strict=True), start=1):
            if given != asked:
                raise EngineFailed(f"it gave {given} tokens for request {number}, which asks for {asked}")

    def _message(self, key: str) -> dict[str, Any]:
        """The next thing that it says, which has this key."""
        try:
            line = self._lines.get(timeout=self._limit)
        except queue.Empty:
            raise EngineFailed(self._with_last_words(f"it took longer than {self._limit:g} s")) from None
        if not line:
            raise EngineFailed(self._with_last_words(self._how_it_ended()))
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or key not in message:
            raise EngineFailed(self._with_last_words(f"it said what is no answer: {line.strip()[:200]!r}"))
        return message

    def _how_it_ended(self) -> str:
        try:
            return f"it has ended with exit code {self._process.wait(SECONDS_TO_END)}"
        except subprocess.TimeoutExpired:
            return "it has closed its output"

    def _read(self) -> None:
        """Hand on the lines that it says, and an empty one at the end (on a thread: a pipe can't be waited for)."""
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:  # closed meanwhile
            pass
        self._lines.put("")

    def _with_last_words(self, what: str) -> str:
        self._said.seek(0)
        lines = self._said.read().rstrip().splitlines()[-LAST_LINES:]
        return "\n".join([what, *(f"    {line[:300]}" for line in lines)])
