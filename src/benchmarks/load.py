"""Requests to an OpenAI-compatible server, sent when they are due, and when the pieces of their answers came."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import httpx

from coursekit.errors import CourseError
from programs.loaded import Timing

PATIENCE = httpx.Timeout(10.0, read=120.0)
"""Seconds to wait for a connection, and for the next piece of an answer."""


@dataclass(frozen=True)
class Service:
    """An OpenAI-compatible server."""

    url: str  # what the paths of its API stand behind: it ends in /v1
    key: str | None = None
    model: str = ""

    @property
    def client_options(self) -> dict[str, Any]:
        """What an HTTP client needs for it; a proxy is never asked for a server on this machine."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {"headers": headers, "timeout": PATIENCE, "trust_env": not _on_this_machine(self.url)}


def _on_this_machine(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Call:
    """A request, and when it comes, in seconds from the start."""

    prompt: str
    max_tokens: int
    at: float


@dataclass
class Reply:
    """What became of a call. Its time begins when it was due, also where it was sent a moment later."""

    timing: Timing = field(default_factory=Timing)  # a stamp for each piece of text
    tokens: int = 0
    error: str | None = None


def find_service(url: str, key: str | None) -> Service:
    """Ask a server which model it has.

    Args:
        url: where the server is, with or without /v1 at the end.
        key: what it is to be asked with, if anything.

    Raises:
        CourseError: there is no such server, it wants another key, or it is no OpenAI-compatible one.
    """
    service = Service(url.rstrip("/").removesuffix("/v1") + "/v1", key)
    try:
        with httpx.Client(**service.client_options) as client:
            answer = client.get(f"{service.url}/models")
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise CourseError(f"--url is {url!r}; it must look like http://127.0.0.1:8000") from None
    except httpx.HTTPError as error:
        raise CourseError(f"no server answers at {url} ({error}): is it running?") from None
    if answer.status_code in (401, 403):
        wrong = "wants a key" if key is None else "does not take this key"
        raise CourseError(f"the server at {url} {wrong}: give it with --api-key, or in OPENAI_API_KEY")
    try:
        model = answer.raise_for_status().json()["data"][0]["id"]
    except (httpx.HTTPStatusError, ValueError, LookupError, TypeError):
        found = f"GET {service.url}/models gave status {answer.status_code}"
        raise CourseError(f"the server at {url} is no OpenAI-compatible one: {found}, and no model") from None
    return Service(service.url, key, str(model))


async def send_all(service: Service, calls: Sequence[Call]) -> list[Reply]:
    """Send each call when it is due, whether or not those before it are answered; the replies, in their order."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, **service.client_options) as client:
        started = time.perf_counter()
        return await asyncio.gather(*(_send(client, service, call, started + call.at) for call in calls))


async def _send(client: httpx.AsyncClient, service: Service, call: Call, due: float) -> Reply:
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    reply = Reply(Timing(due))
    try:
        async with _stream(client, service, call) as response:
            await _read(response, reply)
    except httpx.HTTPError as error:
        reply.error = f"{type(error).__name__}: {error}"
    return reply


@asynccontextmanager
async def _stream(client: httpx.AsyncClient, service: Service, call: Call) -> AsyncIterator[httpx.Response]:
    """Ask for a greedy answer, piece by piece."""
    body = {
        "model": service.model,
        "prompt": call.prompt,
        "max_tokens": call.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with client.stream("POST", f"{service.url}/completions", json=body) as response:
        yield response


async def _read(response: httpx.Response, reply: Reply) -> None:
    """Read an answer to its end, and note when each piece of its text came."""
    if response.status_code != httpx.codes.OK:
        reply.error = (
            f"status {response.status_code}: {(await response.aread()).decode(errors='replace')[:300]}"
        )
        return
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if name != "data":
            continue
        if value.strip() == "[DONE]":
            reply.tokens = reply.tokens or len(reply.timing.arrivals)
            return
        _note(json.loads(value), reply)
    reply.error = reply.error or "the answer broke off"


def _note(chunk: dict[str, Any], reply: Reply) -> None:
    if "error" in chunk:
        reply.error = str(chunk["error"])
    elif any(choice.get("text") for choice in chunk.get("choices", ())):
        reply.timing.stamp()
    if chunk.get("usage"):
        reply.tokens = chunk["usage"]["completion_tokens"]
