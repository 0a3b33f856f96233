"""Several prompts on their way to answers, and what their times say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from programs.loaded import LoadedModel, Timing, make_sampler, prompt_ids
from programs.seats import Sharing

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.generate import Sample
    from tiny_llm.model import Transformer
    from tiny_llm.paged.pool import KvPool


@dataclass(eq=False)
class Answer:
    """One prompt and what has come of it so far."""

    number: int  # from 1, in the order of the prompts
    prompt: str
    prompt_ids: Sequence[int]
    sample: Sample
    timing: Timing = field(default_factory=Timing)
    output: list[int] = field(default_factory=list)
    computed: int = 0  # tokens of the prompt that were computed
    refused: str | None = None  # why there will be no answer
    pages: Sequence[int] = ()  # that its request held after the last step, where requests share pages

    def choose(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """The request's sampler, which also notes when the token came."""
        token = self.sample(logits, token_ids)
        self.timing.stamp()
        self.output.append(token)
        self.computed = len(self.prompt_ids)
        return token

    def note(self, tokens: Sequence[int]) -> None:
        """Take in tokens that were chosen elsewhere."""
        for token in tokens:
            self.timing.stamp()
            self.output.append(token)
            self.computed = len(self.prompt_ids)

    @property
    def headline(self) -> str:
        """The prompt's first line, and how many tokens it has if there is more."""
        first, _, rest = self.prompt.partition("\n")
        return f"{first} … ({len(self.prompt_ids)} tokens)" if rest else first


def prepare(
    loaded: LoadedModel, prompts: Sequence[str], system: str | None = None, **params: Any
) -> list[Answer]:
    """An answer to begin for each prompt, with a sampler of its own; their clocks start together.

    Args:
        loaded: the model.
        prompts: what to answer.
        system: the system message of all of them; None: what the model's chat form has for one.
        params: as for :func:`make_sampler`.

    Raises:
        CourseError: a sampling parameter is out of range.
    """
    ids = [prompt_ids(loaded, prompt, raw=False, system=system) for prompt in prompts]
    started = time.perf_counter()
    return [
        Answer(number, prompt, its_ids, make_sampler(**params), Timing(started))
        for number, (prompt, its_ids) in enumerate(zip(prompts, ids, strict=True), start=1)
    ]


class BatchWatch:
    """Stands before a model, counts its runs on a batch, and knows what the batch's caches copied or hold."""

    def __init__(self, model: Transformer) -> None:
        self.model = model  # without the watch
        self._caches: Sequence[Any] = ()
        self.batches = 0  # runs on a batch
        self.sharing: Sharing | None = None  # after the last step of an engine whose requests share pages
        self.pool: KvPool | None = None  # the one that the caches look at
        self.most_pages = (
            0  # of it, with tokens of the requests in a run; a page that several share counts once
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def hidden(self, tokens: Tensor, positions: Any, caches: Sequence[Any] | None = None) -> Tensor:
        """The model's own method."""
        if caches and hasattr(caches[0], "bytes_copied"):
            self._caches = caches
            self.batches += 1
        if caches and hasattr(caches[0], "meta"):
            from tiny_llm.paged.places import pages_for

            meta, pool = caches[0].meta, caches[0].pool
            self.pool = pool
            self.batches += 1
            rows = zip(meta.block_table.tolist(), meta.kv_lens, strict=True)
            pages = {page for row, length in rows for page in row[: pages_for(length, pool.page_size)]}
            self.most_pages = max(self.most_pages, len(pages))
        return self.model.hidden(tokens, positions, caches)

    @property
    def bytes_copied(self) -> int:
        """Bytes written to rebuild dense batches; 0 if there were none."""
        return sum(cache.bytes_copied for cache in self._caches)


@dataclass(frozen=True)
class Speed:
    """How fast a set of requests was answered; times in seconds."""

    requests: int  # those with at least one token
    tokens: int
    seconds: float  # from the start to the last token
    mean_first: float  # from the start to a request's first token
    worst_first: float
    worst_gap: float  # between two tokens of one request, one after the other

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def measure(timings: Sequence[Timing]) -> Speed:
    """What the times of requests that started together say; requests without a token count for nothing."""
    begun = [timing for timing in timings if timing.arrivals]
    firsts = [timing.first_token for timing in begun]
    return Speed(
        requests=len(begun),
        tokens=sum(len(timing.arrivals) for timing in begun),
        seconds=max((timing.arrivals[-1] - timing.started for timing in begun), default=0.0),
        mean_first=sum(firsts) / len(firsts) if firsts else 0.0,
        worst_first=max(firsts, default=0.0),
        worst_gap=max((timing.worst_gap for timing in begun), default=0.0),
    )
