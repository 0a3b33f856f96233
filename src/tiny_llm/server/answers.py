"""Answers as objects of OpenAI's API, whole and in pieces (Day 4.6, given code)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tiny_llm.engine.logprobs import TokenLogprob
from tiny_llm.engine.output import CompletionOutput, Delta, RequestOutput
from tiny_llm.server.logprobs import chat_logprobs, completion_logprobs
from tiny_llm.tokenizer import Tokenizer

Json = dict[str, Any]


def usage(prompt: int, cached: int, completion: int) -> Json:
    """How many tokens a request had, and how many of its prompt's were in the page cache."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@dataclass
class Writer:
    """Writes the objects of one request. A subclass for each of the two APIs says what a choice looks like."""

    id: str
    created: int  # seconds since 1970
    model: str
    tokenizer: Tokenizer
    n: int  # answers to each prompt
    logprobs: bool  # whether they were asked for
    lengths: dict[int, int] = field(default_factory=dict)  # characters of the tokens of each choice, so far

    whole = piece = ""  # the names of the two kinds of objects

    def envelope(self, kind: str, choices: list[Json], **others: Any) -> Json:
        """An object around some choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **others,
        }

    def answer(self, outputs: Sequence[RequestOutput]) -> Json:
        """The answer to a request that doesn't stream: the choices of the first prompt, then those of the others."""
        choices = [
            self.choice(number * self.n + each.index, each)
            for number, output in enumerate(outputs)
            for each in output.outputs
        ]
        numbers = usage(
            sum(each.prompt_tokens for each in outputs),
            sum(each.cached_tokens for each in outputs),
            sum(each.completion_tokens for each in outputs),
        )
        return self.envelope(self.whole, choices, usage=numbers)

    def opening(self, count: int) -> list[Json]:
        """What a stream of so many choices begins with."""
        return []

    def choice(self, index: int, output: CompletionOutput) -> Json:
        """A whole answer."""
        raise NotImplementedError

    def change(self, index: int, delta: Delta) -> Json:
        """What is new in an answer."""
        raise NotImplementedError


class CompletionWriter(Writer):
    """``/v1/completions``."""

    whole = piece = "text_completion"

    def choice(self, index: int, output: CompletionOutput) -> Json:
        """A whole answer."""
        return self._choice(index, output.text, output.finish_reason, output.logprobs or [])

    def change(self, index: int, delta: Delta) -> Json:
        """What is new in an answer."""
        return self._choice(index, delta.text, delta.finish_reason, delta.logprobs)

    def _choice(
        self, index: int, text: str, finish_reason: str | None, logprobs: Sequence[TokenLogprob]
    ) -> Json:
        start, shown = self.lengths.get(index, 0), None
        if self.logprobs:
            shown, self.lengths[index] = completion_logprobs(logprobs, self.tokenizer, start)
        return {"index": index, "text": text, "logprobs": shown, "finish_reason": finish_reason}


class ChatWriter(Writer):
    """``/v1/chat/completions``."""

    whole = "chat.completion"
    piece = "chat.completion.chunk"

    def choice(self, index: int, output: CompletionOutput) -> Json:
        """A whole answer."""
        message = {"role": "assistant", "content": output.text, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": self._shown(output.logprobs or []),
            "finish_reason": output.finish_reason,
        }

    def opening(self, count: int) -> list[Json]:
        """Who speaks."""
        delta = {"role": "assistant", "content": ""}
        return [
            {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            for index in range(count)
        ]

    def change(self, index: int, delta: Delta) -> Json:
        """What is new in an answer."""
        ends = delta.finish_reason is not None and not delta.text
        return {
            "index": index,
            "delta": {} if ends else {"content": delta.text},
            "logprobs": self._shown(delta.logprobs) if delta.logprobs else None,
            "finish_reason": delta.finish_reason,
        }

    def _shown(self, logprobs: Sequence[TokenLogprob]) -> Json | None:
        return chat_logprobs(logprobs, self.tokenizer) if self.logprobs else None
