"""Holds the committed figures against the scripts that draw them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from coursekit.paths import Course

HELPERS = ("style", "__main__")
# Half a point: what two machines' arithmetic may differ by and no eye can see.
TOLERANCE = 0.5
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_ID = re.compile(r"(?<=[\"#])(?:[a-zA-Z]+)?[0-9a-f]{10}(?=[\")])")


def figure_problems(course: Course) -> list[str]:
    """Scripts without a picture and pictures without a script."""
    scripts = {path.stem for path in (course.book / "figures").glob("*.py")} - set(HELPERS)
    pictures = {path.stem for path in _folder(course).glob("*.svg")}
    problems = [
        f"book/figures/{script}.py: no picture of its name in book/src/figures: run it and commit what it draws"
        for script in sorted(scripts)
        if not any(_drawn_by(picture, script) for picture in pictures)
    ]
    problems += [
        f"book/src/figures/{picture}.svg: no script of its name in book/figures draws it"
        for picture in sorted(pictures)
        if not any(_drawn_by(picture, script) for script in scripts)
    ]
    return problems


def redraw_problems(course: Course) -> list[str]:
    """Draw every figure anew, elsewhere, and name those that differ from what is committed."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, str(course.book / "figures")],
            env={**os.environ, "TINY_LLM_FIGURES": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            return [f"book/figures: a figure could not be drawn\n{run.stderr.strip()}"]
        drawn = {path.name: path.read_text(encoding="utf-8") for path in Path(folder).glob("*.svg")}
    committed = {path.name: path.read_text(encoding="utf-8") for path in _folder(course).glob("*.svg")}
    problems = [
        f"book/src/figures/{name}: no script draws it any more" for name in sorted(committed.keys() - drawn)
    ]
    problems += [
        f"book/src/figures/{name}: drawn, but not there" for name in sorted(drawn.keys() - committed)
    ]
    problems += [
        f"book/src/figures/{name}: its script draws something else now: `pdm run book --figures` redraws them all"
        for name in sorted(drawn.keys() & committed)
        if not same_picture(drawn[name], committed[name])
    ]
    return problems


def same_picture(one: str, other: str) -> bool:
    """Whether two SVG files show the same: same elements, numbers equal within `TOLERANCE`, any ids."""
    one, other = _plain_ids(one), _plain_ids(other)
    if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(abs(float(a) - float(b)) <= TOLERANCE for a, b in pairs)


def _plain_ids(svg: str) -> str:
    """The drawing with matplotlib's hashed ids, which change with the last digit of a path, numbered instead."""
    order: dict[str, str] = {}
    return _ID.sub(lambda found: order.setdefault(found[0], f"id-{len(order)}"), svg)


def _drawn_by(picture: str, script: str) -> bool:
    return picture == script or picture.startswith(f"{script}_")


def _folder(course: Course) -> Path:
    return course.book / "src" / "figures"
