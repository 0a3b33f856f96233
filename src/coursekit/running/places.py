"""Where things lie: which files are the learner's, and which are tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Where things lie: the course's root, and the folders of the implementation under test."""

    root: Path
    packages: tuple[Path, ...]

    def is_learners(self, filename: str) -> bool:
        return any(Path(filename).is_relative_to(package) for package in self.packages)

    def is_test(self, filename: str) -> bool:
        return Path(filename).is_relative_to(self.root / "tests")

    def shown(self, filename: str) -> str:
        """A path as the learner would type it, from the course's root. A package elsewhere is shown as in `src`."""
        path = Path(filename)
        for package in self.packages:
            if path.is_relative_to(package) and not package.is_relative_to(self.root):
                return (Path("src") / path.relative_to(package.parent)).as_posix()
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.name
