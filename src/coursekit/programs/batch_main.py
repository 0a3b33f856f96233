"""`pdm run batch-main`: a fixed set of prompts, answered one after the other."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from coursekit.programs import options
from coursekit.programs.engine import Engine, Timing, load, make_sampler, prompt_ids, running
from coursekit.programs.prompts import PROMPTS
from coursekit.running.import_path import Impl


def batch_main(
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    max_tokens: options.MaxTokensOption = 32,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    seed: options.SeedOption = None,
) -> None:
    """Answer a fixed set of prompts and say how fast it went."""
    console = Console(highlight=False)
    with running(impl):
        params: dict[str, Any] = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "seed": seed,
        }
        make_sampler(**params)  # refuse bad values before the model is loaded
        engine = load(model, dtype, device, Console(stderr=True))
        timing = Timing()
        try:
            with _progress(console) as progress:
                bar = progress.add_task("answering", total=len(PROMPTS), tokens=0, speed=0.0)
                for prompt in PROMPTS:
                    answer = _answer(engine, prompt, max_tokens, params, timing, progress, bar)
                    progress.console.print(Text(prompt, "bold"), Text(answer), "", sep="\n")
                    progress.advance(bar)
        finally:
            if timing.arrivals:
                console.print(
                    f"{len(timing.arrivals)} tokens, {timing.tokens_per_second:.1f} tokens per second, "
                    "one prompt after the other"
                )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens, {task.fields[speed]:.1f}/s"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _answer(
    engine: Engine,
    prompt: str,
    max_tokens: int,
    params: dict[str, Any],
    timing: Timing,
    progress: Progress,
    bar: TaskID,
) -> str:
    """Generate one answer while the bar moves, and return its text; "…" says that it was cut off."""
    from tiny_llm.generate import generate_recompute

    ids = prompt_ids(engine, prompt, raw=False)
    end_ids = engine.tokenizer.end_ids
    output = []
    for token in generate_recompute(engine.model, ids, max_tokens, end_ids, make_sampler(**params)):
        timing.stamp()
        output.append(token)
        progress.update(bar, tokens=len(timing.arrivals), speed=timing.tokens_per_second)
    ended = output[-1] in end_ids
    return engine.tokenizer.decode(output).strip() + ("" if ended else " …")
