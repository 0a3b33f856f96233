"""`pdm run main`: one prompt, answered as it is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from coursekit.programs import options
from coursekit.programs.engine import Engine, Timing, check_prompt, load, make_sampler, prompt_ids, running
from coursekit.running.import_path import Impl

if TYPE_CHECKING:
    from tiny_llm.generate import Sample


def main(
    prompt: Annotated[str, typer.Option(help="What to ask the model.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as plain text, without a chat.")
    ] = False,
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    max_tokens: options.MaxTokensOption = 128,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    seed: options.SeedOption = None,
) -> None:
    """Answer one prompt: the text as it comes, then how long it took."""
    console = Console(stderr=True, highlight=False)
    with running(impl):
        sample = make_sampler(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
        engine = load(model, dtype, device, console)
        ids = prompt_ids(engine, prompt, raw)
        check_prompt(engine, ids)
        timing = Timing()
        try:
            _stream(engine, ids, max_tokens, sample, timing)
        finally:
            if timing.arrivals:
                console.print(f"\n[dim]{_summary(len(ids), timing)}[/dim]")


def _stream(engine: Engine, ids: list[int], max_tokens: int, sample: Sample, timing: Timing) -> None:
    """Write the answer to standard output, piece by piece."""
    from tiny_llm.generate import StreamDecoder, generate_recompute

    decoder = StreamDecoder(engine.tokenizer)
    end_ids = engine.tokenizer.end_ids
    for token in generate_recompute(engine.model, ids, max_tokens, end_ids, sample):
        timing.stamp()
        if token not in end_ids:
            print(decoder.push(token), end="", flush=True)
    print(decoder.flush(), flush=True)


def _summary(prompt_tokens: int, timing: Timing) -> str:
    return (
        f"{prompt_tokens} prompt + {len(timing.arrivals)} output tokens · "
        f"first after {timing.first_token:.2f} s · {timing.tokens_per_second:.1f} tokens/s"
    )
