"""Keeps the machine code of Numba's kernels from one child to the next.

Each child has the course in a folder of its own, in which Numba finds nothing that was compiled before, and compiling
is most of what a day with kernels costs. So kernels are kept by what they are made of, wherever that lies.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from coursekit.paths import PACKAGES

FOLDER = "NUMBA_CACHE_DIR"


def environment(folder: Path) -> dict[str, str]:
    """The variables that make Numba keep kernels in a folder. (A Numba that doesn't know of them compiles anew.)"""
    return {
        FOLDER: str(folder),
        "NUMBA_CACHE_LOCATOR_CLASSES": f"{KernelLocator.__module__}.{KernelLocator.__name__}",
    }


class KernelLocator:
    """Tells Numba where one kernel is kept: kernels that differ in anything don't share a folder."""

    def __init__(self, function: Callable[..., Any], file: str, parent: Path) -> None:
        name = function.__qualname__.partition(".")[0]
        self._py_file = file  # Numba reads it where it warns
        self._path = parent / fingerprint(Path(file), name)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> KernelLocator | None:
        return cls(function, file, Path(os.environ[FOLDER])) if Path(file).is_file() else None

    def ensure_cache_path(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self._path).close()  # as Numba does: it raises where we may not write

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._path.name

    def get_disambiguator(self) -> str:
        return ""


def fingerprint(file: Path, name: str) -> str:
    """A hash of what a file defines under a name, and of all that this needs.

    Followed are names of the same file, and those imported by `from tiny_llm.… import`. What comes from elsewhere is
    the same for all children.
    """
    found: dict[tuple[Path, str], list[str]] = {}
    _gather(file, name, found)
    texts = [text for statements in found.values() for text in statements]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def _gather(file: Path, name: str, found: dict[tuple[Path, str], list[str]]) -> None:
    if (file, name) in found:
        return
    found[file, name] = []
    for statement in _statements(file).get(name, []):
        found[file, name].append(ast.unparse(statement))
        if isinstance(statement, ast.ImportFrom):
            _gather_imported(statement, name, found)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                _gather(file, node.id, found)


def _gather_imported(statement: ast.ImportFrom, name: str, found: dict[tuple[Path, str], list[str]]) -> None:
    module = sys.modules.get(statement.module or "")  # imported by now: its file is running
    if module is None or module.__file__ is None or module.__name__.partition(".")[0] not in PACKAGES:
        return
    for alias in statement.names:
        if name == (alias.asname or alias.name):
            _gather(Path(module.__file__), alias.name, found)


@cache
def _statements(file: Path) -> dict[str, list[ast.stmt]]:
    """A file's statements, by the names to which they give a meaning."""
    statements: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(file.read_bytes()).body:
        for name in _named(statement):
            statements.setdefault(name, []).append(statement)
    return statements


def _named(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        # Below `@overload(f)` stands the compiled form of f.
        calls = [decorator for decorator in statement.decorator_list if isinstance(decorator, ast.Call)]
        return {statement.name} | {arg.id for call in calls for arg in call.args if isinstance(arg, ast.Name)}
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
