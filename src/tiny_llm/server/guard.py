"""Who may call, and how much they may send (Day 4.6, given code).

A web page that somebody opens can send requests to a server on the same machine, from inside the browser. Two things
keep it out. Its requests carry its own origin, which isn't the server's. And a page whose name was made to point to
this machine (DNS rebinding) carries that name as the host, which isn't a name of this machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiny_llm.server.errors import ApiError
from tiny_llm.server.settings import Settings, is_loopback

READ_ON = 64 * 2**20
"""Bytes of a body that is too large that are read all the same: a client that is still sending hears no answer."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What each response has unless it says otherwise."""


class Guard:
    """Stands in front of an app; lets requests through, with their whole body, or answers with an error."""

    def __init__(self, app: ASGIApp, settings: Settings, open_paths: Collection[str]) -> None:
        """Guard an app.

        Args:
            app: what is guarded.
            settings: who may call.
            open_paths: addresses that need no key; more may be added at any time.
        """
        self.app = app
        self.settings = settings
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, read its body, and pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent.setdefault(name, value)
            await send(message)

        try:
            self.check(scope, headers)
            body = await self.read(receive, headers)
        except ApiError as error:
            answer = JSONResponse(error.body, error.status_code, headers=error.headers)
            await answer(scope, receive, send_safely)
            return
        if body is not None:
            await self.app(scope, replay(body, receive), send_safely)

    def check(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request by its headers.

        Raises:
            ApiError: its host or origin isn't allowed (403), it lacks the key (401), or its body is too large (413).
        """
        host = headers.get("host", "")
        if self.settings.local and not is_loopback(_hostname(host)):
            raise ApiError(
                403,
                f"this server doesn't answer to the host {host[:80]!r}: call it by 127.0.0.1 or localhost",
            )
        if not self.may_call(scope, headers, host):
            raise ApiError(
                403, "pages of this origin may not call this server: its owner can allow them with --cors"
            )
        if scope["path"] not in self.open_paths and not self.has_key(headers):
            raise ApiError(
                401,
                "the API key is missing or wrong: send it as the header Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def may_call(self, scope: Scope, headers: Headers, host: str) -> bool:
        """Whether a request comes from no web page, from the server's own, or from one that is allowed."""
        origin, allowed = headers.get("origin"), self.settings.cors
        if "*" in allowed or (origin is not None and origin in allowed):
            return True
        if origin is not None:
            return origin == f"{scope['scheme']}://{host}"
        # No origin: browsers say otherwise where the request comes from. To follow a link to a page is allowed.
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode")
        return site in ("none", "same-origin") or (mode == "navigate" and scope["method"] == "GET")

    def has_key(self, headers: Headers) -> bool:
        """Whether the key is there, if one is asked for. The time this takes doesn't tell how much of it is right."""
        key = self.settings.api_key
        if key is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # ASGI gives the bytes of a header as Latin-1; the key may have been sent as UTF-8.
        right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), key.encode())
        return right and scheme.lower() == "bearer"

    async def read(self, receive: Receive, headers: Headers) -> bytes | None:
        """The whole body; None if the client has gone away meanwhile.

        Raises:
            ApiError: it is too large (413). Its end is read and forgotten, so that the client gets the answer.
        """
        most, parts, length = self.settings.max_body, list[bytes](), 0
        declared = headers.get("content-length", "0")
        announced = int(declared) if declared.isdecimal() else 0
        if announced > READ_ON or (announced > most and "expect" in headers):
            raise self.too_large()
        more = True
        while more and length <= READ_ON:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            length += len(part)
            if length <= most:
                parts.append(part)
            else:
                parts.clear()
            more = message.get("more_body", False)
        if length > most:
            raise self.too_large()
        return b"".join(parts)

    def too_large(self) -> ApiError:
        """The error for a body over the limit."""
        return ApiError(413, f"the body is too large: {self.settings.max_body} bytes are the most")


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, as a whole, and then what comes after it."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _hostname(host: str) -> str:
    """The name in a Host header, without the port; empty if the header makes no sense."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
