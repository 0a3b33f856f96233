"""`pdm run batch-main`: a fixed set of prompts of very different lengths, answered several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from coursekit.running.stubs import Stub, reached_stub
from programs import options
from programs.answers import Answer, BatchWatch, measure, prepare
from programs.batch_forms import FORMS, Form, Limits
from programs.engine import Engine, load, make_sampler, running
from programs.prompts import PROMPTS
from programs.slots_view import SlotsView


def batch_main(
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    bits: options.BitsOption = None,
    matmul: options.MatmulOption = options.Matmul.AUTO,
    slots: Annotated[
        int, typer.Option(min=1, max=64, help="How many requests are decoded together at most.")
    ] = 5,
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
    seed: options.SeedOption = None,
) -> None:
    """Answer a fixed set of prompts, several at a time, and say how fast it went."""
    params: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
    }
    with running(impl):
        make_sampler(**params)  # refuse bad values before the model is loaded
        forms = find_forms(stage)
        engine = load(model, dtype, device, Console(stderr=True), bits, matmul)
        answer_all(engine, forms, Limits(max_tokens, slots, chunk, attention), params)


def find_forms(stage: str | None) -> tuple[Form, ...]:
    """The way of that name, or all of them.

    Raises:
        CourseError: there is none of that name.
    """
    found = tuple(form for form in FORMS if stage in (None, form.stage))
    if not found:
        raise CourseError(
            f"there is no stage {stage!r}; there are: {', '.join(form.stage for form in FORMS)}"
        )
    return found


def answer_all(engine: Engine, forms: Sequence[Form], limits: Limits, params: dict[str, Any]) -> None:
    """Answer the prompts in the first of the ways for which the code is there.

    Raises:
        NotImplementedError: a stub was reached in each of them.
    """
    missing: Stub | None = None
    for form in forms:
        try:
            _answer(engine, form, limits, params, missing)
            return
        except NotImplementedError as error:
            missing = reached_stub(error)
            if missing is None or form is forms[-1]:
                raise


def _answer(engine: Engine, form: Form, limits: Limits, params: dict[str, Any], missing: Stub | None) -> None:
    """Answer in one way, then print what there is, also after Ctrl-C."""
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    form.prepare(engine, limits)
    answers = prepare(engine, form.prompts, **params)
    model = BatchWatch(engine.model)
    counted: Any = model
    try:
        with SlotsView(progress, answers, limits.max_tokens) as view:
            form.run(Engine(counted, engine.tokenizer), answers, limits, view.step)
    except KeyboardInterrupt:
        _report(console, engine, answers, model)
        raise
    _report(console, engine, answers, model)
    if missing is not None:
        console.print(_advice(form, missing), style="yellow", soft_wrap=True, markup=False)


def _report(console: Console, engine: Engine, answers: Sequence[Answer], model: BatchWatch) -> None:
    for answer in answers:
        if answer.output or answer.refused:
            console.print(Text(f"{answer.number}. {answer.headline}", "bold"), soft_wrap=True)
            console.print(_text(engine, answer), "\n", soft_wrap=True, markup=False)
    if any(answer.output for answer in answers):
        console.print(_table(answers, model))


def _text(engine: Engine, answer: Answer) -> str:
    """What the model said; "…" says that it was cut off."""
    if answer.refused:
        return f"refused: {answer.refused}"
    ended = answer.output[-1] in engine.tokenizer.end_ids
    return engine.tokenizer.decode(answer.output).strip() + ("" if ended else " …")


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
        blocks = len(model.pool.keys[0]) - 1
        table.add_row("runs of the model", str(model.batches), "decodes and chunks together")
        table.add_row("pages with tokens, at most", f"{model.most_pages}", f"of {blocks}")
        table.add_row("the pool", f"{model.pool.nbytes / 1e6:.0f} MB")
    return table


def _advice(form: Form, missing: Stub) -> str:
    """Which task brings the next way."""
    some = "" if form.prompts == PROMPTS else f": {len(form.prompts)} short prompts of {len(PROMPTS)}"
    return (
        f"This was {form.name}{some}. The next form needs "
        f"{missing.message}. Test it with: pdm run test --week {missing.week} --day {missing.day}"
    )
