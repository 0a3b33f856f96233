"""Every option of every program with values that nobody should give: one line and exit code 2, or it is taken."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
from typer.models import OptionInfo

from benchmarks.__main__ import COMMANDS as BENCHMARKS
from coursekit.running.import_path import Impl
from programs.__main__ import COMMANDS as PROGRAMS

DRIVER = """
import contextlib, io, json, sys, traceback

from benchmarks.__main__ import COMMANDS as BENCHMARKS
from coursekit.cli import execute
from programs.__main__ import COMMANDS as PROGRAMS


class Taken(BaseException):
    pass


def taken(*arguments, **options):
    raise Taken


import benchmarks.command, benchmarks.isolation_command, benchmarks.peers.command
import benchmarks.profiling.command, benchmarks.quality.command
import programs.ask_documents, programs.batch_main
import programs.chat, programs.doctor, programs.main, programs.serve, programs.smoke, programs.source, programs.steps
from window.__main__ import COMMANDS as WINDOW

if "--really" not in sys.argv:
    assert programs.source.load_fast
    programs.source.load_fast = taken
    for module in (
        programs.source,
        programs.smoke,
        programs.steps,
        benchmarks.isolation_command,
        benchmarks.quality.command,
    ):
        assert module.load
        module.load = taken
    assert benchmarks.profiling.command.load_for
    benchmarks.profiling.command.load_for = taken
    for module in (benchmarks.command, benchmarks.peers.command):
        assert module.run_showing
        module.run_showing = taken
    programs.doctor.LOOKS = ()
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = execute({**PROGRAMS, **BENCHMARKS, **WINDOW}, json.loads(line))
        except Taken:
            code = "taken"
        except BaseException:
            code = traceback.format_exc()
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
"""Runs command lines, one per line of its input; what would begin to compute is only noted, unless it is asked to."""

COMMANDS = {**PROGRAMS, **BENCHMARKS}
NEEDED = {
    "main": ["--prompt=x"],
    "ask": ["x", "--port=1"],
    "ask-documents": ["x", f"--document={Path(__file__).parents[2] / 'README.md'}"],
}
"""What a command needs besides the option that is tried; on port 1 no server answers."""

WHOLE = ("1.5", "nan", "inf", "", "x", "0x10", "1" * 30, "-" + "1" * 30)
NUMBERS = ("nan", "inf", "-inf", "1e400", "1,5", "", "x")
NAMES = ("", "warp", "AUTO", "4")
NEVER: dict[type, tuple[str, ...]] = {int: WHOLE, float: NUMBERS, StrEnum: NAMES}
"""What no option of a type can mean anything by."""

WILD = (
    "-1",
    "-0.0",
    "0",
    "1_0",
    "100000000000",
    "1e300",
    "5e-324",
    "٣",
    " 7",
    "../..",
    "\u202e",
    "x" * 4000,
    "[red]",
)
"""What some options can use, and others can't."""

OUT_OF_RANGE = (
    "main --max-tokens=0",
    "main --max-tokens=-1",
    "main --max-tokens=100000000000",
    "main --temperature=-0.1",
    "main --top-k=-1",
    "main --top-k=100000000000",
    "main --top-p=0",
    "main --top-p=-0.5",
    "main --top-p=1.01",
    "main --min-p=-0.1",
    "main --min-p=1.1",
    "main --repetition-penalty=0",
    "main --repetition-penalty=5e-324",
    "main --repetition-penalty=1e300",
    "main --seed=9223372036854775808",
    "main --bits=8",
    "main --prompt=",
    "chat --max-tokens=0",
    "chat --pages=0",
    "chat --top-k=-1",
    "chat --temperature=nan",
    "ask --max-tokens=100000000000",
    "ask --top-k=100000000000",
    "ask --seed=-100000000000000000000",
    "ask --timeout=0",
    "ask --timeout=-1",
    "ask --port=0",
    "ask ",
    "batch-main --seats=0",
    "batch-main --seats=65",
    "batch-main --chunk=0",
    "batch-main --stage=batched",
    "batch-main --stage=ragged --trie",
    "serve --port=65536",
    "serve --seats=0",
    "serve --pages=0",
    "serve --token-budget=0",
    "serve --queue=0",
    "serve --queue=100000000000",
    "serve --grace=-1",
    "serve --grace=1e300",
    "smoke --stage=",
    "steps --lengths=",
    "steps --lengths=0",
    "steps --lengths=5,-1",
    "steps --lengths=5,,6",
    "steps --lengths=5;6",
    "steps --lengths=100000000000",
    f"steps --lengths={','.join(['1'] * 65)}",
    "steps --page-size=0",
    "steps --chunk=0",
    "steps --budget=0",
    "steps --common=-1",
    "steps --common=251",
    "steps --max-tokens=0",
    "bench --week=1",
    "bench --week=5",
    "bench --repeats=0",
    "bench --out=",
    "bench --out=bench.svg",
    "bench --out=/dev/null/bench.json",
    "bench nosuch",
)
EDGES = (
    "main --temperature=5e-324 --top-k=1000000 --top-p=5e-324",
    "main --temperature=1e300 --min-p=1 --seed=-9223372036854775808",
    "main --repetition-penalty=0.01 --seed=9223372036854775807",
    "main --temperature=0 --repetition-penalty=100 --max-tokens=1",
    "batch-main --stage=cached --repetition-penalty=100 --top-k=1",
)


