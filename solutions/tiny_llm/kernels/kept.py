"""Keeps the machine code of Numba's kernels on disk, by what each kernel is made of (given code).

Numba itself would keep it by the kernel's file: a change in a function that is inlined from another file would not be
seen, and the old machine code would go on running. Here the key of a kernel is a hash of its source, of every
function and constant that it uses, and of theirs, in whichever module of this package they lie.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from numba import config
from numba.core.caching import FunctionCache

from tiny_llm.cache_folder import cache_folder

_PACKAGE = __name__.partition(".")[0]
_Named = tuple[Path, str]  # a file, and a name that it defines
_UNUSED_SECONDS = 30 * 24 * 3600.0  # after which a kernel's folder is removed


class KernelLocator:
    """Tells Numba where one kernel is kept: kernels that differ in anything don't share a folder."""

    def __init__(self, function: Callable[..., Any], file: str, parent: Path) -> None:
        name = function.__qualname__.partition(".")[0]
        self._py_file = file  # Numba reads it where it warns
        self._path = parent / fingerprint(Path(file), name)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> KernelLocator | None:
        """Numba's way to ask: where is this kernel kept? None where it has no file, as at a prompt."""
        parent = folder()
        if parent is None or not Path(file).is_file():
            return None
        locator = cls(function, file, parent)
        if locator._path.is_dir():
            os.utime(locator._path)  # in use: not to be removed
        return locator

    def ensure_cache_path(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._path.name

    def get_disambiguator(self) -> str:
        return ""


class KernelCache(FunctionCache):
    """Numba's own way to keep a kernel, but what it can't read counts as not kept.

    Numba unpickles the types of the arguments that a kernel was compiled for: that fails once the class of a named
    tuple among them lies in another module.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Numba's way to ask for the machine code for the types of some arguments; None if there is none."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling may raise any
            self.flush()  # saving would read it again
            return None


def keep(kernel: Any) -> Any:
    """A kernel whose machine code is kept on disk, where that can be done."""
    if hasattr(kernel, "py_func") and can_be_kept(
        kernel.py_func
    ):  # with NUMBA_DISABLE_JIT it is a plain function
        kernel._cache = KernelCache(kernel.py_func)
    return kernel


def can_be_kept(function: Callable[..., Any]) -> bool:
    """Whether a kernel's machine code can be kept on disk; Numba has been told how if so.

    It can't be where the kernel was typed at a prompt, where no folder can be written to, and by a Numba that asks
    nobody where to keep it: then the kernel is compiled anew by every process.
    """
    if not hasattr(config, "CACHE_LOCATOR_CLASSES") or folder() is None:
        return False
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{KernelLocator.__name__}"
    return Path(function.__code__.co_filename).is_file()


def folder() -> Path | None:
    """The folder of all kept kernels: NUMBA_CACHE_DIR, or one in the package's cache. None if it can't be written."""
    chosen = getattr(config, "CACHE_DIR", "")
    return _prepared(Path(chosen) if chosen else cache_folder() / "kernels")


@cache
def _prepared(path: Path) -> Path | None:
    """The folder, made, and rid of kernels that were not used for long; None where it can't be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
        oldest = time.time() - _UNUSED_SECONDS
        unused = [kernel for kernel in path.iterdir() if kernel.is_dir() and kernel.stat().st_mtime < oldest]
    except OSError:
        return None
    for kernel in unused:
        shutil.rmtree(kernel, ignore_errors=True)
    return path


def fingerprint(file: Path, name: str) -> str:
    """A hash of what a file defines under a name, and of all that this needs.

    Followed are names of the same file, what the file imports from this package, be it names or whole modules, and
    compiled forms. What comes from elsewhere belongs to the environment, which Numba's version stands for.
    """
    found: dict[_Named, list[str]] = {}
    _gather(file, name, found, _compiled_forms())
    texts = [numba.__version__, *(text for statements in found.values() for text in statements)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def _gather(file: Path, name: str, found: dict[_Named, list[str]], forms: dict[_Named, list[_Named]]) -> None:
    if (file, name) in found:
        return
    found[file, name] = []
    for compiled_file, compiled_name in forms.get((file, name), []):
        _gather(compiled_file, compiled_name, found, forms)
    statements = _statements(file)
    for statement in statements.get(name, statements.get("*", [])):
        text, names = _read(statement)
        found[file, name].append(text)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for source, imported in _imported(statement, name, file):
                _gather(source, imported, found, forms)
        for used in names:
            _gather(file, used, found, forms)


def _compiled_forms() -> dict[_Named, list[_Named]]:
    """Where functions have compiled forms in other files of this package: below `@overload(f)` and the like."""
    forms: dict[_Named, list[_Named]] = {}
    modules = (module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == _PACKAGE)
    files = (file for file in map(_file_of, modules) if file is not None and file.is_file())
    for file in files:
        for name in _has_compiled(file, file.stat().st_mtime_ns):
            for statement in _statements(file).get(name, []):
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    for definition in _imported(statement, name, file):
                        forms.setdefault(definition, []).append((file, name))
    return forms


@cache
def _has_compiled(file: Path, changed: int) -> list[str]:
    """The names of which a file has a compiled form; few files have any, so most needn't be parsed."""
    found = re.findall(rb"^@\w+\(\s*(\w+)\s*[,)]", file.read_bytes(), re.MULTILINE)
    return sorted({name.decode() for name in found})


@cache
def _read(statement: ast.stmt) -> tuple[str, list[str]]:
    """A statement's text and the names in it: once for all kernels, many of which need the same functions."""
    names = dict.fromkeys(node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
    return ast.unparse(statement), list(names)


def _imported(statement: ast.Import | ast.ImportFrom, name: str, file: Path) -> Iterator[tuple[Path, str]]:
    """Files of this package and names in them that an import statement, made for a name, may stand for."""
    parent = "" if isinstance(statement, ast.Import) else _absolute(statement, file)
    for alias in statement.names:
        if alias.name == "*":
            yield from _in_module(parent, [name])
        elif name in (alias.asname, alias.name, alias.name.partition(".")[0]):
            inner = f"{parent}.{alias.name}".strip(".")
            yield from _in_module(inner, None)  # if it is a module: all that it defines
            yield from _in_module(parent, [alias.name])


def _in_module(name: str, names: list[str] | None) -> Iterator[tuple[Path, str]]:
    if name.partition(".")[0] != _PACKAGE:
        return
    path = _file_of(sys.modules.get(name))  # imported by now: its importer is running
    if path is None:
        return
    yield from ((path, inner) for inner in (_statements(path) if names is None else names))


def _absolute(statement: ast.ImportFrom, file: Path) -> str:
    """The module that a `from … import` names, also where it says so by dots."""
    if not statement.level:
        return statement.module or ""
    importer = next((module for module in list(sys.modules.values()) if _file_of(module) == file), None)
    package = (importer and importer.__package__) or ""
    try:
        return resolve_name("." * statement.level + (statement.module or ""), package)
    except ImportError:
        return ""


def _file_of(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name) if isinstance(name, str) else None


def _statements(file: Path) -> dict[str, list[ast.stmt]]:
    """A file's statements, by the names to which they give a meaning."""
    return _parsed(file, file.stat().st_mtime_ns)


@cache
def _parsed(file: Path, changed: int) -> dict[str, list[ast.stmt]]:
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
        return {statement.name} | {
            arg.id for call in calls for arg in call.args[:1] if isinstance(arg, ast.Name)
        }
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
