"""`pdm run window`: batch-main's prompts in an engine that can be watched, and stopped between two steps."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import Annotated

import typer
from rich.console import Console

from coursekit.running.import_path import Impl
from programs import options
from programs.cores import PAGE_SIZE
from programs.loaded import running
from programs.source import Source, choose_source
from programs.stop_signals import end_process
from window.choice import choose
from window.listening import HOST, listen, open_socket
from window.opening import Sizes, open_window
from window.stages import find_stages

PORT = 8765


def window(
    context: typer.Context,
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    bits: options.BitsOption = None,
    matmul: options.MatmulOption = options.Matmul.AUTO,
    fast: options.FastOption = False,
    seats: Annotated[int, typer.Option(min=1, max=64, help="How many requests run together at most.")] = 8,
    chunk: Annotated[
        int, typer.Option(min=1, max=8192, help="How many tokens all requests bring to a step at most.")
    ] = 128,
    pages: Annotated[
        int,
        typer.Option(
            min=1,
            max=options.MOST,
            help=f"How many pages of {PAGE_SIZE} tokens there are, in the stage served; the other stages have as "
            "many as the prompts need.",
        ),
    ] = 256,
    stage: Annotated[
        str | None,
        typer.Option(
            help="Whose engine: served, extend or ragged; left out, the first of these that is written. Or "
            "documents; or preempt, with too few pages."
        ),
    ] = None,
    attention: options.AttentionOption = options.Attention.AUTO,
    max_tokens: options.MaxTokensOption = 48,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help=f"Where to listen, on {HOST}; 0: any that is free.")
    ] = PORT,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Whether to open the page in the browser.")
    ] = True,
) -> None:
    """Watch an engine at work in the browser, step by step, on a fixed set of prompts.

    Your own code runs if it works, else the reference. It begins paused, before its first step. Ctrl-C ends it.
    """
    console = Console(stderr=True, highlight=False)
    stages = find_stages(stage)
    source = choose_source(context, Source(model, dtype, device, bits, matmul, attention), fast)
    listener = open_socket(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}/"
    with running(impl) as course:
        choice = choose(course, impl, stages, source, console)
        opened = open_window(
            choice.stage, choice.loaded, Sizes(seats, chunk, pages, max_tokens, source.attention), model
        )

    def started() -> None:
        console.print(f"{choice.what}: [bold]{address}[/bold]", soft_wrap=True)
        console.print(
            "paused before its first step: the page has Play and One step; Ctrl-C ends it", style="dim"
        )
        if open_page:
            webbrowser.open(address)

    asyncio.run(listen(opened.app, listener, started, opened.window.close))
    opened.end()
    console.print("stopped")
    end_process(0)
