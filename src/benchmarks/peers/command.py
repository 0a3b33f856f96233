"""`pdm run bench peers`: the course's engine beside those that people use."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.keeping import require_places
from benchmarks.machine import busy, describe_machine, machine_line
from benchmarks.peers.catalogue import HERE, Peer, choose_peers, load_peers
from benchmarks.peers.engine_process import EngineCommand
from benchmarks.peers.environment import Environment, peers_folder
from benchmarks.peers.measuring import Engine, Rounds, document, take_turns
from benchmarks.peers.model_files import MODEL, model_files
from benchmarks.peers.picture import draw_peers
from benchmarks.peers.report import print_peers
from benchmarks.peers.workloads import choose_workloads
from benchmarks.progress import run_showing
from benchmarks.report import name_of
from coursekit.files import write_files, write_text
from coursekit.interrupts import leaving_when_terminated
from coursekit.machine import THREAD_VARIABLES
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs import options
from programs.implementation import require_written
from programs.loaded import running
from programs.waiting import waiting

OWN = "tiny-llm"
DAY = (4, 6)
"""Whose code the course's engine needs."""


class OwnForm(StrEnum):
    """What the course's engine computes in."""

    FAST = "fast"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
"""The model is here: nothing is to be asked for, or told, on the network."""


def bench_peers(
    impl: options.ImplOption = Impl.LEARNER,
    with_: Annotated[
        str | None,
        typer.Option(
            "--with",
            help="Measure these, such as openvino,vllm, and install those that aren't there, each into an "
            "environment of its own in the cache folder. Left out: all that are installed.",
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Measure only these workloads, such as chat,single.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each engine has its turn.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One round, with 8 requests instead of 32.")] = False,
    limit: Annotated[
        float,
        typer.Option(
            min=1,
            max=86_400,
            callback=options.finite,
            help="Seconds that an engine may take to start, and per workload.",
        ),
    ] = 600,
    dtype: Annotated[
        OwnForm,
        typer.Option(
            help="The course's engine: as on Day 4.7, or with numbers of one format; the others have their own."
        ),
    ] = OwnForm.FAST,
    seed: Annotated[
        int, typer.Option(callback=options.fits_64_bits, help="Chooses the prompts and their lengths.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write; the picture goes beside it. Otherwise in .course/bench."),
    ] = None,
) -> None:
    """Measure the course's engine beside engines that people use, on this machine.

    All get the same prompts and the same number of threads, and take turns, round after round, each in a process of
    its own; the tables show medians. Close other programs first.

    Ctrl-C stops early and keeps what is measured; so does SIGTERM.
    """
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    workloads = choose_workloads(only)
    peers = load_peers()
    chosen = list(peers.values()) if with_ is None else choose_peers(peers, with_)
    with running(impl) as course:
        target = out or course.state / "bench" / "peers.json"
        require_places(target)
        require_written(course, impl, DAY)
        plan = Rounds(workloads, 1 if quick else rounds, limit, seed, quick)
        with leaving_when_terminated():
            there, missing = _installed(chosen, with_ is not None, progress)
            machine = describe_machine()
            if busy(machine):
                line = f"other programs are running (load {machine['load']}): expect wide spreads"
                progress.print(line, style="yellow")
            engines = make_engines(there, dtype, machine["threads"], progress)
        about = {
            "bench": "peers",
            "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "impl": str(impl),
            "model": MODEL,
            "seed": seed,
            "quick": quick,
            "rounds": plan.count,
            "machine": machine,
            "missing": [peer.name for peer in missing],
        }
        _measure(_Kept(course, target, console, about, missing), engines, plan, progress)


def _installed(
    chosen: Sequence[Peer], install: bool, progress: Console
) -> tuple[list[Environment], list[Peer]]:
    """The environments that are there, after those that are missing were made if they are asked for; and the rest."""
    environments = [Environment(peer, peers_folder()) for peer in chosen]
    if install:
        for environment in environments:
            environment.install(progress)
    there = [each for each in environments if each.installed]
    return there, [each.peer for each in environments if not each.installed]


def make_engines(
    there: Sequence[Environment], dtype: OwnForm, threads: int, progress: Console
) -> list[Engine]:
    """The course's engine and those that are installed, each ready to be started."""
    settings: dict[str, Any] = {"model": MODEL, "dtype": str(dtype), "threads": threads}
    if there:
        with waiting("writing the model in the forms that other engines read", progress):
            settings |= {name: str(path) for name, path in model_files(peers_folder()).items()}
    own = _command(Path(sys.executable), HERE / "runners" / "run_own.py", settings, os.environ)
    engines = [Engine(OWN, f"this course's, {dtype}", own)]
    for each in there:
        command = _command(each.python, each.peer.runner, settings, each.variables())
        engines.append(Engine(each.peer.name, each.peer.label, command))
    return engines


def _command(
    python: Path, runner: Path, settings: dict[str, Any], environment: Mapping[str, str]
) -> EngineCommand:
    threads = dict.fromkeys(THREAD_VARIABLES, str(settings["threads"]))
    return EngineCommand(
        [str(python), str(runner), json.dumps(settings)], {**environment, **OFFLINE, **threads}
    )


@dataclass(frozen=True)
class _Kept:
    """Where the results go."""

    course: Course
    target: Path
    console: Console
    about: dict[str, Any]
    missing: Sequence[Peer]

    def keep(self, engines: Sequence[Engine], plan: Rounds, finished: bool) -> None:
        """Print the tables, then write them as JSON and as a picture."""
        machine = machine_line(self.about["machine"])
        self.console.print(machine, "", style="dim", soft_wrap=True)
        print_peers(self.console, engines, plan, OWN, self.missing)
        if not any(engine.turns for engine in engines):
            return
        kept = {**self.about, "finished": finished, **document(engines, plan, OWN)}
        picture = self.target.with_suffix(".svg")
        write_text(self.target, f"{json.dumps(kept, indent=2, ensure_ascii=False)}\n")
        write_files({picture: draw_peers(engines, plan, OWN, machine)})
        names = (name_of(path, self.course) for path in (self.target, picture))
        self.console.print(f"kept in {' and '.join(names)}", style="dim", soft_wrap=True)


def _measure(kept: _Kept, engines: Sequence[Engine], plan: Rounds, progress: Console) -> None:
    """Measure and keep; what is measured is kept also if it is broken off."""
    finished = False
    try:
        with leaving_when_terminated():
            steps = len(engines) * plan.count * (1 + len(plan.workloads))
            run_showing(take_turns(engines, plan), steps, progress)
        finished = True
    finally:
        if finished or any(engine.turns or engine.failed for engine in engines):
            kept.keep(engines, plan, finished)
