"""Errors in the form of OpenAI's API: what was wrong, in which field (Day 4.6, given code)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from tiny_llm.loading.errors import WeightsError
from tiny_llm.ragged.errors import Closed, QueueFull

log = logging.getLogger(__name__)

RETRY_AFTER = "1"
"""Seconds: a step takes less, and each step may end a request."""
LONGEST_PARAM = 100

SAYINGS = {
    "missing": "it is required",
    "extra_forbidden": "there is no such parameter",
    "model_attributes_type": "it must be a JSON object",
    "dict_type": "it must be a JSON object",
}
"""What is said in place of pydantic's own words, by the kind of its error."""

NOT_HERE = {404: "nothing is served at this address", 405: "this address takes another method"}
"""What is said in place of the framework's own words, by the status."""


class ApiError(HTTPException):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Say what is wrong.

        Args:
            status: of HTTP.
            message: what is wrong, and what to do about it.
            param: the field of the body that is meant, such as ``messages[0].content``.
            code: a word for programs.
            headers: to be sent with it.
        """
        super().__init__(status, message, headers)
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """What the client gets."""
        return error_body(self.status_code, self.detail, self.param, self.code)


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON object of an error; its type follows from the status."""
    kind = (
        "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    )
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def as_api_error(error: BaseException, param: str | None = None) -> ApiError:
    """The answer to a request that the engine doesn't take, or has not finished.

    Args:
        error: what the engine, the tokenizer or an answer has raised.
        param: the field that is to blame where the client has made a mistake.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, (ValueError, WeightsError)):
        return ApiError(400, str(error), param)
    if isinstance(error, QueueFull):
        return ApiError(429, str(error), code="queue_full", headers={"Retry-After": RETRY_AFTER})
    if isinstance(error, Closed):
        return ApiError(503, str(error), code="shutting_down")
    log.error("a request has failed", exc_info=error)
    return ApiError(500, f"the engine has failed ({type(error).__name__})")


def bad_body(errors: Sequence[Any]) -> ApiError:
    """The answer to a body that pydantic refuses: the first thing that is wrong, and how many others there are.

    Args:
        errors: as ``ValidationError.errors()`` lists them.
    """
    first = errors[0]
    param = param_of(first["loc"])
    cause = (first.get("ctx") or {}).get("error")
    saying = SAYINGS.get(first["type"]) or (str(cause) if cause is not None else _lower(first["msg"]))
    message = f"{param or 'the body'}: {saying}"
    if len(errors) > 1:
        message += f" (and {len(errors) - 1} more)"
    return ApiError(400, message, param)


def param_of(place: Sequence[str | int]) -> str | None:
    """The name of a field: ("body", "messages", 0, "content") is ``messages[0].content``; the body has none."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place[1:]]
    return "".join(steps).removeprefix(".")[:LONGEST_PARAM] or None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


async def show_http_error(request: Request, error: Exception) -> JSONResponse:
    """An error that was raised on purpose, ours or the framework's (no such address, no such method)."""
    assert isinstance(error, StarletteHTTPException)
    if isinstance(error, ApiError):
        body = error.body
    else:
        body = error_body(error.status_code, NOT_HERE.get(error.status_code, str(error.detail)))
    return JSONResponse(body, error.status_code, headers=error.headers)


async def show_bad_body(request: Request, error: Exception) -> JSONResponse:
    """A body that is JSON, and not what it should be."""
    assert isinstance(error, RequestValidationError)
    refusal = bad_body(error.errors())
    return JSONResponse(refusal.body, refusal.status_code)


async def show_failure(request: Request, error: Exception) -> JSONResponse:
    """A mistake of ours: the client hears no more than that. The log has the rest."""
    return JSONResponse(error_body(500, "the server has failed; its log says why"), 500)
