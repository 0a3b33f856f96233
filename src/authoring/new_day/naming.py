"""What a new day may be called: its number, its title, and the module that its learners will write."""

from __future__ import annotations

import keyword
import re
import unicodedata
from dataclasses import dataclass

from coursekit.errors import CourseError
from coursekit.lab import Lab
from coursekit.manifest import Manifest
from coursekit.paths import PACKAGES, Course

LONGEST_TITLE = 60
LONGEST_MODULE = 40
# All else may mean something to TOML, to Markdown, to HTML or to a string of Python.
MARKS = " ,.:'’-–—+/&%!?=()"
RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d")
"""Names that Windows gives to devices, whatever comes behind a dot."""
DOOR = {"backend", "device", "package", *dir(Lab)}
"""What `lab` holds itself, so that a module of that name could not be reached through it."""


@dataclass(frozen=True)
class NewDay:
    """A day that isn't there yet; ``module`` is the one that its tasks are about ("beam_search")."""

    week: int
    day: int
    title: str
    module: str

    @property
    def name(self) -> str:
        return f"{self.week}.{self.day}"

    @property
    def chapter(self) -> str:
        return f"week_{self.week}/day_{self.day}.md"


def read_number(text: str, manifest: Manifest) -> tuple[int, int]:
    """Week and day: the one that follows the last of its week, or the first of the week that follows the last.

    Raises:
        CourseError: it is another one, or no number of a day; the message lists those that can be.
    """
    last = {lesson.week: lesson.day for lesson in manifest.lessons}
    free = [*((week, day + 1) for week, day in last.items()), (max(last, default=0) + 1, 1)]
    named = {f"{week}.{day}": (week, day) for week, day in free}
    if text in named:
        return named[text]
    names = ", ".join(named)
    if text in {lesson.name for lesson in manifest.lessons}:
        raise CourseError(f"there is a Day {text} already; a new one can be: {names}")
    raise CourseError(f"{text!r} can't be the next day: days have no gaps, so a new one can be: {names}")


def read_title(text: str) -> str:
    """The title in the form in which it is kept: one line, single spaces, composed letters.

    Raises:
        CourseError: it is empty, too long, or holds what a lesson file or a chapter would take for a sign.
    """
    composed = unicodedata.normalize("NFC", text)
    strange = sorted({char for char in composed if not (char.isalnum() or char in MARKS)})
    if strange:
        shown = " ".join(char if char.isprintable() else repr(char)[1:-1] for char in strange)
        raise CourseError(
            f"the title holds {shown}: use letters, digits, spaces and {MARKS.strip()} (the title stands in "
            "TOML, Markdown and Python)"
        )
    title = " ".join(composed.split(" ")).strip()
    title = re.sub(" +", " ", title)
    if not any(char.isalnum() for char in title):
        raise CourseError('the title is empty: give one, such as pdm run new-day 5.1 "Beam search"')
    if len(title) > LONGEST_TITLE:
        raise CourseError(f"the title has {len(title)} letters: {LONGEST_TITLE} fit on the board")
    return title


def module_of(title: str) -> str:
    """The title as the name of a module: "Beam search, twice" gives `beam_search_twice`; perhaps no good name."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:LONGEST_MODULE].strip("_")


def check_module(course: Course, name: str) -> None:
    """Refuse a name that no new module of the packages can have.

    Raises:
        CourseError: the name has another form, means something else, or is taken.
    """
    choose = "choose one with --module, such as --module beam_search"
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > LONGEST_MODULE:
        raise CourseError(
            f"{name!r} can't be a module's name (small letters of English, digits and single _, at most "
            f"{LONGEST_MODULE}): {choose}"
        )
    if keyword.iskeyword(name) or RESERVED.fullmatch(name) or name in DOOR:
        raise CourseError(f"the module can't be called {name!r}, which means something else: {choose}")
    for package in PACKAGES:
        for path in (course.solution(package) / name, course.solution(package) / f"{name}.py"):
            if path.exists():
                there = path.relative_to(course.root).as_posix()
                raise CourseError(f"there is {there} already: {choose}")
