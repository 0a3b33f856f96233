"""The lab whose modules are in a worker: what a test sees of a learner's code when it is graded."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from coursekit import arrays
from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.lab import Lab
from coursekit.machine import THREAD_VARIABLES
from coursekit.paths import Course
from grading.link.end import End
from grading.link.lanes import Gone
from grading.link.operations import Granted
from grading.link.remote import Remote, StandsFor
from grading.sandbox.bytecode import bytecode_places, bytecode_variables
from grading.sandbox.confined import Confined
from grading.sandbox.isolation import Isolation
from grading.sandbox.limits import Limits, Rooms
from grading.worker import Configuration

LIMITS = Limits(seconds=3600, cpu_seconds=3600)
"""Of a worker, for the tests of one task; each test has a time limit of its own."""
_MOMENT = 3.0
"""Seconds in which a process that has closed its pipes has ended."""
_LARGE = ("numpy", "torch", "numba", "mlx.core")
_ATTRIBUTE = re.compile(r"\.([^\W\d]\w*)")


class RemoteLab(Lab, StandsFor):
    """A lab with the interface of :class:`coursekit.lab.Lab`; each :meth:`start` gives it a fresh process."""

    def __init__(
        self, course: Course, backend: str, device: str, folders: tuple[Path, ...], isolation: Isolation
    ) -> None:
        """A lab without a worker yet.

        Args:
            course: for the reference's names of modules and attributes.
            backend, device: as for a lab.
            folders: from which the worker imports: of the learner's package, and of what runs beside it.
            isolation: what shuts the worker in.
        """
        super().__init__(str(backend), str(device), course)  # plain: tests hand them to the code
        self._folders, self._isolation = folders, isolation
        packages = {course.solution(package) for package in (self.package, Backend.TORCH.package)}
        self._names = frozenset().union(*map(attribute_names, packages))
        self._modules = tuple(module_names(course.solution(self.package)))
        self._early = tuple(libraries(course.solution(self.package)))
        self._open = ExitStack()
        self._forbidden: frozenset[str] = frozenset()
        self._called: set[str] = set()
        self._end: End | None = None
        self._process: Confined | None = None

    def start(self, forbidden: tuple[str, ...] = ()) -> None:
        """Start a worker, in place of the one before.

        Args:
            forbidden: functions that the learner's code should not call, by dotted names.

        Raises:
            CourseError: it can't be started.
        """
        self.stop()
        self._forbidden, self._called = frozenset(forbidden), set()
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="tiny-llm-scratch-")))
            incoming, outgoing = self._start(stack, scratch, forbidden)
            granted = Granted(self._names, {"forbidden": self._note})
            self._end = End(incoming, outgoing, granted, grader=True)
            stack.callback(self._end.close)
            self._open = stack.pop_all()
        try:
            self._remote = self._end.call("lab")
        except Gone as error:
            raise CourseError(f"the worker did not start: it {self.why_ended()}") from error

    def _start(
        self, stack: ExitStack, scratch: Path, forbidden: tuple[str, ...]
    ) -> tuple[IO[bytes], IO[bytes]]:
        """Start the process; this end's pipes, from it and to it."""
        down, up = os.pipe(), os.pipe()
        incoming = stack.enter_context(os.fdopen(up[0], "rb", buffering=0))
        outgoing = stack.enter_context(os.fdopen(down[1], "wb"))
        folders = tuple(map(str, self._folders))
        text = Configuration(
            folders, self.backend, self.device, self._modules, self._early, forbidden, down[0], up[1]
        ).text()
        command = [sys.executable, "-P", "-m", "grading.worker", text]
        tools = Path(stack.enter_context(TemporaryDirectory(prefix="tiny-llm-tools-")))
        for part in _ours():
            (tools / part.name).symlink_to(part)
        rooms = Rooms((*self._folders, tools, *_ours(), *bytecode_places(_ours())), scratch)
        try:
            self._process = stack.enter_context(
                self._isolation.start(
                    command, rooms, LIMITS, worker_variables(scratch, tools), (down[0], up[1])
                )
            )
        finally:
            os.close(down[0])
            os.close(up[1])
        return incoming, outgoing

    def stop(self) -> None:
        """End the worker, if there is one, with all that it has started."""
        self._open.close()
        self._end = None

    def forbidden_calls(self) -> tuple[str, ...]:
        """The forbidden functions that were called since this was asked last."""
        calls, self._called = tuple(sorted(self._called)), set()
        return calls

    def _note(self, name: object) -> None:
        if type(name) is str and name in self._forbidden:
            self._called.add(name)

    def why_ended(self) -> str:
        """How the worker came to its end, and what it printed last."""
        assert self._process is not None, "no worker was started"
        if not self._process.wait(_MOMENT):
            self._process.kill()
        return f"{self._process.why_ended()}\n{self._process.output()[-2000:]}".strip()

    @property
    def end(self) -> End:
        assert self._end is not None, "no worker was started"
        return self._end

    @property
    def gone(self) -> bool:
        """Whether the worker has ended, or none was started."""
        return self._end is None or self._end.gone is not None

    def _import(self, name: str) -> Any:
        return getattr(self._remote, name)

    def array(self, values: Any, dtype: str | None = None) -> Any:
        return self.end.call("make_array", values if _is_there(values) else np.array(values), dtype)

    def numpy(self, value: Any) -> np.ndarray:
        return arrays.to_numpy(value)

    def largest_array(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, int]:
        result, size = self.end.call("largest_array", function, arguments, tuple(options.items()))
        return result, size

    def peak_bytes(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, int]:
        result, size = self.end.call("peak_bytes", function, arguments, tuple(options.items()))
        return result, size

    def run_beside(self, place: str, arguments: tuple[object, ...], options: dict[str, object]) -> object:
        return self.end.call("beside", place, arguments, tuple(options.items()))


