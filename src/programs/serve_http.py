"""`pdm run serve --http`: the engine behind an API like OpenAI's."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from coursekit.errors import CourseError
from programs.cores import PAGE_SIZE, require_memory, warm_up
from programs.loaded import LoadedModel
from programs.serve_view import ServeView
from programs.stop_signals import StopSignals, end_process

if TYPE_CHECKING:
    from fastapi import FastAPI

    from tiny_llm.engine.llm import LLM
    from tiny_llm.server.settings import Settings

PORT = 8000
DAY = (4, 6)
"""The week and day whose code it runs."""
SECONDS_BETWEEN = 0.25
"""How often the view changes, and a loop that has died is noticed."""
MARGIN = 3.0
"""Seconds for the step that is running when the grace is over, and for the last answers to reach their clients."""


@dataclass(frozen=True)
class HttpOptions:
    """What only a server over HTTP can be told."""

    host: str = "127.0.0.1"
    api_key: str | None = None
    cors: tuple[str, ...] = ()
    allow_open: bool = False
    documents: bool = True


@dataclass(frozen=True)
class Sizes:
    """How large the engine is."""

    seats: int
    pages: int
    token_budget: int
    queue: int


def settings_of(model: str, options: HttpOptions) -> Settings:
    """The server's settings.

    Raises:
        CourseError: the server would be open to other machines without a key.
    """
    from tiny_llm.server.settings import Settings

    name = Path(model).stem if Path(model).exists() else model
    try:
        return Settings(name, options.host, options.api_key, options.allow_open, options.cors)
    except ValueError as error:
        raise CourseError(
            f"{error}: with --api-key or TINY_LLM_API_KEY, or with --allow-open"
            if options.api_key is None
            else str(error)
        ) from None


def make_llm(loaded: LoadedModel, sizes: Sizes, attention: str, documents: bool) -> LLM:
    """An engine of these sizes, whose kernel is compiled."""
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM
    from window.watched import WatchedCore

    require_memory(loaded.model, sizes.pages)
    warm_up(attention, loaded.model)
    return LLM(
        loaded.model,
        loaded.tokenizer,
        limits=Limits(sizes.seats, sizes.pages, PAGE_SIZE, sizes.token_budget),
        max_queue=sizes.queue,
        attention=attention,
        enable_chunk_aware=documents,
        chunk_separator=None,  # documents come in a field of their own: no text of a client is split
        around=WatchedCore,
    )


def make_site(llm: LLM, settings: Settings) -> FastAPI:
    """All that is served at the address: the API, and the window."""
    from tiny_llm.server.app import make_app
    from window.routes import add_window, llm_window

    site = make_app(llm, settings)
    site.state.window = llm_window(llm, settings.model_name, needs_key=settings.api_key is not None)
    add_window(site, site.state.window)
    return site


def serve_until_told(llm: LLM, settings: Settings, port: int, grace: float, watch: bool) -> None:
    """Serve until a signal comes; then let answers finish, and end the process. The next signal ends it at once.

    Raises:
        CourseError: the address can't be listened on, or the engine's loop has died.
    """
    view = ServeView(Console(stderr=True, highlight=False), watch)
    asyncio.run(_serve(llm, settings, port, grace, view))


async def _serve(llm: LLM, settings: Settings, port: int, grace: float, view: ServeView) -> None:
    from tiny_llm.server.run import HttpServer

    batcher = llm.batcher
    signals = StopSignals(lambda: view.left(batcher.stats()))
    site = make_site(llm, settings)
    server = HttpServer(site, llm, settings.host, port)
    try:
        address = await server.start()
    except OSError as error:
        raise CourseError(f"{error}; choose another port with --port, or 0 for any that is free") from None
    view.started(f"http://{address}", curl(settings, server.port), batcher.stats())
    with view:
        while batcher.thread.is_alive() and not await signals.asked_within(SECONDS_BETWEEN):
            view.show(batcher.stats())
    if not signals.asked.is_set():
        await server.stop(grace=0)
        raise CourseError("the engine's loop has ended; what it died of is above")
    site.state.window.let_end()
    view.stopping(batcher.stats(), grace)
    with suppress(TimeoutError):
        await asyncio.wait_for(server.stop(grace), grace + MARGIN)
    view.stopped(batcher.stats())
    end_process(0)


def curl(settings: Settings, port: int) -> str:
    """A command that asks the server something."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    host = f"[{host}]" if ":" in host else host
    key = ' -H "Authorization: Bearer $TINY_LLM_API_KEY"' if settings.api_key else ""
    message = {"role": "user", "content": "Name three fruits."}
    body = json.dumps({"model": settings.model_name, "messages": [message], "temperature": 0})
    return (
        f"curl http://{host}:{port}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
    )
