"""The workers of the cluster that may grade: those whose checkout of the course is the grader's."""

from __future__ import annotations

from collections.abc import Callable

from distributed import Future

from coursekit.errors import CourseError
from grading.cluster.at_worker import fingerprint
from grading.cluster.link import Gone, Link, Lost, Worker
from grading.cluster.parcel import Days


class Crew:
    """Asks each worker, as soon as the scheduler knows it, for the fingerprint of its checkout.

    Args:
        link: to the scheduler.
        days: what is graded.
        course: the fingerprint that a worker must have.
        say: shows the instructor a line.
    """

    def __init__(self, link: Link, days: Days, course: str, say: Callable[[str], None]) -> None:
        self._link, self._days, self._course, self._say = link, days, course, say
        self._asked: dict[Future, Worker] = {}
        self._refused: set[str] = set()
        self.accepted: dict[str, Worker] = {}

    @property
    def is_complete(self) -> bool:
        """Whether there is a worker, and all have answered."""
        return bool(self.accepted) and not self._asked

    @property
    def silent(self) -> list[Worker]:
        """The workers that have not answered yet."""
        return list(self._asked.values())

    def look(self) -> list[Worker]:
        """Find out who has come, and who of the accepted ones has gone; the latter are returned.

        Raises:
            Gone: the scheduler doesn't answer.
        """
        there = self._link.workers()
        gone = [worker for address, worker in self.accepted.items() if address not in there]
        for worker in gone:
            del self.accepted[worker.address]
        for future, worker in list(self._asked.items()):
            if worker.address not in there:
                del self._asked[future]
                self._link.drop(future)
        self._refused &= there.keys()
        asked = {worker.address for worker in self.silent}
        for address in there.keys() - self.accepted.keys() - self._refused - asked:
            self._asked[self._link.give(address, fingerprint, self._days)] = there[address]
        return gone

    def hear(self, future: Future, strict: bool) -> bool:
        """Take a worker's answer; ``False`` where the future is none.

        Args:
            future: what has ended.
            strict: whether a worker that can't be used ends the run; else it is only left out.

        Raises:
            CourseError: the worker can't be used.
            Gone: the scheduler doesn't answer.
        """
        worker = self._asked.pop(future, None)
        if worker is None:
            return False
        try:
            refusal = "" if self._link.result(future) == self._course else "its course is another one"
        except Lost:
            return True
        except Gone:
            raise
        except Exception as error:  # what the worker has raised may be anything
            refusal = " ".join(str(error).split()) or type(error).__name__
        if not refusal:
            self.accepted[worker.address] = worker
            return True
        told = (
            f"the worker {worker} can't grade: {refusal}; start it, and the scheduler, in an environment and a "
            "checkout of the same version of the course as here, without changes"
        )
        if strict:
            raise CourseError(told)
        self._refused.add(worker.address)
        self._say(f"{told}. It is left out")
        return True
