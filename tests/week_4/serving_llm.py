"""An `LLM` around a model that goes on with the alphabet: its steps can be held up, and its requests are watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import numpy as np
from week_3.patience import hangs, limit
from week_3.serving import END, LETTERS, Letters
from week_3.serving_threads import within

from coursekit.check import CheckFailed

V = 29
P = 3
POSITIONS = 64
FIELDS: dict[str, Any] = {
    "architecture": "llama",
    "num_layers": 1,
    "hidden_size": 2,
    "num_heads": 1,
    "num_kv_heads": 1,
    "head_dim": 2,
    "feed_forward_size": 2,
    "vocab_size": V,
    "norm_eps": 1e-5,
    "rope_base": 1e4,
    "max_positions": POSITIONS,
    "tied_embeddings": True,
    "qkv_bias": False,
    "qk_norm": False,
    "bos_id": None,
    "end_ids": (END,),
}


class Alphabet(Letters):
    """A tokenizer of letters. `broken` is a letter on which it fails, as no real one does."""

    broken = ""

    def encode(self, text: str, control_tokens: bool = True, start: bool = True) -> list[int]:
        return super().encode(text, control_tokens)

    def encode_chat_parts(self, messages: Sequence[dict[str, str]]) -> tuple[list[int], list[int]]:
        ids = self.encode_chat(messages)
        return ids[:1], ids[1:]

    def decode(self, ids: Sequence[int], skip_control_tokens: bool = True) -> str:
        text = super().decode(ids, skip_control_tokens)
        if self.broken and self.broken in text:
            raise OSError(f"no text for {self.broken}")
        return text

    def check_fits(self, vocab_size: int) -> None:
        assert vocab_size == V


def greedy_answer(letter: str, count: int) -> str:
    """What a greedy answer to a prompt that ends with this letter is."""
    start = LETTERS.index(letter) + 1
    return LETTERS[start : start + count]


def ids(text: str) -> list[int]:
    """The token ids of letters."""
    return [LETTERS.index(letter) for letter in text]


def toy_model(lab: Any) -> Any:
    """After each letter comes the next one; after z, the end; after that, a."""

    class Alphabetical(lab.model.Transformer):
        def __init__(self) -> None:
            self.config = lab.config.ModelConfig(**FIELDS)
            self.embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 2))))
            self.failure: Exception | None = None  # is raised by the next run

        def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
            failure, self.failure = self.failure, None
            if failure is not None:
                raise failure
            rows = lab.numpy(tokens).astype(np.float64)
            return lab.array(np.stack([rows, np.zeros_like(rows)], axis=-1))

        def logits(self, hidden: Any) -> Any:
            last = lab.numpy(hidden)[:, 0].astype(int)
            scores = np.sin(np.arange(V)[None] * 1.3 + last[:, None])
            scores[np.arange(len(last)), (last + 1) % (END + 1)] += 5
            return lab.array(scores)

    return Alphabetical()


def watched_core(lab: Any, inner: Any) -> Any:
    """The same engine. While it is held, each step waits until it is let go."""

    class Watched(lab.engine_core.EngineCore):
        def __init__(self) -> None:
            self.allocator, self.max_positions = inner.allocator, inner.max_positions
            self.num_seats, self.token_budget = inner.num_seats, inner.token_budget
            self.begun = threading.Semaphore(0)
            self.gate: threading.Semaphore | None = None
            self.steps: list[list[tuple[Any, int]]] = []
            self.trouble: list[BaseException] = []

        @property
        def idle(self) -> int:
            return int(inner.idle)

        @property
        def requests(self) -> list[Any]:
            return list(inner.requests)

        def refusal(self, request: Any) -> Any:
            return inner.refusal(request)

        def push(self, request: Any) -> None:
            inner.push(request)

        def step(self) -> Any:
            self.begun.release()
            gate = self.gate
            if gate is not None and not gate.acquire(timeout=limit()):
                self.trouble.append(
                    hangs("the test has held up a step: does something wait for the step that must not?")
                )
                self.gate = None
            step = inner.step()
            self.steps.append(list(step.issued))
            return step

        def abort(self, requests: Collection[Any]) -> None:
            inner.abort(requests)

        def hold(self) -> None:
            """From now on each step waits."""
            self.begun, self.gate = threading.Semaphore(0), threading.Semaphore(0)

        def await_step(self) -> None:
            """Wait until one more step has begun."""
            if not self.begun.acquire(timeout=limit()):
                raise hangs(f"the engine has made no step for {limit():g} s, and there are requests")

        def let(self, steps: int) -> None:
            """Let this number of steps go on."""
            if self.trouble:
                raise self.trouble[0]
            assert self.gate is not None, "the engine is not held"
            self.gate.release(steps)

        def open(self) -> None:
            """Let all steps go on."""
            gate, self.gate = self.gate, None
            if gate is not None:
                gate.release(1000)

    return Watched()


class Serving:
    """An LLM while the block runs. At its end nothing may be left in the engine, and its books must balance.

    `futures` are those of all requests that were submitted, in their order; `peak` is how many of them were not
    settled at once.
    """

    def __init__(
        self,
        lab: Any,
        *,
        max_queue: int = 50,
        seats: int = 4,
        pages: int = 60,
        budget: int = 32,
        held: bool = False,
        broken: str = "",
        **options: Any,
    ) -> None:
        self.lab = lab
        self.model, self.tokenizer = toy_model(lab), Alphabet()
        self.tokenizer.broken = broken
        limits = lab.engine.limits.Limits(seats, pages, P, budget)
        self.futures = list[Future[list[int]]]()
        self.peak = 0
        self.submitted = threading.Condition()
        self.core: Any = None
        self.llm = lab.engine.llm.LLM(
            self.model,
            self.tokenizer,
            limits=limits,
            max_queue=max_queue,
            attention="reference",
            around=self._around,
            **options,
        )
        self._submit, self.llm.batcher.submit = self.llm.batcher.submit, self._watched_submit
        if held:
            self.hold()

    def _around(self, core: Any) -> Any:
        self.core = watched_core(self.lab, core)
        return self.core

    def _watched_submit(self, *arguments: Any, **options: Any) -> Any:
        future = self._submit(*arguments, **options)
        with self.submitted:
            self.futures.append(future)
            self.peak = max(self.peak, sum(not each.done() for each in self.futures))
            self.submitted.notify_all()
        return future

    def params(self, **settings: Any) -> Any:
        return self.lab.engine.params.SamplingParams(**settings)

    def hold(self) -> None:
        """Bring the loop into a step that waits: requests that come now stay in the queue until it is let go."""
        self.core.hold()
        self._submit(self.lab.request.Request([0], 1))
        self.core.await_step()

    def cancelled(self) -> list[bool]:
        """Which of the futures were cancelled."""
        return [future.cancelled() for future in self.futures]

    def submitted_all(self, count: int) -> bool:
        """Whether this number of requests were submitted."""
        return len(self.futures) >= count

    def await_submitted(self, count: int, what: str) -> None:
        """Wait until this number of requests were submitted in all."""
        __tracebackhide__ = True
        with self.submitted:
            if not self.submitted.wait_for(lambda: len(self.futures) >= count, limit()):
                raise hangs(f"{what}: {len(self.futures)} requests were submitted, not {count}")

    def await_freed(self) -> None:
        """Let steps go on, and wait until no request waits or runs. Each answer must have ended or been given up."""
        __tracebackhide__ = True
        self.core.open()
        pause, seconds = threading.Event(), limit()
        for _ in range(int(seconds / 0.005)):
            stats = self.llm.batcher.stats()
            if not stats.waiting and not stats.running:
                return
            pause.wait(0.005)
        raise hangs(f"the answers were given up, and {seconds:g} s later requests still wait or run: {stats}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.core.open()
        ended = self.llm.close(drain=kind is None, timeout=limit())
        if kind is not None:
            return
        if self.core.trouble:
            raise self.core.trouble[0]
        if not ended:
            raise hangs("the engine was closed, and goes on")
        unsettled = sum(not future.done() for future in self.futures)
        assert not unsettled, f"{unsettled} futures are not settled: their callers wait for ever"
        assert not self.core.requests, f"{len(self.core.requests)} requests are still in the engine"
        try:
            self.llm.core.scheduler.cache.check([])
        except RuntimeError as fault:
            raise CheckFailed(f"at the end, the books of the pages don't balance: {fault}") from fault


def outputs_of(result: Any) -> list[str]:
    """The texts of the answers."""
    return [output.text for output in result.outputs]


def wait_for(function: Callable[[], Any], what: str) -> Any:
    """What it returns or raises; it must not take for ever."""
    __tracebackhide__ = True
    return within(function, what)
