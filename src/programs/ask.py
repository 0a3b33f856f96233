"""`pdm run ask`: a client for `pdm run serve`."""

from __future__ import annotations

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
    prompt: Annotated[str, typer.Argument(callback=options.not_empty, help="What to ask the model.")],
    raw: options.RawOption = False,
    host: Annotated[str, typer.Option(help="Where the server is.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="And the port that it listens on.")] = PORT,
    max_tokens: options.MaxTokensOption = 128,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    repetition_penalty: options.RepetitionPenaltyOption = 1.0,
    seed: options.SeedOption = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            max=86_400,
            callback=options.above_zero,
            help="Seconds for the whole answer; left out, as long as it takes.",
        ),
    ] = None,
) -> None:
    """Ask the server that `pdm run serve` has started, and print the answer as it comes.

    Ctrl-C cancels the request, on the server too.
    """
    choose_implementation(Course.find(), Impl.LEARNER)  # the protocol is given code
    from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
    from tiny_llm.ragged.protocol.tiny_llm_pb2_grpc import TinyLlmStub

    message = pb.GenerateRequest(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    setattr(message, "text" if raw else "prompt", prompt)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    answer = Answer(starts_with=prompt if raw else "")
    try:
        with grpc.insecure_channel(address) as channel:
            answer.take(TinyLlmStub(channel).Stream(message, timeout=timeout))
    except grpc.RpcError as error:
        raise CourseError(_explain(error, address, timeout)) from None
    finally:
        answer.close()


class Answer:
    """What has come of the answer: printed at once, with the times at the end."""

    def __init__(self, starts_with: str = "") -> None:
        """Nothing has come yet; ``starts_with`` is printed before the first piece."""
        self._starts_with = starts_with
        self._timing = Timing()
        self._begun = False
        self._ended: int | None = None  # why, once the server has said so

    def take(self, pieces: Iterable[Piece]) -> None:
        """Write the text as it comes."""
        for piece in pieces:
            if piece.token_ids:
                self._timing.stamp()
            before, self._begun = "" if self._begun else self._starts_with, True
            print(before + piece.text, end="", flush=True)
            self._ended = piece.finish_reason

    def close(self) -> None:
        """End the last line, also that of an answer which is not complete, and say how fast it came."""
        from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb

        if not self._begun:
            return
        print(flush=True)
        unfinished: dict[int, str] = {
            pb.FINISH_REASON_LENGTH: " · cut off at --max-tokens, or where the model's positions end",
            pb.FINISH_REASON_UNSPECIFIED: " · broken off",
        }
        timing, why = self._timing, unfinished.get(self._ended or 0, "")
        Console(stderr=True, highlight=False).print(
            f"[dim]{len(timing.arrivals)} tokens · first after {timing.first_token:.2f} s · "
            f"{timing.tokens_per_second:.1f} tokens/s{why}[/dim]",
            soft_wrap=True,
        )


def _explain(error: grpc.RpcError, address: str, timeout: float | None) -> str:
    """What went wrong, and what to do about it."""
    code, details = error.code(), " ".join((error.details() or "").split())
    if code == grpc.StatusCode.UNAVAILABLE and "connect" in details:
        return f"no server answers on {address}; start one with: pdm run serve"
    if code == grpc.StatusCode.UNAVAILABLE and "resolving" in details:
        return f"there is no machine of the name in {address}: check --host"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return (
            f"the answer was not complete after {timeout:g} s; give it more with --timeout, or leave that out"
        )
    return f"{code.name}: {details}"
