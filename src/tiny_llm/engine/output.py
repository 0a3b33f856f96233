"""What the engine answers (Day 4.6, given code)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tiny_llm.engine.logprobs import TokenLogprob


class FinishReason(StrEnum):
    """Why an answer has ended."""

    STOP = "stop"  # with an end token, a stop token or a stop string
    LENGTH = "length"  # no more tokens are wanted, or there is no room for more


@dataclass(frozen=True)
class Delta:
    """What is new in an answer: the text and the tokens since the delta before it.

    Texts may lag behind tokens: half a character, and what may still become a stop string, are held back.
    """

    index: int  # which of the n answers
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()  # one per token, if they were asked for
    finish_reason: FinishReason | None = None  # in the last delta of the answer, unless it has failed
    error: BaseException | None = None  # in the last delta of an answer that has failed, or was cancelled


@dataclass(frozen=True)
class CompletionOutput:
    """One answer."""

    index: int
    text: str  # without a stop string
    token_ids: list[int]  # all that were generated, also the one that ended the answer
    finish_reason: FinishReason
    stop_reason: int | str | None = None  # the stop string or the stop token id that ended it, if one did
    logprobs: list[TokenLogprob] | None = None  # one per token, if they were asked for


@dataclass(frozen=True)
class RequestOutput:
    """The n answers to one prompt."""

    prompt_tokens: int  # documents included
    cached_tokens: int  # how many of these had been computed before the request came
    outputs: list[CompletionOutput] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the first answer."""
        return self.outputs[0].text

    @property
    def completion_tokens(self) -> int:
        """How many tokens all answers have together."""
        return sum(len(each.token_ids) for each in self.outputs)
