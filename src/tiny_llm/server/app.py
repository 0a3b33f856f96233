"""The addresses of the server, and what stands behind them (Day 4.6, given code)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import from_json
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.cors import CORSMiddleware

from tiny_llm.engine.llm import LLM
from tiny_llm.server import errors, metrics
from tiny_llm.server.answering import Answering, ClientGone, unless_gone
from tiny_llm.server.answers import ChatWriter, CompletionWriter, Writer
from tiny_llm.server.asking import Reader, settings_of
from tiny_llm.server.errors import ApiError, as_api_error
from tiny_llm.server.guard import Guard
from tiny_llm.server.protocol import Asked, ChatBody, CompletionBody
from tiny_llm.server.settings import Settings
from tiny_llm.server.streaming import EventStream, events

GONE = 499
"""The status of an answer that no client waits for any more; nobody sees it."""


class StrictRequest(Request):
    """A request whose body must be JSON as the standard has it."""

    async def json(self) -> Any:
        """The body as Python's values: no NaN, no half of a character, no nesting without end."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the body isn't valid JSON: {error}", code="invalid_json") from error


class StrictRoute(APIRoute):
    """A route whose requests are strict."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As usual, with a check of what the body says that it is."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method == "POST" and kind != "application/json":
                raise ApiError(415, "send the body as JSON, with the header Content-Type: application/json")
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


class Api:
    """The two ways to ask an engine over HTTP."""

    def __init__(self, llm: LLM, settings: Settings) -> None:
        """Serve this engine."""
        self.llm = llm
        self.settings = settings
        self.reader = Reader(llm)
        self.started = int(time.time())

    @property
    def model(self) -> dict[str, Any]:
        """What OpenAI's API says of a model."""
        return {
            "id": self.settings.model_name,
            "object": "model",
            "created": self.started,
            "owned_by": "tiny-llm",
        }

    def require_model(self, name: str) -> None:
        """Refuse a model that isn't here."""
        if name != self.settings.model_name:
            message = f"there is no model {name[:80]!r} here; there is {self.settings.model_name!r}"
            raise ApiError(404, message, "model", "model_not_found")

    async def answer(self, request: Request, body: Asked) -> Response:
        """Read a body, let the engine answer, and write the answer, in one piece or in many."""
        self.require_model(body.model)
        try:
            self.llm.batcher.require_room()  # to refuse costs nothing; to read costs time, which others need
            params = settings_of(body)
            # A long text takes a while to become tokens; meanwhile the event loop serves other clients.
            prompts = await asyncio.to_thread(self.reader.read, body, params)
            writer = self.writer(body, params.n, params.logprobs is not None)
            answering = Answering(self.llm, prompts, params, writer.id)
        except Exception as error:
            raise as_api_error(error) from error
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            return EventStream(events(answering, writer, usage), answering.cancel)
        try:
            return JSONResponse(writer.answer(await unless_gone(request.receive, answering.outputs())))
        except ClientGone:
            return Response(status_code=GONE)
        except Exception as error:
            raise as_api_error(error) from error
        finally:
            answering.cancel()

    def writer(self, body: Asked, n: int, logprobs: bool) -> Writer:
        """Writes the answers to a body, under an id of their own."""
        kind, name = (ChatWriter, "chatcmpl") if isinstance(body, ChatBody) else (CompletionWriter, "cmpl")
        created = int(time.time())
        return kind(
            f"{name}-{uuid.uuid4().hex}",
            created,
            self.settings.model_name,
            self.llm.tokenizer,
            n,
            logprobs,
        )


def make_app(llm: LLM, settings: Settings = Settings()) -> FastAPI:  # noqa: B008  # it can't change
    """The server of an engine. The engine is the caller's, who closes it.

    ``app.state.open_paths`` is the set of addresses that need no key: code that adds routes may add to it.
    """
    app = FastAPI(
        title="tiny-llm",
        version="1",
        docs_url=None,  # these two pages would load scripts from other servers
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            StarletteHTTPException: errors.show_http_error,
            RequestValidationError: errors.show_bad_body,
            Exception: errors.show_failure,
        },
    )
    app.router.route_class = StrictRoute
    app.state.open_paths = {"/health", "/ready"}
    add_api(app, Api(llm, settings))
    add_state(app, llm)
    app.add_middleware(Guard, settings=settings, open_paths=app.state.open_paths)
    if settings.cors:  # outside the guard: a browser asks first whether it may send a key at all
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def add_api(app: FastAPI, api: Api) -> None:
    """The addresses of OpenAI's API."""
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"description": "OpenAI's error object", "content": {"application/json": {}}}
        for status in (400, 401, 403, 404, 413, 415, 429, 500, 503)
    }

    @app.get("/v1/models", responses=refusals)
    async def models() -> dict[str, Any]:
        """The model that is served."""
        return {"object": "list", "data": [api.model]}

    @app.get("/v1/models/{name:path}", responses=refusals)
    async def model(name: str) -> dict[str, Any]:
        """One model."""
        api.require_model(name)
        return api.model

    @app.post("/v1/completions", responses=refusals)
    async def completions(request: Request, body: CompletionBody) -> Response:
        """Continue some prompts."""
        return await api.answer(request, body)

    @app.post("/v1/chat/completions", responses=refusals)
    async def chat_completions(request: Request, body: ChatBody) -> Response:
        """Answer a conversation."""
        return await api.answer(request, body)


def add_state(app: FastAPI, llm: LLM) -> None:
    """Addresses for programs that watch over servers."""
    registry = metrics.watch(llm)

    @app.get("/health")
    async def health() -> JSONResponse:
        """Whether the engine's loop runs: if not, only a new start helps."""
        alive = llm.batcher.thread.is_alive()
        return JSONResponse({"status": "ok" if alive else "dead"}, 200 if alive else 503)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether requests are taken: not any more while the last ones are finished."""
        taken = llm.batcher.thread.is_alive() and not llm.batcher.closed
        return JSONResponse({"status": "ready" if taken else "closing"}, 200 if taken else 503)

    @app.get("/metrics")
    async def figures() -> Response:
        """The figures for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
