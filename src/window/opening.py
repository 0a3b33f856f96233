"""Puts an engine, its watch and its page together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from programs.cores import PAGE_SIZE, require_memory
from programs.loaded import LoadedModel, prompt_ids
from programs.prompts import PROMPTS
from window.gate import Mode
from window.routes import Setup, Window, add_window, llm_window
from window.stages import SERVED, WatchedStage

if TYPE_CHECKING:
    from tiny_llm.engine_core import EngineCore
    from tiny_llm.request import Request

SECONDS_TO_END = 5.0
"""For the step that is running, at the end."""
OWN_NAMES = ["127.0.0.1", "localhost", "[::1]", "testserver"]
"""Hosts that are this machine: a page whose name was made to point to it has another."""


@dataclass(frozen=True)
class Sizes:
    """How large the engine is."""

    seats: int
    chunk: int  # tokens of all requests per step
    pages: int  # of an engine with an LLM; others have as many as their prompts need
    max_tokens: int
    attention: str


@dataclass(frozen=True)
class Opened:
    """A page that can be served, and how its engine is ended."""

    app: FastAPI
    window: Window
    end: Callable[[], object]


def open_window(stage: WatchedStage, loaded: LoadedModel, sizes: Sizes, model: str) -> Opened:
    """Start batch-main's prompts, paused before their first step.

    Args:
        stage: whose engine.
        loaded: the model.
        sizes: how large the engine is.
        model: where the model comes from, which is also its name.
    """
    model = Path(model).stem if Path(model).exists() else model
    make = _open_llm if stage is SERVED else _open_run
    return make(stage, loaded, sizes, model)


def _open_llm(stage: WatchedStage, loaded: LoadedModel, sizes: Sizes, model: str) -> Opened:
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM
    from tiny_llm.server.app import make_app
    from tiny_llm.server.settings import Settings
    from window.watched import WatchedCore

    require_memory(loaded.model, sizes.pages)
    llm = LLM(
        loaded.model,
        loaded.tokenizer,
        limits=Limits(sizes.seats, sizes.pages, PAGE_SIZE, sizes.chunk),
        attention=sizes.attention,
        enable_chunk_aware=True,
        chunk_separator=None,
        around=lambda core: WatchedCore(core, Mode.PAUSE),
    )
    window = llm_window(llm, model, stage.title, max_tokens=sizes.max_tokens)
    window.director.start("crowd")
    app = make_app(llm, Settings(model))
    add_window(app, window)
    return Opened(app, window, lambda: llm.close(timeout=SECONDS_TO_END))


def _open_run(stage: WatchedStage, loaded: LoadedModel, sizes: Sizes, model: str) -> Opened:
    from tiny_llm.request import Request
    from window.run import Run
    from window.watched import WatchedCore

    prompts = [prompt_ids(loaded, prompt, raw=False) for prompt in PROMPTS]

    def requests() -> list[Request]:
        return [Request(prompt, sizes.max_tokens, loaded.tokenizer.end_ids) for prompt in prompts]

    core = stage.make(loaded.model, requests(), sizes.seats, sizes.chunk, sizes.attention)
    run = Run(WatchedCore(core, Mode.PAUSE), requests)
    setup = Setup(
        model, stage.title, sizes.seats, core.allocator.num_pages - 1, _page_size(core), sizes.chunk
    )
    window = Window(run.watched, setup, run, loaded.tokenizer)
    run.start()
    app = _own_app()
    add_window(app, window)
    return Opened(app, window, lambda: run.join(SECONDS_TO_END))


def _own_app() -> FastAPI:
    app = FastAPI(title="tiny-llm's window", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=OWN_NAMES)
    return app


def _page_size(core: EngineCore) -> int:
    """Tokens per page."""
    runner = getattr(core, "runner")  # noqa: B009  # what every engine on pages has, and no core promises
    return int(runner.pool.page_size)
