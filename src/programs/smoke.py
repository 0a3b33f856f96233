"""`pdm run smoke`: every stage on the golden prompts, the same tokens each time, faster each time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.running.stubs import reached_stub
from coursekit.tracks import covers, track_refusal
from programs import options
from programs.golden import (
    GoldenDocuments,
    GoldenPrompt,
    Parting,
    find_partings,
    load_golden,
    load_golden_documents,
)
from programs.implementation import first_stub, require_written
from programs.loaded import LoadedModel, load, running
from programs.seats import Seen
from programs.stage import Limits, Run, Stage
from programs.stages import find_stages
from programs.waiting import waiting

MODEL = "smollm2-135m"

SEATS = 4
"""Fewer than there are golden prompts, so that some of them must wait."""

CHUNK_SIZE = 16
"""In tokens: smaller than some golden prompts, larger than others."""

LIMITS = Limits(SEATS, CHUNK_SIZE)


@dataclass
class StageRun:
    """What one stage did: tokens and seconds over all prompts, and where it parted from the golden tokens."""

    stage: Stage
    tokens: int = 0
    seconds: float = 0.0
    partings: list[tuple[GoldenPrompt | GoldenDocuments, Parting]] = field(default_factory=list)
    golden: int = 0  # tokens that it was compared with
    prompts: int = 0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def smoke(
    stage: Annotated[str | None, typer.Option(help="Run this stage only, such as recompute.")] = None,
    impl: options.ImplOption = Impl.LEARNER,
    device: options.DeviceOption = options.Device.CPU,
    attention: options.AttentionOption = options.Attention.AUTO,
    backend: options.BackendOption = Backend.TORCH,
) -> None:
    """Run the engine's stages on the golden prompts: the same tokens, and how fast each stage is.

    Stages that the learner has not come to are left out, unless one is asked for by name. --attention is for the
    stage "kernel". With --backend mlx the stages are those of the days that the MLX track covers.

    Exit code 1 when a stage parts from the golden tokens.
    """
    stages = _of_track(find_stages(stage), backend)
    console = Console(highlight=False)
    limits = replace(LIMITS, attention=attention)
    with running(impl, backend=backend, device=device) as course:
        golden = load_golden(course, MODEL)
        loaded = load(MODEL, "float32", device)
        documents = load_golden_documents(course, MODEL)
        require = partial(_require, course, impl)
        runs, missing = run_stages(loaded, stages, golden, limits, require, documents)
    console.print(make_ladder(runs))
    for run in runs:
        for prompt, parting in run.partings:
            console.print(
                f"[red]{run.stage.name}[/red], prompt {prompt.prompt!r}: {_explain(loaded, parting)}"
            )
    if missing:
        console.print(f"\n{_what_comes_next(course, missing[0], backend)}", soft_wrap=True)
    if any(run.partings for run in runs):
        raise typer.Exit(1)


def _of_track(stages: Sequence[Stage], backend: Backend) -> tuple[Stage, ...]:
    """The stages of days that the track covers.

    Raises:
        CourseError: there is none.
    """
    course = Course.find()
    manifest = load_manifest(course)
    covered = tuple(
        stage
        for stage in stages
        if covers(course, backend.package, manifest.lesson(f"{stage.day[0]}.{stage.day[1]}"))
    )
    if not covered:
        raise CourseError(track_refusal(course, backend.package, manifest))
    return covered


def _require(course: Course, impl: Impl, stage: Stage) -> None:
    """Look for stubs first if the stage runs the day's code in threads, where none would be recognized."""
    if stage.in_threads:
        require_written(course, impl, stage.day, needed=True)


def run_stages(
    loaded: LoadedModel,
    stages: Sequence[Stage],
    golden: Sequence[GoldenPrompt],
    limits: Limits = LIMITS,
    require: Callable[[Stage], None] = lambda stage: None,
    documents: Sequence[GoldenDocuments] = (),
) -> tuple[list[StageRun], list[Stage]]:
    """Run the stages whose code is there; the others are the second list.

    Args:
        engine: the model.
        stages: what to run.
        golden: the prompts and their tokens.
        limits: what each stage may use.
        require: called before each stage; raises a stub's error where running the stage would not.
        documents: prompts with documents, for the stages that answer them.

    Raises:
        NotImplementedError: none of the stages has its code; the error is the stub that the first one reached.
    """
    runs: list[StageRun] = []
    missing: list[Stage] = []
    stub: NotImplementedError | None = None
    for stage in stages:
        try:
            require(stage)
            runs.append(run_stage(loaded, stage, golden, limits, documents))
        except NotImplementedError as error:
            if reached_stub(error) is None:
                raise
            missing.append(stage)
            stub = stub or error
    if stub is not None and not runs:
        raise stub
    return runs, missing


