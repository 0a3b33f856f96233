"""The files of one track on disk, the learner's or the reference's: which functions they define."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.lessons.lesson import FunctionRef
from coursekit.lessons.outline import Function, functions, parse, read_source


class Package:
    """The files of one track; every file is read once."""

    def __init__(self, root: Path, place: Callable[[str], Path]) -> None:
        """Look for each file at its `place`, which error messages name as seen from `root`."""
        self._root, self._place = root, place
        self._functions: dict[str, dict[str, Function] | CourseError] = {}

    def find(self, ref: FunctionRef) -> Function | None:
        """The function's definition, the last where there are several; None where there is none.

        Raises:
            CourseError: the file is there and can't be read.
        """
        if ref.file not in self._functions:
            self._functions[ref.file] = self._read(ref.file)
        found = self._functions[ref.file]
        if isinstance(found, CourseError):
            raise found
        return found.get(ref.qualname)

    def problems(self) -> list[str]:
        """What is wrong with the files asked for that could not be read."""
        return [str(found) for found in self._functions.values() if isinstance(found, CourseError)]

    def _read(self, file: str) -> dict[str, Function] | CourseError:
        path = self._place(file)
        if not path.is_file():
            return {}
        name = path.relative_to(self._root).as_posix()
        try:
            return {
                qualname: nodes[-1]
                for qualname, nodes in functions(parse(read_source(path, name), name)).items()
            }
        except CourseError as error:
            return error
