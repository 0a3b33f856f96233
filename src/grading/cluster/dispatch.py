"""Gives the submissions of a class to the workers of a cluster, and takes the marks from them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from distributed import Future

from coursekit.errors import CourseError
from grading.cluster.at_worker import grade_parcel
from grading.cluster.crew import Crew
from grading.cluster.link import Gone, Link, Lost, Worker, connected
from grading.cluster.parcel import Days, Graded, Parcel
from grading.marks import Marks, marks_from_json, write_marks
from grading.running.children import FAILED, TICK
from grading.running.one import failed_marks, reason_of, refused_marks
from grading.running.rules import Job, Judge
from grading.submissions.members import Refused
from grading.submissions.reading import read_submission

WAIT_SECONDS = 300.0
"""How long to wait for a worker where there is none, and for the answer of one."""
LOOK_SECONDS = 1.0
"""How often to look which workers there are."""
TRIES = 3
"""How many workers may end while they are at work on one submission, before it is given up."""
NO_WORKER = "no worker is at"


@dataclass
class Turn:
    """A submission that waits or is at work: the hash of what was sent, and how many workers have ended over it."""

    job: Job
    content: str = ""
    lost: int = 0


def dispatch(
    address: str,
    say: Callable[[str], None],
    jobs: Sequence[Job],
    judge: Judge,
    at_once: int,
    tick: Callable[[], None],
) -> Generator[tuple[Job, int], None, None]:
    """Do the jobs on a cluster; what is yielded and when to close it is as of ``grading.running.children.run_jobs``.

    Args:
        address: the scheduler's.
        say: shows the instructor a line.
        jobs: the submissions, all with the same rules.
        judge: a function of a module that the workers have, too.
        at_once: how many at most; a worker does as many as it has threads.
        tick: called from time to time while they are at work.

    Raises:
        CourseError: nothing is graded: there is no scheduler, no worker has come, or one isn't of this version.
    """
    if not jobs:
        return
    with connected(address) as link:
        yield from Dispatcher(link, say, jobs, judge, tick).run(at_once)


class Dispatcher:
    """One run over some jobs."""

    def __init__(
        self,
        link: Link,
        say: Callable[[str], None],
        jobs: Sequence[Job],
        judge: Judge,
        tick: Callable[[], None],
    ) -> None:
        self._link, self._say, self._judge, self._tick = link, say, judge, tick
        self._rules = jobs[0].rules
        self._days = Days(tuple(lesson.name for lesson in self._rules.lessons), self._rules.backend)
        self._crew = Crew(link, self._days, self._rules.course_hash, say)
        self._waiting = deque(Turn(job) for job in jobs)
        self._at_work: dict[Future, tuple[Turn, Worker]] = {}
        self._looked = self._manned = time.monotonic()

    def run(self, at_once: int) -> Generator[tuple[Job, int], None, None]:
        """Do them; each with its exit code when its marks are written.

        Raises:
            CourseError: nothing is graded, for the reason that is told.
        """
        try:
            self._gather()
        except Gone:
            raise CourseError(f"the scheduler at {self._link.address} has gone: start it again") from None
        try:
            while self._waiting or self._at_work:
                yield from self._give_out(at_once)
                future = self._link.wait(TICK)
                if future is not None and not self._crew.hear(future, strict=False):
                    yield from self._take(future)
                yield from self._look()
                self._tick()
        except Gone:
            told = f"the scheduler at {self._link.address} has gone"
            self._say(f"{told}: what is not graded yet is left for the next run")
            yield from self._give_up(told)

    def _gather(self) -> None:
        """Wait for the first worker, and for the answers of all that are there."""
        self._crew.look()
        if not self._crew.silent:
            self._say(f"{NO_WORKER} {self._link.address} yet: waiting for one, at most {WAIT_SECONDS:.0f} s")
        while not self._crew.is_complete:
            if time.monotonic() - self._manned > WAIT_SECONDS:
                raise CourseError(self._nobody())
            future = self._link.wait(TICK)
            if future is not None:
                self._crew.hear(future, strict=True)
            self._crew.look()
            self._tick()

    def _nobody(self) -> str:
        if self._crew.silent:
            return f"the worker {self._crew.silent[0]} doesn't answer: end what else it does, or end it"
        address = self._link.address
        return f"{NO_WORKER} {address}: start one with `pdm run dask worker {address} --nthreads 1`"

    def _give_out(self, at_once: int) -> Generator[tuple[Job, int], None, None]:
        free = self._free()
        while self._waiting and free and len(self._at_work) < at_once:
            turn = self._waiting[0]
            try:
                parcel = self._pack(turn)
            except Refused as error:
                self._waiting.popleft()
                refusal = replace(turn.job.surveyed, refusal=str(error))
                yield self._end(turn, refused_marks(self._rules, refusal))
            except CourseError as error:
                self._waiting.popleft()
                yield self._fail(turn, str(error))
            else:
                worker = free.popleft()
                future = self._link.give(worker.address, grade_parcel, parcel, self._judge)
                self._waiting.popleft()
                self._at_work[future] = turn, worker

    def _free(self) -> deque[Worker]:
        """A worker for each thread that has nothing to do; those that are the least busy first."""
        busy = Counter(worker.address for _, worker in self._at_work.values())
        places = [
            (place, worker)
            for worker in self._crew.accepted.values()
            for place in range(busy[worker.address], worker.threads)
        ]
        return deque(worker for _, worker in sorted(places, key=lambda found: found[0]))

    def _pack(self, turn: Turn) -> Parcel:
        """The submission as it is now: should it have changed since the survey, its new content counts."""
        handed = read_submission(turn.job.surveyed.entry, self._rules.layouts)
        turn.content = handed.content
        rules = self._rules
        return Parcel(
            self._days, rules.course_hash, rules.draw, rules.seed, handed.files, rules.without_isolation
        )

    def _take(self, future: Future) -> Generator[tuple[Job, int], None, None]:
        if future not in self._at_work:
            return  # it was taken back
        turn, worker = self._at_work[future]
        try:
            graded = self._link.result(future)
        except Lost:
            del self._at_work[future]
            yield from self._again(turn, worker)
            return
        except Gone:
            raise
        except Exception as error:  # what the worker has raised may be anything
            del self._at_work[future]
            yield self._fail(turn, f"{reason_of(error)}, at the worker {worker}")
            return
        del self._at_work[future]
        yield self._accept(turn, worker, graded)

    def _accept(self, turn: Turn, worker: Worker, graded: object) -> tuple[Job, int]:
        """Write the marks with what only this side knows: whose they are."""
        try:
            if not isinstance(graded, Graded):
                raise ValueError("it is no message of the grader's")
            marks = marks_from_json(graded.marks)
        except ValueError:
            return self._fail(turn, f"the worker {worker} has sent something else than marks")
        sent = (turn.content, self._rules.course_hash, self._rules.draw)
        if graded.code == 0 and (marks.content, marks.course, marks.draw) != sent:
            return self._fail(turn, f"the worker {worker} has graded something else than it was sent")
        surveyed = turn.job.surveyed
        own = replace(
            marks,
            student=surveyed.student,
            submission=surveyed.entry.name,
            submitted=surveyed.submitted,
            notes=(*surveyed.notes, *(f"{note}, at the worker {worker}" for note in marks.notes)),
        )
        return self._end(turn, own, 0 if graded.code == 0 else FAILED)

    def _look(self) -> Generator[tuple[Job, int], None, None]:
        """From time to time: what a worker that has gone was at work on is given to another."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        gone = {worker.address for worker in self._crew.look()}
        for future, (turn, worker) in list(self._at_work.items()):
            if worker.address in gone:
                del self._at_work[future]
                yield from self._again(turn, worker)
                self._link.drop(future)
        if self._crew.accepted:
            self._manned = now
        elif gone:
            self._say(
                f"{NO_WORKER} {self._link.address} any more: waiting for one, at most {WAIT_SECONDS:.0f} s"
            )
        elif now - self._manned > WAIT_SECONDS:
            self._say(f"{self._nobody()}; what is not graded yet is left for the next run")
            yield from self._give_up(self._nobody())

    def _again(self, turn: Turn, worker: Worker) -> Generator[tuple[Job, int], None, None]:
        turn.lost += 1
        if turn.lost < TRIES:
            self._say(f"the worker {worker} has ended: what it was at work on is graded by another")
            self._waiting.append(turn)
        else:
            yield self._fail(turn, f"{TRIES} workers have ended while they were at work on it")

    def _give_up(self, reason: str) -> Generator[tuple[Job, int], None, None]:
        left = [*(turn for turn, _ in self._at_work.values()), *self._waiting]
        self._at_work.clear()
        self._waiting.clear()
        for turn in left:
            yield self._fail(turn, reason)

    def _fail(self, turn: Turn, reason: str) -> tuple[Job, int]:
        return self._end(turn, failed_marks(turn.job, reason), FAILED)

    def _end(self, turn: Turn, marks: Marks, code: int = 0) -> tuple[Job, int]:
        write_marks(marks, turn.job.target)
        return turn.job, code
