"""What must hold between the book, the lessons, the commands and the files, as lists of problems.

`book_problems` reads only. `authoring.book.blocks.block_problems` runs the book's Python and
`authoring.book.figures.redraw_problems` draws its figures anew.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from authoring.book.boxes import DIRECTIVE, anchor
from authoring.book.commands import KnownCommands, find_commands
from authoring.book.figures import figure_problems
from coursekit.book.markdown import Page
from coursekit.manifest import Manifest
from coursekit.paths import Course

LANGUAGES = ("python", "output", "text", "sh", "console", "toml", "json", "diff")
SUMMARY = "SUMMARY.md"


def book_problems(course: Course, manifest: Manifest) -> list[str]:
    """Everything that reading alone can find wrong with the book and the README, one line each."""
    pages = read_pages(course)
    book = {name: page for name, page in pages.items() if name.startswith("book/")}
    return [
        *summary_problems(book),
        *box_problems(book, manifest),
        *title_problems(book, manifest),
        *fence_problems(book),
        *link_problems(course, pages),
        *command_problems(course, manifest, pages),
        *figure_problems(course),
    ]


def read_pages(course: Course) -> dict[str, Page]:
    """Every page of the book, and the README, by its path from the course's root."""
    paths = [*sorted((course.book / "src").rglob("*.md")), course.root / "README.md"]
    names = {path.relative_to(course.root).as_posix(): path for path in paths if path.is_file()}
    return {name: Page.read(path, name) for name, path in names.items()}


def summary_problems(book: dict[str, Page]) -> list[str]:
    """Pages that the table of contents leaves out: mdBook would not build them."""
    summary = f"book/src/{SUMMARY}"
    if summary not in book:
        return [f"{summary}: missing"]
    listed = {f"book/src/{target}" for _, target in book[summary].links()}
    return [f"{name}: not in {SUMMARY}" for name in book if name != summary and name not in listed]


def box_problems(book: dict[str, Page], manifest: Manifest) -> list[str]:
    """Every task and every day has its box once, in its own chapter, and no chapter has another's."""
    problems = []
    for lesson in manifest.lessons:
        name = f"book/src/{lesson.chapter}"
        if name not in book:
            problems.append(f"{name}: Day {lesson.name} names this chapter, and it isn't there")
            continue
        boxes = _boxes(book[name])
        wanted = {("day", lesson.name), *(("task", task.name) for task in lesson.tasks)}
        problems += [
            f"{name}: {{{{#{kind} {which}}}}} stands there {boxes[kind, which]} times, not once"
            for kind, which in sorted(wanted)
            if boxes[kind, which] != 1
        ]
        problems += [
            f"{name}: {{{{#{kind} {which}}}}} is not of Day {lesson.name}"
            for kind, which in sorted(boxes.keys() - wanted)
        ]
    chapters = {f"book/src/{lesson.chapter}" for lesson in manifest.lessons}
    strays = [name for name, page in book.items() if name not in chapters and _boxes(page)]
    return problems + [f"{name}: has boxes but is no day's chapter" for name in strays]


def _boxes(page: Page) -> Counter[tuple[str, str]]:
    return Counter((box["kind"], box["name"]) for _, line in page.prose if (box := DIRECTIVE.match(line)))


def title_problems(book: dict[str, Page], manifest: Manifest) -> list[str]:
    """A chapter's heading says the day and its title as the lesson has them; so does the table of contents."""
    problems = []
    contents = book.get(f"book/src/{SUMMARY}", Page("", "")).text
    for lesson in manifest.lessons:
        name, title = f"book/src/{lesson.chapter}", f"Day {lesson.name}: {lesson.title}"
        if name in book and book[name].title != title:
            problems.append(f"{name}: the first heading is {book[name].title!r}, not {title!r}")
        if f"[{lesson.name} {lesson.title}]({lesson.chapter})" not in contents:
            problems.append(f"book/src/{SUMMARY}: no entry [{lesson.name} {lesson.title}]({lesson.chapter})")
    return problems


def fence_problems(book: dict[str, Page]) -> list[str]:
    """Blocks in a language that the book doesn't use, or that would escape being run or compared."""
    problems = []
    for name, page in book.items():
        before = None
        for fence in page.fences:
            place = f"{name}:{fence.line - 1}"
            if fence.language not in LANGUAGES:
                problems.append(
                    f"{place}: a block of {fence.language or 'no language'!r}; use {', '.join(LANGUAGES)}"
                )
            elif fence.info != fence.language:
                problems.append(f"{place}: {fence.info!r}: a block takes a language and nothing else")
            if fence.language == "output" and not (before == "python" and fence.follows):
                problems.append(
                    f"{place}: an output block must follow right after the python block that prints it"
                )
            before = fence.language
    return problems


def link_problems(course: Course, pages: dict[str, Page]) -> list[str]:
    """Links and images whose file is not there, and links to an anchor that the page lacks."""
    anchors = {name: _anchors(page) for name, page in pages.items()}
    return [
        f"{name}:{line}: {fault}"
        for name, page in pages.items()
        for line, target in page.links()
        if (fault := _link_fault(course, name, target, anchors))
    ]


def _link_fault(course: Course, name: str, target: str, anchors: dict[str, set[str]]) -> str | None:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path = (course.root / name).parent / unquote(parts.path) if parts.path else course.root / name
    if not path.exists():
        return f"a link to {target}, which is not there"
    if not parts.fragment:
        return None
    there = Path(path).resolve().relative_to(course.root.resolve()).as_posix()
    if there in anchors and parts.fragment not in anchors[there]:
        return f"a link to {target}: the page has no such heading"
    return None


def _anchors(page: Page) -> set[str]:
    boxes = (
        box["name"] for _, line in page.prose if (box := DIRECTIVE.match(line)) and box["kind"] == "task"
    )
    return page.anchors() | {anchor(name) for name in boxes}


def command_problems(course: Course, manifest: Manifest, pages: dict[str, Page]) -> list[str]:
    """Commands that don't exist, options they don't have, days and tasks that aren't there."""
    known = KnownCommands(course, manifest)
    return [
        f"{name}:{command.line}: {fault}"
        for name, page in pages.items()
        for command in find_commands(page)
        if (fault := known.problem(command))
    ]
