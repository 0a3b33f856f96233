"""The kinds of report, by the names that the command line knows."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """One kind of report; the comment names its files in the folder of reports."""

    HTML = "html"
    """``class.html``, and ``learners/NAME.html`` for each submission."""
    MARKDOWN = "markdown"
    """``class.md``, and ``learners/NAME.md`` for each submission."""
    CSV = "csv"
    """``grades.csv``, a row per learner, and ``tasks.csv``, a row per learner and task."""
    JSON = "json"
    """``grades.json``, and ``grades.schema.json``, the JSON Schema that says what is in it."""
    JUNIT = "junit"
    """``junit.xml``, a suite per learner and day."""
    GRADESCOPE = "gradescope"
    """``results.json`` of Gradescope: one submission only."""
    CLASSROOM50 = "classroom50"
    """``result.json`` of Classroom 50: one submission only, within a run of Classroom 50."""
    MOODLE = "moodle"
    """``moodle.csv`` for *Grades, Import, CSV file*; needs the e-mail address of each learner."""
    CANVAS = "canvas"
    """``canvas.csv`` for *Gradebook, Import*; needs the login and the name of each learner."""
