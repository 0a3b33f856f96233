"""Day 4.5's engine around a small model with random weights, and what each request must get: by NumPy, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from week_1 import numpy_model as oracle
from week_1.numpy_model import V
from week_3.pages import pool_of

from coursekit.check import CheckFailed, check, check_equal

from .beside_joining import NAMES
from .document_model import all_logits
from .document_prompts import QUESTION, Lengths, ids_of, positions_of, sees_of
from .joined_attention import NO_KEYS
from .joined_oracle import remedied
from .joining import cache_of, members_of

LIMIT = 80
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}  # float32 against float64, through three layers


def words(count: int, seed: int) -> tuple[int, ...]:
    """Token ids of the small model."""
    return tuple(int(token) for token in np.random.default_rng(seed).integers(0, V, count))


def prompt(
    lab: Any, system: int, documents: Sequence[tuple[str, int]], question: int = 2, seed: int = 0
) -> Any:
    """Segments with so many tokens; the tokens of a document are told by its name."""
    bodies = tuple(words(count, 50 + NAMES.index(name)) for name, count in documents)
    return lab.documents.prompt.Segments(words(system, 1), bodies, words(question, 10 + seed))


def prompt_of(lab: Any, system: int, documents: Sequence[int], question: int = 2, seed: int = 0) -> Any:
    """The same, with documents called A, B and so on."""
    return prompt(lab, system, [(NAMES[n], count) for n, count in enumerate(documents)], question, seed)


class Noting:
    """A sampler that takes the best token, and notes what it was given."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        self.logits: list[np.ndarray] = []
        self.ids: list[list[int]] = []

    def __call__(self, logits: Any, ids: Sequence[int]) -> int:
        self.logits.append(self.lab.numpy(logits).copy())
        self.ids.append(list(ids))
        return int(self.logits[-1].argmax())


