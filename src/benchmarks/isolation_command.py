"""`pdm run bench isolation`: right answers and perplexity, with documents that see one another and that don't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.isolation import WAYS, Findings, check_room, longest_document, measure
from benchmarks.isolation_report import isolation_document, print_isolation
from benchmarks.machine import machine_line
from benchmarks.progress import run_showing
from benchmarks.questions import QUESTIONS, encode_item, load_questions
from benchmarks.report import name_of
from coursekit.errors import CourseError
from coursekit.files import require_writable, write_text
from coursekit.interrupts import leaving_when_terminated
from coursekit.paths import Course
from programs.loaded import load

QUICK = 3
"""`--quick` asks every third question."""


def bench_isolation(
    course: Course,
    about: dict[str, Any],
    target: Path,
    questions: Path | None,
    console: Console,
    progress: Console,
) -> None:
    """Measure, print and keep; Ctrl-C stops early and keeps the questions that all ways have answered.

    Args:
        course: its folder is left out of the name of the file that is kept.
        about: how and where it is measured: at least "model", "machine" and "quick".
        target: the JSON file to write.
        questions: another question set than the course's.
        console: where the tables go.
        progress: where it says how far it is.
    """
    if target.suffix != ".json":
        raise CourseError(f"--out is {str(target)!r}; it must be a file whose name ends in .json")
    require_writable([target])
    items = load_questions(questions or QUESTIONS)
    loaded = load(about["model"], "float32", "cpu", console=progress)
    encoded = [encode_item(item, loaded.tokenizer) for item in items]
    max_chunk_len = longest_document(encoded)
    check_room(loaded, encoded, max_chunk_len)
    chosen = encoded[::QUICK] if about["quick"] else encoded
    findings, finished = Findings(list(WAYS)), False
    try:
        with leaving_when_terminated():
            run_showing(measure(loaded, chosen, max_chunk_len, findings), len(chosen), progress)
        finished = True
    finally:
        if findings.complete:
            console.print(machine_line(about["machine"]), "", style="dim", soft_wrap=True)
            print_isolation(console, findings)
            kept = isolation_document(
                findings,
                **about,
                questions_file=str(questions or QUESTIONS.name),
                max_chunk_len=max_chunk_len,
                finished=finished,
            )
            write_text(target, f"{json.dumps(kept, indent=2, ensure_ascii=False)}\n")
            console.print(f"kept in {name_of(target, course)}", style="dim", soft_wrap=True)
