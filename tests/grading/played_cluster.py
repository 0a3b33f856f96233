"""A cluster that is only played, and runs of the grader over it: no process is started, and no time goes by."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from class_folders import COUNTING, as_folder
from fake_judges import by_stubs

from coursekit.backends import Backend
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.cluster.parcel import Graded, Parcel
from grading.marks import Marks, Student, marks_to_json, read_marks
from grading.running.one import refused_marks
from grading.running.rules import Job, Rules, Surveyed
from grading.submissions.entries import Entry
from grading.submissions.reading import Clock, HandedIn
from grading.submissions.starter import make_layouts

pytest.importorskip("distributed", reason="the package distributed isn't installed: pdm install -G cluster")

from grading.cluster import dispatch  # it imports distributed
from grading.cluster.at_worker import fingerprint
from grading.cluster.link import Gone, Worker

ADDRESS = "tcp://here:1"
SUBMITTED = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(eq=False)
class Task:
    """What stands in for a future."""

    worker: str
    parcel: Parcel | None
    outcome: object = None


class Played:
    """A cluster whose time goes by one second at each look, and whose events are played from a script.

    ``events`` are called one by one, each time that there is nothing else to happen.
    """

    address = ADDRESS

    def __init__(self, *workers: str, course: str = "same") -> None:
        self.course = course
        self.there = {name: Worker(name, "", 1) for name in workers}
        self.answers: dict[str, object] = {}
        self.ended: deque[Task] = deque()
        self.at_work: list[Task] = []
        self.dropped: list[Task] = []
        self.given: list[str] = []
        self.events: Iterator[Callable[[], None]] = iter(())
        self.most = 0
        self.gone = False
        self.now = 0.0

    def workers(self) -> dict[str, Worker]:
        self._check()
        return dict(self.there)

    def give(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Task:
        self._check()
        if function is fingerprint:
            task = Task(worker, None, self.answers.get(worker, self.course))
            if task.outcome is not None:
                self.ended.append(task)
            return task
        task = Task(worker, arguments[0])
        assert pickle.loads(pickle.dumps(task.parcel)) == task.parcel
        self.given.append(worker)
        self.at_work.append(task)
        self.most = max(self.most, len(self.at_work))
        return task

    def wait(self, seconds: float) -> Task | None:
        self._check()
        self.now += 1.0
        if not self.ended and (event := next(self.events, None)):
            event()
        self._check()
        return self.ended.popleft() if self.ended else None

    def result(self, task: Task) -> object:
        self._check()
        if isinstance(task.outcome, Exception):
            raise task.outcome
        return task.outcome

    def drop(self, task: Task) -> None:
        self._check()
        self.dropped.append(task)

    def end(self, outcome: object, place: int = 0) -> None:
        """A task of those at work ends."""
        task = self.at_work.pop(place)
        task.outcome = outcome
        self.ended.append(task)

    def lose(self, worker: str) -> None:
        del self.there[worker]
        self.at_work = [task for task in self.at_work if task.worker != worker]

    def leave(self) -> None:
        self.gone = True

    def _check(self) -> None:
        if self.gone:
            raise Gone


def rules_for(course: Course) -> Rules:
    manifest = load_manifest(course)
    layouts = make_layouts(course, manifest, Backend.TORCH)
    return Rules(course, tuple(manifest.lessons), layouts, Backend.TORCH, "xyzzy", "same", "drawn")


def jobs_of_three(rules: Rules, folder: Path) -> list[Job]:
    made = []
    for name in ("ann", "bob", "cleo"):
        path = as_folder(
            folder / "class" / name, {"tiny_llm/counting.py": COUNTING + f"{name} = 1\n".encode()}
        )
        surveyed = Surveyed(Entry(path), Student(name, name.title()), submitted=SUBMITTED, notes=("own",))
        (folder / "marks").mkdir(exist_ok=True)
        made.append(Job(rules, surveyed, folder / "marks" / f"{name}.json", folder))
    return made


class Run:
    """A run over the jobs on a played cluster: what came out, and what was said."""

    def __init__(
        self, link: Played, jobs: list[Job], monkeypatch: pytest.MonkeyPatch, at_once: int = 99
    ) -> None:
        monkeypatch.setattr(dispatch.time, "monotonic", lambda: link.now)
        self.said: list[str] = []
        self.ticks = 0
        dispatcher = dispatch.Dispatcher(link, self.said.append, jobs, by_stubs, self.tick)  # type: ignore[arg-type]
        self.codes = {job.surveyed.student.id: code for job, code in dispatcher.run(at_once)}
        self.marks = {job.surveyed.student.id: read_marks(job.target) for job in jobs}

    def tick(self) -> None:
        self.ticks += 1


def good(link: Played, rules: Rules, place: int = 0) -> Graded:
    """What a worker sends for a task."""
    parcel = link.at_work[place].parcel
    assert parcel is not None
    return Graded(0, marks_to_json(graded_marks(rules, parcel)))


def graded_marks(rules: Rules, parcel: Parcel) -> Marks:
    nobody = Surveyed(Entry(Path("submission")), Student(""), content_of(parcel))
    return replace(refused_marks(rules, nobody), seconds=7.0, isolation="theirs", graded=datetime.now(UTC))


def content_of(parcel: Parcel) -> str:
    return HandedIn(parcel.files, (), datetime.now(UTC), Clock.FILE).content


def ends_well(link: Played, rules: Rules) -> Callable[[], None]:
    return lambda: link.end(good(link, rules))
