"""Compares the submissions of a class with each other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from grading.running.one import lay
from grading.running.rules import Rules, Surveyed
from grading.similarity.finding import find_similar
from grading.similarity.writing import write_similar
from grading.submissions.layout import Layout
from grading.submissions.members import Refused
from grading.submissions.reading import read_submission


def compare_class(rules: Rules, surveyed: Iterable[Surveyed], work: Path, out: Path) -> tuple[Path, Path]:
    """Write the list of similar submissions: a page and a table.

    Args:
        rules: the days whose functions are compared.
        surveyed: the submissions; those that are refused are left out.
        work: a folder for files that are gone afterwards.
        out: the folder of the reports.

    Raises:
        CourseError: a file can't be written.
    """
    layout = rules.layouts[0]
    with tempfile.TemporaryDirectory(dir=work, ignore_cleanup_errors=True) as name:
        folder, packages = Path(name), dict[str, Path]()
        lay(folder / "starter", layout.starter)
        for place, each in enumerate(surveyed):
            with suppress(Refused):  # it may have been changed since it was surveyed
                packages[each.entry.name] = _laid(folder / str(place), each, rules, layout)
        functions = [ref for lesson in rules.lessons for ref in lesson.functions]
        reference = rules.course.solution(layout.package)
        return write_similar(find_similar(packages, folder / "starter", functions, reference), out)


def _laid(folder: Path, surveyed: Surveyed, rules: Rules, layout: Layout) -> Path:
    """The package of a submission: only what was handed in, so that the starter's bodies aren't read each time."""
    handed = read_submission(surveyed.entry, rules.layouts)
    folder.mkdir()
    lay(folder, handed.files)
    package = folder / layout.package
    package.mkdir(exist_ok=True)
    return package
