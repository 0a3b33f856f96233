"""Requests whose answers know their text (Day 4.6, given code)."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_llm.documents.prompt import Segments
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.engine.completion import Completion
from tiny_llm.engine.limits import Limits
from tiny_llm.engine.prompts import Encoded
from tiny_llm.paged.places import pages_for
from tiny_llm.request import Request


class Answered(Request):
    """A request that ends as soon as its answer has a stop string."""

    completion: Completion

    def finished(self, max_positions: int) -> bool:
        """Whether the output is complete: as for any request, or because a stop string was found."""
        return self.completion.stopped or super().finished(max_positions)


class AnsweredRequest(Answered):
    """An ordinary prompt."""

    def __init__(self, prompt_ids: list[int], max_tokens: int, completion: Completion) -> None:
        """Begin with the prompt alone; the completion chooses the tokens."""
        params = completion.params
        super().__init__(
            prompt_ids, max_tokens, completion.end_ids, completion.sampler, params.priority, params.client
        )
        self.completion = completion


class AnsweredDocumentRequest(Answered, DocumentRequest):
    """A question about documents."""

    def __init__(
        self,
        segments: Segments,
        max_tokens: int,
        completion: Completion,
        strategy: str = "shared",
        max_chunk_len: int | None = None,
    ) -> None:
        """Begin with the question alone; arguments and errors as for :class:`DocumentRequest`."""
        params = completion.params
        DocumentRequest.__init__(
            self,
            segments,
            max_tokens,
            completion.end_ids,
            completion.sampler,
            params.priority,
            params.client,
            strategy,
            max_chunk_len,
        )
        self.completion = completion


@dataclass(frozen=True)
class RequestMaker:
    """Makes the requests of one engine."""

    max_positions: int
    limits: Limits
    strategy: str = "shared"  # where documents stand, see `segment_starts`
    max_chunk_len: int | None = None

    def __call__(self, prompt: Encoded, completion: Completion) -> Answered:
        """The request for an answer; without a limit of its own it may have as many tokens as there is room for.

        Raises:
            ValueError: as :func:`segment_starts` says.
        """
        request: Answered
        if isinstance(prompt, Segments):
            request = AnsweredDocumentRequest(prompt, 0, completion, self.strategy, self.max_chunk_len)
        else:
            request = AnsweredRequest(prompt, 0, completion)
        wanted = completion.params.max_tokens
        request.max_tokens = max(1, self.room(request)) if wanted is None else wanted
        return request

    def room(self, request: Answered) -> int:
        """How many tokens there is room for behind a prompt, in the model and in the pool."""
        pages, page_size, most = self.limits.num_pages, self.limits.page_size, self.max_positions
        if isinstance(request, AnsweredDocumentRequest):  # it must fit where it finds none of its pages
            system = len(request.segments.system)
            lengths = [system + len(document) for _, document in request.documents] or [system]
            pages -= sum(pages_for(length, page_size) for length in lengths)
            most -= request.start
        return min(pages * page_size + 1, most) - request.prompt_len
