"""`pdm run profile`: a step of an engine as tables and pictures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.keeping import require_places
from benchmarks.machine import busy, describe_machine, machine_line
from benchmarks.profiling.engines import FAST, ONE_AT_A_TIME, SERVED, require_profiled
from benchmarks.profiling.machine_limits import MachineLimits, measure_limits
from benchmarks.profiling.measuring import Profiled, profile_decodes, profile_prefill
from benchmarks.profiling.pictures import draw_roofline, draw_timeline
from benchmarks.profiling.report import document, print_limits, print_profile
from benchmarks.profiling.trace import trace
from benchmarks.profiling.verdicts import Verdict, verdicts
from benchmarks.report import name_of
from benchmarks.week_2 import TEXT
from coursekit.files import require_writable, write_files, write_text
from coursekit.interrupts import leaving_when_terminated
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs import options
from programs.implementation import require_written
from programs.loaded import LoadedModel, load, running
from programs.source import require_fast
from programs.stage import Stage
from programs.stages import find_stages
from programs.waiting import waiting

MODEL = "smollm2-135m"


def profile(
    stage: Annotated[
        str, typer.Option(help="The engine: a stage, as `pdm run smoke` knows it, such as cached or ragged.")
    ] = SERVED,
    fast: Annotated[
        bool, typer.Option("--fast", help="Day 4.7's engine instead; --dtype doesn't count.")
    ] = False,
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    requests: Annotated[int, typer.Option(min=1, max=256, help="How many requests decode together.")] = 32,
    prompt: Annotated[int, typer.Option(min=1, max=7000, help="How many tokens each has behind it.")] = 100,
    steps: Annotated[
        int, typer.Option(min=1, max=200, help="How many steps are recorded; the median is shown.")
    ] = 9,
    prefill: Annotated[
        int, typer.Option(min=0, max=7000, help="Show a step of a prompt of so many tokens, too; 0 for none.")
    ] = 0,
    model: options.ModelOption = MODEL,
    impl: options.ImplOption = Impl.LEARNER,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three steps, and a shorter look at the machine.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The JSON file to write; pictures and trace go beside it. Otherwise in .course/profile."
        ),
    ] = None,
) -> None:
    """Show what a step of the engine spends its time on: matrices, attention, small operations, sampling, the host.

    Every operation of torch and every call of a Numba kernel is recorded; the step with the median time is shown, as
    tables, as a picture, and as a trace for perfetto.dev. A second picture sets the operations beside what the
    machine's memory and arithmetic give. Close other programs first.
    """
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler says otherwise when it stops
    the_stage = find_stages(stage)[0]
    name = FAST if fast else stage
    if not fast:
        require_profiled(the_stage, prefill)
    count = 1 if name in ONE_AT_A_TIME else requests
    with running(impl) as course, leaving_when_terminated():
        target = out or course.state / "profile" / f"{name}-{count}.json"
        places = places_of(target)
        _require_code(course, impl, the_stage, fast)
        machine = describe_machine()
        if busy(machine):
            progress.print(f"other programs are running (load {machine['load']})", style="yellow")
        loaded = load_for(model, fast, dtype, progress)
        with waiting("measuring what the machine gives", progress) as say:
            limits = measure_limits(quick, fast)
            say("running the engine, and recording it")
            text = loaded.tokenizer.encode(TEXT)
            number = 3 if quick else steps
            profiles = [profile_decodes(the_stage, name, loaded, text, count, prompt, number)]
            if prefill:
                profiles.append(profile_prefill(name, loaded, text, prefill, number))
        about = {
            "profile": name,
            "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "impl": str(impl),
            "model": model,
            "numbers": _numbers(fast, dtype),
            "machine": machine,
        }
        _show_and_keep(console, course, places, profiles, limits, about)


def places_of(target: Path) -> dict[str, Path]:
    """The four files of a profile, by what they hold.

    Raises:
        CourseError: one of them could not be written.
    """
    require_places(target)
    places = {
        "numbers": target,
        "timeline": target.with_suffix(".svg"),
        "roofline": target.with_name(f"{target.stem}-roofline.svg"),
        "trace": target.with_name(f"{target.stem}-trace.json"),
    }
    require_writable(list(places.values()))
    return places


def _require_code(course: Course, impl: Impl, stage: Stage, fast: bool) -> None:
    """Refuse to begin where the engine isn't written yet.

    Raises:
        NotImplementedError: as the first stub would raise it.
        CourseError: the package has no fast engine at all.
    """
    if fast:
        require_fast(course, impl)
    else:
        require_written(course, impl, stage.day)


def load_for(model: str, fast: bool, dtype: str, progress: Console) -> LoadedModel:
    """The model in the form that the engine takes."""
    if not fast:
        return load(model, str(dtype), "cpu", console=progress)
    from tiny_llm.fast.accelerate import accelerate

    loaded = load(model, "float32", "cpu", bits=4, matmul="plain", console=progress)
    return LoadedModel(accelerate(loaded.model), loaded.tokenizer)


def _numbers(fast: bool, dtype: str) -> str:
    return "8 bits" if fast else str(dtype)


def _show_and_keep(
    console: Console,
    course: Course,
    places: dict[str, Path],
    profiles: Sequence[Profiled],
    limits: MachineLimits,
    about: dict[str, Any],
) -> None:
    found: dict[str, list[Verdict]] = {
        each.name: verdicts(each.shown.pieces, each.costs(), limits, about["numbers"]) for each in profiles
    }
    machine = machine_line(about["machine"])
    console.print(machine, style="dim", soft_wrap=True)
    print_limits(console, limits)
    for each in profiles:
        print_profile(console, each, found[each.name])
    numbers = {**about, **document(profiles, found, limits)}
    caption = f"{about['profile']}, {about['numbers']} · {machine}"
    write_text(places["numbers"], f"{json.dumps(numbers, indent=2, ensure_ascii=False)}\n")
    write_text(places["trace"], f"{json.dumps(trace(profiles, **about), ensure_ascii=False)}\n")
    write_files(
        {
            places["timeline"]: draw_timeline(profiles, caption),
            places["roofline"]: draw_roofline(found, limits, caption),
        }
    )
    names = ", ".join(name_of(path, course) for path in places.values())
    console.print(f"kept in {names} (the trace is for ui.perfetto.dev)", style="dim", soft_wrap=True)
