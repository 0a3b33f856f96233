"""A room's command line: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coursekit.errors import CourseError

REFUSED = 2
INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    """One command: where its function lives, as "module:function", and what it does.

    The module is imported only when the command is called, so that `hint` does not wait for torch.
    """

    place: str
    summary: str

    def application(self, name: str) -> typer.Typer:
        """The command as a typer application of its own; its module is imported now."""
        module_name, function_name = self.place.split(":")
        function = getattr(importlib.import_module(module_name), function_name)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        app.command(name, help=function.__doc__)(function)
        return app


def run(commands: Mapping[str, Command]) -> None:
    """Run the command that the arguments name and leave with its exit code."""
    _tolerate_old_consoles()
    console = Console(stderr=True, highlight=False)
    try:
        _dispatch(commands, sys.argv[1:])
    except CourseError as error:
        console.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        console.print("interrupted")
        sys.exit(INTERRUPTED)


def _dispatch(commands: Mapping[str, Command], arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_commands(commands)
        return
    name, *rest = arguments
    if name not in commands:
        raise CourseError(f"there is no command {name!r}; there are: {', '.join(commands)}")
    # standalone_mode=False would leave typer's own usage errors to us; its messages are good, so it keeps them.
    commands[name].application(name)(args=rest, prog_name=f"pdm run {name}")


def _tolerate_old_consoles() -> None:
    """Where the terminal's encoding lacks a sign such as ×, print a question mark rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_commands(commands: Mapping[str, Command]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, command in commands.items():
        table.add_row(f"pdm run {name}", command.summary)
    Console(highlight=False).print(table)
