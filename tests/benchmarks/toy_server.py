"""An OpenAI-compatible server whose answers follow a script."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse


@dataclass
class Script:
    """How the server behaves, and what it was asked."""

    key: str | None = None
    refuses: int = 0  # so many requests at first get status 429
    breaks_off: bool = False
    fails: bool = False  # an error in the stream
    usage: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    open_streams: int = 0
    most_streams: int = 0


def make_app(script: Script) -> FastAPI:
    """The two paths that a bench asks for."""
    app = FastAPI()

    @app.middleware("http")
    async def check_key(request: Request, go_on: Any) -> Response:
        if script.key is not None and request.headers.get("authorization") != f"Bearer {script.key}":
            return JSONResponse({"error": {"message": "wrong key"}}, status_code=401)
        response: Response = await go_on(request)
        return response

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "toy", "object": "model"}]}

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        body = await request.json()
        script.asked.append(body)
        if len(script.asked) <= script.refuses:
            return JSONResponse({"error": {"message": "the queue is full"}}, status_code=429)
        return StreamingResponse(_events(script, body["max_tokens"]), media_type="text/event-stream")

    return app


async def _events(script: Script, tokens: int) -> AsyncIterator[str]:
    script.open_streams += 1
    script.most_streams = max(script.most_streams, script.open_streams)
    for _ in range(tokens):
        yield _event(choices=[{"index": 0, "text": "ab", "finish_reason": None}])
        await asyncio.sleep(0.002)
    script.open_streams -= 1
    if script.breaks_off:
        return
    if script.fails:
        yield _event(error={"message": "the engine has failed"})
    yield _event(choices=[{"index": 0, "text": "", "finish_reason": "length"}])
    if script.usage:
        yield _event(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2 * tokens})
    yield "data: [DONE]\n\n"


def _event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


@contextmanager
def toy_server(script: Script) -> Iterator[str]:
    """Serve on a port that is free; gives the address."""
    server = uvicorn.Server(uvicorn.Config(make_app(script), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
