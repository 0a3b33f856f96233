"""The bodies of requests, as OpenAI's API has them, and some fields more (Day 4.6, given code).

Each parameter of OpenAI's API works, or may only have its neutral value (:class:`Only`); any that isn't named here is
refused. So none is silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tiny_llm.engine.params import MOST_COMPLETIONS, MOST_LOGPROBS
from tiny_llm.scheduling.levels import HIGHEST
from tiny_llm.server.fields import Content, Ids, Name, Only, Prompts, Stop, Texts

COMPLETION_TOKENS = 16
"""How many tokens a completion may have if the client doesn't say, as OpenAI's API has it."""
MOST = 2**31 - 1

NEUTRAL_OBJECT: dict[str, Any] = {}
NEUTRAL_LIST: list[Any] = []

Penalty = Annotated[float, Field(ge=-2, le=2)]
Whole = Annotated[int, Field(ge=1, le=MOST)]


class Body(BaseModel):
    """Nothing is guessed: no string becomes a number, no number a string, and no field is too many."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Body):
    """What a stream brings beside the answer."""

    include_usage: bool | None = None  # one more chunk, the last, with the numbers of tokens
    include_obfuscation: Annotated[Any, Only((False,))] = None


class Asked(Body):
    """What both kinds of requests have."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None  # 1 if it is left out
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_COMPLETIONS)] | None = None
    max_tokens: Whole | None = None
    stop: Stop = Field(default_factory=list)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    user: Annotated[Name, Field(max_length=256)] | None = (
        None  # whose request it is: clients get equal shares
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logit_bias: Annotated[Any, Only((NEUTRAL_OBJECT,))] = None
    # Beyond OpenAI's API.
    top_k: Annotated[int, Field(ge=0, le=MOST)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    priority: Annotated[int, Field(ge=0, le=HIGHEST)] | None = None
    documents: Texts = Field(default_factory=list)  # texts that the question is about
    stop_token_ids: Ids = Field(default_factory=list)
    ignore_eos: bool | None = None  # go on behind the model's own end


class CompletionBody(Asked):
    """``POST /v1/completions``: continue some prompts."""

    prompt: Prompts
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    echo: Annotated[Any, Only((False,))] = None
    best_of: Annotated[Any, Only((1,))] = None
    suffix: Annotated[Any, Only()] = None
    # Beyond OpenAI's API.
    control_tokens: bool | None = None  # whether the spelling of a control token in the prompt is that token


class ChatMessage(Body):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Content
    name: Annotated[Any, Only()] = None
    refusal: Annotated[Any, Only()] = None
    audio: Annotated[Any, Only()] = None
    annotations: Annotated[Any, Only((NEUTRAL_LIST,))] = None
    function_call: Annotated[Any, Only()] = None
    tool_calls: Annotated[Any, Only((NEUTRAL_LIST,))] = None
    tool_call_id: Annotated[Any, Only()] = None


class ChatBody(Asked):
    """``POST /v1/chat/completions``: answer a conversation."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Whole | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    audio: Annotated[Any, Only()] = None
    function_call: Annotated[Any, Only(("none",))] = None
    functions: Annotated[Any, Only((NEUTRAL_LIST,))] = None
    metadata: Annotated[Any, Only((NEUTRAL_OBJECT,))] = None
    modalities: Annotated[Any, Only((["text"],))] = None
    moderation: Annotated[Any, Only()] = None
    parallel_tool_calls: Annotated[Any, Only((True, False))] = None
    prediction: Annotated[Any, Only()] = None
    prompt_cache_key: Annotated[Any, Only()] = None
    prompt_cache_options: Annotated[Any, Only()] = None
    prompt_cache_retention: Annotated[Any, Only()] = None
    reasoning_effort: Annotated[Any, Only(("none",))] = None
    response_format: Annotated[Any, Only(({"type": "text"},))] = None
    safety_identifier: Annotated[Any, Only()] = None
    service_tier: Annotated[Any, Only(("auto", "default"))] = None
    store: Annotated[Any, Only((False,))] = None
    tool_choice: Annotated[Any, Only(("none", "auto"))] = None
    tools: Annotated[Any, Only((NEUTRAL_LIST,))] = None
    verbosity: Annotated[Any, Only(("medium",))] = None
    web_search_options: Annotated[Any, Only()] = None
