"""`pdm run bench quality`: perplexity, and the share of the same greedy tokens, beside float32."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from benchmarks.machine import describe_machine, machine_line
from benchmarks.progress import run_showing
from benchmarks.quality.forms import BASE, FORMS
from benchmarks.quality.measuring import Findings, measure
from benchmarks.quality.pieces import read_pieces
from benchmarks.quality.report import print_quality, quality_document
from benchmarks.report import name_of
from coursekit.errors import CourseError
from coursekit.files import require_writable, write_text
from coursekit.interrupts import leaving_when_terminated
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs import options
from programs.loaded import load, running

if TYPE_CHECKING:
    from tiny_llm.model import Transformer

MODEL = "smollm2-135m"
SHORT = 128
"""`--quick` takes so many tokens of each text."""


def bench_quality(
    impl: options.ImplOption = Impl.LEARNER,
    text: Annotated[
        Path | None, typer.Option(help="A text file to predict. Otherwise five short texts of the course's.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"Only {SHORT} tokens of each text.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The JSON file to write. Otherwise in .course/bench.")
    ] = None,
) -> None:
    """Measure how well the model predicts in fewer bits, beside the same weights in float32.

    Each form of the model predicts every token of a text from those before it: in bfloat16, as it is and as Day 4.7
    packs it; with 4-bit weights in bfloat16; and as on Day 4.7, with 4-bit weights and 8-bit activations. The table
    shows the perplexity, and how often the most likely token is the same as in float32. No speed is measured: other
    programs may run meanwhile.

    Ctrl-C stops early and keeps the forms that are complete; so does SIGTERM.
    """
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    with running(impl) as course:
        target = out or course.state / "bench" / "quality.json"
        if target.suffix != ".json":
            raise CourseError(f"--out is {str(target)!r}; it must be a file whose name ends in .json")
        require_writable([target])
        about = {
            "bench": "quality",
            "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "impl": str(impl),
            "model": MODEL,
            "text": None if text is None else str(text),
            "quick": quick,
            "machine": describe_machine(),
        }
        _measure(course, about, target, text, console, progress)


def _measure(
    course: Course,
    about: dict[str, Any],
    target: Path,
    text: Path | None,
    console: Console,
    progress: Console,
) -> None:
    """Measure, print and keep; what is complete is kept also if it is broken off."""
    from tiny_llm.tokenizer import load_tokenizer

    pieces = read_pieces(load_tokenizer(MODEL), text)
    if about["quick"]:
        pieces = [type(piece)(piece.name, piece.token_ids[:SHORT]) for piece in pieces]

    def load_model(dtype: str = "float32", **how: Any) -> Transformer:
        return load(MODEL, dtype, "cpu", console=progress, **how).model

    findings, finished = Findings(), False
    try:
        with leaving_when_terminated():
            steps = measure(BASE, FORMS, pieces, load_model, findings)
            run_showing(steps, len(pieces) * (1 + len(FORMS)), progress)
        finished = True
    finally:
        if finished or findings.forms:
            console.print(machine_line(about["machine"]), "", style="dim", soft_wrap=True)
            print_quality(console, findings, with_bars=not about["quick"])
            kept = quality_document(findings, **about, finished=finished)
            write_text(target, f"{json.dumps(kept, indent=2, ensure_ascii=False)}\n")
            console.print(f"kept in {name_of(target, course)}", style="dim", soft_wrap=True)
