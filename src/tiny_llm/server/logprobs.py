"""Log-probabilities in the forms of OpenAI's two APIs (Day 4.6, given code)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_llm.engine.logprobs import TokenLogprob
from tiny_llm.tokenizer import Tokenizer

LEAST = -9999.0
"""Stands for −∞, which JSON doesn't have; OpenAI's API does the same."""
HALF = "\N{REPLACEMENT CHARACTER}"


def completion_logprobs(
    logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer, start: int
) -> tuple[dict[str, Any], int]:
    """The form of ``/v1/completions``: lists side by side, one entry per token.

    Args:
        logprobs: of some tokens in a row.
        tokenizer: the model's.
        start: how many characters the tokens before them have.

    Returns:
        the object, and how many characters there are with these tokens.
    """
    tokens = [token_text(tokenizer, each.token_id) for each in logprobs]
    offsets = []
    for token in tokens:
        offsets.append(start)
        start += len(token)
    tops: list[dict[str, float]] = []
    for each in logprobs:
        top: dict[str, float] = {}
        for token_id, logprob in each.top:  # of two tokens with the same text, the better one
            top.setdefault(token_text(tokenizer, token_id), finite(logprob))
        tops.append(top)
    shown = {
        "tokens": tokens,
        "token_logprobs": [finite(each.logprob) for each in logprobs],
        "top_logprobs": tops,
        "text_offset": offsets,
    }
    return shown, start


def chat_logprobs(logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer) -> dict[str, Any]:
    """The form of ``/v1/chat/completions``: an object per token."""
    content = [
        {
            **_entry(tokenizer, each.token_id, each.logprob),
            "top_logprobs": [_entry(tokenizer, token_id, logprob) for token_id, logprob in each.top],
        }
        for each in logprobs
    ]
    return {"content": content, "refusal": None}


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    text = token_text(tokenizer, token_id)
    # Of a token that is a part of a character, the bytes aren't known.
    shown = None if HALF in text else list(text.encode())
    return {"token": text, "logprob": finite(logprob), "bytes": shown}


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """What a token looks like when it stands alone; a control token by its name."""
    return tokenizer.decode([token_id], skip_control_tokens=False)


def finite(logprob: float) -> float:
    """A number that JSON has."""
    return max(logprob, LEAST)
