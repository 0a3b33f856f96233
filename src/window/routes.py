"""The addresses of the window, for any FastAPI app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict

from window import files
from window.events import Events
from window.gate import Mode
from window.guarding import HEADERS, require_own_page
from window.scenes import MOST_TOKENS, Director, SceneRunning, Scenes

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM
    from window.snapshot import Decoder
    from window.watched import WatchedCore

OWN_PAGE = [Depends(require_own_page)]


@dataclass(frozen=True)
class Setup:
    """What the page says of the engine."""

    model: str
    stage: str  # such as "S10 served"
    seats: int
    pages: int
    page_size: int
    token_budget: int
    chat: bool = False  # whether there is an LLM to chat with
    documents: bool = False  # whether prompts may have documents
    needs_key: bool = False  # whether the API asks for a key


class Control(BaseModel):
    """How steps are to go through."""

    model_config = ConfigDict(extra="forbid")
    mode: Literal["play", "slow", "pause", "step"]


class Start(BaseModel):
    """Which scene is to start."""

    model_config = ConfigDict(extra="forbid")
    name: str


class Window:
    """An engine that pages look at, and act upon."""

    def __init__(
        self,
        watched: WatchedCore,
        setup: Setup,
        director: Director,
        tokenizer: Decoder,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin without any page.

        Args:
            watched: the engine.
            setup: what the page says of it.
            director: starts the scenes.
            tokenizer: the model's.
            over: whether the engine has come to its end.
        """
        self.watched = watched
        self.director = director
        self.setup = {
            **asdict(setup),
            "scenes": [asdict(scene) for scene in director.scenes],
        }
        self.events = Events(watched, tokenizer, lambda: self._closed or over())
        self._closed = False

    def control(self, mode: str) -> Mode:
        """Change how steps go through. A single step is granted only where there is something to run.

        Returns:
            the mode after it.
        """
        gate = self.watched.gate
        if mode != "step":
            gate.set(Mode(mode))
        elif self.watched.busy:
            gate.step()
        else:
            gate.set(Mode.PAUSE)
        return gate.mode

    def let_end(self) -> None:
        """Cancel the scene, and let the other requests run to their ends, whatever the mode is."""
        self.director.close()
        self.watched.gate.open_for_good()

    def close(self) -> None:
        """The same, and end all streams."""
        self.let_end()
        self._closed = True


def add_window(app: FastAPI, window: Window) -> None:
    """Add the page, its files, and what the page calls, to an app.

    Where the app asks for a key, and has a set of addresses that need none (``app.state.open_paths``), page, files
    and setup are added to it.
    """
    open_paths: set[str] = getattr(app.state, "open_paths", set())
    open_paths |= {"/", "/window/setup", *(f"/window/{name}" for name in files.names())}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        """The page."""
        return files.file(files.PAGE)

    @app.get("/window/setup", include_in_schema=False, dependencies=OWN_PAGE)
    async def setup() -> JSONResponse:
        """What the page says of the engine."""
        return JSONResponse(window.setup, headers=HEADERS)

    @app.get("/window/events", include_in_schema=False, dependencies=OWN_PAGE)
    async def events(request: Request) -> StreamingResponse:
        """The snapshots."""
        stream = window.events.stream(request.is_disconnected)
        return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    @app.post("/window/control", include_in_schema=False, dependencies=OWN_PAGE)
    async def control(body: Control) -> JSONResponse:
        """Play, slow motion, pause, one step."""
        return JSONResponse({"mode": window.control(body.mode)}, headers=HEADERS)

    @app.post("/window/scene", include_in_schema=False, dependencies=OWN_PAGE)
    async def scene(body: Start) -> JSONResponse:
        """Start a scene."""
        await start(window.director, body.name)
        return JSONResponse({"name": body.name}, 202, headers=HEADERS)

    @app.get("/window/{name}", include_in_schema=False)
    async def file(name: str) -> FileResponse:
        """A file of the page."""
        return files.file(name)


async def start(director: Director, name: str) -> None:
    """Start a scene, on another thread, since its prompts have to become tokens first.

    Raises:
        HTTPException: there is no such scene (404), one runs already (409), or the engine doesn't take it (503).
    """
    if name not in {scene.name for scene in director.scenes}:
        raise HTTPException(404, f"there is no scene {name[:80]!r}")
    try:
        await asyncio.to_thread(director.start, name)
    except SceneRunning:
        raise HTTPException(409, "another scene runs: wait until it has ended") from None
    except Exception as error:
        raise HTTPException(503, f"the scene can't start: {error}") from error


def llm_window(
    llm: LLM, model: str, stage: str = "S10 served", needs_key: bool = False, max_tokens: int = MOST_TOKENS
) -> Window:
    """The window of an :class:`LLM` that was made with ``around=WatchedCore``.

    Args:
        llm: the engine.
        model: what the API calls the model.
        stage: which stage of the course this is.
        needs_key: whether the API asks for a key.
        max_tokens: how many tokens each answer in a scene has at most.
    """
    from window.watched import WatchedCore, watch_batcher

    watched: Any = llm.batcher.core
    assert isinstance(watched, WatchedCore), "the engine was made without a watch around its core"
    watch_batcher(watched, llm.batcher)
    limits = llm.limits
    setup = Setup(
        model,
        stage,
        limits.num_seats,
        limits.num_pages,
        limits.page_size,
        limits.token_budget,
        chat=True,
        documents=llm.reader.enable_chunk_aware,
        needs_key=needs_key,
    )
    return Window(
        watched, setup, Scenes(llm, max_tokens), llm.tokenizer, lambda: not llm.batcher.thread.is_alive()
    )
