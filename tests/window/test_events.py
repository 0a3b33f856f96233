"""A stream sends the newest snapshot at once, the newest after each change, and ends when it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from toys import PATIENCE, Letters, requests, toy_core

from window import events
from window.events import KEEP_ALIVE, Events
from window.gate import Mode
from window.watched import WatchedCore


@pytest.fixture
def watched() -> WatchedCore:
    made = WatchedCore(toy_core("extend"))
    made.note_seconds = 0
    return made


class Client:
    """What a page sees of its stream."""

    def __init__(self, watched: WatchedCore, over: Callable[[], bool] = lambda: False) -> None:
        self.here = True
        self.stream = Events(watched, Letters(), over).stream(self._gone)

    async def _gone(self) -> bool:
        return not self.here

    async def next(self) -> str:
        return await asyncio.wait_for(anext(self.stream), PATIENCE)

    async def snapshot(self) -> Any:
        kind, data = (await self.next()).strip().split("\n")
        assert kind == "event: state"
        return json.loads(data.removeprefix("data: "))


async def silent(client: Client) -> asyncio.Task[str]:
    """The stream's next event, which has not come after a while."""
    coming = asyncio.ensure_future(client.next())
    await asyncio.sleep(4 * events.SECONDS_BETWEEN)
    assert not coming.done(), "something was sent, and nothing has changed"
    return coming


def test_the_first_snapshot_comes_at_once_and_the_next_after_a_change(watched: WatchedCore) -> None:
    async def scenario() -> None:
        client = Client(watched)
        assert (await client.snapshot())["step"] == 0
        coming = await silent(client)
        watched.push(requests(1)[0])
        watched.step()
        assert json.loads((await coming).split("data: ")[1])["step"] == 1
        await client.stream.aclose()

    asyncio.run(scenario())


def test_a_client_that_is_slow_gets_the_newest_snapshot_and_none_between(watched: WatchedCore) -> None:
    async def scenario() -> None:
        client = Client(watched)
        await client.snapshot()
        watched.push(requests(1)[0])
        for _ in range(4):
            watched.step()
        assert (await client.snapshot())["step"] == 4
        await client.stream.aclose()

    asyncio.run(scenario())


def test_a_change_of_the_mode_is_sent_without_a_step(watched: WatchedCore) -> None:
    async def scenario() -> None:
        client = Client(watched)
        assert (await client.snapshot())["mode"] == "play"
        watched.gate.set(Mode.PAUSE)
        assert (await client.snapshot())["mode"] == "pause"
        await client.stream.aclose()

    asyncio.run(scenario())


def test_while_nothing_changes_a_comment_keeps_the_stream_alive(
    watched: WatchedCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.0)

    async def scenario() -> None:
        client = Client(watched)
        await client.snapshot()
        assert await client.next() == KEEP_ALIVE
        assert KEEP_ALIVE.startswith(":")
        assert KEEP_ALIVE.endswith("\n\n")
        await client.stream.aclose()

    asyncio.run(scenario())


def test_a_stream_ends_when_its_client_is_gone_and_is_no_watcher_any_more(watched: WatchedCore) -> None:
    async def scenario() -> None:
        client = Client(watched)
        await client.snapshot()
        assert watched.watchers == 1
        client.here = False
        with pytest.raises(StopAsyncIteration):
            await client.next()
        assert watched.watchers == 0

    asyncio.run(scenario())


def test_all_streams_end_when_the_engine_does(watched: WatchedCore) -> None:
    async def scenario() -> None:
        over = False
        clients = [Client(watched, lambda: over) for _ in range(2)]
        for client in clients:
            await client.snapshot()
        assert watched.watchers == 2
        over = True
        for client in clients:
            with pytest.raises(StopAsyncIteration):
                await client.next()
        assert watched.watchers == 0

    asyncio.run(scenario())


def test_a_stream_that_is_closed_is_no_watcher_any_more(watched: WatchedCore) -> None:
    async def scenario() -> None:
        client = Client(watched)
        await client.snapshot()
        await client.stream.aclose()
        assert watched.watchers == 0

    asyncio.run(scenario())


def test_the_first_snapshot_waits_for_a_new_note_where_the_last_one_is_old(watched: WatchedCore) -> None:
    async def scenario() -> None:
        watched.push(requests(1)[0])
        watched.step()
        assert watched.latest.step == 0
        client = Client(watched)
        first = asyncio.ensure_future(client.snapshot())
        while not watched.watchers:
            await asyncio.sleep(0)
        watched.step()
        assert (await first)["step"] == 2
        await client.stream.aclose()

    asyncio.run(scenario())
