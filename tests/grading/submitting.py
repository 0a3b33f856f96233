"""What the tests of `pdm run submit` share: a judge of their own, and ways to look at what is made."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from coursekit.backends import Backend
from coursekit.learner.state import State
from coursekit.manifest import Lesson, load_manifest
from coursekit.paths import Course
from coursekit.running.results import Report, Result
from coursekit.task_state import TaskState
from grading.judging import Judged
from grading.submit import Judge, hand_in

TESTED = 1_700_000_000.0

"""When the results were recorded: in November 2023."""


def submitted(course: Course, judge: Judge | None = None, out: Path | None = None) -> str:
    """What `submit` prints."""
    screen = io.StringIO()
    console = Console(file=screen, width=100, highlight=False)
    hand_in(course, out or course.root / "submission.zip", console, judge)
    return screen.getvalue()


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def packed(course: Course) -> bytes:
    submitted(course)
    return (course.root / "submission.zip").read_bytes()


def record(course: Course, when: float = TESTED, package: str = "tiny_llm", **states: str) -> None:
    """Note results of earlier runs, `_1_1_1="passed"`, and let the files be older than these."""
    state = State.load(course)
    for name, result in states.items():
        task = load_manifest(course).task(name.strip("_").replace("_", "."))
        state.record(package, task.name, result, task.points if result == "passed" else 0)
    state.save()
    table = json.loads(state.path.read_text(encoding="utf-8"))
    for one in table["results"][package].values():
        one["when"] = "2023-11-14T22:13:20+00:00"
    state.path.write_text(json.dumps(table), encoding="utf-8")
    for path in course.starter(package).rglob("*.py"):
        os.utime(path, (when, when))


def line(text: str, task: str) -> str:
    """The line about one task, without what is colored or aligned."""
    (found,) = [" ".join(line.split()) for line in text.splitlines() if f" {task} " in line]
    return found


class FakeJudge:
    """Notes what it is asked, and reports what it is told to: by task, states of its tests."""

    def __init__(self, **states: TaskState) -> None:
        self.states = {name.strip("_").replace("_", "."): state for name, state in states.items()}
        self.asked: list[tuple[dict[str, bytes], list[str], str, Backend]] = []
        self.folders: list[Path] = []
        self.extra: list[Result] = []
        self.without: list[bool] = []
        self.isolation = "bubblewrap"

    def __call__(
        self,
        course: Course,
        package: Path,
        lessons: Sequence[Lesson],
        seed: str,
        backend: Backend,
        without_isolation: bool = False,
    ) -> Judged:
        self.without.append(without_isolation)
        files = {
            path.relative_to(package).as_posix(): path.read_bytes()
            for path in package.rglob("*")
            if path.is_file()
        }
        self.asked.append((files, [lesson.name for lesson in lessons], seed, backend))
        self.folders.append(package)
        report = Report("learner", backend, "cpu", planned=dict.fromkeys(self.states, 1), finished=True)
        report.results = [Result(name, name, "", state) for name, state in self.states.items()] + self.extra
        for result in self.extra:
            assert result.task is not None
            report.planned[result.task] = 1
        return Judged(report, self.isolation)


def zip_with(name: str, text: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.writestr(name, text)
    return content.getvalue()