def _ours() -> list[Path]:
    """The parts of this course that the worker runs."""
    import coursekit
    import grading

    return [Path(str(package.__file__)).parent for package in (coursekit, grading)]


def worker_variables(scratch: Path, tools: Path) -> dict[str, str]:
    """All that the worker finds in its environment.

    It imports from ``tools``, which has nothing but links to our parts: Python lists a folder to import from it, and
    the one in which they lie holds more than the worker may see.
    """
    threads = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    return (
        threads
        | bytecode_variables()
        | {
            "PYTHONPATH": str(tools),
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "XDG_CACHE_HOME": str(scratch),
            "NUMBA_CACHE_DIR": str(scratch),
            "OMP_WAIT_POLICY": "PASSIVE",
            "PATH": os.defpath,
            "TRITON_INTERPRET": "1",
        }
    )


def attribute_names(package: Path) -> frozenset[str]:
    """The names of all attributes that occur in a package: what a test's fake objects may be asked for."""
    texts = (file.read_text(encoding="utf-8") for file in package.rglob("*.py"))
    return frozenset(name for text in texts for name in _ATTRIBUTE.findall(text))


def libraries(package: Path) -> list[str]:
    """The libraries that a package needs and that take long to import."""
    texts = [file.read_text(encoding="utf-8") for file in package.rglob("*.py")]
    return [
        name for name in _LARGE if any(re.search(rf"^(import|from) {name}\b", text, re.M) for text in texts)
    ]


def module_names(package: Path) -> list[str]:
    """The modules and folders of a package, as "paged.pool"."""
    files = [file.relative_to(package) for file in package.rglob("*.py")]
    names = {".".join(file.with_suffix("").parts) for file in files}
    return sorted(names | {".".join(file.parent.parts) for file in files if file.parent.parts})


def _is_there(values: Any) -> bool:
    """Whether an array is to be made of what lies in the worker, at least in part."""
    if isinstance(values, list | tuple):
        return any(_is_there(each) for each in values)
    return isinstance(values, Remote)
