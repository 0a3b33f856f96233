"""The stream of snapshots that each open page gets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from window.snapshot import Decoder, Snapshots
from window.watched import WatchedCore

SECONDS_BETWEEN = 0.05
"""Between two snapshots of a stream at least."""
FIRST_SECONDS = 0.2
"""For so long the first snapshot waits for a new note at most."""
KEEP_ALIVE_SECONDS = 10.0
KEEP_ALIVE = ": nothing has changed\n\n"

Key = tuple[int, int, int]


class Events:
    """Streams of snapshots. It is used on one event loop; the engine runs on another thread."""

    def __init__(
        self, watched: WatchedCore, tokenizer: Decoder, over: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin without any stream.

        Args:
            watched: the engine.
            tokenizer: the model's.
            over: whether the engine has come to its end, and all streams with it.
        """
        self.watched = watched
        self._over = over
        self._snapshots = Snapshots(tokenizer, watched.token_budget)
        self._made: tuple[Key, str] | None = None  # the newest event, for all streams

    async def stream(self, gone: Callable[[], Awaitable[bool]]) -> AsyncGenerator[str]:
        """The newest snapshot at once, then the newest each time that something has changed.

        Where nothing has watched so far, the first one waits a little for a new note: the last one may be old.
        While a client is slow to take a snapshot, others come and go; it gets the newest then.

        Args:
            gone: whether the client is gone.
        """
        self.watched.watchers += 1
        try:
            sent, last = None, time.monotonic()
            while self.watched.stale and time.monotonic() - last < FIRST_SECONDS:
                await asyncio.sleep(FIRST_SECONDS / 20)
            while not self._over() and not await gone():
                key = self._key()
                if key != sent:
                    yield self._event(key)
                    sent, last = key, time.monotonic()
                elif time.monotonic() - last >= KEEP_ALIVE_SECONDS:
                    yield KEEP_ALIVE
                    last = time.monotonic()
                await asyncio.sleep(SECONDS_BETWEEN)
        finally:
            self.watched.watchers -= 1

    def _key(self) -> Key:
        """What a snapshot depends on. While there are tokens in the last minute, it changes each second."""
        watched, now = self.watched, self.watched.ledger.now
        second = int(now) if any(watched.latest.rate(now)) else -1
        return watched.version, watched.gate.version, second

    def _event(self, key: Key) -> str:
        if self._made is None or self._made[0] != key:
            watched = self.watched
            snapshot = self._snapshots.build(watched.latest, watched.gate.mode, watched.ledger.now)
            data = json.dumps(snapshot, separators=(",", ":"))
            self._made = key, f"event: state\ndata: {data}\n\n"
        return self._made[1]
