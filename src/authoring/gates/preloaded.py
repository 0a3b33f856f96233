"""Imported once, in the server that the gates' children are forked from: all that the course's tests import.

So a child has torch, NumPy and pytest already, which saves seconds each time.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import importlib
import os
from collections.abc import Iterator
from importlib.metadata import entry_points

from authoring.gates.children import ONE_THREAD
from coursekit.backends import Device
from coursekit.paths import PACKAGES, Course
from coursekit.running.import_path import choose_triton

# The packages under test must be imported in the child, from its own folder; MLX starts threads when imported.
NEVER_BEFORE_FORK = (*PACKAGES, "mlx")


def _import_all(course: Course) -> None:
    os.environ.update(ONE_THREAD)
    choose_triton(Device.CPU)
    for name in ["pytest", "coursekit.plugin", "coursekit.check", *_pytest_plugins(), *_imported(course)]:
        # A module that can't be imported here is the child's to report, where it needs it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # Collecting garbage in a child would otherwise walk through all of torch, and copy its pages.
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is still frozen at the end, Triton's bindings report as leaked


def _pytest_plugins() -> list[str]:
    """The plugins that pytest loads by itself, and what Hypothesis's imports at the end of every run."""
    return [*(plugin.module for plugin in entry_points(group="pytest11")), "hypothesis"]


def _imported(course: Course) -> list[str]:
    """The modules, outside the course, that the files of the reference and of the days' tests import."""
    names: set[str] = set()
    for path in [*(course.root / "solutions").rglob("*.py"), *course.tests.glob("week_*/*.py")]:
        with contextlib.suppress(SyntaxError, ValueError):
            names.update(_imports(ast.parse(path.read_bytes())))
    tests = {path.stem for path in course.tests.iterdir()}
    return sorted(name for name in names if name.partition(".")[0] not in {*NEVER_BEFORE_FORK, *tests})


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


_import_all(Course.find())
