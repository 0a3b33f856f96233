"""Gradescope's ``submission_metadata.json``: who handed in, and when.

The format: https://gradescope-autograders.readthedocs.io/en/latest/submission_metadata/
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ValidationError

from grading.marks import Student

UNKNOWN = Student("unknown")


@dataclass(frozen=True)
class HandIn:
    """The learner, of a group the first one; ``submitted`` is None where it isn't known; ``notes`` say why."""

    student: Student
    submitted: datetime | None
    notes: tuple[str, ...] = ()


class _User(BaseModel):
    email: str | None = None
    id: int | str = ""
    name: str | None = None


class _Metadata(BaseModel):
    """The fields that count here; there are others."""

    created_at: AwareDatetime
    users: tuple[_User, ...] = ()


def read_metadata(path: Path) -> HandIn:
    """What Gradescope says of a submission. Its learner's id is the e-mail address, or else Gradescope's number.

    A file that is missing or damaged is a note and no error: the code can be graded without it.
    """
    try:
        metadata = _Metadata.model_validate_json(path.read_bytes())
    except OSError as error:
        return HandIn(UNKNOWN, None, (f"{path.name} can't be read: {error.strerror}",))
    except ValidationError as error:
        (first, *_) = error.errors()
        problem = ": ".join(filter(None, (", ".join(map(str, first["loc"])), first["msg"])))
        return HandIn(UNKNOWN, None, (f"{path.name} is not as expected: {problem}",))
    if not metadata.users:
        return HandIn(UNKNOWN, metadata.created_at, ("Gradescope names no learner",))
    user, *others = metadata.users
    name, email = user.name or "", user.email or ""
    student = Student(email or str(user.id) or UNKNOWN.id, name, email)
    group = f"handed in by a group of {len(metadata.users)}: extensions are those of {student.id}"
    return HandIn(student, metadata.created_at, (group,) if others else ())
