"""Finds the `pdm run …` commands in a page and holds them against the commands that there are."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.exceptions import TyperException

from authoring.rooms import ROOMS
from coursekit.book.markdown import Page
from coursekit.cli import Command as CourseCommand
from coursekit.cli import find_name
from coursekit.errors import CourseError
from coursekit.manifest import Manifest
from coursekit.paths import Course

_HTML_CODE = re.compile(r"<code>(?P<text>pdm run [^<]*)</code>")
_TASK_FILTER = re.compile(r"\btask_(?P<number>\d+)\b")
_DAY_OR_TASK = re.compile(r"\d+(\.\d+){0,2}")
_OWN_SCRIPT = re.compile(rf"python -m (?P<room>{'|'.join(ROOMS)}) (?P<command>\S+)(?P<given>.*)")


@dataclass(frozen=True)
class Command:
    """One `pdm run` command as written, and the line it stands on."""

    text: str
    line: int

    @property
    def words(self) -> list[str]:
        """What follows `pdm run`.

        Raises:
            ValueError: a quote is left open.
        """
        return shlex.split(self.text, comments=True)[2:]


def find_commands(page: Page) -> list[Command]:
    """Every `pdm run` in ``sh`` and ``console`` blocks and in inline code."""
    typed = [(number, text) for number, text in page.code_spans() if text.startswith("pdm ")]
    for number, line in page.prose:
        typed += [(number, found["text"]) for found in _HTML_CODE.finditer(line)]
    for fence in page.fences:
        if fence.language in ("sh", "console"):
            typed += _typed_lines(fence.text, fence.line, prompt="$ " if fence.language == "console" else "")
    parts = ((number, part.strip()) for number, text in typed for part in re.split(r"&&|\||;", text))
    return sorted(
        (Command(part, number) for number, part in parts if re.match(r"pdm run(\s|$)", part)),
        key=lambda command: command.line,
    )


def _typed_lines(text: str, first: int, prompt: str) -> Iterator[tuple[int, str]]:
    lines = iter(enumerate(text.splitlines(), start=first))
    for number, line in lines:
        if not line.startswith(prompt):
            continue
        typed = line.removeprefix(prompt)
        while typed.endswith("\\"):
            _, more = next(lines, (0, ""))
            typed = typed[:-1] + more.strip()
        yield number, typed.strip()


class KnownCommands:
    """Knows the course's commands, days and tasks, and says what is wrong with a command, if anything."""

    def __init__(self, course: Course, manifest: Manifest) -> None:
        self._course = course
        self._days = {lesson.name for lesson in manifest.lessons}
        self._weeks = {str(lesson.week) for lesson in manifest.lessons}
        self._tasks = {task.name for task in manifest.tasks()}

    @cached_property
    def _scripts(self) -> dict[str, Any]:
        project = tomllib.loads((self._course.root / "pyproject.toml").read_text(encoding="utf-8"))
        return project["tool"]["pdm"]["scripts"]

    def problem(self, command: Command) -> str | None:
        """One line on what is wrong with a command, or None."""
        try:
            name, *arguments = command.words or [""]
        except ValueError as error:
            return f"`{command.text}`: {error}"
        fault = self._script_fault(arguments) if name == "python" else self._fault(name, arguments)
        return f"`{command.text}`: {fault}" if fault else None

    def _script_fault(self, arguments: list[str]) -> str | None:
        script = next((word for word in arguments if not word.startswith("-")), None)
        if script is None or "-m" in arguments or "-c" in arguments or (self._course.root / script).exists():
            return None
        return f"there is no file {script}"

    def _fault(self, name: str, arguments: list[str]) -> str | None:
        if name not in self._scripts:
            return f"there is no command {name!r} in pyproject.toml"
        script = _OWN_SCRIPT.fullmatch(str(self._scripts[name]))
        if script is None:
            return None
        commands: dict[str, CourseCommand] = import_module(f"{script['room']}.__main__").COMMANDS
        if script["command"] not in commands:
            return f"{script['room']} has no command {script['command']!r}"
        given = [*script["given"].split(), *(word for word in arguments if word != "--help")]
        name, given = find_name(commands, [script["command"], *given])
        return self._argument_fault(name, commands[name], given)

    def _argument_fault(self, name: str, command: CourseCommand, arguments: list[str]) -> str | None:
        try:
            application = command.application(name)
            context = typer.main.get_command(application).make_context(name, list(arguments))
        except TyperException as error:
            return error.format_message().strip()
        except (ImportError, AttributeError, CourseError) as error:
            return f"the command can't be loaded: {error}"
        return self._naming_fault(context.params, arguments)

    def _naming_fault(self, values: dict[str, Any], arguments: list[str]) -> str | None:
        """Whether the weeks, days and tasks that the arguments name exist."""
        week, day = values.get("week"), values.get("day")
        names = [
            str(value)
            for key in ("task", "to", "page", "day")
            if re.fullmatch(r"[\d.]*\.[\d.]*", str(value := values.get(key)))
        ]
        names += [word for word in values.get("words") or [] if _DAY_OR_TASK.fullmatch(word)]
        if week is not None:
            names.append(str(week) if day is None else f"{week}.{day}")
        if week is not None and day is not None:
            filters = arguments[arguments.index("--") :] if "--" in arguments else []
            numbers = [found["number"] for word in filters for found in _TASK_FILTER.finditer(word)]
            if isinstance(values.get("task"), int):
                numbers.append(str(values["task"]))
            names += [f"{week}.{day}.{number}" for number in numbers]
        missing = [name for name in names if name not in self._weeks | self._days | self._tasks]
        return f"there is no week, day or task {missing[0]}" if missing else None
