"""The course's command line: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import io
import sys

import typer
from rich.console import Console
from rich.table import Table

from coursekit.errors import CourseError

# Name -> where it lives and what it does. A command's module is imported only when that command is called,
# so that `hint` does not wait for torch.
COMMANDS: dict[str, tuple[str, str]] = {
    "test": (
        "coursekit.running.runner:run_tests",
        "test your code: the day that you name, or every day begun",
    ),
    "test-solution": ("coursekit.running.runner:run_suite", "run the whole test suite on the reference"),
    "hint": ("coursekit.learner.hint:hint", "show the next of a task's three hints"),
    "progress": ("coursekit.learner.progress:progress", "show the whole course on one screen"),
    "reset": (
        "coursekit.learner.reset:reset",
        "put a day's or a task's stubs back, keeping a copy of your code",
    ),
    "catch-up": (
        "coursekit.learner.catch_up:catch_up",
        "borrow from the reference what earlier days still lack",
    ),
    "main": ("coursekit.programs.main:main", "answer one prompt with the model"),
    "batch-main": (
        "coursekit.programs.batch_main:batch_main",
        "answer a fixed set of prompts, several at a time",
    ),
    "serve": ("coursekit.programs.serve:serve", "serve the model over gRPC, on this machine"),
    "ask": ("coursekit.programs.ask:ask", "ask the server, and print its answer as it comes"),
    "smoke": ("coursekit.programs.smoke:smoke", "run the engine's stages and compare their tokens and speed"),
    "bench": ("coursekit.benches:bench", "measure what each step of Weeks 2 and 3 gains"),
    "doctor": ("coursekit.programs.doctor:doctor", "say what this machine offers and what is missing"),
    "book": ("coursekit.book:book", "serve the book, or build it"),
    "starter": ("coursekit.starter:starter", "generate the starter from the reference, or check it"),
    "proto": ("coursekit.programs.proto:proto", "make the gRPC code anew from its description"),
    "check": ("coursekit.gates:check", "prove that reference, starter, tests and book agree"),
}

INTERRUPTED = 130


def run() -> None:
    """Run the command that the arguments name and leave with its exit code."""
    _tolerate_old_consoles()
    console = Console(stderr=True, highlight=False)
    try:
        _dispatch(sys.argv[1:])
    except CourseError as error:
        console.print(f"[red]error:[/red] {_escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        console.print("interrupted")
        sys.exit(INTERRUPTED)


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_commands()
        return
    name, *rest = arguments
    # standalone_mode=False would leave typer's own usage errors to us; its messages are good, so it keeps them.
    application(name)(args=rest, prog_name=f"pdm run {name}")


def application(name: str) -> typer.Typer:
    """The command `name` as a typer application of its own; its module is imported now.

    Raises:
        CourseError: there is no such command.
    """
    if name not in COMMANDS:
        raise CourseError(f"there is no command {name!r}; there are: {', '.join(COMMANDS)}")
    module_name, function_name = COMMANDS[name][0].split(":")
    function = getattr(importlib.import_module(module_name), function_name)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(name, help=function.__doc__)(function)
    return app


def _tolerate_old_consoles() -> None:
    """Where the terminal's encoding lacks a sign such as ×, print a question mark rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_commands() -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, (_, summary) in COMMANDS.items():
        table.add_row(f"pdm run {name}", summary)
    Console(highlight=False).print(table)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
