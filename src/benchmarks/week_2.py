"""Week 2's ladders: what caches, 4-bit weights, batches and chunks gain."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ladder import LAST_FIRST, TOKENS_PER_SECOND, WORST_GAP, Bar, Ladder
from benchmarks.rounds import Case, Values
from programs.answers import Answer, measure
from programs.loaded import Timing
from programs.passages import BREAD, CANAL_LOCK, ISLAND_LETTER, LIBRARY_NOTICE, WATER_REPORT

if TYPE_CHECKING:
    from tiny_llm.kv_cache import LayerCache
    from tiny_llm.model import Transformer

TEXT = "\n\n".join((ISLAND_LETTER, WATER_REPORT, LIBRARY_NOTICE, BREAD, CANAL_LOCK))
"""What the prompts are cut from. What they say does not matter for the speed; that they differ in length does."""

GetModel = Callable[[str], "Transformer"]
"""Gives the model of one of these names: "float32"; "kernel", the same with 4-bit weights and the kernel of Day 2.3;
"torch", in bfloat16, with 4-bit weights and torch's kernel."""

ONE_PROMPT = 128
ONE_TOKENS = 128
BATCH_PROMPTS = (56, 24, 104, 40, 72)  # tokens; repeated for larger batches
BATCH_TOKENS = 128
CHUNK_SIZES = (32, 128, 512)
SHORT_PROMPTS = (24, 40, 56, 72)
LONG_PROMPTS = (768, 768)
LONG_TOKENS = 8
CHUNK_TOKENS = 64  # enough for the short requests to be at it until the long prompts are in

LADDERS = (
    Ladder("one", f"One request: {ONE_PROMPT} tokens, and {ONE_TOKENS} new ones", (TOKENS_PER_SECOND,)),
    Ladder(
        "batch", f"Several requests at once, continuous, {BATCH_TOKENS} new tokens each", (TOKENS_PER_SECOND,)
    ),
    Ladder(
        "chunk",
        f"{len(SHORT_PROMPTS)} requests are decoded while {len(LONG_PROMPTS)} prompts of {LONG_PROMPTS[0]} tokens "
        "arrive",
        (WORST_GAP, LAST_FIRST, TOKENS_PER_SECOND),
    ),
)

BARS = (
    Bar("cached at least 5 × recompute", "cached", "recompute", TOKENS_PER_SECOND, 5.0),
    Bar("a batch of 5 at least 2.5 × one request", "batch-5", "batch-1", TOKENS_PER_SECOND, 2.5),
    Bar("the worst gap falls from chunks of 512 to 128", "chunk-512", "chunk-128", WORST_GAP, 1.0),
    Bar("and from 128 to 32", "chunk-128", "chunk-32", WORST_GAP, 1.0),
)


def cases(model: GetModel, text: Sequence[int]) -> list[Case]:
    """Everything that Week 2 measures.

    Args:
        model: called when a case runs that needs it.
        text: token ids to cut the prompts from.
    """
    return [*_one_request(model, text), *_batches(model, text), *_chunks(model, text)]


def _one_request(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    rows = (
        ("recompute", "recompute (1.6)", _recompute, "float32"),
        ("cached", "cached (2.1)", _cached, "float32"),
        ("kernel", "4-bit weights, our kernel (2.3)", _cached, "kernel"),
        ("torch", "4-bit weights, torch's kernel, bfloat16 (2.3)", _cached, "torch"),
        ("fused", "torch's kernel, compiled attention (2.5)", _fused, "torch"),
    )
    for name, label, generate, weights in rows:
        yield Case(name, "one", label, partial(_run_one, generate, model, weights, text), ONE_TOKENS)


def _batches(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    for size in (1, 5, 16):
        lengths = [BATCH_PROMPTS[i % len(BATCH_PROMPTS)] for i in range(size)]
        run = partial(_run_batch, model, text, lengths)
        yield Case(f"batch-{size}", "batch", f"batch of {size}" if size > 1 else "one", run, BATCH_TOKENS)


def _chunks(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    for size in CHUNK_SIZES:
        run = partial(_run_chunks, model, text, size)
        yield Case(f"chunk-{size}", "chunk", f"chunks of {size}", run, CHUNK_TOKENS)


def _recompute(model: Transformer, prompt: Sequence[int], tokens: int) -> Iterator[int]:
    from tiny_llm.generate import generate_recompute

    return generate_recompute(model, prompt, tokens)


def _cached(model: Transformer, prompt: Sequence[int], tokens: int) -> Iterator[int]:
    from tiny_llm.generate import generate
    from tiny_llm.kv_cache import FullKvCache

    return generate(model, prompt, tokens, make_cache=FullKvCache)


def _fused(model: Transformer, prompt: Sequence[int], tokens: int) -> Iterator[int]:
    from tiny_llm.fused_kv_cache import FusedKvCache
    from tiny_llm.generate import generate

    make_cache: Callable[[], LayerCache] = FusedKvCache
    return generate(model, prompt, tokens, make_cache=make_cache)


def _run_one(
    generate: Callable[[Transformer, Sequence[int], int], Iterator[int]],
    model: GetModel,
    weights: str,
    text: Sequence[int],
    tokens: int,
) -> Values:
    the_model, timing = model(weights), Timing()
    for _ in generate(the_model, text[:ONE_PROMPT], tokens):
        timing.stamp()
    return {"tokens_per_second": timing.tokens_per_second}


def _run_batch(model: GetModel, text: Sequence[int], lengths: Sequence[int], tokens: int) -> Values:
    return _continuous(model("float32"), [(text[:length], tokens) for length in lengths], 128)


def _run_chunks(model: GetModel, text: Sequence[int], size: int, tokens: int) -> Values:
    short = [(text[:length], tokens) for length in SHORT_PROMPTS]
    long = [(text[:length], min(tokens, LONG_TOKENS)) for length in LONG_PROMPTS]
    return _continuous(model("float32"), short + long, size)


def _continuous(model: Transformer, work: Sequence[tuple[Sequence[int], int]], chunk_size: int) -> Values:
    """Run prompts, each with its number of new tokens, in as many slots; none ends early."""
    from tiny_llm.batch import batch_generate
    from tiny_llm.generate import greedy
    from tiny_llm.request import Request

    started = time.perf_counter()
    answers = [Answer(number, "", prompt, greedy, Timing(started)) for number, (prompt, _) in enumerate(work)]
    requests = [
        Request(answer.prompt_ids, tokens, sample=answer.choose)
        for answer, (_, tokens) in zip(answers, work, strict=True)
    ]
    batch_generate(model, requests, len(requests), chunk_size)
    speed = measure([answer.timing for answer in answers])
    return {
        "tokens_per_second": speed.tokens_per_second,
        "worst_gap": speed.worst_gap,
        "worst_first": speed.worst_first,
    }
