"""A server for the tests of the page: its files, states as a test wants them, and a chat that is made up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from made_states import State
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

STATIC = Path(__file__).parents[2] / "src/window/static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SETUP: dict[str, Any] = {
    "model": "SmolLM2-135M-Instruct",
    "chat": True,
    "stage": "S10 served",
    "documents": True,
    "seats": 16,
    "pages": 256,
    "page_size": 16,
    "token_budget": 256,
    "scenes": [
        {"name": "crowd", "title": "16 prompts at once", "about": "They share the budget of each step."},
        {
            "name": "prefix",
            "title": "Shared prefix",
            "about": "Ten questions about one text find its pages in the tree.",
        },
        {"name": "pages", "title": "Too few pages", "about": "Long answers, until requests are preempted."},
        {"name": "documents", "title": "Documents", "about": "Two questions about the same three documents."},
    ],
    "needs_key": False,
}


class PageServer:
    """What the page sees, and what it asked for."""

    def __init__(self) -> None:
        self.setup = dict(SETUP)
        self.states: list[State] = []
        self.posted: list[tuple[str, Any, str | None]] = []  # path, body, key
        self.words = ["Apples", ", pears", " and", " plums", "."]
        self.endless = False  # whether the answer goes on until it is stopped
        self.scene_runs = False
        self.refusal: tuple[int, str] | None = None
        self.stopped = threading.Event()  # the page went away in the middle of an answer
        self.url = ""
        self._server: uvicorn.Server | None = None

    def show(self, state: State) -> None:
        """Send this state to the page."""
        self.states.append(state)

    def bodies(self, path: str) -> list[Any]:
        """What was posted to a path."""
        return [body for to, body, _ in self.posted if to == path]

    def app(self) -> Starlette:
        """The routes."""
        post = ["POST"]
        return Starlette(
            routes=[
                Route("/", lambda request: self._file("index.html")),
                Route("/window/setup", lambda request: JSONResponse(self.setup)),
                Route("/window/events", self._events),
                Route("/window/control", self._control, methods=post),
                Route("/window/scene", self._scene, methods=post),
                Route("/v1/chat/completions", self._chat, methods=post),
                Route("/window/{name}", lambda request: self._file(request.path_params["name"])),
            ]
        )

    def _file(self, name: str) -> Response:
        return FileResponse(
            STATIC / name, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        )

    async def _note(self, request: Request) -> Any:
        body = await request.json()
        self.posted.append((request.url.path, body, request.headers.get("Authorization")))
        return body

    async def _control(self, request: Request) -> Response:
        body = await self._note(request)
        return JSONResponse({"mode": body["mode"]})

    async def _scene(self, request: Request) -> Response:
        await self._note(request)
        if self.scene_runs:
            return JSONResponse({"error": {"message": "another scene runs"}}, status_code=409)
        return JSONResponse({}, status_code=202)

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self._event_lines(), media_type="text/event-stream")

    async def _event_lines(self) -> AsyncIterator[str]:
        yield ": here\n\n"
        sent = 0
        while self._server is not None and not self._server.should_exit:
            if len(self.states) > sent:
                sent = len(self.states)
                yield f"event: state\ndata: {json.dumps(self.states[-1])}\n\n"
            await asyncio.sleep(0.01)

    async def _chat(self, request: Request) -> Response:
        await self._note(request)
        if self.refusal:
            status, message = self.refusal
            return JSONResponse({"error": {"message": message}}, status, headers={"Retry-After": "3"})
        return StreamingResponse(self._answer(), media_type="text/event-stream")

    async def _answer(self) -> AsyncIterator[str]:
        try:
            place = 0
            while self.endless or place < len(self.words):
                yield _chunk([{"index": 0, "delta": {"content": self.words[place % len(self.words)]}}])
                place += 1
                await asyncio.sleep(0.01)
            yield _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
            details = {"cached_tokens": 32}
            yield _chunk([], {"prompt_tokens": 34, "completion_tokens": 5, "prompt_tokens_details": details})
            yield "data: [DONE]\n\n"
        except (asyncio.CancelledError, GeneratorExit):
            self.stopped.set()
            raise

    def start(self, port: int = 0) -> None:
        """Listen, on a thread."""
        self._server = uvicorn.Server(
            uvicorn.Config(self.app(), port=port, log_level="error", timeout_graceful_shutdown=1)
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Go away, and wait until it is done."""
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join(10)


def _chunk(choices: list[Any], usage: Any = None) -> str:
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, "usage": usage}
    return f"data: {json.dumps(body)}\n\n"


@contextmanager
def page_server() -> Iterator[PageServer]:
    """A server that listens."""
    server = PageServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
