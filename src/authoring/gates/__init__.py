"""`pdm run check`: what the course proves about itself, gate by gate."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from authoring.gates.gate import Context, Findings, Gate
from authoring.progress import count
from coursekit.errors import CourseError
from coursekit.interrupts import leaving_when_terminated
from coursekit.machine import cores
from coursekit.paths import Course

# In the order in which they run: the quick ones first.
GATES = ("lint", "agreement", "starter", "order", "mutants", "mlx", "grading", "notebooks", "reference")
LONG = "long"  # runs alone, and only when it is asked for
FAILED = 1
WIDTH_OF_FILES = 140


@dataclass(frozen=True)
class Verdict:
    """One gate's findings and how long it took."""

    gate: str
    findings: Findings
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.findings.problems


def prove(
    only: Annotated[
        str | None, typer.Option(metavar="GATES", help="Run these gates alone, with commas between them.")
    ] = None,
    leave_out: Annotated[
        str | None, typer.Option("--except", metavar="GATES", help="Run all gates but these.")
    ] = None,
    day: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Keep the gates that run a day's tests to one day, such as 1.3."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="How many runs at a time; by default one a core."),
    ] = None,
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Also print what a learner with each mutant's mistake would read."),
    ] = False,
    long: Annotated[
        bool,
        typer.Option("--long", help="Run a million random steps of Week 4's engine instead of the gates."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="Which random steps --long runs; 0 if left out."),
    ] = None,
) -> None:
    """Prove that reference, starter, tests, mutants and book agree: all gates, or those that you name.

    Gates: lint, agreement, starter, order, mutants, mlx, grading, notebooks, reference.

    Exit code 0 only when every gate that ran passed.
    """
    gates = choose(only, leave_out, long)
    if seed is not None and not long:
        raise CourseError("--seed is for --long: the gates have nothing random")
    context = Context(Course.find(), _console(), workers or cores(), day, messages, seed or 0)
    if day is not None:
        _ = context.lessons  # a day that isn't there is the caller's mistake, not a gate's finding
    with leaving_when_terminated():  # our children stop then, and their folders are removed
        verdicts = [run_gate(gate, context) for gate in gates]
    show_table(context.console, verdicts)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(FAILED)


def choose(only: str | None, leave_out: str | None, long: bool = False) -> list[str]:
    """The gates to run, in order.

    Raises:
        CourseError: a name is no gate's, or none is left; or others are named beside the long one.
    """
    wanted, unwanted = _names(only), _names(leave_out)
    if long:
        if wanted or unwanted:
            raise CourseError("--long runs alone: leave out --only and --except")
        return [LONG]
    for name in [*wanted, *unwanted]:
        if name not in GATES:
            raise CourseError(f"there is no gate {name!r}; there are: {', '.join(GATES)}")
    chosen = [gate for gate in GATES if (not wanted or gate in wanted) and gate not in unwanted]
    if not chosen:
        raise CourseError("no gate is left to run: --except names all that --only does")
    return chosen


def run_gate(name: str, context: Context) -> Verdict:
    """Run one gate and print what it found. What stops a gate is a problem of that gate alone."""
    console = context.console
    console.print(f"[bold]{name}[/bold] …")
    start = time.monotonic()
    gate: Gate = getattr(import_module(f"authoring.gates.{name}"), name)
    try:
        findings = gate(context)
    except CourseError as error:
        findings = Findings("could not run", str(error).splitlines())
    verdict = Verdict(name, findings, time.monotonic() - start)
    for problem in findings.problems:
        console.print(f"  problem: {problem}", markup=False, soft_wrap=True)
    for note in findings.notes:
        console.print(f"  note: {note}", markup=False, soft_wrap=True)
    console.print(_one_line(verdict), markup=False, soft_wrap=True)
    return verdict


def show_table(console: Console, verdicts: list[Verdict]) -> None:
    """The end of the run: a line a gate, then the sum."""
    table = Table(box=None, pad_edge=False)
    for heading in ("gate", "result", "what it looked at"):
        table.add_column(heading)
    table.add_column("seconds", justify="right")
    for verdict in verdicts:
        result = "[green]passed[/green]" if verdict.passed else "[red]failed[/red]"
        table.add_row(verdict.gate, result, verdict.findings.looked_at, f"{verdict.seconds:.1f}")
    console.print()
    console.print(table)
    failed = [verdict.gate for verdict in verdicts if not verdict.passed]
    passed = f"{len(verdicts) - len(failed)} of {count(len(verdicts), 'gate')} passed"
    console.print(f"\n{passed}{'; failed: ' + ', '.join(failed) if failed else ''}", soft_wrap=True)


def _one_line(verdict: Verdict) -> str:
    result = "passed" if verdict.passed else f"failed, {count(len(verdict.findings.problems), 'problem')}"
    return f"  {verdict.gate}: {result} ({verdict.findings.looked_at}; {verdict.seconds:.1f} s)"


def _console() -> Console:
    """Standard output; into a file or a pipe, lines may be longer than on the terminal that isn't there."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
