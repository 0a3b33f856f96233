"""`pdm run smoke`: every stage on the golden prompts, the same tokens each time, faster each time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.running.stubs import reached_stub
from programs import options
from programs.engine import Engine, load, running
from programs.golden import GoldenPrompt, Parting, find_partings, load_golden
from programs.implementation import first_stub, require_written
from programs.stages import SERVED, SERVED_DAY, Stage, find_stages

MODEL = "smollm2-135m"


@dataclass
class StageRun:
    """What one stage did: tokens and seconds over all prompts, and where it parted from the golden tokens."""

    stage: Stage
    tokens: int = 0
    seconds: float = 0.0
    partings: list[tuple[GoldenPrompt, Parting]] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def smoke(
    stage: Annotated[str | None, typer.Option(help="Run this stage only, such as recompute.")] = None,
    impl: options.ImplOption = Impl.LEARNER,
    device: options.DeviceOption = options.Device.CPU,
    attention: options.AttentionOption = options.Attention.AUTO,
) -> None:
    """Run the engine's stages on the golden prompts: the same tokens, and how fast each stage is.

    Stages that the learner has not come to are left out, unless one is asked for by name. --attention is for the
    stage "kernel".

    Exit code 1 when a stage parts from the golden tokens.
    """
    stages = find_stages(stage, attention)
    console = Console(highlight=False)
    with running(impl) as course:
        stages = tuple(_checked(course, impl, each) for each in stages)
        golden = load_golden(course, MODEL)
        engine = load(MODEL, "float32", device, Console(stderr=True))
        runs, missing = run_stages(engine, stages, golden)
    console.print(_ladder(runs, golden))
    for run in runs:
        for prompt, parting in run.partings:
            console.print(
                f"[red]{run.stage.name}[/red], prompt {prompt.prompt!r}: {_explain(engine, parting)}"
            )
    if missing:
        console.print(f"\n{_what_comes_next(course, missing[0])}", soft_wrap=True)
    if any(run.partings for run in runs):
        raise typer.Exit(1)


def _checked(course: Course, impl: Impl, stage: Stage) -> Stage:
    """The stage, which looks for stubs first if it runs the day's code in threads, where none would be recognised."""
    if stage.name != SERVED.name:
        return stage

    def prepare(engine: Engine) -> None:
        require_written(course, impl, SERVED_DAY)
        stage.prepare(engine)

    return replace(stage, prepare=prepare)


def run_stages(
    engine: Engine, stages: Sequence[Stage], golden: Sequence[GoldenPrompt]
) -> tuple[list[StageRun], list[Stage]]:
    """Run the stages whose code is there; the others are the second list.

    Raises:
        NotImplementedError: that is none of them; the error is the stub that the first one reached.
    """
    runs: list[StageRun] = []
    missing: list[Stage] = []
    stub: NotImplementedError | None = None
    for stage in stages:
        try:
            runs.append(run_stage(engine, stage, golden))
        except NotImplementedError as error:
            if reached_stub(error) is None:
                raise
            missing.append(stage)
            stub = stub or error
    if stub is not None and not runs:
        raise stub
    return runs, missing


def run_stage(engine: Engine, stage: Stage, golden: Sequence[GoldenPrompt]) -> StageRun:
    """Run one stage on the golden prompts.

    Raises:
        CourseError: it does not give an output for each prompt.
    """
    run = StageRun(stage)

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        started = time.perf_counter()
        outputs = stage.generate(engine, prompts, max_tokens)
        run.seconds += time.perf_counter() - started
        if len(outputs) != len(prompts):
            raise CourseError(f"{stage.name} gave {len(outputs)} outputs for {len(prompts)} prompts")
        run.tokens += sum(map(len, outputs))
        return outputs

    stage.prepare(engine)
    with Console(stderr=True).status(f"{stage.number} {stage.name}: {len(golden)} prompts"):
        partings = find_partings(golden, generate)
    run.partings = [
        (prompt, parting) for prompt, parting in zip(golden, partings, strict=True) if parting is not None
    ]
    return run


def _ladder(runs: list[StageRun], golden: list[GoldenPrompt]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("stage", ""):
        table.add_column(column)
    for column in ("tokens/s", "× first"):
        table.add_column(column, justify="right")
    table.add_column("tokens")
    first = runs[0].tokens_per_second
    for run in runs:
        speed = run.tokens_per_second
        ratio = speed / first if first else 0.0
        table.add_row(run.stage.number, run.stage.name, f"{speed:.1f}", f"{ratio:.2f}", _verdict(run, golden))
    return table


def _verdict(run: StageRun, golden: list[GoldenPrompt]) -> str:
    if not run.partings:
        count = sum(len(prompt.token_ids) for prompt in golden)
        return f"[green]the same[/green] ({count} tokens, {len(golden)} prompts)"
    return f"[red]differ[/red] in {len(run.partings)} of {len(golden)} prompts"


def _explain(engine: Engine, parting: Parting) -> str:
    expected = engine.tokenizer.decode([parting.expected])
    if parting.actual is None:
        return f"ends before token {parting.index + 1}, where {expected!r} ({parting.expected}) should come"
    actual = engine.tokenizer.decode([parting.actual])
    return f"token {parting.index + 1} is {actual!r} ({parting.actual}), should be {expected!r} ({parting.expected})"


def _what_comes_next(course: Course, stage: Stage) -> str:
    """Which day the next stage belongs to, and the first task that is missing."""
    comes = f"{stage.number} {stage.name} comes with Day {stage.day}."
    task = first_stub(course)
    if task is None:
        return comes
    return f"{comes} Next: {task.label}, {task.title}. Test it with: {task.test_command}"
