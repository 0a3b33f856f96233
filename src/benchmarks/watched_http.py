"""An engine behind its server over HTTP, asked by another process, so that the clients' work isn't the engine's."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.load import PATIENCE
from coursekit.errors import CourseError

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM


class EventLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        """Start it."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="event loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do some work on it, and wait for the end."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """End it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextmanager
def serving(llm: LLM, events: EventLoop) -> Iterator[str]:
    """Serve an engine on an event loop; gives the address. At the end the engine is closed, too."""
    from tiny_llm.server.app import make_app
    from tiny_llm.server.run import HttpServer

    server = HttpServer(make_app(llm), llm)
    address = events.run(server.start())
    try:
        yield f"http://{address}"
    finally:
        events.run(server.stop(grace=0))


def stream_from_another_process(url: str, bodies: Sequence[dict[str, Any]]) -> None:
    """Ask for completions, all at once, and read the answers to their ends.

    Raises:
        CourseError: one of them was refused.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        refusals = process.submit(stream_all, url, bodies).result()
    if refusals:
        raise CourseError(f"the server refuses what the bench asks: {refusals[0]}")


def stream_all(url: str, bodies: Sequence[dict[str, Any]]) -> list[str]:
    """The same on this process; what the server said to the bodies that it refused."""
    return [each for each in asyncio.run(_stream_all(url, bodies)) if each is not None]


async def _stream_all(url: str, bodies: Sequence[dict[str, Any]]) -> list[str | None]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=PATIENCE, trust_env=False) as client:
        return await asyncio.gather(*(_stream(client, url, body) for body in bodies))


async def _stream(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> str | None:
    async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        if not response.is_success:
            return (await response.aread()).decode()
        async for _ in response.aiter_raw():
            pass  # to look into the pieces would take time from the engine
        return None
