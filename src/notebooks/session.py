"""Whose package a notebook runs, and what it says when a file has changed or a task is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from coursekit.backends import Backend
from coursekit.editing.assembly import package_files
from coursekit.errors import CourseError
from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import PACKAGES, Course
from coursekit.running.import_path import Impl, choose_implementation
from coursekit.running.stubs import Stub, reached_stub
from notebooks import settings
from notebooks.pictures import use_style

_current: Session | None = None

WHO = {
    Impl.LEARNER: "This notebook runs your code, src/tiny_llm. (%impl solution: the reference's)",
    Impl.SOLUTION: "This notebook runs the reference, solutions/tiny_llm. (%impl learner: your code)",
}


class Session:
    """One notebook at work."""

    def __init__(self, course: Course, impl: Impl) -> None:
        """Put the package on the path.

        Args:
            course: whose packages.
            impl: which one runs first.

        Raises:
            CourseError: the manifest can't be read.
        """
        self._course, self._manifest = course, load_manifest(course)
        self.choose(impl)

    def choose(self, impl: Impl) -> None:
        """From now on run this package; modules of the other one are forgotten."""
        choose_implementation(self._course, impl)
        solution = impl is Impl.SOLUTION
        package = Backend.TORCH.package
        self._folder = self._course.solution(package) if solution else self._course.starter(package)
        self._seen = _times(self._folder)

    def refresh(self) -> list[str]:
        """Forget all modules of the package if one of its files has changed; the names of these files."""
        now = _times(self._folder)
        changed = sorted({path for path, _ in now.items() ^ self._seen.items()})
        self._seen = now
        if changed:
            for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
                del sys.modules[name]
        return [path.relative_to(self._folder).as_posix() for path in changed]

    def sentence(self, stub: Stub) -> str:
        """Which task is missing, and what to do about it."""
        return missing_sentence(self._manifest, stub)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Within it, files are read anew, and of a stub that is reached one line is printed instead of an error."""
        self.refresh()
        try:
            yield
        except Exception as error:
            stub = reached_stub(error)
            if stub is None:
                raise
            print(self.sentence(stub))


def missing_sentence(manifest: Manifest, stub: Stub) -> str:
    """Which task is missing, and what to do about it, in one line."""
    try:
        files = sorted({ref.file for ref in manifest.task(stub.task).implements})
    except CourseError:  # a stub of a course that has changed since
        files = []
    where = f" It stands in src/tiny_llm/{' and '.join(files)}." if files else ""
    return f"Task {stub.task} ({stub.title}) is still missing.{where} %impl solution shows what it will do."


def current() -> Session:
    """The session of this kernel.

    Raises:
        CourseError: none has begun.
    """
    if _current is None:
        raise CourseError("run `%load_ext notebooks` first: it puts the course's package on the path")
    return _current


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext notebooks`: choose the package, and from then on say in one line what is missing."""
    global _current
    wanted = os.environ.get(settings.IMPL, Impl.LEARNER)
    if wanted not in [*Impl]:
        raise CourseError(f"{settings.IMPL} is {wanted!r}: write learner or solution")
    use_style()
    session = _current = Session(Course.find(), Impl(wanted))

    def impl(line: str) -> None:
        """`%impl learner` runs your code from now on, `%impl solution` the reference's."""
        name = line.strip()
        if name not in [*Impl]:
            print("Write %impl learner or %impl solution.")
            return
        session.choose(Impl(name))
        print(WHO[Impl(name)])

    def before_cell(info: object) -> None:
        changed = session.refresh()
        if changed:
            print(f"Read anew: {', '.join(changed)}. What was made before still runs the old code.")

    def in_one_line(
        shell: Any,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType,
        tb_offset: int | None = None,
    ) -> None:
        stub = reached_stub(error)
        if stub is None:
            shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        else:
            print(session.sentence(stub))

    shell.register_magic_function(impl, "line", "impl")
    shell.events.register("pre_run_cell", before_cell)
    shell.set_custom_exc((Exception,), in_one_line)
    print(WHO[Impl(wanted)])


def _times(folder: Path) -> dict[Path, int]:
    """When each file of a package was changed last."""
    return {path: path.stat().st_mtime_ns for path in package_files(folder)}
