"""``grades.json``: all marks of a class for other programs, and the JSON Schema that says what is in it.

``schema`` names the version. Fields may be added within a version; none is renamed, removed or given another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from grading.marks import Marks
from grading.reports.class_view import by_name

SCHEMA: Literal["tiny-llm/grades/v1"] = "tiny-llm/grades/v1"


@dataclass(frozen=True)
class Grade:
    """One learner: what counts (``earned`` of ``points``, weighted, with lateness), and the marks it comes from."""

    earned: float
    points: float
    percent: float
    marks: Marks


@dataclass(frozen=True)
class Grades:
    """A class, sorted by name."""

    schema: Literal["tiny-llm/grades/v1"]
    learners: tuple[Grade, ...]


_ADAPTER = TypeAdapter(Grades)


def grades_json(class_marks: Sequence[Marks]) -> bytes:
    """The document, in ASCII: a lone surrogate in a file's name is written as ``\\udc80``."""
    grades = [Grade(marks.earned, marks.points, marks.percent, marks) for marks in by_name(class_marks)]
    document = _ADAPTER.dump_python(Grades(SCHEMA, tuple(grades)), mode="json")
    return json.dumps(document, indent=1, allow_nan=False).encode("ascii")


def schema_json() -> bytes:
    """The JSON Schema (draft 2020-12) of the document."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_ADAPTER.json_schema(mode="serialization"),
    }
    return json.dumps({**schema, "title": SCHEMA}, indent=1).encode("ascii")
