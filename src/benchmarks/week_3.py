"""Week 3's ladders: decoding from dense batches, from pages by the reference path, and from pages by a kernel."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ladder import CACHE_MEGABYTES, TOKENS_PER_SECOND, Bar, Ladder
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from programs.cores import PAGE_SIZE, choose, make_runner

if TYPE_CHECKING:
    from tiny_llm.model import Transformer

REQUESTS = (1, 5, 16, 64)
CONTEXTS = {"short": 64, "long": 512}  # tokens that each request has behind it
STEPS = 8
WAYS = (
    ("dense", "dense batch (2.6)"),
    ("reference", "pages, reference path (3.2)"),
    ("kernel", "pages, kernel (3.3)"),
)

LADDERS = tuple(
    Ladder(f"pages-{name}", f"Decoding with {past} tokens of past each", (TOKENS_PER_SECOND, CACHE_MEGABYTES))
    for name, past in CONTEXTS.items()
)

BARS = (
    Bar(
        "16 long requests: pages and kernel faster than the dense batch",
        "kernel-long-16",
        "dense-long-16",
        TOKENS_PER_SECOND,
        1.0,
    ),
    Bar(
        "and faster than pages and the reference path",
        "kernel-long-16",
        "reference-long-16",
        TOKENS_PER_SECOND,
        1.0,
    ),
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Every way with every number of requests and every length of past.

    Args:
        model: called when a case runs.
        text: token ids; the first is what every request goes on with.
    """
    for context, past in CONTEXTS.items():
        for count in REQUESTS:
            for way, label in WAYS:
                run = partial(_run, way, model, text[0], count, past)
                yield Case(f"{way}-{context}-{count}", f"pages-{context}", f"{count}: {label}", run, STEPS)


def _run(way: str, model: GetModel, token: int, count: int, past: int, steps: int) -> Values:
    """Decode for so many steps, from caches filled beforehand: what is in them does not matter for the speed."""
    prepare = _dense if way == "dense" else partial(_paged, "auto" if way == "kernel" else way)
    step, nbytes = prepare(model("float32"), token, count, past, steps)
    started = time.perf_counter()
    for number in range(steps):
        step(past + number)
    seconds = time.perf_counter() - started
    return {"tokens_per_second": count * steps / seconds, "cache_bytes": nbytes()}


Prepared = tuple[Callable[[int], object], Callable[[], int]]
"""A step, given the position of its tokens, and what the caches take, in bytes."""


def _dense(model: Transformer, token: int, count: int, past: int, steps: int) -> Prepared:
    import torch

    from tiny_llm.kv_cache import FullKvCache
    from tiny_llm.static_batch import Batch

    config, batch = model.config, Batch(model, count)
    filling = torch.rand(1, config.num_kv_heads, past, config.head_dim)
    stored = [[FullKvCache() for _ in range(config.num_layers)] for _ in range(count)]
    for slot, caches in enumerate(stored):
        for cache in caches:
            cache.append(filling, filling)
        batch.add(slot, caches)

    def nbytes() -> int:
        """The requests' own storage, and the dense batch of one layer: each layer's is thrown away."""
        storage = [part for caches in stored for cache in caches for part in (cache.keys, cache.values)]
        dense = 2 * count * (past + steps) * filling[:, :, 0].nbytes
        return dense + sum(part.nbytes for part in storage if part is not None)

    return lambda position: batch.decode([token] * count, [position] * count), nbytes


def _paged(attention: str, model: Transformer, token: int, count: int, past: int, steps: int) -> Prepared:
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.places import pages_for
    from tiny_llm.paged.sequence import PagedSequence
    from tiny_llm.paged.tables import tables_of

    num_pages = 1 + count * pages_for(past + steps, PAGE_SIZE)
    runner = make_runner(model, num_pages, choose(attention, "float32", "cpu"))
    runner.pool.keys.fill_(0.5)  # memory that was never written isn't there yet, and is read in no time
    runner.pool.values.fill_(0.5)
    allocator = PageAllocator(num_pages)
    random.Random(0).shuffle(allocator.free_pages)  # as after an hour of service
    sequences = [PagedSequence(allocator, PAGE_SIZE) for _ in range(count)]
    for sequence in sequences:
        sequence.reserve(past + steps)
        sequence.advance(past)

    def step(position: int) -> None:
        model.logits(runner.run(sequences, tables_of(sequences), [token] * count, [1] * count))

    return step, lambda: runner.pool.nbytes
