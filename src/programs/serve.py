"""`pdm run serve`: the engine as a server, over gRPC on this machine, or over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs import options, serve_http
from programs.cores import PAGE_SIZE, most_pages, ragged_batch, require_memory, warm_up
from programs.implementation import require_written
from programs.loaded import LoadedModel, running
from programs.serve_http import HttpOptions, Sizes
from programs.serve_view import ServeView
from programs.source import Source, choose_source
from programs.stages import GRPC
from programs.stop_signals import StopSignals, end_process

if TYPE_CHECKING:
    from tiny_llm.ragged.batcher import Batcher

PORT = 50051
HTTP = "Options of --http"
HTTP_OPTIONS = HttpOptions()
SECONDS_BETWEEN = 0.25
"""How often the view changes, and a batcher that has died is noticed."""
MARGIN = 1.0
"""Seconds for the step that is running when the grace is over: then nothing waits for its end any more."""


def serve(
    context: typer.Context,
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    attention: options.AttentionOption = options.Attention.AUTO,
    fast: options.FastOption = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=f"{PORT}, over HTTP {serve_http.PORT}",
            help="Where to listen; 0: any that is free.",
        ),
    ] = None,
    seats: Annotated[int, typer.Option(min=1, max=256, help="How many requests run at a time at most.")] = 16,
    pages: Annotated[
        int, typer.Option(min=1, help=f"How many pages of {PAGE_SIZE} tokens all of them share.")
    ] = 1024,
    token_budget: Annotated[
        int, typer.Option(min=1, max=8192, help="How many tokens a run of the model takes at most.")
    ] = 128,
    queue: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How many requests may wait for a seat.")
    ] = 256,
    grace: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds that running requests get to finish after Ctrl-C.")
    ] = 30.0,
    watch: Annotated[bool, typer.Option("--watch", help="Show what the server is doing.")] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, in the form of OpenAI's API (Day 4.6).")
    ] = False,
    host: Annotated[
        str, typer.Option(help="With --http, the address to listen on.", rich_help_panel=HTTP)
    ] = HTTP_OPTIONS.host,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="TINY_LLM_API_KEY",
            help="With --http, the key that clients have to send. Other users of the machine may see it in the list "
            "of processes: the variable is safer.",
            rich_help_panel=HTTP,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            help="With --http, an origin such as https://example.org whose pages may call from a browser; may be "
            "given several times.",
            rich_help_panel=HTTP,
        ),
    ] = None,
    allow_open: Annotated[
        bool,
        typer.Option(
            "--allow-open",
            help="With --http, let other machines call without a key.",
            rich_help_panel=HTTP,
        ),
    ] = False,
    documents: Annotated[
        bool, typer.Option(help="With --http, take documents beside a prompt.", rich_help_panel=HTTP)
    ] = HTTP_OPTIONS.documents,
) -> None:
    """Serve the model until Ctrl-C: over gRPC, on this machine only, or over HTTP.

    Ctrl-C takes no new requests and lets running requests finish; a second Ctrl-C stops at once.
    """
    console = Console(stderr=True, highlight=False)
    source = choose_source(context, Source(model, dtype, device, attention=attention), fast)
    given = HttpOptions(host, api_key, tuple(cors or ()), allow_open, documents)
    with running(impl) as course:
        if http:
            require_written(course, impl, serve_http.DAY, needed=True)
            settings = serve_http.settings_of(model, given)
            sizes = Sizes(seats, pages, token_budget, queue)
            llm = serve_http.make_llm(source.load(course, impl), sizes, source.attention, documents)
            serve_http.serve_until_told(
                llm, settings, serve_http.PORT if port is None else port, grace, watch
            )
            return
        origin = context.get_parameter_source("api_key")  # the variable may be set for another server
        typed = origin is not None and origin.name == "COMMANDLINE"
        if typed or replace(given, api_key=None) != HTTP_OPTIONS:
            raise CourseError("--host, --api-key, --cors, --allow-open and --no-documents go with --http")
        port = PORT if port is None else port
        require_written(course, impl, GRPC.day)
        loaded = source.load(course, impl)
        most = most_pages(loaded.model)
        require_memory(loaded.model, pages)
        warm_up(source.attention, loaded.model)
        core = ragged_batch(loaded.model, seats, pages, min(pages, most), token_budget, source.attention)
        from tiny_llm.ragged.batcher import Batcher

        batcher = Batcher(core, queue)
        asyncio.run(_serve(batcher, loaded, port, ServeView(console, watch), grace))


async def _serve(batcher: Batcher, loaded: LoadedModel, port: int, view: ServeView, grace: float) -> None:
    """Serve until a signal comes; then let calls finish, and end the process. The next signal ends it at once."""
    from tiny_llm.ragged.grpc_server import Server

    signals = StopSignals(lambda: view.left(batcher.stats()))
    server = Server(batcher, loaded.tokenizer, port=port)
    try:
        address = await server.start()
    except OSError as error:
        raise CourseError(f"{error}; choose another port with --port, or 0 for any that is free") from None
    option = "" if server.port == PORT else f" --port {server.port}"
    view.started(address, f'pdm run ask "Name three fruits."{option}', batcher.stats())
    with view:
        while batcher.thread.is_alive() and not await signals.asked_within(SECONDS_BETWEEN):
            view.show(batcher.stats())
    if not signals.asked.is_set():
        await server.stop(grace=0)
        raise CourseError("the batcher's thread has ended; what it died of is above")
    view.stopping(batcher.stats(), grace)
    with suppress(TimeoutError):
        await asyncio.wait_for(server.stop(grace), grace + MARGIN)
    view.stopped(batcher.stats())
    end_process(0)
