"""Writes the reports of a class: all of them, or none."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.files import write_files
from grading.marks import Marks
from grading.reports.book import Book
from grading.reports.class_pages import class_html, class_markdown
from grading.reports.classroom50 import result_json
from grading.reports.document import grades_json, schema_json
from grading.reports.formats import Format
from grading.reports.gradebooks import canvas_csv, moodle_csv
from grading.reports.gradescope import results_json
from grading.reports.junit import junit_xml
from grading.reports.learner_pages import learner_html, learner_markdown
from grading.reports.names import file_name
from grading.reports.tables import learners_csv, tasks_csv
from grading.reports.text import line

Files = dict[str, bytes]


@dataclass(frozen=True)
class Options:
    """``course`` is the course's name on the pages; ``environment`` is where Classroom 50's runner says who it is."""

    course: str = "tiny-llm"
    book: Book = field(default_factory=Book)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


def write_reports(
    marks: Sequence[Marks], out: Path, formats: Collection[Format], options: Options | None = None
) -> tuple[Path, ...]:
    """Write the reports of a class into a folder, which is made where it is missing; other files in it stay.

    Args:
        marks: one for each learner, in any order.
        out: the folder.
        formats: which reports; ``Format`` says which files each has.
        options: what the reports say beside the marks.

    Returns:
        The files that were written, those of the class first.

    Raises:
        CourseError: two marks are of one learner, a format can't hold these marks, or a file can't be written.
            Then none of the files is changed.
    """
    _require_distinct(marks)
    contents: Files = {}
    for wanted in Format:
        if wanted in formats:
            contents |= _files(wanted, marks, options or Options())
    paths = {out / name: content for name, content in contents.items()}
    write_files(paths)
    return tuple(sorted(paths, key=lambda path: len(path.relative_to(out).parts)))


def _files(wanted: Format, marks: Sequence[Marks], options: Options) -> Files:
    course, book = options.course, options.book
    match wanted:
        case Format.HTML:
            pages = {f"learners/{_file(each)}.html": learner_html(each, book, course) for each in marks}
            return {"class.html": class_html(marks, course), **pages}
        case Format.MARKDOWN:
            pages = {f"learners/{_file(each)}.md": learner_markdown(each, book, course) for each in marks}
            return {"class.md": class_markdown(marks, course), **pages}
        case Format.CSV:
            return {"grades.csv": learners_csv(marks), "tasks.csv": tasks_csv(marks)}
        case Format.JSON:
            return {"grades.json": grades_json(marks), "grades.schema.json": schema_json()}
        case Format.JUNIT:
            return {"junit.xml": junit_xml(marks)}
        case Format.GRADESCOPE:
            return {"results.json": results_json(_only(marks, wanted), book)}
        case Format.CLASSROOM50:
            return {"result.json": result_json(_only(marks, wanted), options.environment)}
        case Format.MOODLE:
            return {"moodle.csv": moodle_csv(marks, course)}
        case Format.CANVAS:
            return {"canvas.csv": canvas_csv(marks, course)}


def _file(marks: Marks) -> str:
    return file_name(marks.student.id)


def _only(marks: Sequence[Marks], wanted: Format) -> Marks:
    if len(marks) != 1:
        raise CourseError(
            f"the format {wanted} reports on one submission, and there are {len(marks)}: grade one, or "
            f"leave {wanted} out"
        )
    return marks[0]


def _require_distinct(marks: Sequence[Marks]) -> None:
    seen: set[str] = set()
    for each in marks:
        if each.student.id in seen:
            raise CourseError(
                f"two submissions are of the learner {line(each.student.id)}: keep one, or give each an id of "
                "its own in the roster"
            )
        seen.add(each.student.id)
