"""Which learner a submission belongs to: by its name, as people, Moodle and Canvas make it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from coursekit.errors import CourseError
from grading.marks import Student
from grading.submissions.entries import Entry
from grading.submissions.members import shown
from grading.submissions.roster import Listed

_MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_\w+", re.DOTALL)
_CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<number>\d+)_\d+_.*", re.DOTALL)


@dataclass(frozen=True)
class Label:
    """What the name of an entry says: ``number`` is the platform's, empty where it has none."""

    name: str
    number: str = ""
    late: bool = False


@dataclass(frozen=True)
class Owner:
    """The learner of a submission; ``submitted`` is the roster's, ``notes`` say what didn't fit."""

    student: Student
    submitted: datetime | None = None
    notes: tuple[str, ...] = ()


def label_of(stem: str) -> Label:
    """Read the name of an entry, without its ending."""
    if match := _MOODLE.fullmatch(stem):
        return Label(match["name"], match["number"])
    if match := _CANVAS.fullmatch(stem):
        return Label(match["name"], match["number"], match["late"] is not None)
    return Label(stem)


def assign(entries: Sequence[Entry], roster: Sequence[Listed]) -> list[Owner]:
    """The learner of each entry, in order.

    With a roster, an entry is matched by id (the name of the entry, or the number in it), by e-mail address or the
    part of it before the ``@``, then by name, whatever its case, accents and order. An entry that fits none, or more
    than one, keeps its own name, with a note. Without a roster, the platform's number, or else the name, is the id.

    Raises:
        CourseError: two entries belong to one learner.
    """
    owners = [_owner(label_of(entry.stem), roster) for entry in entries]
    first: dict[str, Entry] = {}
    for entry, owner in zip(entries, owners, strict=True):
        other = first.setdefault(owner.student.id, entry)
        if other is not entry:
            raise CourseError(
                f"{shown(other.name)} and {shown(entry.name)} both belong to {shown(owner.student.id)}: "
                "move one of them away"
            )
    return owners


def _owner(label: Label, roster: Sequence[Listed]) -> Owner:
    notes = ("Canvas marks it as late",) if label.late else ()
    if not roster:
        student = Student(label.number, label.name) if label.number else Student(label.name)
        return Owner(student, None, notes)
    found = _find(label, roster)
    if len(found) == 1:
        return Owner(found[0].student, found[0].submitted, notes)
    problem = "more than one learner of the roster has this name" if found else "not on the roster"
    # An id of the roster's form could be that of a learner who is on it.
    student = Student(f"{label.name} {label.number}".strip(), label.name)
    return Owner(student, None, (*notes, problem))


def _find(label: Label, roster: Sequence[Listed]) -> list[Listed]:
    """The rows that fit in the first of the ways in which any does."""
    name, folded = _folded(label.name), label.name.casefold()
    ways = (
        lambda one: one.student.id == label.name,
        lambda one: one.student.id.casefold() == folded,
        lambda one: bool(label.number) and one.student.id == label.number,
        lambda one: folded in _addresses(one.student.email),
        lambda one: bool(name) and name in _spellings(one.student.name),
    )
    for way in ways:
        if found := [one for one in roster if way(one)]:
            return found
    return []


def _addresses(email: str) -> tuple[str, ...]:
    whole = email.casefold()
    return (whole, whole.partition("@")[0]) if whole else ()


def _spellings(name: str) -> set[str]:
    """A name with any of its words first: Canvas writes the last name before the others, without spaces."""
    words = name.replace(",", " ").split()
    return {_folded("".join(words[at:] + words[:at])) for at in range(len(words))}


def _folded(name: str) -> str:
    """Letters and digits only, without accents and case."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in parts if letter.isalnum())
