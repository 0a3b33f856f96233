"""One answer while it grows: from tokens to text, and how it ends (Day 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Future
from dataclasses import replace

from tiny_llm.engine.logprobs import TokenLogprob
from tiny_llm.engine.output import CompletionOutput, Delta, FinishReason
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.step_sampler import RowSampler
from tiny_llm.engine.stops import StopStrings
from tiny_llm.generate import StreamDecoder
from tiny_llm.tokenizer import Tokenizer

Deliver = Callable[[Delta], None]
"""Called with each delta of an answer, mostly on the batcher's thread: it must be quick."""


class Completion:
    """Answer ``index`` of a request.

    The batcher's thread calls :meth:`push` with each token; when the future is settled, :meth:`settle` is called.
    What a delta has is in ``text``, ``token_ids`` and ``logprobs`` before the delta is delivered.
    """

    def __init__(
        self,
        params: SamplingParams,
        tokenizer: Tokenizer,
        prompt_len: int,
        index: int = 0,
        deliver: Deliver = lambda delta: None,
    ) -> None:
        """Start with nothing generated (given code).

        Args:
            params: the settings. With a seed, answer i draws with the seed + i.
            tokenizer: the model's.
            prompt_len: how many of the token ids that the sampler gets are the prompt's.
            index: which of the n answers this is.
            deliver: called with each delta.
        """
        seed = None if params.seed is None else params.seed + index
        self.params = params
        self.index = index
        self.deliver = deliver
        self.name = ""  # what a server calls the answer, for those who watch the engine
        self.sampler = RowSampler(replace(params, seed=seed), prompt_len)
        # The tokens that end the answer: what the text of such a token would be, isn't part of the text.
        self.end_ids: Collection[int] = {
            *params.stop_token_ids,
            *(() if params.ignore_end else tokenizer.end_ids),
        }
        self.decoder = StreamDecoder(tokenizer)
        self.stops = StopStrings(params.stop)
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.computed = 0  # how many tokens of the prompt were computed for this answer
        # Settled without an error when the last delta was delivered. A future wakes its waiters before it calls its
        # callbacks: an answer whose own future is settled may still lack its last text.
        self.ended: Future[None] = Future()
        self.ended.set_running_or_notify_cancel()  # it can't be cancelled

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer (given code)."""
        return self.stops.found is not None

    def push(self, token: int) -> None:
        """Take in the next token, and deliver what it adds.

        The delta has the token, its log-probability if there is one (``sampler.newest``), and the text
        that is certain with it. An end token adds no text.
        """
        raise NotImplementedError("Week 4 Day 6 Task 4: An answer that grows")

    def settle(self, future: Future[list[int]]) -> None:
        """Finish the answer, and settle ``ended`` however that goes (given code); the argument as for a finish."""
        try:
            self.finish(future)
        finally:
            self.ended.set_result(None)

    def finish(self, future: Future[list[int]]) -> None:
        """Deliver the last delta: the rest of the text and why the answer has ended, or else the error.

        What the decoder holds back goes through the stop strings, too; then comes what they hold back. A cancelled
        answer has the error CancelledError and no rest, since its tokens may still be coming.

        Args:
            future: the answer's, settled or cancelled.
        """
        raise NotImplementedError("Week 4 Day 6 Task 4: An answer that grows")

    @property
    def finish_reason(self) -> FinishReason:
        """STOP if a stop string was found or the last token is an end token; else, and without a token, LENGTH."""
        raise NotImplementedError("Week 4 Day 6 Task 4: An answer that grows")

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string that was found, or the last token if it is one of ``stop_token_ids``; else None."""
        raise NotImplementedError("Week 4 Day 6 Task 4: An answer that grows")

    def output(self) -> CompletionOutput:
        """The answer, when it is complete (given code)."""
        logprobs = None if self.params.logprobs is None else list(self.logprobs)
        return CompletionOutput(
            self.index, self.text, list(self.token_ids), self.finish_reason, self.stop_reason, logprobs
        )
