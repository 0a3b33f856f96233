"""``result.json`` of a Classroom 50 autograder (``classroom50/result/v1``), for one submission.

The format: ``schemas/result-v1.schema.json`` of https://github.com/foundation50/classroom50. Its runner hands the
identity of the submission over in environment variables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from coursekit.errors import CourseError
from grading.marks import DayMark, Marks, TaskMark
from grading.reports.text import block, line

SCHEMA = "classroom50/result/v1"
TAG = "submit/"
_VARIABLES = {
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "owner": "USERNAME",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
    "review": "REVIEW_URL",
}
_MODES = ("individual", "group")


def result_json(marks: Marks, environment: Mapping[str, str]) -> bytes:
    """The file that the autograder leaves in the checkout.

    Points are whole numbers there: the total is what counts (weighted, with lateness), rounded down, and each test
    has its task's own points.

    Raises:
        CourseError: a variable of Classroom 50's runner is missing, or isn't of its form.
    """
    return json.dumps(_result(marks, environment), indent=1, allow_nan=False).encode("ascii")


def _result(marks: Marks, environment: Mapping[str, str]) -> dict[str, Any]:
    tasks = [] if marks.refusal else [_test(day, task) for day in marks.days for task in day.tasks]
    highest = 0 if marks.refusal else math.floor(marks.points)
    return {
        "schema": SCHEMA,
        **_identity(environment),
        "datetime": _instant(marks.submitted or marks.graded),
        "graded_at": _instant(marks.graded),
        # Shares such as 0.7 have a tail in binary, and 6.999… would become 6.
        "score": min(0 if marks.refusal else math.floor(round(marks.earned, 6)), highest),
        "max-score": highest,
        "tests": tasks,
    }


def _identity(environment: Mapping[str, str]) -> dict[str, str]:
    missing = [name for name in _VARIABLES.values() if not environment.get(name)]
    if missing:
        raise CourseError(
            f"the report for Classroom 50 needs the environment of its runner, which lacks {', '.join(missing)}: "
            "run the command in its autograder, or leave the format classroom50 out"
        )
    mode = environment.get("MODE") or _MODES[0]
    if mode not in _MODES:
        raise CourseError(f"MODE is {mode!r} for Classroom 50: it must be {' or '.join(_MODES)}")
    if not environment["SUBMISSION_TAG"].startswith(TAG):
        raise CourseError(f"SUBMISSION_TAG is {environment['SUBMISSION_TAG']!r}: it must begin with {TAG}")
    return {**{key: environment[name] for key, name in _VARIABLES.items()}, "assignment_type": mode}


def _test(day: DayMark, task: TaskMark) -> dict[str, Any]:
    return {
        "test-name": f"{line(task.name)} {line(task.title)}",
        "passed": task.earned == task.points,
        "score": task.earned,
        "max-score": task.points,
        "state": task.state.value,
        "message": block(task.failure),
        "days-late": day.days_late,
    }


def _instant(time: datetime) -> str:
    """In UTC; a time without a zone is taken for the machine's own."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