class Engine:
    """An engine without requests. Every place of its pool holds NaN until a token is written there."""

    def __init__(
        self,
        lab: Any,
        *,
        pages: int = 60,
        page_size: int = 3,
        limit: int = LIMIT,
        remedy: Any = None,
        **options: Any,
    ) -> None:
        config = lab.config.ModelConfig(**oracle.config_fields("llama") | {"max_positions": limit})
        tensors = {name: lab.array(x) for name, x in oracle.random_tensors("llama").items()}
        self.model = lab.model.Transformer(config, lab.weights.Weights(config, tensors))
        self.lab, self.limit, self.pages = lab, limit, pages
        cache = cache_of(lab, pages, page_size)
        self.scheduler = lab.documents.scheduler.DocumentScheduler(cache, limit, **options)
        self.pool = pool_of(lab, pages + 1, page_size, layers=oracle.LAYERS)
        chosen = {} if remedy is None else {"remedy": lab.documents.attention.Remedy(*remedy)}
        self.remedy = remedy or (1.0, 1.0)
        self.runner = lab.documents.runner.DocumentRunner(self.model, self.pool, **chosen)
        self.core = lab.documents.batch.DocumentBatch(self.runner, self.scheduler)
        self.computed = 0  # tokens, in all runs of the model
        self._run, self.runner.run_chunks = self.runner.run_chunks, self._count
        self.preempted = 0

    def request(self, segments: Any, max_tokens: int = 3, **options: Any) -> Any:
        return self.lab.documents.request.DocumentRequest(
            segments, max_tokens, **{"sample": Noting(self.lab), **options}
        )

    def ask(self, segments: Any, max_tokens: int = 3, **options: Any) -> Any:
        """A document request comes."""
        request = self.request(segments, max_tokens, **options)
        self.core.push(request)
        return request

    def push(self, ids: Sequence[int], max_tokens: int = 3, **options: Any) -> Any:
        """An ordinary request comes."""
        request = self.lab.request.Request(ids, max_tokens, sample=Noting(self.lab), **options)
        self.core.push(request)
        return request

    def step(self) -> Any:
        """A step, after which no page is lost."""
        __tracebackhide__ = True
        step = self.core.step()
        lost = self.scheduler.preempted
        self.preempted += len(lost)
        listed = len(step.preempted), list(step.preempted) == list(lost)
        check_equal(
            listed,
            (len(lost), True),
            name="how many requests a step lists as preempted, and whether they are those",
        )
        self.check_pages("after a step")
        for each in self.scheduler.running:
            if each.due == 0:
                raise CheckFailed(
                    f"after a step, {told(each.request)} has no token due, and got none: where nothing is due any "
                    "more after a step, the next token is sampled"
                )
        for join in self.scheduler.joins:
            if any(branch.request.num_generated for branch in join.question.branches):
                raise CheckFailed(
                    "after a step, a branch has an output: branches are never sampled, only questions are"
                )
        return step

    def _count(self, chunks: Any, tables: Any) -> Any:
        """Run the model, and note how many tokens it ran on."""
        hidden = self._run(chunks, tables)
        self.computed += sum(chunk.count for chunk in chunks)
        return hidden

    def fail(self) -> None:
        """The model fails in the next step."""
        __tracebackhide__ = True
        whole, error = self.runner.run_chunks, KeyError("the model failed, as the test wanted it to")

        def failing(*_: Any) -> Any:
            raise error

        self.runner.run_chunks = failing
        try:
            self.core.step()
        except KeyError as raised:
            if raised is not error:
                raise
        finally:
            self.runner.run_chunks = whole
        self.check_pages("after a step in which the model failed")

    def finish(self, most: int = 600) -> None:
        __tracebackhide__ = True
        for _ in range(most):
            if not self.core.requests:
                break
            self.step()
        check_equal(len(self.core.requests), 0, name=f"the requests that are left after {most} more steps")
        check_equal(self.scheduler.cache.available, self.pages, name="the pages available at the end")

    def answer(self, *requests: Any) -> None:
        """Let all come to their ends, and compare what these got with NumPy's model."""
        __tracebackhide__ = True
        self.finish()
        for request in requests:
            self.check(request)

    def check_pages(self, when: str) -> None:
        __tracebackhide__ = True
        sequences = []
        for each in self.scheduler.running + self.scheduler.waiting:
            sequences += (
                [one.sequence for one in members_of(each)] if hasattr(each, "question") else [each.sequence]
            )
        try:
            self.scheduler.cache.check(sequences)
        except RuntimeError as error:
            raise CheckFailed(f"{when}: {error}") from error

    def check(self, request: Any) -> None:
        """Compare the logits that a request's sampler got with those of NumPy's model, and its output with these."""
        __tracebackhide__ = True
        if request.error is not None:
            raise CheckFailed(f"a request ended with the error {request.error!r}")
        noted, what = request.sample, told(request)
        found = np.stack(noted.logits) if noted.logits else np.zeros((0, V))
        expected, suspects = self.wanted(request)
        check(
            found.astype(np.float32),
            expected,
            name=f"the logits of each token generated for {what}",
            axes="token V",
            framework="numpy",
            suspects=suspects,
            nan=f"{NO_KEYS}. Or a token was read before it was computed",
            **CLOSE,
        )
        ids = [request.token_ids[: request.prompt_len + n] for n in range(len(noted.ids))]
        check_equal(noted.ids, ids, name=f"the token ids that the sampler gets, for {what}")

    def wanted(self, request: Any) -> tuple[np.ndarray, dict[str, Callable[[], np.ndarray]]]:
        """The logits [tokens, V] of a request that has ended; and what mistakes would give."""
        output = request.output[:-1]
        if not hasattr(request, "segments"):
            ids = [*request.prompt_ids, *output]
            causal = np.tri(len(ids), dtype=bool)
            return all_logits("llama", ids, range(len(ids)), causal)[request.prompt_len - 1 :], {}
        segments, last = request.segments, len(output) + 1
        lengths = Lengths(len(segments.system), tuple(map(len, segments.documents)), len(segments.question))
        stride = request.stride if hasattr(request, "stride") else None
        ids = [*segments.token_ids, *output]
        positions, sees = positions_of(lengths, stride, len(output)), sees_of(lengths, len(output))
        alone = sees.copy()
        asks = np.array(ids_of(lengths, len(output)))
        alone[np.ix_(asks == QUESTION, asks != QUESTION)] = False

        def logits(positions: Sequence[int], sees: np.ndarray) -> np.ndarray:
            return remedied(ids, positions, sees, asks, self.remedy)[-last:]

        suspects = {
            "the documents see one another": lambda: logits(positions, np.tri(len(ids), dtype=bool)),
            "the question starts behind the sum of all documents, not behind the longest": lambda: logits(
                [
                    *positions[: -lengths.question - len(output)],
                    *range(len(ids))[-lengths.question - len(output) :],
                ],
                sees,
            ),
            "the question sees itself alone": lambda: logits(positions, alone),
        }
        return logits(positions, sees), suspects


def told(request: Any) -> str:
    """A request, in words."""
    if not hasattr(request, "segments"):
        return f"an ordinary request of {request.prompt_len} tokens"
    segments = request.segments
    documents = ", ".join(str(len(each)) for each in segments.documents) or "none"
    return (
        f"a system prompt of {len(segments.system)} tokens, documents of {documents}, and a question of "
        f"{len(segments.question)}"
    )
