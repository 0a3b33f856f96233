"""The golden questions about documents, as the stages answer them that can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from programs.document_cores import answer_documents, document_pages
from programs.golden import GoldenDocuments
from programs.loaded import LoadedModel
from programs.served import Sizes, serving

if TYPE_CHECKING:
    from programs.stage import Limits
    from tiny_llm.documents.request import DocumentRequest


def on_pages(
    loaded: LoadedModel, limits: Limits, prompts: Sequence[GoldenDocuments], max_tokens: Sequence[int]
) -> list[list[int]]:
    """The new tokens of some questions, which run together in Day 4.5's engine."""
    requests = [request_of(loaded, *each) for each in zip(prompts, max_tokens, strict=True)]
    answer_documents(loaded.model, requests, limits.seats, limits.chunk, limits.attention)
    return [request.output for request in requests]


def served(
    loaded: LoadedModel, limits: Limits, prompts: Sequence[GoldenDocuments], max_tokens: Sequence[int]
) -> list[list[int]]:
    """The same by Day 4.6's engine; questions that place their documents alike share one."""
    from tiny_llm.engine.params import SamplingParams

    outputs: dict[int, list[int]] = {}
    kinds = dict.fromkeys((each.strategy, each.max_chunk_len) for each in prompts)
    for strategy, longest in kinds:
        alike = [
            at
            for at, each in enumerate(prompts)
            if (each.strategy, each.max_chunk_len) == (strategy, longest)
        ]
        requests = [request_of(loaded, prompts[at], max_tokens[at]) for at in alike]
        pages = sum(document_pages(loaded.model, each) for each in requests)
        sizes = Sizes(limits.seats, pages, limits.chunk, limits.attention)
        with serving(
            loaded,
            sizes,
            enable_chunk_aware=True,
            chunk_position_strategy=strategy,
            max_chunk_len=longest,
        ) as llm:
            params = [SamplingParams(max_tokens=max_tokens[at]) for at in alike]
            answers = llm.run_all([prompts[at].segments for at in alike], params)
        outputs |= {at: each.outputs[0].token_ids for at, each in zip(alike, answers, strict=True)}
    return [outputs[at] for at in range(len(prompts))]


def request_of(loaded: LoadedModel, prompt: GoldenDocuments, max_tokens: int) -> DocumentRequest:
    """A new request for a golden question, not begun."""
    from tiny_llm.documents.request import DocumentRequest

    return DocumentRequest(
        prompt.segments,
        max_tokens,
        loaded.tokenizer.end_ids,
        strategy=prompt.strategy,
        max_chunk_len=prompt.max_chunk_len,
    )
