"""What the preprocessor writes into a chapter: the box of a task, the box of a day, and figures."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from html import escape

from coursekit.book.markdown import Page
from coursekit.errors import CourseError
from coursekit.manifest import FunctionRef, Lesson, Manifest, Task

DIRECTIVE = re.compile(r"^\{\{#(?P<kind>task|day)\s+(?P<name>[^}\s]*)\s*\}\}\s*$")
_STRAY = re.compile(r"\{\{#(?:task|day)\b")
_FIGURE = re.compile(r"^!\[(?P<alt>[^\]]*)\]\((?P<path>[^)\s]+)\s+\"(?P<caption>[^\"]+)\"\)\s*$")


def expand(text: str, manifest: Manifest, chapter: str) -> str:
    """The chapter with its directives replaced; `chapter` is its path, for the error messages.

    Raises:
        CourseError: a task or a day that the manifest lacks, or a directive that isn't alone on its line.
    """
    lines = text.splitlines()
    for number, line in Page(chapter, text).prose:
        if directive := DIRECTIVE.match(line):
            lines[number - 1] = _box(directive["kind"], directive["name"], manifest, f"{chapter}:{number}")
        elif _STRAY.search(line):
            raise CourseError(
                f"{chapter}:{number}: write {{{{#task …}}}} or {{{{#day …}}}} on a line of its own"
            )
        elif figure := _FIGURE.match(line):
            lines[number - 1] = _figure(figure["alt"], figure["path"], figure["caption"])
    return "\n".join(lines) + "\n"


def anchor(task_name: str) -> str:
    """The id of the box of the task called, say, `1.3.2`, for links to it."""
    return "task-" + task_name.replace(".", "-")


def task_box(task: Task) -> str:
    """One block of HTML: what to write, the command that tests it and the one that gives a hint."""
    return "\n".join(
        [
            f'<div class="box task" id="{anchor(task.name)}">',
            f'<p class="box-title"><span>Task {task.name} · {_inline(task.title)}</span>'
            f' <span class="points">{_points(task.points)}</span></p>',
            *(f"<p>{line}</p>" for line in _places("tiny_llm", task.implements)),
            *(f"<p>With MLX: {line}</p>" for line in _places("tiny_llm_mlx", task.mlx)),
            f'<pre><code class="language-sh">{escape(task.test_command)}</code></pre>',
            f'<p class="box-foot">Stuck? <code>pdm run hint {task.name}</code> gives the next of three hints.</p>',
            "</div>",
        ]
    )


def day_box(lesson: Lesson) -> str:
    """One block of HTML: the day's goal, its tasks with their points, and the command that tests the day."""
    tasks = "".join(
        f'<li><a href="#{anchor(task.name)}">{_inline(task.title)}</a>'
        f' <span class="points">{_points(task.points)}</span></li>'
        for task in lesson.tasks
    )
    return "\n".join(
        [
            '<div class="box day">',
            f'<p class="box-title"><span>Week {lesson.week}, Day {lesson.day}</span>'
            f' <span class="points">{_points(lesson.points)}</span></p>',
            f"<p>{_inline(lesson.goal)}</p>",
            f"<ol>{tasks}</ol>",
            *([f"<p>Stage reached: {_inline(lesson.stage)}</p>"] if lesson.stage else []),
            f'<pre><code class="language-sh">{escape(lesson.test_command)}</code></pre>',
            f'<p class="box-foot">To play: <code>pdm run lab {lesson.name}</code> opens the day\'s notebook.</p>',
            "</div>",
        ]
    )


def _box(kind: str, name: str, manifest: Manifest, place: str) -> str:
    try:
        return task_box(manifest.task(name)) if kind == "task" else day_box(manifest.lesson(name))
    except CourseError as error:
        raise CourseError(f"{place}: {error}") from error


def _figure(alt: str, path: str, caption: str) -> str:
    return f"<figure>\n\n![{alt}]({path})\n\n<figcaption>\n\n{caption}\n\n</figcaption>\n</figure>"


def _places(package: str, functions: Iterable[FunctionRef]) -> list[str]:
    """A line a file: where it is, and the functions to write in it."""
    files: dict[str, list[str]] = defaultdict(list)
    for function in functions:
        files[function.file].append(f"<code>{escape(function.qualname)}</code>")
    return [
        f"In <code>src/{package}/{escape(file)}</code>, write {', '.join(names)}."
        for file, names in files.items()
    ]


def _points(points: int) -> str:
    return "1 point" if points == 1 else f"{points} points"


def _inline(text: str) -> str:
    """Plain text with `code` in it, as HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
