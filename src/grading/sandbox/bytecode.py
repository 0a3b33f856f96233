"""Where Python keeps the compiled modules of libraries, if not beside them.

Without them a process compiles each module that it imports, and importing torch takes twice as long.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from grading.sandbox.isolation import system_places

_FOLDER = "PYTHONPYCACHEPREFIX"


def bytecode_variables() -> dict[str, str]:
    """The environment variables by which a confined Python finds them; none where they lie beside their modules."""
    return {_FOLDER: sys.pycache_prefix} if sys.pycache_prefix else {}


def bytecode_places(modules: Iterable[Path]) -> tuple[Path, ...]:
    """The folders to let be read: of the libraries and of ``modules``.

    Never the whole: beside them lie the compiled tests and the compiled reference.
    """
    if not sys.pycache_prefix:
        return ()
    prefix = Path(sys.pycache_prefix).absolute()
    kept = (prefix.joinpath(*place.parts[1:]) for place in (*system_places(), *modules))
    return tuple(place for place in kept if place.is_dir())
