"""Stand-ins for the judge of submissions: they read the learner's files and run nothing.

`GRADE_TRACE` in the environment names a folder: in it each call leaves a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.lessons.outline import functions, parse, stubbed
from coursekit.machine import THREAD_VARIABLES
from coursekit.manifest import Lesson, Task
from coursekit.paths import Course
from coursekit.running.results import Report, Result
from coursekit.task_state import TaskState
from grading.judging import Judged
from grading.sandbox.limits_only import LimitsOnly
from grading.sandbox.tree import parse_stat


def by_stubs(
    course: Course,
    package: Path,
    lessons: Sequence[Lesson],
    seed: str,
    backend: Backend,
    without_isolation: bool = False,
) -> Judged:
    """A task whose functions are all there and no stubs has passed.

    What a file of the learner's says in capitals happens to the judge: DIES, ENDS, FAILS, REFUSES, WAITS; it PAUSES
    until the folder of traces has a file ``go``, or KILLS the worker of a cluster that it is at. Where it may do
    without isolation, it does.
    """
    text = (package / backend.package / "counting.py").read_text(encoding="utf-8", errors="replace")
    leave_trace("call", f"{backend}\n{seed}\n{sorted(path.name for path in package.iterdir())}\n{text}")
    if "WAITS" in text:
        wait_for_ever()
    if "PAUSES" in text:
        pause()
    if "KILLS" in text:
        kill_the_worker()
    if "DIES" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    if "ENDS" in text:
        sys.exit(0)
    if "FAILS" in text:
        raise ZeroDivisionError(f"no\nsuch {seed}")
    if "REFUSES" in text:
        raise CourseError("there is no sandbox here")
    report = Report("learner", backend, "cpu", finished=True)
    for lesson in lessons:
        for task in lesson.tasks:
            report.planned[task.name] = 1
            state = TaskState.PASSED if is_written(package / backend.package, task) else TaskState.NOT_STARTED
            report.add(
                Result(
                    f"t{task.name}", task.name, "works", state, message="" if state == "passed" else "stub"
                )
            )
    return Judged(report, LimitsOnly.name if without_isolation else "nothing")


def by_threads(
    course: Course,
    package: Path,
    lessons: Sequence[Lesson],
    seed: str,
    backend: Backend,
    without_isolation: bool = False,
) -> Judged:
    """Tells how many threads its environment allows, too."""
    leave_trace("threads", "\n".join(f"{name}={os.environ[name]}" for name in THREAD_VARIABLES))
    return by_stubs(course, package, lessons, seed, backend, without_isolation)


def is_written(package: Path, task: Task) -> bool:
    for ref in task.implements:
        try:
            source = (package / ref.file).read_text(encoding="utf-8")
            there = functions(parse(source, ref.file))
        except (CourseError, UnicodeDecodeError):
            return False
        if ref.qualname not in there or ref.qualname in stubbed(source):
            return False
    return True


def wait_for_ever() -> NoReturn:
    """With a child that Ctrl-C doesn't end, until interrupted."""
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    leave_trace("waiting", f"{os.getpid()}\n{child.pid}")
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        leave_trace("interrupted", "")
        raise


def pause() -> None:
    leave_trace("pausing", f"{os.getpid()}\n{_ancestor(2)}\n")
    while not Path(os.environ["GRADE_TRACE"], "go").exists():
        time.sleep(0.05)


def kill_the_worker() -> NoReturn:
    """Kill the process of the worker, which has started the one that has started this one."""
    worker = _ancestor(2)
    leave_trace("killing", f"{worker}\n")
    os.kill(worker, signal.SIGKILL)
    wait_for_ever()


def _ancestor(generations: int) -> int:
    pid = os.getpid()
    for _ in range(generations):
        pid = parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).parent
    return pid


def leave_trace(kind: str, text: str) -> None:
    folder = os.environ.get("GRADE_TRACE")
    if folder:
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", delete=False, encoding="utf-8") as file:
            file.write(text)
        os.rename(file.name, Path(folder) / f"{kind}-{Path(file.name).name}")
