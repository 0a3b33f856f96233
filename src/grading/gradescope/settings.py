"""What an autograder is told, in the file ``autograder.json`` beside its scripts."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from coursekit.backends import Backend
from coursekit.errors import CourseError

ABOUT = "autograder.json"
FORMAT = "tiny-llm autograder 1"
COURSE, POLICY, SEED, FAILED = "course", "course.toml", "seed", "failed.json"
"""What lies beside it: the course's files, the policy if there is one, the secret, the results of a failure."""


class Settings(BaseModel):
    """The days to grade, and on which track; ``course`` is the course's version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: str = FORMAT
    course: str
    week: int | None = None
    day: int | None = None
    backend: Backend = Backend.TORCH

    def text(self) -> str:
        return self.model_dump_json(indent=1) + "\n"


def read_settings(folder: Path) -> Settings:
    """The settings in a folder.

    Raises:
        CourseError: they can't be read.
    """
    try:
        return Settings.model_validate_json((folder / ABOUT).read_bytes())
    except (OSError, ValidationError) as error:
        raise CourseError(f"{ABOUT} can't be read: {' '.join(str(error).split())}") from error
