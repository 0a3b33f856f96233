"""Where the parts of the course lie on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from coursekit.errors import CourseError

PACKAGES = ("tiny_llm", "tiny_llm_mlx")
ROOT_VARIABLE = "TINY_LLM_ROOT"


@dataclass(frozen=True)
class Course:
    """One checkout of the course, named by its root folder."""

    root: Path

    @classmethod
    def find(cls) -> Course:
        """The course that ``TINY_LLM_ROOT`` names, else the one around the working folder, else this file's.

        Raises:
            CourseError: none of the three is a course.
        """
        named = os.environ.get(ROOT_VARIABLE)
        if named:
            return cls._at(Path(named))
        for start in (Path.cwd(), Path(__file__)):
            for folder in (start.resolve(), *start.resolve().parents):
                if _is_course(folder):
                    return cls(folder)
        raise CourseError("no course here: change into the folder that you cloned, where `lessons` lies")

    @classmethod
    def _at(cls, folder: Path) -> Course:
        if not _is_course(folder):
            raise CourseError(
                f"{ROOT_VARIABLE} names {folder}, which holds no `lessons` and `pyproject.toml`"
            )
        return cls(folder.resolve())

    @property
    def lessons(self) -> Path:
        return self.root / "lessons"

    @property
    def tests(self) -> Path:
        return self.root / "tests"

    @property
    def book(self) -> Path:
        return self.root / "book"

    @property
    def state(self) -> Path:
        """The learner's own records: progress, hints shown, backups. Git ignores it."""
        return self.root / ".course"

    def starter(self, package: str = "tiny_llm") -> Path:
        return self.root / "src" / package

    def solution(self, package: str = "tiny_llm") -> Path:
        return self.root / "solutions" / package


def _is_course(folder: Path) -> bool:
    return (folder / "lessons").is_dir() and (folder / "pyproject.toml").is_file()
