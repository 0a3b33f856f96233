"""`pdm run bench`: measure the ladders of Weeks 2 to 4, print them, and keep them as JSON and as a picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import (
    documents,
    gpu,
    host,
    isolation,
    preemption,
    serving,
    shares,
    sharing,
    stages,
    start,
    week_2,
    week_3,
)
from benchmarks.isolation_command import bench_isolation
from benchmarks.keeping import keep, require_places
from benchmarks.machine import busy, describe_machine
from benchmarks.models import MODEL, make_models
from benchmarks.progress import run_showing
from benchmarks.rounds import Case, Record, run_rounds
from benchmarks.serving_http import NAME as SERVING_HTTP
from benchmarks.serving_http_command import HttpOptions, bench_serving_http
from benchmarks.week_2 import TEXT, GetModel
from coursekit.backends import Device
from coursekit.errors import CourseError
from coursekit.interrupts import leaving_when_terminated
from coursekit.running.import_path import Impl
from programs import options
from programs.loaded import running

WEEKS = {2: (week_2,), 3: (week_3, serving), 4: (sharing, preemption, documents, host, shares, start)}
WHOLE = (stages,)
"""What goes through all weeks."""
MODULES = (*(module for modules in WEEKS.values() for module in modules), *WHOLE)
LADDERS = tuple(ladder for module in MODULES for ladder in module.LADDERS)
BARS = tuple(bar for module in MODULES for bar in module.BARS)


def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Ladders or rows to measure, such as serving; all if left out. Or isolation: how well the model "
            "answers questions about documents that don't see one another."
        ),
    ] = None,
    impl: options.ImplOption = Impl.LEARNER,
    week: Annotated[int | None, typer.Option(min=2, max=4, help="Measure only this week's ladders.")] = None,
    device: Annotated[
        Device, typer.Option(help="cuda: only the ladder of the engine on an NVIDIA GPU.")
    ] = Device.CPU,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="How often each row is measured.")] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half the tokens, once; isolation: every third question.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write; the picture goes beside it. Otherwise in .course/bench."),
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="For isolation: a TOML file of other questions than the course's.")
    ] = None,
    http: Annotated[
        bool,
        typer.Option("--http", help="For serving: ask the server of Day 4.6, started for it, over HTTP."),
    ] = False,
    url: Annotated[
        str | None, typer.Option(help="For serving --http: ask this OpenAI-compatible server instead.")
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="For serving --http: requests per second. [default: 1,2,4]")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="For serving --http: per rate. [default: 40]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For serving --http: chooses requests and pauses. [default: 0]")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="For --url: the key that the server wants.")
    ] = None,
) -> None:
    """Measure what each step of Weeks 2 to 4 gains on this machine.

    The ladder "stages" has the same requests on every stage, S0 to S10, and on the steps of Day 4.7. Rows take turns,
    round after round; the tables show medians. Close other programs first. Isolation measures no speed, and each
    question is asked once. `pdm run bench peers` sets the engine beside others, and has options of its own. On a GPU,
    `--device cuda` measures the served engine in three forms.

    Ctrl-C stops early and keeps what is measured; so does SIGTERM.
    """
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    asked = HttpOptions(http, url, rates, requests, seed, api_key)
    with running(impl) as course:
        over_http = asked.over_http(what or [])
        on_gpu = _is_on_gpu(device, over_http or week is not None or isolation.NAME in (what or []))
        everything = "cuda" if on_gpu else f"week_{week}" if week else "weeks"
        name = SERVING_HTTP if over_http else "-".join(what or [everything])
        target = out or course.state / "bench" / f"{name}.json"
        if _is_isolation(what or [], week, questions):
            about = {**_about(name, impl, quick), "machine": describe_machine()}
            bench_isolation(course, about, target, questions, console, progress)
            return
        if over_http:
            about = {**_about(name, impl, quick), "machine": describe_machine()}
            rounds = 1 if quick else repeats
            bench_serving_http(course, about, target, impl, asked, rounds, console, progress)
            return
        machine = describe_machine() | ({"gpu": gpu.gpu_name()} if on_gpu else {})
        models = make_models(progress, device)
        known = list(gpu.cases(models, _text())) if on_gpu else all_cases(models, _text(), week)
        chosen, ladders = choose(known, what or []), gpu.LADDERS if on_gpu else LADDERS
        require_places(target)
        if quick:
            chosen, repeats = [replace(case, tokens=case.tokens // 2) for case in chosen], 1
        if busy(machine):
            progress.print(
                f"other programs are running (load {machine['load']}): expect wide spreads", style="yellow"
            )
        record, finished = Record(), False
        try:
            with leaving_when_terminated():
                run_showing(run_rounds(chosen, repeats, record), len(chosen) * (repeats + 1), progress)
            finished = True
        finally:
            if record.measured:
                about = _about(name, impl, quick) | {
                    "machine": machine,
                    "repeats": repeats,
                    "finished": finished,
                }
                keep(console, course, target, record, ladders, [] if quick else BARS, about)
                if on_gpu:
                    console.print(gpu.BESIDE, style="dim", soft_wrap=True)


def _is_on_gpu(device: Device, others: bool) -> bool:
    """Whether the ladder on the GPU is asked for.

    Raises:
        CourseError: it is asked for together with others, or another device is.
    """
    if device is Device.MPS:
        raise CourseError("--device mps isn't measured: choose cpu, or cuda")
    if device is Device.CUDA and others:
        raise CourseError(
            "--device cuda measures a ladder of its own: leave out --week, --http and isolation"
        )
    return device is Device.CUDA


def _is_isolation(what: Sequence[str], week: int | None, questions: Path | None) -> bool:
    """Whether the one measurement is asked for that is no ladder.

    Raises:
        CourseError: it is asked for together with others, or an option does not fit what is asked for.
    """
    if isolation.NAME not in what:
        if questions is not None:
            raise CourseError("--questions is for isolation: pdm run bench isolation --questions FILE")
        return False
    if len(what) > 1 or week not in (None, 4):
        raise CourseError("isolation is measured alone, and belongs to Week 4: pdm run bench isolation")
    return True


def _about(name: str, impl: Impl, quick: bool) -> dict[str, Any]:
    return {
        "bench": name,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "impl": str(impl),
        "model": MODEL,
        "quick": quick,
    }


def all_cases(model: GetModel, text: Sequence[int], week: int | None = None) -> list[Case]:
    """Everything that one week measures; or all of them, and at the end what goes through all weeks."""
    chosen = MODULES if week is None else WEEKS[week]
    return [case for module in chosen for case in module.cases(model, text)]


def choose(known_cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases that are named, by their own name or their ladder's, or how a ladder's begins; all if none is named.

    Raises:
        CourseError: there is none of that name.
    """
    known = {case.name for case in known_cases} | {case.ladder for case in known_cases}
    known |= {case.ladder.partition("-")[0] for case in known_cases}
    for name in names:
        if name not in known:
            ladders = dict.fromkeys(case.ladder for case in known_cases)
            rows = "; ".join([*(_names(ladder, known_cases) for ladder in ladders), isolation.NAME])
            raise CourseError(f"there is no ladder or row {name!r}; there are: {rows}")
    return [
        case
        for case in known_cases
        if not names or not {case.name, case.ladder, case.ladder.partition("-")[0]}.isdisjoint(names)
    ]


def _names(ladder: str, all_cases: Sequence[Case]) -> str:
    return f"{ladder} ({', '.join(case.name for case in all_cases if case.ladder == ladder)})"


def _text() -> list[int]:
    from tiny_llm.tokenizer import load_tokenizer

    return load_tokenizer(MODEL).encode(TEXT)
