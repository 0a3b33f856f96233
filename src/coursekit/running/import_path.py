"""Which `tiny_llm` an import finds while tests and programs run, of which track, and which Triton."""

from __future__ import annotations

import os
import sys
from enum import StrEnum

from coursekit.backends import BACKEND_VARIABLE, Backend, Device
from coursekit.paths import PACKAGES, ROOT_VARIABLE, Course


class Impl(StrEnum):
    """Whose code an import of ``tiny_llm`` finds."""

    LEARNER = "learner"
    SOLUTION = "solution"


def choose_implementation(course: Course, impl: str, backend: str = Backend.TORCH) -> None:
    """Make `import tiny_llm` find the implementation under test, here and in child processes.

    With MLX the package takes the modules that `tiny_llm_mlx` has from there (see its ``__init__.py``).
    """
    folders = [course.starter().parent] + ([course.solution().parent] if impl == Impl.SOLUTION else [])
    for folder in map(str, folders):
        sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    wanted = [str(folder) for folder in reversed(folders)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*wanted, *(entry for entry in rest if entry not in wanted)])
    os.environ[ROOT_VARIABLE] = str(course.root)
    os.environ[BACKEND_VARIABLE] = backend
    # A run before this one in the same process may have imported the other implementation.
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


def choose_triton(device: str) -> None:
    """On the CPU, let Triton interpret kernels, even where there is a GPU; it asks once, when it is imported."""
    if device == Device.CPU:
        os.environ.setdefault("TRITON_INTERPRET", "1")
