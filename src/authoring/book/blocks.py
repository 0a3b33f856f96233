"""Runs the Python blocks of the book: those of one chapter in order, in one namespace, on the reference.

What a block prints must be what the ``output`` block right after it shows, apart from spaces at line ends.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coursekit.book.blocks import blocks_of
from coursekit.book.markdown import Page
from coursekit.paths import Course

TIME_LIMIT = 600


def chapters_with_python(course: Course) -> list[Path]:
    """The chapters that have Python blocks, in order of their paths."""
    pages = sorted((course.book / "src").rglob("*.md"))
    return [path for path in pages if any(fence.language == "python" for fence in _read(path).fences)]


def block_problems(course: Course, chapters: Sequence[Path] | None = None) -> dict[Path, str]:
    """What went wrong, chapter by chapter, when the blocks ran in a process of their own; empty when all is well.

    A chapter is left at its first failure: later blocks build on earlier ones.
    """
    chapters = chapters_with_python(course) if chapters is None else list(chapters)
    path = os.pathsep.join(filter(None, [str(course.root / "solutions"), os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "authoring.book.blocks", str(report), *map(str, chapters)]
        work = Path(folder, "work")
        work.mkdir()
        run = subprocess.run(
            command,
            cwd=work,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
        if run.returncode != 0:
            return dict.fromkeys(
                chapters, f"the blocks stopped Python: {run.stderr.strip() or run.returncode}"
            )
        found = json.loads(report.read_text(encoding="utf-8"))
    return {Path(chapter): message for chapter, message in found.items()}


def run_page(page: Page) -> str | None:
    """Run the blocks of one chapter here; the first failure with file and line, or None."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(block.compile(page.name), namespace)
        except Exception:
            return f"{page.name}:{block.line}: the block fails\n{traceback.format_exc(limit=-3)}"
        if not block.prints_what_is_shown(printed.getvalue()):
            return (
                f"{page.name}:{block.line}: the block prints something else than the book shows\n"
                f"printed:\n{printed.getvalue().rstrip()}\nthe book:\n{(block.shown or '').rstrip()}"
            )
    return None


def _read(path: Path) -> Page:
    return Page.read(path, str(path))


def _main(report: Path, chapters: Sequence[str]) -> None:
    found = {chapter: run_page(_read(Path(chapter))) for chapter in chapters}
    problems = {chapter: problem for chapter, problem in found.items() if problem}
    report.write_text(json.dumps(problems), encoding="utf-8")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
