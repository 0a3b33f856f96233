"""From the body of a request to what the engine takes (Day 4.6, given code)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_llm.documents.prompt import Segments
from tiny_llm.engine.llm import LLM
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.prompts import DocumentsError, Encoded
from tiny_llm.loading.errors import WeightsError
from tiny_llm.server.errors import ApiError, as_api_error
from tiny_llm.server.protocol import COMPLETION_TOKENS, Asked, ChatBody, CompletionBody

SAME_NAME = (
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "n",
    "priority",
)
"""Fields of a body that are fields of SamplingParams; null means that the engine's default counts."""


def settings_of(body: Asked) -> SamplingParams:
    """The settings that a body asks for.

    Raises:
        ApiError: fields contradict each other.
    """
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options: it goes with stream = true only", "stream_options")
    given = {name: value for name in SAME_NAME if (value := getattr(body, name)) is not None}
    return SamplingParams(
        **given,
        temperature=1.0 if body.temperature is None else body.temperature,
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        ignore_end=bool(body.ignore_eos),
        client=body.user or "",
        documents=body.documents,
        max_tokens=most_tokens(body),
        logprobs=logprobs_of(body),
    )


def most_tokens(body: Asked) -> int | None:
    """How many tokens the answer may have; None: as many as there is room for."""
    if isinstance(body, CompletionBody):
        return COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    assert isinstance(body, ChatBody)
    given = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(given) > 1:
        raise ApiError(
            400,
            "max_completion_tokens: it differs from max_tokens, its older name: give one of them",
            "max_completion_tokens",
        )
    return given.pop() if given else None


def logprobs_of(body: Asked) -> int | None:
    """How many of the best tokens to report beside each token of the answer; None: not even that one."""
    if isinstance(body, CompletionBody):
        return body.logprobs
    assert isinstance(body, ChatBody)
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise ApiError(400, "top_logprobs: it goes with logprobs = true only", "top_logprobs")
    return None


class Reader:
    """Turns bodies into token ids for one engine."""

    def __init__(self, llm: LLM) -> None:
        """Read for this engine."""
        self.llm = llm
        limits, longest = llm.limits, llm.tokenizer.longest_token
        self.most_characters = (llm.core.max_positions - 1) * longest
        self.most_in_documents = limits.num_pages * limits.page_size * longest

    def read(self, body: Asked, params: SamplingParams) -> list[Encoded]:
        """The token ids of each prompt. Long texts take a while: it is called on a thread of its own.

        Raises:
            ApiError: a prompt can't ever run here.
        """
        param = "prompt" if isinstance(body, CompletionBody) else "messages"
        try:
            prompts = self._prompts(body, params)
            for number, prompt in enumerate(prompts, start=1):
                reason = self.llm.refusal(prompt, params)
                if reason is not None:
                    kind = DocumentsError if isinstance(prompt, Segments) else ValueError
                    raise kind(reason if len(prompts) == 1 else f"prompt {number}: {reason}")
        except Exception as error:
            of_documents = isinstance(error, DocumentsError) and body.documents
            raise as_api_error(error, "documents" if of_documents else param) from error
        return prompts

    def _prompts(self, body: Asked, params: SamplingParams) -> list[Encoded]:
        self._check_length("documents", body.documents, self.most_in_documents)
        reader = self.llm.reader
        if isinstance(body, ChatBody):
            self._check_length("messages", [each.content for each in body.messages], self.most_characters)
            messages: list[dict[str, Any]] = [
                {"role": each.role, "content": each.content} for each in body.messages
            ]
            try:
                return [reader.read_chat(messages, body.documents)]
            except WeightsError as error:
                reason = str(error).partition(": give it")[0]  # what follows is for a program's user
                raise ApiError(
                    400, f"messages: {reason}; /v1/completions takes any prompt", "messages"
                ) from error
        assert isinstance(body, CompletionBody)
        self._check_number(len(body.prompt) * params.n)
        for prompt in body.prompt:
            self._check_length("prompt", [prompt], self.most_characters)
        return [reader.read(each, body.documents, bool(body.control_tokens)) for each in body.prompt]

    def _check_number(self, number: int) -> None:
        """Refuse more answers at once than may wait."""
        most = self.llm.batcher.max_queue
        if number > most:
            raise ApiError(
                400, f"prompt: with n, these are {number} answers; at most {most} may wait here", "prompt"
            )

    def _check_length(self, param: str, texts: Sequence[str | Sequence[int]], most: int) -> None:
        """Refuse a text that no engine here can take, before it costs seconds to make tokens of it."""
        length = sum(map(len, texts))
        if length > most:
            raise ApiError(
                400,
                f"{param}: it has a length of {length}; at most {most} characters could ever fit this model",
                param,
                "context_length_exceeded",
            )
