"""The instructor's secret, from which sizes and inputs of the hidden tests are drawn."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.paths import Course

VARIABLE = "TINY_LLM_SEED"
KEPT = "grading-seed"


def choose_seed(course: Course, text: str | None, file: Path | None) -> str:
    """The seed: as given, from a file, from the environment, or else one of this checkout, drawn once and kept.

    The variable of the environment is taken away, so that no process that is started from here has it.

    Raises:
        CourseError: it is given twice, empty, or its file can't be read or written.
    """
    variable = os.environ.pop(VARIABLE, None)
    if text is not None and file is not None:
        raise CourseError("give the seed once: --seed or --seed-file")
    if text is None and file is not None:
        text = _read(file)
    if text is None:
        text = variable
    if text is None:
        return _kept(course.state / KEPT)
    if not text.strip():
        raise CourseError("the seed is empty: give a text that learners can't guess")
    return text


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig").strip()
    except OSError as error:
        raise CourseError(f"can't read the seed in {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CourseError(f"{file} is not UTF-8 text: save it as UTF-8") from error


def _kept(path: Path) -> str:
    """The seed of this checkout, which only its owner can read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whole before it has its name: a run that is ended here leaves no half of a seed.
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        if not path.exists():
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    file.write(secrets.token_hex(16))
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CourseError(f"can't write {path}: {error.strerror}") from error
    seed = _read(path)
    if not seed:
        raise CourseError(f"{path} is empty: delete it, and a seed is drawn anew")
    return seed
