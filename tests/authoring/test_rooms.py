"""The rooms of `src`: each says who it is for and imports only those that it may, and no imports run in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from authoring.rooms import MAY_IMPORT, ROOMS
from coursekit.paths import Course

SRC = Course.find().root / "src"


@cache
def modules() -> dict[str, Path]:
    """The files of all the rooms, by the names under which they are imported."""
    files = [file for room in ROOMS for file in sorted((SRC / room).rglob("*.py"))]
    return {_name(file): file for file in files}


def _name(file: Path) -> str:
    parts = file.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path) -> Iterator[str]:
    """The modules of the rooms that a file imports anywhere, be it in a function or for the types alone."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules() else str(node.module)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_in_one_line_who_it_is_for(room: str) -> None:
    first = (SRC / room / "__init__.py").read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(r'""".* for .*\.(""")?', first)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_that_it_may(room: str) -> None:
    strays = {
        f"{name} imports {other}"
        for name, file in modules().items()
        if name.partition(".")[0] == room
        for other in imports(file)
        if other.partition(".")[0] not in (room, *MAY_IMPORT[room])
    }
    assert not strays


@pytest.mark.parametrize("of", ["modules", "packages"])
def test_no_imports_run_in_a_circle(of: str) -> None:
    graph: dict[str, set[str]] = {}
    for name, file in modules().items():
        for other in imports(file):
            one, two = (name, other) if of == "modules" else (_package(name), _package(other))
            if one != two:
                graph.setdefault(one, set()).add(two)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def _package(name: str) -> str:
    """The package of a room that a module is in; a module that stands in the room itself counts as one."""
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("room", ROOMS)
def test_the_commands_of_a_room_lie_in_it(room: str) -> None:
    commands = import_module(f"{room}.__main__").COMMANDS
    assert commands
    for command in commands.values():
        assert command.place.partition(".")[0] == room
