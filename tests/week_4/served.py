"""Day 4.6's engine with a plan that is made by hand, and a head whose scores tell which row they are of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_3.pages import allocator_of

from coursekit.check import CheckFailed

from .joining import cache_of, join_of, segments_of
from .step_sampling import Twin

V, P = 31, 4
TOKENIZER = SimpleNamespace(end_ids=frozenset())


def answered(
    lab: Any, prompt: Sequence[int], output: Sequence[int] = (), max_tokens: int = 9, **params: Any
) -> Any:
    """A request of the engine's, which has an output already."""
    completion = completion_of(lab, len(prompt), **params)
    request = lab.engine.request.AnsweredRequest(list(prompt), max_tokens, completion)
    request.token_ids += output
    return request


def completion_of(lab: Any, prompt_len: int, **params: Any) -> Any:
    chosen = lab.engine.params.SamplingParams(**{"seed": 1, **params})
    return lab.engine.completion.Completion(chosen, TOKENIZER, prompt_len)


def asked(lab: Any, system: int, documents: Sequence[int], question: int = 2, **params: Any) -> Any:
    """A question about documents; their tokens are those of Day 4.5's tests, modulo V."""
    segments = segments_of(lab, system, documents, question)
    completion = completion_of(lab, question, **params)
    return lab.engine.request.AnsweredDocumentRequest(segments, 9, completion)


def twin_of(lab: Any, request: Any, **params: Any) -> Twin:
    """The request's sampler, and that of Day 1.7 with the same settings."""
    twin = Twin(lab, request.prompt_ids, request.output, **params)
    twin.sampler = request.completion.sampler
    return twin


class Served:
    """`ServedBatch` around a head that notes the states that it gets.

    Row r of a step's states is [r, r]; its scores are row r of `table`.
    """

    def __init__(self, lab: Any, seed: int = 0, rows: int = 30) -> None:
        self.lab = lab
        self.table = 2.5 * np.random.default_rng(seed).normal(size=(rows, V))
        self.table = self.table.astype(np.float32).astype(np.float64)
        self.head: list[list[int]] = []  # which rows each run of the head had
        self.pages = 60
        embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 2))))
        model = SimpleNamespace(embedding=embedding, logits=self._logits)
        pool = SimpleNamespace(num_pages=self.pages + 1, page_size=P)
        cache = cache_of(lab, self.pages, P)
        self.scheduler = lab.documents.scheduler.DocumentScheduler(cache, 80)
        self.core = lab.engine.batch.ServedBatch(SimpleNamespace(model=model, pool=pool), self.scheduler)

    def _logits(self, hidden: Any) -> Any:
        states = self.lab.numpy(hidden)
        shape = states.shape
        if len(shape) != 2 or shape[1] != 2:
            raise CheckFailed(f"the head takes the states [B, 2] of some chunks; shape {list(shape)} came")
        self.head.append([int(state[0]) for state in states])
        return self.lab.array(self.table[self.head[-1]].reshape(-1, V))

    def standing(self, request: Any, due: int = 0) -> Any:
        """A request on its way, with so many tokens due."""
        sequence = self.lab.paged.sequence.PagedSequence(allocator_of(self.lab, 2), P)
        sequence.length = len(request.token_ids) - due
        return self.lab.scheduling.standing.Standing(request, sequence)

    def branches(self, request: Any) -> list[Any]:
        """The branches of a question, with nothing due."""
        join = join_of(self.lab, cache_of(self.lab, 60, P), request)
        for branch in join.question.branches:
            branch.sequence.length = len(branch.request.token_ids)
        return list(join.question.branches)

    def plan(self, *standings: Any, counts: Sequence[int] = ()) -> list[Any]:
        """A chunk of each."""
        chunk = self.lab.scheduling.standing.Chunk
        taken = counts or [1] * len(standings)
        return [chunk(each, count, 0, 0, False) for each, count in zip(standings, taken, strict=True)]

    def sample(self, plan: Sequence[Any]) -> None:
        """Sample after a run of the model on this plan."""
        rows = np.arange(len(plan), dtype=np.float64)
        self.core.sample(plan, self.lab.array(np.stack([rows, rows], axis=1)))


class Failing:
    """A sampler that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, logits: Any, ids: Sequence[int]) -> int:
        raise self.error


def after(first: Callable[[], None], sample: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    """A sampler that does something else before."""

    def whole(logits: Any, ids: Sequence[int]) -> int:
        first()
        return sample(logits, ids)

    return whole
