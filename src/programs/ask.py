"""`pdm run ask`: a client for `pdm run serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import grpc
import typer
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from programs import options
from programs.loaded import Timing
from programs.serve import PORT

if TYPE_CHECKING:
    from tiny_llm.ragged.protocol.tiny_llm_pb2 import Piece


def ask(
    prompt: Annotated[str, typer.Argument(help="What to ask the model.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as plain text, without a chat.")
    ] = False,
    host: Annotated[str, typer.Option(help="Where the server is.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="And the port that it listens on.")] = PORT,
    max_tokens: options.MaxTokensOption = 128,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    seed: options.SeedOption = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds for the whole answer; left out, as long as it takes.")
    ] = None,
) -> None:
    """Ask the server that `pdm run serve` has started, and print the answer as it comes.

    Ctrl-C cancels the request, on the server too.
    """
    choose_implementation(Course.find(), Impl.LEARNER)  # the protocol is given code
    from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
    from tiny_llm.ragged.protocol.tiny_llm_pb2_grpc import TinyLlmStub

    _require_natural("top_k", top_k)
    message = pb.GenerateRequest(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
    )
    setattr(message, "text" if raw else "prompt", prompt)
    address, timing = f"{host}:{port}", Timing()
    try:
        with grpc.insecure_channel(address) as channel:
            ended = _print(TinyLlmStub(channel).Stream(message, timeout=timeout), timing)
    except grpc.RpcError as error:
        raise CourseError(_explain(error, address, timeout, bool(timing.arrivals))) from None
    why = "" if ended == pb.FINISH_REASON_STOP else " · cut off at --max-tokens"
    Console(stderr=True, highlight=False).print(
        f"[dim]{len(timing.arrivals)} tokens · first after {timing.first_token:.2f} s · "
        f"{timing.tokens_per_second:.1f} tokens/s{why}[/dim]"
    )


def _require_natural(name: str, value: int) -> None:
    """What the protocol's type can't hold never gets to the server, which would say the same."""
    if value < 0:
        raise CourseError(f"{name} is {value}; it must be a whole number, 0 or more")


def _print(pieces: Iterable[Piece], timing: Timing) -> int:
    """Write the text as it comes.

    Returns:
        why it ended, as the last piece says.
    """
    reason = 0
    for piece in pieces:
        if piece.token_ids:
            timing.stamp()
        print(piece.text, end="", flush=True)
        reason = piece.finish_reason
    print(flush=True)
    return reason


def _explain(error: grpc.RpcError, address: str, timeout: float | None, begun: bool) -> str:
    """What went wrong, and what to do about it."""
    if begun:
        print(file=sys.stdout, flush=True)  # the answer's last line is not complete
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE and "connect" in details:
        return f"no server answers on {address}; start one with: pdm run serve"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return (
            f"the answer was not complete after {timeout:g} s; give it more with --timeout, or leave that out"
        )
    return f"{code.name}: {details}"