def run_stage(
    loaded: LoadedModel,
    stage: Stage,
    golden: Sequence[GoldenPrompt],
    limits: Limits = LIMITS,
    documents: Sequence[GoldenDocuments] = (),
) -> StageRun:
    """Run one stage on the golden prompts; those with documents aren't timed."""
    from tiny_llm.request import Request

    run = StageRun(stage)

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        end_ids = loaded.tokenizer.end_ids
        requests = [Request(*each, end_ids) for each in zip(prompts, max_tokens, strict=True)]

        def observe(seen: Seen) -> None:
            done = sum(request.num_generated for request in requests)
            say(f"{what}, {done} of {sum(max_tokens)} tokens")

        started = time.perf_counter()
        stage.run(loaded, requests, limits, observe)
        run.seconds += time.perf_counter() - started
        run.tokens += sum(request.num_generated for request in requests)
        return [request.output for request in requests]

    stage.prepare(loaded, limits)
    what = f"{stage.number} {stage.name}: {len(golden)} prompts"
    with waiting(what) as say:
        _note(run, golden, find_partings(golden, generate))
        for name, other in stage.others:
            say(f"{what}, through {name}")
            _note(run, golden, find_partings(golden, partial(_answer, loaded, limits, other)))
        if stage.documents is not None:
            say(f"{what}, and {len(documents)} with documents")
            answer = partial(stage.documents, loaded, limits)
            _note(run, documents, find_partings(documents, answer))
    return run


def _answer(
    loaded: LoadedModel, limits: Limits, run: Run, prompts: list[list[int]], max_tokens: list[int]
) -> list[list[int]]:
    """The new tokens of some prompts, which run together and aren't timed."""
    from tiny_llm.request import Request

    end_ids = loaded.tokenizer.end_ids
    requests = [Request(*each, end_ids) for each in zip(prompts, max_tokens, strict=True)]
    run(loaded, requests, limits, lambda seen: None)
    return [request.output for request in requests]


def _note(
    run: StageRun, prompts: Sequence[GoldenPrompt | GoldenDocuments], partings: Sequence[Parting | None]
) -> None:
    """Add what some prompts were compared with, and where the stage parted from it."""
    run.golden += sum(len(prompt.token_ids) for prompt in prompts)
    run.prompts += len(prompts)
    run.partings += [
        (each, found) for each, found in zip(prompts, partings, strict=True) if found is not None
    ]


def make_ladder(runs: Sequence[StageRun]) -> Table:
    """A row for each stage: its speed, also beside that of the first one, and whether its tokens are the same."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("stage", ""):
        table.add_column(column)
    compared = len(runs) > 1  # a single stage has nothing to be compared with
    for column in ("tokens/s", "× first") if compared else ("tokens/s",):
        table.add_column(column, justify="right")
    table.add_column("tokens")
    first = runs[0].tokens_per_second
    for run in runs:
        speed = run.tokens_per_second
        ratio = [f"{speed / first if first else 0.0:.2f}"] if compared else []
        table.add_row(run.stage.number, run.stage.name, f"{speed:.1f}", *ratio, _verdict(run))
    return table


def _verdict(run: StageRun) -> str:
    if not run.partings:
        return f"[green]the same[/green] ({run.golden} tokens, {run.prompts} prompts)"
    return f"[red]differ[/red] in {len(run.partings)} of {run.prompts} prompts"


def _explain(loaded: LoadedModel, parting: Parting) -> str:
    expected = loaded.tokenizer.decode([parting.expected])
    if parting.actual is None:
        return f"ends before token {parting.index + 1}, where {expected!r} ({parting.expected}) should come"
    actual = loaded.tokenizer.decode([parting.actual])
    return f"token {parting.index + 1} is {actual!r} ({parting.actual}), should be {expected!r} ({parting.expected})"


def _what_comes_next(course: Course, stage: Stage, backend: Backend) -> str:
    """Which day the next stage belongs to, and the first task that is missing."""
    week, day = stage.day
    comes = f"{stage.number} {stage.name} comes with Day {week}.{day}."
    task = first_stub(course, package=backend.package)
    if task is None:
        return comes
    command = f"{task.test_command}{backend.option}"
    return f"{comes} Next: {task.label}, {task.title}. Test it with: {command}"
