"""Copies of the real course whose learner has not written everything yet, for the tests of the programs."""

from __future__ import annotations

import shutil
from pathlib import Path

from coursekit.editing.assembly import generate
from coursekit.manifest import Manifest
from coursekit.paths import Course


def make_copy(root: Path, manifest: Manifest) -> Path:
    """A copy of the course whose learner still has to write what is in `manifest`, and has all the rest."""
    course = Course.find()
    for name in ("lessons", "solutions", "tests/golden"):
        shutil.copytree(course.root / name, root / name)
    shutil.copy(course.root / "pyproject.toml", root)
    for name, content in generate(course, "tiny_llm", manifest).items():
        path = root / "src" / "tiny_llm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root
