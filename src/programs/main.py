"""`pdm run main`: one prompt, answered as it is generated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend
from coursekit.checking.memory import held_bytes
from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs import options
from programs.cores import warm_up
from programs.implementation import WayAround
from programs.loaded import (
    LoadedModel,
    Timing,
    check_prompt,
    make_generate,
    make_sampler,
    prompt_ids,
    running,
)
from programs.source import Source, choose_source, require_fast

WAYS_AROUND = {
    (2, 1): WayAround("--cache none", needs=(1, 6)),
    (2, 3): WayAround("--matmul plain", needs=(2, 2)),
    (2, 4): WayAround("--cache full", needs=(2, 1)),
    (2, 5): WayAround("--cache full", needs=(2, 1)),
    (3, 2): WayAround("--cache full", needs=(2, 1)),
    (3, 3): WayAround("--attention reference", needs=(3, 2)),
    (3, 4): WayAround("--attention auto", needs=(3, 3)),
}


def main(
    context: typer.Context,
    prompt: Annotated[str, typer.Option(callback=options.not_empty, help="What to ask the model.")],
    raw: options.RawOption = False,
    impl: options.ImplOption = Impl.LEARNER,
    backend: options.BackendOption = Backend.TORCH,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    cache: options.CacheOption = options.Cache.FULL,
    attention: options.AttentionOption = options.Attention.AUTO,
    bits: options.BitsOption = None,
    matmul: options.MatmulOption = options.Matmul.AUTO,
    fast: options.FastOption = False,
    max_tokens: options.MaxTokensOption = 128,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    repetition_penalty: options.RepetitionPenaltyOption = 1.0,
    seed: options.SeedOption = None,
) -> None:
    """Answer one prompt: the text as it comes, then how long it took."""
    console = Console(stderr=True, highlight=False)
    source = choose_source(context, Source(model, dtype, device, bits, matmul, attention), fast)
    cache = options.Cache.PAGED if fast else cache
    if backend is Backend.MLX:
        _check_mlx(context)
    with running(impl, WAYS_AROUND, backend, device) as course:
        sample = make_sampler(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        )
        if fast:
            require_fast(course, impl)
        generate = make_generate(cache, source.dtype, source.device, source.attention)
        loaded = source.load(course, impl)
        ids = prompt_ids(loaded, prompt, raw)
        check_prompt(loaded, ids)
        if cache is options.Cache.PAGED:
            warm_up(source.attention, loaded.model)
        timing = Timing()
        print(prompt if raw else "", end="", flush=True)
        try:
            _stream(generate(loaded.model, ids, max_tokens, loaded.tokenizer.end_ids, sample), loaded, timing)
        finally:
            if timing.arrivals:
                console.print(f"\n[dim]{_summary(len(ids), timing)} · {_size(loaded)}[/dim]")


def _check_mlx(context: typer.Context) -> None:
    """Refuse the options that ask for what MLX doesn't have.

    Raises:
        CourseError: one of them is given.
    """
    chosen = context.params
    if chosen["cache"] not in (options.Cache.NONE, options.Cache.FULL):
        raise CourseError(f"--backend mlx has no --cache {chosen['cache']}: choose none or full")
    for name, usual in (("fast", False), ("attention", "auto")):
        if chosen[name] != usual:
            raise CourseError(f"--backend mlx has no --{name}: leave it out")
    if chosen["matmul"] not in (options.Matmul.AUTO, options.Matmul.PLAIN):
        raise CourseError(f"--backend mlx has no --matmul {chosen['matmul']}: choose auto or plain")


def _stream(tokens: Iterator[int], loaded: LoadedModel, timing: Timing) -> None:
    """Write the answer to standard output, piece by piece."""
    from tiny_llm.generate import StreamDecoder

    decoder = StreamDecoder(loaded.tokenizer)
    for token in tokens:
        timing.stamp()
        if token not in loaded.tokenizer.end_ids:
            print(decoder.push(token), end="", flush=True)
    print(decoder.flush(), flush=True)


def _summary(prompt_tokens: int, timing: Timing) -> str:
    return (
        f"{prompt_tokens} prompt + {len(timing.arrivals)} output tokens · "
        f"first after {timing.first_token:.2f} s · {timing.tokens_per_second:.1f} tokens/s"
    )


def _size(loaded: LoadedModel) -> str:
    return f"model {held_bytes(loaded.model) / 1e6:.0f} MB"
