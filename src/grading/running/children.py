"""Grades several submissions at the same time, each in a process of its own that ends when this one does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import NoReturn

from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED
from grading.marks import Marks, read_marks, write_marks
from grading.running.machine import threads_of_each
from grading.running.one import failed_marks, grade_one, reason_of
from grading.running.rules import Job, Judge

FAILED = 3
"""The exit code of a process that has written marks which say that the grader has failed."""
STOP_SECONDS = 10.0
"""How long a process may take to end what it has started, before it is killed with all of that."""
TICK = 0.5  # seconds
POSIX = sys.platform != "win32"
RunJobs = Callable[[Sequence[Job], Judge, int, Callable[[], None]], Generator[tuple[Job, int], None, None]]
"""``run_jobs`` below, or what does the same elsewhere."""


def run_jobs(
    jobs: Sequence[Job], judge: Judge, at_once: int, tick: Callable[[], None]
) -> Generator[tuple[Job, int], None, None]:
    """Do the jobs, so many at the same time; each with its exit code when it has ended, 0 if its marks are written.

    To be closed (``contextlib.closing``) where it is not used up: that ends all processes at once, as an error does.

    Args:
        jobs: the submissions.
        judge: a function of a module, since processes of their own call it.
        at_once: how many, at least 1.
        tick: called from time to time while they are at work.
    """
    waiting = deque(jobs)
    running: dict[int, tuple[SpawnProcess, Job]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.popleft()
                with _signals_held():
                    process = _start(job, judge, at_once)
                    running[process.sentinel] = process, job
            for sentinel in wait(list(running), TICK):
                assert isinstance(sentinel, int)
                process, job = running[sentinel]
                _kill_group(process)  # what the job left behind
                process.join()
                del running[sentinel]
                assert process.exitcode is not None
                yield job, process.exitcode
            tick()
    finally:
        _stop([process for process, _ in running.values()])


def marks_of(job: Job, code: int) -> Marks:
    """The marks that a process has written, or ones that say that it has failed."""
    if code in (0, FAILED):
        return read_marks(job.target)
    end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    marks = failed_marks(job, f"its process {end}")
    try:
        write_marks(marks, job.target)
    except CourseError as error:
        return replace(marks, notes=(*marks.notes, str(error)))
    return marks


def _start(job: Job, judge: Judge, at_once: int) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(job, judge, at_once))
    process.start()
    return process


def _stop(processes: Sequence[SpawnProcess]) -> None:
    """End them in order, and those that take too long at once; so does a second Ctrl-C."""
    try:
        for process in processes:
            if POSIX and process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGINT)
            else:
                process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in processes:
            wait([process.sentinel], max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            _kill_group(process)
            process.kill()
            process.join()


def _kill_group(process: SpawnProcess) -> None:
    """Kill what a process has started; it must not be joined yet, so that its number still stands for it."""
    if POSIX and process.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Within it, Ctrl-C waits: a process that is being started is known before it has to be stopped."""
    if not POSIX:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(job: Job, judge: Judge, at_once: int) -> NoReturn:
    """A process of its own: in a group of its own, so that Ctrl-C in the terminal reaches it only from its parent."""
    try:
        if POSIX:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        threading.Thread(target=_end_with_parent, daemon=True).start()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the judge shows a mark for each test
        os.environ |= threads_of_each(at_once)
        code = _grade(job, judge)
    except KeyboardInterrupt:
        _end_group()  # the parent may be gone
    os._exit(code)  # whatever threads the tests have left


def _grade(job: Job, judge: Judge) -> int:
    try:
        write_marks(grade_one(job, judge), job.target)
        return 0
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        write_marks(failed_marks(job, reason_of(error)), job.target)
        return FAILED


def _end_with_parent() -> None:
    """Wait until the parent has ended, then end as by Ctrl-C; if that takes too long, at once and with everything."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOP_SECONDS)
    _end_group()


def _end_group() -> NoReturn:
    """End this process, with all that it has started and that is in its group."""
    if POSIX:
        os.killpg(0, signal.SIGKILL)
    os._exit(INTERRUPTED)
