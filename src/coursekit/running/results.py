"""What a test run found: the state of every test, folded into the state of every task."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coursekit.files import write_files
from coursekit.task_state import TaskState

TASK_TEST = re.compile(r"test_task_(\d+)_(\w+)")

# The first group that any test of a task is in has the task's state; skipped only where all of them are. Crashed and
# wrong weigh the same: what a later test stumbles over often follows from what an earlier one says more plainly.
PRECEDENCE = (
    (TaskState.CRASHED, TaskState.WRONG),
    (TaskState.NOT_STARTED,),
    (TaskState.PASSED,),
    (TaskState.SKIPPED,),
)


@dataclass(frozen=True)
class Result:
    """How one test ended.

    ``task`` is None for a test outside the days; ``sentence`` is what the test's name says; ``message`` says what
    is wrong, in plain words; ``where`` is the test's own file and line; ``needs`` names the task ("1.1.1 Softmax")
    whose stub was reached where that is not the test's own; ``printed`` is what a failing test wrote, shortened;
    ``shortcuts`` are calls in the learner's code that do the task's work ("torch.softmax").
    """

    id: str
    task: str | None
    sentence: str
    state: TaskState
    seconds: float = 0.0
    message: str = ""
    where: str = ""
    needs: str = ""
    printed: str = ""
    shortcuts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskResult:
    """The tests of one task that ran; ``planned`` counts those that there are, chosen or not."""

    name: str
    planned: int
    tests: tuple[Result, ...]

    @property
    def state(self) -> TaskState:
        return fold(test.state for test in self.tests)

    @property
    def complete(self) -> bool:
        """Whether every test that the task has was run."""
        return len(self.tests) == self.planned

    @property
    def shortcuts(self) -> tuple[str, ...]:
        """The shortcuts that any of its tests noticed."""
        return tuple(sorted({name for test in self.tests for name in test.shortcuts}))

    def count(self, *states: TaskState) -> int:
        return sum(test.state in states for test in self.tests)

    @property
    def first_failure(self) -> Result | None:
        """The first test in the task's own state, unless that is a good one: the first that is wrong or crashed."""
        if self.state in (TaskState.PASSED, TaskState.SKIPPED):
            return None
        return next(test for test in self.tests if test.state == self.state)


@dataclass
class Report:
    """All that one run found; written as JSON for the board and the gates.

    ``errors`` are test files that could not be read, each with ``where`` and ``message``; ``finished`` is false if
    Python was ended on the way.
    """

    impl: str
    backend: str
    device: str
    planned: dict[str, int] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    deselected: int = 0
    interrupted: bool = False
    finished: bool = False

    def add(self, result: Result) -> None:
        self.results.append(result)

    @property
    def tasks(self) -> dict[str, TaskResult]:
        """The tasks of which at least one test ran, in the order of the run."""
        tests: dict[str, list[Result]] = {}
        for result in self.results:
            if result.task is not None:
                tests.setdefault(result.task, []).append(result)
        return {name: TaskResult(name, self.planned.get(name, 0), tuple(ran)) for name, ran in tests.items()}

    @property
    def passed(self) -> bool:
        """Whether the run came to its end, could read every test file, and found nothing that is wrong or missing."""
        good = (TaskState.PASSED, TaskState.SKIPPED)
        return self.finished and not self.errors and all(result.state in good for result in self.results)

    @property
    def others(self) -> list[Result]:
        """Tests outside the days."""
        return [result for result in self.results if result.task is None]

    def write(self, path: Path) -> None:
        """Write the report as JSON: per task its state, counts, tests and first failure; then the other tests."""
        write_files({path: json.dumps(self._document(), indent=1).encode("utf-8")})

    def _document(self) -> dict[str, Any]:
        return {
            "impl": self.impl,
            "backend": self.backend,
            "device": self.device,
            "tasks": {name: _task_document(task) for name, task in self.tasks.items()},
            "others": [asdict(result) for result in self.others],
            "planned": self.planned,
            "errors": self.errors,
            "deselected": self.deselected,
            "interrupted": self.interrupted,
            "finished": self.finished,
        }


def read_report(path: Path) -> Report:
    """The report that ``Report.write`` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    tests = [test for task in document.pop("tasks").values() for test in task["tests"]]
    return Report(results=[read_result(test) for test in tests + document.pop("others")], **document)


def read_result(fields: dict[str, Any]) -> Result:
    """A result from its fields, as JSON has them."""
    shortcuts = tuple(fields.get("shortcuts", ()))
    return Result(**{**fields, "state": TaskState(fields["state"]), "shortcuts": shortcuts})


def fold(states: Iterable[TaskState]) -> TaskState:
    """One state for several tests, given in their order: the one that the learner should see to first."""
    found = list(states)
    return next((state for group in PRECEDENCE for state in found if state in group), TaskState.NOT_STARTED)


def _task_document(task: TaskResult) -> dict[str, Any]:
    first = task.first_failure
    return {
        "state": task.state,
        "passed": task.count(TaskState.PASSED),
        "failed": task.count(TaskState.CRASHED, TaskState.WRONG, TaskState.NOT_STARTED),
        "skipped": task.count(TaskState.SKIPPED),
        "complete": task.complete,
        "first_failure": first.message if first else None,
        "tests": [asdict(test) for test in task.tests],
    }
