"""Which files of the learner's packages count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Layout:
    """One package: ``starter`` is its fresh content by path within it, ``counted`` the files with tasks in them."""

    package: str
    starter: Mapping[str, bytes]
    counted: frozenset[str]

    @property
    def given(self) -> frozenset[str]:
        """The files that are the course's alone."""
        return frozenset(self.starter) - self.counted

    @property
    def by_name(self) -> dict[str, str]:
        """The files that count by their last names, as far as these say which is meant."""
        names = [PurePosixPath(file).name for file in self.starter]
        return {PurePosixPath(f).name: f for f in self.counted if names.count(PurePosixPath(f).name) == 1}
