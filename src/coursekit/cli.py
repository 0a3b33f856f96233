"""A room's command line: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coursekit.bytecode import keep_bytecode
from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED, leave_at_once_from_now_on, leaving_at_once
from coursekit.streams import OutputLost, drop_output, prepare_streams

if TYPE_CHECKING:
    import typer
    from typer import TyperException

REFUSED = 2
READER_GONE = 141
"""The exit code where standard output led to a program that has ended, as shells give it: 128 + SIGPIPE."""


@dataclass(frozen=True)
class Command:
    """One command: where its function lives, as "module:function", and what it does.

    The module is imported only when the command is called, so that `hint` does not wait for torch.
    """

    place: str
    summary: str

    def application(self, name: str) -> typer.Typer:
        """The command as a typer application of its own; its module is imported now."""
        import typer

        module_name, function_name = self.place.split(":")
        function = getattr(importlib.import_module(module_name), function_name)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        app.command(name, help=function.__doc__)(function)
        return app


def run(commands: Mapping[str, Command]) -> None:
    """Run the command that the arguments name and leave with its exit code."""
    prepare_streams()
    keep_bytecode()
    code = execute(commands, sys.argv[1:])
    leave_at_once_from_now_on()
    sys.exit(code)


def execute(commands: Mapping[str, Command], arguments: list[str]) -> int:
    """Run the command that the arguments name.

    Returns:
        its exit code.
    """
    try:
        code = _dispatch(commands, arguments)
        sys.stdout.flush()
        return code
    except CourseError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OutputLost as error:
        drop_output()
        return READER_GONE if error.reader_gone else _refuse(f"can't write to standard output: {error}")


def _refuse(message: str) -> int:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    return REFUSED


def _dispatch(commands: Mapping[str, Command], arguments: list[str]) -> int:
    _refuse_what_is_no_text(arguments)
    with leaving_at_once():
        # Imported in here, as the command's own modules are: they take long enough for a Ctrl-C to come.
        from typer import TyperException

        if not arguments or arguments[0] in ("-h", "--help"):
            _print_commands(commands)
            return 0
        name, rest = find_name(commands, arguments)
        if name not in commands:
            raise CourseError(f"there is no command {name!r}; there are: {', '.join(commands)}")
        application = commands[name].application(name)
    try:
        # In standalone mode typer would end the process itself, and print its errors on many lines.
        return application(args=rest, prog_name=f"pdm run {name}", standalone_mode=False) or 0
    except TyperException as error:
        raise CourseError(f"{_one_line(error)} (its options: pdm run {name} --help)") from None


def find_name(commands: Mapping[str, Command], arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The name at the beginning of some arguments, and those behind it; a name that is known may have two words.

    Args:
        commands: those that are known.
        arguments: at least one.
    """
    two = " ".join(arguments[:2])
    return (two, list(arguments[2:])) if two in commands else (arguments[0], list(arguments[1:]))


def _one_line(error: TyperException) -> str:
    """Typer's message about an option: its name, then what is wrong with its value."""
    message = error.format_message()
    return " ".join(message.split()).removesuffix(".").replace(": Value error, ", ": ")


def _refuse_what_is_no_text(arguments: list[str]) -> None:
    """Refuse bytes that aren't UTF-8, which Python hides in surrogates: no later step could use or print them."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            shown = argument.encode("utf-8", "replace").decode("utf-8")
            raise CourseError(f"the argument {shown!r} isn't valid text in UTF-8") from None


def _print_commands(commands: Mapping[str, Command]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, command in commands.items():
        table.add_row(f"pdm run {name}", command.summary)
    Console(highlight=False).print(table)
