"""Reads `course.toml`, and says what is wrong in it by the names that stand there."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coursekit.errors import CourseError
from grading.policy.policy import Late, Policy, PolicyDay

POLICY_FILE = "course.toml"
WEEK_MINUTES = 7 * 24 * 60
YEARS = range(2000, 3000)


def _due(value: object) -> object:
    if not isinstance(value, datetime):
        raise ValueError("give date and time without quotes, like 2026-03-31T23:59:00")
    if value.year not in YEARS:
        raise ValueError(f"the year {value.year} is not meant")
    return value


class _Table(BaseModel):
    """Types are as TOML has them, and a name that isn't known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Late(_Table):
    grace_minutes: Annotated[float, Field(ge=0, le=WEEK_MINUTES)] = 0
    percent_per_day: Annotated[float, Field(ge=0, le=100)] = 0
    cap_days: Annotated[int, Field(ge=0)] | None = None
    free_days: Annotated[int, Field(ge=0, le=100)] = 0


class _Day(_Table):
    name: str
    due: Annotated[datetime, BeforeValidator(_due)] | None = None
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1


class _Extension(_Table):
    learner: Annotated[str, Field(min_length=1)]
    days: Annotated[int, Field(ge=1, le=1000)]
    day: str = ""


class _File(_Table):
    title: str = ""
    timezone: str = ""
    late: _Late = Field(default_factory=_Late)
    day: list[_Day] = Field(default_factory=list)
    extension: list[_Extension] = Field(default_factory=list)


def load_policy(path: Path, known: Collection[str]) -> tuple[Policy, tzinfo | None]:
    """The policy in a file, and the time zone of times that name none.

    Args:
        path: the file.
        known: the days of the course, "1.3" among them.

    Raises:
        CourseError: the file can't be read or is no TOML, or a value is missing, unknown or impossible; each problem
            stands in a line of its own.
    """
    try:
        file = _File.model_validate(tomllib.loads(path.read_bytes().decode("utf-8-sig")))
    except OSError as error:
        raise CourseError(f"can't read the policy {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CourseError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{path.name}: {error}") from error
    except ValidationError as error:
        raise CourseError("\n".join(f"{path.name}: {_told(one)}" for one in error.errors())) from error
    zone = _zone(file.timezone, path.name)
    if problems := [*_day_problems(file, known, zone), *_extension_problems(file, known)]:
        raise CourseError("\n".join(f"{path.name}: {problem}" for problem in problems))
    return _policy(file, zone), zone


def read_policy(path: Path | None, known: Collection[str]) -> tuple[Policy, tzinfo | None]:
    """The same; where there is no file, all days count alike and none is ever late."""
    return (Policy(), None) if path is None else load_policy(path, known)


def _told(error: Any) -> str:
    """A problem of one value: where it stands, as "[[day]] 2, due", and what is wrong."""
    place = ""
    for part in error["loc"]:
        after = f"{place}, {part}" if place else str(part)
        place = f"[[{place}]] {part + 1}" if isinstance(part, int) else after
    return f"{place}: {error['msg'].removeprefix('Value error, ')}"


def _zone(name: str, file: str) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise CourseError(f"{file}: timezone: {name!r} is not known: write it like Europe/Berlin") from None


def _day_problems(file: _File, known: Collection[str], zone: tzinfo | None) -> list[str]:
    problems = []
    names = [day.name for day in file.day]
    for number, day in enumerate(file.day, 1):
        if day.name not in known:
            problems.append(f"[[day]] {number}, name: there is no Day {day.name}")
        if day.name in names[: number - 1]:
            problems.append(f"[[day]] {number}, name: Day {day.name} stands there twice")
        if day.due is not None and day.due.tzinfo is None and zone is None:
            problems.append(f"[[day]] {number}, due: it needs a time zone: write timezone = … at the top")
    return problems


def _extension_problems(file: _File, known: Collection[str]) -> list[str]:
    return [
        f"[[extension]] {number}, day: there is no Day {extension.day}"
        for number, extension in enumerate(file.extension, 1)
        if extension.day and extension.day not in known
    ]


def _policy(file: _File, zone: tzinfo | None) -> Policy:
    late = Late(
        timedelta(minutes=file.late.grace_minutes),
        file.late.percent_per_day,
        file.late.cap_days,
        file.late.free_days,
    )
    extensions: dict[str, dict[str, int]] = {}
    for extension in file.extension:
        granted = extensions.setdefault(extension.learner, {})
        granted[extension.day] = granted.get(extension.day, 0) + extension.days
    days = tuple(PolicyDay(day.name, day.weight, _in_zone(day.due, zone)) for day in file.day)
    return Policy(file.title, days, late, extensions)


def _in_zone(due: datetime | None, zone: tzinfo | None) -> datetime | None:
    return due if due is None or due.tzinfo is not None else due.replace(tzinfo=zone)
