"""`python -m grading.cluster.alone`: grades one submission for a worker of a Dask cluster.

A worker that Dask's nanny has started is a daemon of `multiprocessing`, and may start no process of that kind; this
one may. It gets its work by its standard input, and ends, with all that it has started, when that is closed: so
nothing is left of a worker that was killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from coursekit.interrupts import INTERRUPTED
from grading.marks import Student, marks_to_json
from grading.running.children import STOP_SECONDS, marks_of, run_jobs
from grading.running.one import lay
from grading.running.rules import Job, Judge, Rules, Surveyed
from grading.submissions.entries import Entry


@dataclass(frozen=True)
class Work:
    """The submission's files are named by their paths within a folder."""

    rules: Rules
    judge: Judge
    files: Mapping[str, bytes]


def main() -> NoReturn:
    """Grade, and write to standard output: the exit code in a line of its own, then the marks as JSON."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell may have had it ignored
    try:
        work = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
        code, marks = grade(work)
    except (KeyboardInterrupt, EOFError):
        os._exit(INTERRUPTED)
    sys.stdout.buffer.write(b"%d\n%b" % (code, marks))
    sys.stdout.buffer.flush()
    os._exit(0)  # the thread still reads


def grade(work: Work) -> tuple[int, bytes]:
    """The exit code of the process that has graded, and the marks as JSON."""
    with tempfile.TemporaryDirectory(prefix="tiny-llm-worker-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        submission = folder / "submission"
        lay(submission, work.files)
        job = Job(work.rules, Surveyed(Entry(submission), Student("")), folder / "marks.json", folder)
        with closing(run_jobs([job], work.judge, 1, lambda: None)) as ended:
            ((_, code),) = ended
        return code, marks_to_json(marks_of(job, code))


def _end_with(stream: BinaryIO) -> NoReturn:
    """Wait until the other end has gone, then end as by Ctrl-C; if that takes too long, at once."""
    stream.read()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(2 * STOP_SECONDS)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