@dataclass(frozen=True)
class Option:
    """An option that takes a value."""

    command: str
    name: str
    kind: type


def options() -> Iterator[Option]:
    for name, command in COMMANDS.items():
        module, function = command.place.split(":")
        hints = get_type_hints(getattr(importlib.import_module(module), function), include_extras=True)
        for parameter, hint in hints.items():
            annotation, *about = get_args(hint) or (hint,)
            kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType]
            if any(isinstance(each, OptionInfo) for each in about) and bool not in kinds:
                yield Option(name, f"--{parameter.strip('_').replace('_', '-')}", kinds[0])


def line(command: str, *arguments: str) -> list[str]:
    """A command line on the reference, with what the command needs besides."""
    whose = ["--impl=solution"] if Option(command, "--impl", Impl) in OPTIONS else []
    return [command, *NEEDED.get(command, []), *whose, *arguments]


OPTIONS = list(options())
PAGES = {  # refused by what a page of the model takes: see test_serve
    Option(command, "--pages", int) for command in ("chat", "serve")
}


def results(lines: Sequence[list[str]], *arguments: str) -> Iterator[tuple[list[str], Any, str, str]]:
    """Run command lines in one process: each with its exit code, standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        input="".join(json.dumps(each) + "\n" for each in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        timeout=300,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr
    for each, answer in zip(lines, answers, strict=True):
        yield each, *json.loads(answer)


def faults(found: Iterable[tuple[list[str], Any, str, str]], may_be_taken: bool) -> list[str]:
    """What is neither taken nor refused in one line."""
    wrong = []
    for each, code, out, err in found:
        refused = code == 2 and not out and err.startswith("error: ") and err.count("\n") == 1
        if not refused and not (may_be_taken and code == "taken"):
            wrong.append(f"{' '.join(each)[:200]!r}: {code}\n{out}{err}")
    return wrong


def test_every_program_with_a_number_has_options_of_that_kind() -> None:
    kinds = {(option.command, option.kind) for option in OPTIONS}
    assert {("main", float), ("ask", int), ("serve", float), ("bench", int), ("smoke", Impl)} <= kinds


def test_a_value_that_an_option_can_not_mean_anything_by_is_one_line_and_exit_code_2() -> None:
    lines = [
        line(option.command, f"{option.name}={value}")
        for option in OPTIONS
        for kind, values in NEVER.items()
        if issubclass(option.kind, kind) and option not in PAGES
        for value in values
        if value not in {str(each) for each in (option.kind if issubclass(option.kind, StrEnum) else ())}
    ]
    assert len(lines) > 300
    assert faults(results(lines), may_be_taken=False) == []


@pytest.mark.timeout(400)
def test_a_wild_value_is_taken_or_one_line_and_exit_code_2() -> None:
    lines = [line(option.command, f"{option.name}={value}") for option in OPTIONS for value in WILD]
    assert faults(results(lines), may_be_taken=True) == []


def test_a_value_out_of_range_is_one_line_and_exit_code_2() -> None:
    lines = [line(*text.split(" ")) if text != "ask " else ["ask", ""] for text in OUT_OF_RANGE]
    assert faults(results(lines), may_be_taken=False) == []


def test_the_largest_and_the_smallest_values_that_are_taken_can_be_computed_with() -> None:
    lines = [line(*text.split(), *(["--max-tokens=2"] if "max" not in text else [])) for text in EDGES]
    for each, code, out, err in results(lines, "--really"):
        assert code == 0, (each, err)
        assert out
        assert "Traceback" not in err
