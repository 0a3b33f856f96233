"""`python book/figures [NAME …]`: draw the figures of the scripts named, or of all."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HELPERS = ("style", "__main__")


def main(names: list[str]) -> None:
    folder = Path(__file__).parent
    for name in names or sorted(path.stem for path in folder.glob("*.py") if path.stem not in HELPERS):
        importlib.import_module(name).draw()
        print(f"drawn: {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
