"""`pdm run batch-main`: a fixed set of prompts of very different lengths, answered several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coursekit.running.import_path import Impl
from coursekit.running.stubs import Stub, reached_stub
from programs import options
from programs.answers import Answer, BatchWatch, measure, prepare
from programs.implementation import WHOSE
from programs.loaded import LoadedModel, load, make_sampler, running
from programs.prompts import PROMPTS, SHORT
from programs.seats import Seen
from programs.seats_view import SeatsView
from programs.stages import STAGES, Limits, Stage, find_stages

ANSWERING = tuple(stage for stage in reversed(STAGES) if stage.samples)
"""The stages that can answer with a sampler per request: the best first."""


def batch_main(
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    bits: options.BitsOption = None,
    matmul: options.MatmulOption = options.Matmul.AUTO,
    seats: Annotated[int, typer.Option(min=1, max=64, help="How many requests run together at most.")] = 5,
    chunk: Annotated[
        int,
        typer.Option(
            min=1,
            max=8192,
            help="How many tokens of a prompt are computed at a time at most; ragged: tokens of all in a step.",
        ),
    ] = 128,
    stage: Annotated[
        str | None,
        typer.Option(
            help="How: ragged, kernel, paged, continuous, cached or recompute; left out, the first of these that is "
            "written."
        ),
    ] = None,
    attention: options.AttentionOption = options.Attention.AUTO,
    max_tokens: options.MaxTokensOption = 48,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    repetition_penalty: options.RepetitionPenaltyOption = 1.0,
    seed: options.SeedOption = None,
) -> None:
    """Answer a fixed set of prompts, several at a time, and say how fast it went."""
    params: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }
    with running(impl):
        make_sampler(**params)  # refuse bad values before the model is loaded
        stages = find_stages(stage, ANSWERING)
        loaded = load(model, dtype, device, bits, matmul)
        answer_all(loaded, stages, Limits(seats, chunk, attention), max_tokens, params, impl)


def answer_all(
    loaded: LoadedModel,
    stages: Sequence[Stage],
    limits: Limits,
    max_tokens: int,
    params: dict[str, Any],
    impl: Impl,
) -> None:
    """Answer the prompts with the first of the stages for which the code is there.

    Raises:
        NotImplementedError: a stub was reached in each of them.
    """
    missing: Stub | None = None
    for stage in stages:
        try:
            _answer(loaded, stage, limits, max_tokens, params, impl, missing)
            return
        except NotImplementedError as error:
            missing = reached_stub(error)
            if missing is None or stage is stages[-1]:
                raise


def _answer(
    loaded: LoadedModel,
    stage: Stage,
    limits: Limits,
    max_tokens: int,
    params: dict[str, Any],
    impl: Impl,
    missing: Stub | None,
) -> None:
    """Answer with one stage, then print what there is, also after Ctrl-C."""
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    stage.prepare(loaded, limits)
    answers = prepare(loaded, SHORT if stage.short_prompts else PROMPTS, **params)
    model = BatchWatch(loaded.model)
    counted: Any = model
    whose, folder = WHOSE[impl]
    code = f"{whose}, {folder}"
    progress.print(f"{code}: {len(answers)} prompts, {stage.title}", style="dim", soft_wrap=True)
    try:
        with SeatsView(progress, answers, max_tokens) as view:
            run(LoadedModel(counted, loaded.tokenizer), stage, answers, limits, max_tokens, view)
    except KeyboardInterrupt:
        _report(console, loaded, answers, model, code)
        raise
    _report(console, loaded, answers, model, code)
    if missing is not None:
        console.print(_advice(stage, missing), style="yellow", soft_wrap=True, markup=False)


def run(
    loaded: LoadedModel,
    stage: Stage,
    answers: Sequence[Answer],
    limits: Limits,
    max_tokens: int,
    view: SeatsView,
) -> None:
    """Bring the answers to their ends, and show each step."""
    from tiny_llm.request import Request

    end_ids = loaded.tokenizer.end_ids
    answer_of = {Request(each.prompt_ids, max_tokens, end_ids, each.choose): each for each in answers}

    def show(seen: Seen) -> None:
        for request, count in seen.computed.items():
            answer = answer_of[request]
            answer.computed = min(len(answer.prompt_ids), count)
        seats = [None if request is None else answer_of[request] for request in seen.seats]
        prefilling = None if seen.prefilling is None else answer_of[seen.prefilling]
        view.step(seats, prefilling, {answer_of[request] for request in seen.finished})

    try:
        stage.run(loaded, list(answer_of), limits, show)
    finally:
        for request, answer in answer_of.items():
            answer.refused = request.error


def _report(
    console: Console, loaded: LoadedModel, answers: Sequence[Answer], model: BatchWatch, code: str
) -> None:
    for answer in answers:
        if answer.output or answer.refused:
            console.print(Text(f"{answer.number}. {answer.headline}", "bold"), soft_wrap=True)
            console.print(_text(loaded, answer), "\n", soft_wrap=True, markup=False)
    if any(answer.output for answer in answers):
        console.print(_table(answers, model), f"run by {code}")


def _text(loaded: LoadedModel, answer: Answer) -> str:
    """What the model said; "…" says that it was cut off."""
    if answer.refused:
        return f"refused: {answer.refused}"
    ended = answer.output[-1] in loaded.tokenizer.end_ids
    return loaded.tokenizer.decode(answer.output).strip() + ("" if ended else " …")


def _table(answers: Sequence[Answer], model: BatchWatch) -> Table:
    speed = measure([answer.timing for answer in answers])
    prompt_tokens = sum(len(answer.prompt_ids) for answer in answers if answer.output)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_row("requests", str(speed.requests))
    table.add_row("prompt tokens", f"{prompt_tokens:,}")
    table.add_row("output tokens", f"{speed.tokens:,}", f"in {speed.seconds:.1f} s")
    table.add_row("output tokens per second", f"{speed.tokens_per_second:.1f}")
    table.add_row("time to first token, mean", f"{speed.mean_first:.2f} s", "from the start of all")
    table.add_row("time to first token, worst", f"{speed.worst_first:.2f} s")
    table.add_row("worst gap between two tokens", f"{speed.worst_gap:.2f} s", "of one request")
    if model.bytes_copied:
        gigabytes = f"{model.bytes_copied / 1e9:.1f} GB"
        table.add_row("copied to rebuild the dense batch", gigabytes, f"in {model.batches} decodes")
    if model.pool is not None:
        pages = len(model.pool.keys[0]) - 1
        table.add_row("runs of the model", str(model.batches), "decodes and chunks together")
        table.add_row("pages with tokens, at most", f"{model.most_pages}", f"of {pages}")
        table.add_row("the pool", f"{model.pool.nbytes / 1e6:.0f} MB")
    return table


def _advice(stage: Stage, missing: Stub) -> str:
    """Which task brings the next stage."""
    some = f": {len(SHORT)} short prompts of {len(PROMPTS)}" if stage.short_prompts else ""
    return (
        f"This was {stage.title}{some}. The next stage needs "
        f"{missing.message}. Test it with: pdm run test {missing.week}.{missing.day}"
    )
