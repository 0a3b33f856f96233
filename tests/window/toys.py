"""Engines of every kind around a small random model, and a tokenizer whose ids are letters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from programs.cores import ragged_batch
from programs.document_cores import document_batch
from programs.extend_cores import extend_batch, preempt_batch
from tiny_llm.config import ModelConfig
from tiny_llm.engine.limits import Limits
from tiny_llm.engine.llm import LLM
from tiny_llm.engine.make_batch import make_batch
from tiny_llm.engine_core import EngineCore
from tiny_llm.model import Transformer
from tiny_llm.request import Request
from tiny_llm.weights import Weights
from window.watched import WatchedCore, watch_batcher

V, POSITIONS, PAGES, PAGE_SIZE, SEATS, BUDGET = 128, 4000, 64, 4, 6, 16
PATIENCE = 60.0
"""Seconds; nothing here takes as long."""


class Letters:
    """Ids are the numbers of ASCII letters. It counts how often it decodes."""

    end_ids = (0,)
    bos_id = None
    longest_token = 1

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, text: str, control_tokens: bool = True, start: bool = True) -> list[int]:
        return [ord(letter) % V for letter in text]

    def decode(self, ids: Sequence[int], skip_control_tokens: bool = True) -> str:
        self.decoded += 1
        return "".join(map(chr, ids))

    def encode_chat(self, messages: Sequence[Any], **variables: Any) -> list[int]:
        before, after = self.encode_chat_parts(messages)
        return before + after

    def encode_chat_parts(self, messages: Sequence[Any], **variables: Any) -> tuple[list[int], list[int]]:
        said = [f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages]
        return self.encode("".join(said[:-1])), self.encode(f"{said[-1]}<|im_start|>assistant\n")

    def check_fits(self, vocab_size: int) -> None:
        assert vocab_size == V


class ToyModel(Transformer):
    """One layer, in float64, whose next run can fail."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights.config, weights)
        self.failure: Exception | None = None

    def hidden(self, *arguments: Any, **named: Any) -> torch.Tensor:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return super().hidden(*arguments, **named)


@cache
def toy_weights() -> Weights:
    config = ModelConfig("llama", 1, 8, 2, 1, 4, 8, V, 1e-5, 1e4, POSITIONS, True, False, False, None, (0,))
    shapes = {
        "embedding.weight": (V, 8),
        "blocks.0.attention_norm.weight": (8,),
        "blocks.0.qkv.weight": (16, 8),
        "blocks.0.attention_out.weight": (8, 8),
        "blocks.0.mlp_norm.weight": (8,),
        "blocks.0.gate_up.weight": (16, 8),
        "blocks.0.down.weight": (8, 8),
        "norm.weight": (8,),
    }
    generator = torch.Generator().manual_seed(46)
    return Weights(
        config,
        {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in shapes.items()
        },
    )


def toy_model() -> ToyModel:
    return ToyModel(toy_weights())


def toy_core(kind: str, pages: int = PAGES, seats: int = SEATS, model: ToyModel | None = None) -> Any:
    """An engine core of Day 3.6 ("ragged"), 4.2, 4.3, 4.5 or 4.6 ("served"). Its pages have 4 tokens, or 16."""
    model = model or toy_model()
    if kind == "ragged":
        return ragged_batch(model, seats, pages, pages, BUDGET, "reference")
    if kind == "served":
        return make_batch(model, Limits(seats, pages, PAGE_SIZE, BUDGET), "reference")
    make = {"extend": extend_batch, "preempt": preempt_batch, "documents": document_batch}[kind]
    core: EngineCore = make(model, seats, pages, BUDGET, "reference", page_size=PAGE_SIZE)  # type: ignore[operator]
    return core


KINDS = ("ragged", "extend", "preempt", "documents", "served")


def requests(count: int = 5, length: int = 11, max_tokens: int = 7) -> list[Request]:
    """Some requests, the first tokens of which are the same: a page of 4, and no page of 16."""
    return [Request([65, 66, 67, 68, 69, *range(70, 70 + length + n)], max_tokens) for n in range(count)]


def toy_llm(pages: int = PAGES, budget: int = BUDGET, around: Any = WatchedCore, **options: Any) -> LLM:
    """An engine that is watched, with documents."""
    tokenizer: Any = Letters()
    limits = Limits(SEATS, pages, PAGE_SIZE, budget)
    chosen = {"enable_chunk_aware": True, "chunk_separator": None, "max_queue": 100, **options}
    llm = LLM(toy_model(), tokenizer, limits=limits, attention="reference", around=around, **chosen)
    watch_batcher(watched_of(llm), llm.batcher)
    return llm


def watched_of(llm: LLM) -> WatchedCore:
    """The watch in an engine."""
    watched = llm.batcher.core
    assert isinstance(watched, WatchedCore)
    return watched


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something has come to pass."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: this has not come"
        time.sleep(0.002)


def in_time(function: Callable[[], object]) -> threading.Thread:
    """A thread that runs a function."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
