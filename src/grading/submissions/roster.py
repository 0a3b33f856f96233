"""The roster of a class: a table with a row per learner, as spreadsheets and learning platforms export it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path

from coursekit.errors import CourseError
from grading.marks import Student

COLUMNS = {
    "id": ("id", "student id", "id number", "sis user id", "sis login id", "username"),
    "name": ("name", "student", "full name", "student name"),
    "first": ("first name", "given name"),
    "last": ("last name", "surname", "family name"),
    "email": ("email", "email address", "e-mail", "sis email"),
    "submitted": ("submitted", "submitted at", "submission time"),
}
"""What each column may be called, in any case; of several that are there, the first of these counts."""
DELIMITERS = ",;\t"


@dataclass(frozen=True)
class Listed:
    """One row: the learner, and the time of the submission where the roster has it."""

    student: Student
    submitted: datetime | None = None


def read_roster(path: Path, zone: tzinfo | None = None) -> tuple[Listed, ...]:
    """The learners of a class, in the order of the file.

    The file is a CSV file in UTF-8 with a line of headers; commas, semicolons or tabs are between its cells. It needs
    a column for the id; those for name, first and last name, e-mail address and time of submission may be missing.
    Other columns are passed over.

    Args:
        path: the file.
        zone: of times of submission that don't name theirs.

    Raises:
        CourseError: the file can't be read, or a line is wrong; the message names it.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CourseError(f"can't read the roster {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CourseError(f"{path} is not UTF-8 text: save it as “CSV UTF-8”") from error
    return _parse(text, path.name, zone)


def _parse(text: str, name: str, zone: tzinfo | None) -> tuple[Listed, ...]:
    first = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    listed: list[Listed] = []
    lines: dict[str, int] = {}
    try:
        columns = _columns(next(reader, []), name)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            row = {key: cells[at].strip() if at < len(cells) else "" for key, at in columns.items()}
            where = f"{name}:{reader.line_num}"
            one = _listed(row, where, zone)
            if one.student.id in lines:
                before = lines[one.student.id]
                raise CourseError(f"{where}: the id {one.student.id!r} stands in line {before} already")
            lines[one.student.id] = reader.line_num
            listed.append(one)
    except csv.Error as error:
        raise CourseError(f"{name}:{reader.line_num}: {error}") from error
    if not listed:
        raise CourseError(f"{name} lists no learner: it needs a row for each below its headers")
    return tuple(listed)


def _columns(headers: list[str], name: str) -> dict[str, int]:
    plain = [" ".join(header.split()).casefold() for header in headers]
    for header in plain:
        if header and plain.count(header) > 1:
            raise CourseError(f"{name}:1: there are two columns {header!r}: remove one")
    found = {}
    for key, names in COLUMNS.items():
        there = next((each for each in names if each in plain), None)
        if there is not None:
            found[key] = plain.index(there)
    if "id" not in found:
        raise CourseError(f"{name}:1: no column for the id of a learner: name one of them 'id'")
    return found


def _listed(row: Mapping[str, str], where: str, zone: tzinfo | None) -> Listed:
    if not row["id"]:
        raise CourseError(f"{where}: this learner has no id")
    full = row.get("name") or f"{row.get('first', '')} {row.get('last', '')}".strip()
    student = Student(row["id"], full, row.get("email", ""))
    return Listed(student, _time(row.get("submitted", ""), where, zone))


def _time(text: str, where: str, zone: tzinfo | None) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CourseError(f"{where}: {text!r} is no time: write it like 2026-03-31 23:59") from None
    if time.tzinfo is None and zone is None:
        raise CourseError(f"{where}: {text!r} names no time zone: write it like {text}+01:00")
    return time if time.tzinfo is not None else time.replace(tzinfo=zone)
