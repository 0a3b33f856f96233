"""`pdm run smoke`: every stage on the golden prompts, the same tokens each time, faster each time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from coursekit.programs import options
from coursekit.programs.engine import Engine, load, running
from coursekit.programs.golden import GoldenPrompt, Parting, find_parting, load_golden
from coursekit.programs.stages import Stage, find_stages
from coursekit.running.import_path import Impl

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
) -> None:
    """Run the engine's stages on the golden prompts: the same tokens, and how fast each stage is.

    Exit code 1 when a stage parts from the golden tokens.
    """
    stages = find_stages(stage)
    console = Console(highlight=False)
    with running(impl) as course:
        golden = load_golden(course, MODEL)
        engine = load(MODEL, "float32", device, Console(stderr=True))
        runs = [run_stage(engine, each, golden) for each in stages]
    console.print(_ladder(runs, golden))
    for run in runs:
        for prompt, parting in run.partings:
            console.print(
                f"[red]{run.stage.name}[/red], prompt {prompt.prompt!r}: {_explain(engine, parting)}"
            )
    if any(run.partings for run in runs):
        raise typer.Exit(1)


def run_stage(engine: Engine, stage: Stage, golden: list[GoldenPrompt]) -> StageRun:
    """Run one stage on every golden prompt, with a spinner that says how far it is."""
    run = StageRun(stage)

    def generate(ids: Sequence[int], max_tokens: int) -> list[int]:
        started = time.perf_counter()
        tokens = stage.generate(engine, ids, max_tokens)
        run.seconds += time.perf_counter() - started
        run.tokens += len(tokens)
        return tokens

    with Console(stderr=True).status(stage.name) as status:
        for number, prompt in enumerate(golden, start=1):
            status.update(f"{stage.number} {stage.name}: prompt {number} of {len(golden)}")
            parting = find_parting(prompt, generate)
            if parting is not None:
                run.partings.append((prompt, parting))
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
