"""How many tokens of a request the pool may come to hold, and which requests can never run (Day 3.2)."""

from __future__ import annotations

from tiny_llm.paged.places import pages_for
from tiny_llm.request import Request


def most_tokens(request: Request, max_positions: int) -> int:
    """How many of a request's tokens the pool may come to hold: all but the last one that it generates.

    That one never gets into the pool: its keys would serve the token after it, and there is none.

    Args:
        request: the request.
        max_positions: how many positions prompt and output together may use.
    """
    return min(request.prompt_len + request.max_tokens, max_positions) - 1


def page_refusal(request: Request, max_positions: int, page_size: int, max_pages: int) -> str | None:
    """Why a request can't ever run in a pool, or None: the reason of :meth:`Request.refusal`, or too few pages.

    Args:
        request: the request.
        max_positions: how many positions prompt and output together may use.
        page_size: P.
        max_pages: how many pages one request may hold, however many are free just now.
    """
    reason = request.refusal(max_positions)
    needed = pages_for(most_tokens(request, max_positions), page_size)
    if reason is None and needed > max_pages:
        return f"prompt and output need up to {needed} pages of {page_size} tokens; there are {max_pages}"
    return reason


def unknown_token(request: Request, vocab_size: int) -> str | None:
    """Why the model can't look up all tokens of the prompt, or None (given code).

    Args:
        request: the request.
        vocab_size: V, the rows of the model's embedding.
    """
    for token in request.prompt_ids:
        if not isinstance(token, int) or not 0 <= token < vocab_size:
            return f"the prompt has the token {token!r}, which is not an id from 0 to {vocab_size - 1}"
    return None
