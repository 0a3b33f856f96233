"""Which engines can be set beside the course's: what peers.toml says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursekit.errors import CourseError

HERE = Path(__file__).parent
CATALOGUE = HERE / "peers.toml"


@dataclass(frozen=True)
class Peer:
    """An engine that people use, and how to have it; peers.toml explains the fields."""

    name: str
    title: str
    form: str
    runner: Path
    packages: tuple[str, ...]
    torch: str | None = None
    unwanted: tuple[str, ...] = ()
    note: str = ""
    build: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """That of the first package, which is the engine's own."""
        return self.packages[0].partition("==")[2]

    @property
    def label(self) -> str:
        """What its row is called."""
        return f"{self.title}{f' {self.version}' if self.version else ''}, {self.form}"

    @property
    def install_command(self) -> str:
        """What the reader types to have it."""
        return f"pdm run bench peers --with {self.name}"


def load_peers(path: Path = CATALOGUE) -> dict[str, Peer]:
    """All engines by name, in the order of the file."""
    with path.open("rb") as file:
        return {name: _peer(name, fields) for name, fields in tomllib.load(file).items()}


def _peer(name: str, fields: dict[str, Any]) -> Peer:
    lists: dict[str, Any] = {key: tuple(fields.pop(key, ())) for key in ("packages", "unwanted")}
    runner = HERE / "runners" / fields.pop("runner")
    return Peer(name=name, runner=runner, **lists, **fields)


def choose_peers(peers: Mapping[str, Peer], names: str) -> list[Peer]:
    """The engines in "openvino,vllm", in the order of the file.

    Raises:
        CourseError: there is none of that name.
    """
    wanted: Sequence[str] = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in peers:
            raise CourseError(f"--with names {name!r}; there are: {', '.join(peers)}")
    return [peer for name, peer in peers.items() if name in wanted]
