"""The process in which a learner's code runs: `python -m grading.worker CONFIGURATION`.

It is shut in from outside, and holds nothing that is worth finding: no reference, no tests, no expected values.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coursekit import arrays
from coursekit.backends import BACKEND_VARIABLE
from coursekit.lab import Lab
from coursekit.largest_array import largest_array, peak_bytes
from coursekit.running.noticed_calls import NoticedCalls
from grading.link.end import End
from grading.link.operations import Operations


@dataclass(frozen=True)
class Configuration:
    """What the worker is told: folders to import from, the framework, the modules of its package, what to import
    before the first test waits for it, the calls that the task forbids, its pipes."""

    folders: tuple[str, ...]
    backend: str
    device: str
    modules: tuple[str, ...]
    early: tuple[str, ...]
    forbidden: tuple[str, ...]
    incoming: int
    outgoing: int

    def text(self) -> str:
        return json.dumps(asdict(self))


class WorkerLab(Lab):
    """The lab of the worker; it has no course around it."""

    def __init__(self, configuration: Configuration) -> None:
        self._modules = frozenset(configuration.modules)
        super().__init__(configuration.backend, configuration.device)

    def _has(self, name: str) -> bool:
        return name in self._modules


def main() -> None:
    """Serve the grader until it has gone."""
    configuration = Configuration(**json.loads(sys.argv[1]))
    sys.path[:0] = configuration.folders
    os.environ[BACKEND_VARIABLE] = configuration.backend
    _import_early(configuration.early)
    lab = WorkerLab(configuration)
    more: dict[str, Callable[..., Any]] = {
        "lab": lambda: lab,
        "make_array": lambda values, dtype: arrays.make_array(
            values, configuration.backend, configuration.device, dtype
        ),
        "largest_array": lambda function, arguments, options: largest_array(
            configuration.backend, function, *arguments, **dict(options)
        ),
        "peak_bytes": lambda function, arguments, options: peak_bytes(
            configuration.backend, function, *arguments, **dict(options)
        ),
        "beside": _beside,
    }
    incoming = os.fdopen(configuration.incoming, "rb", buffering=0)
    end = End(incoming, os.fdopen(configuration.outgoing, "wb"), Operations(more), grader=False)
    calls = NoticedCalls(_is_in(configuration.folders[0]), lambda name: end.call("forbidden", name))
    calls.install(
        configuration.forbidden, deep=True
    )  # before the first request imports the learner's modules
    end.serve()
    os._exit(0)


def _import_early(names: Sequence[str]) -> None:
    """Import libraries; what they make is never garbage, so Python isn't to look for any among it, now or later."""
    gc.disable()
    for name in names:
        with contextlib.suppress(ImportError):  # the code that needs it says so
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _is_in(folder: str) -> Callable[[str], bool]:
    return lambda file: file.startswith(folder + os.sep)


def _beside(place: str, arguments: tuple[Any, ...], options: tuple[tuple[str, Any], ...]) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments, **dict(options))


if __name__ == "__main__":
    main()
