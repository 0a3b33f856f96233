"""Which model a program runs, and how: what the options that the programs share say together."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import typer
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs.implementation import require_written
from programs.loaded import LoadedModel, load, load_fast
from programs.options import Attention, Cache, Device, Dtype, Matmul

FAST_DAY = (4, 7)
FITTING: dict[str, tuple[object, ...]] = {
    "dtype": (),
    "device": (Device.CPU,),
    "bits": (4,),
    "matmul": (),
    "attention": (Attention.AUTO,),
    "cache": (Cache.PAGED,),
    "oracle": (),
}
"""Options that a program with --fast may have besides -> the values that say nothing else than --fast does."""


@dataclass(frozen=True)
class Source:
    """Which model is run, and how."""

    model: str
    dtype: Dtype = Dtype.FLOAT32
    device: Device = Device.CPU
    bits: int | None = None
    matmul: Matmul = Matmul.AUTO
    attention: str = "auto"  # the name of a way to attend
    fast: bool = False  # whether Day 4.7's engine runs; dtype is that of keys and values then

    def load(self, course: Course, impl: Impl, console: Console | None = None) -> LoadedModel:
        """Load the model.

        Args:
            course: the course.
            impl: whose code runs.
            console: as for :func:`programs.waiting.waiting`.

        Raises:
            CourseError: the code has no fast engine at all.
            NotImplementedError: the fast engine isn't written yet.
        """
        if not self.fast:
            return load(self.model, self.dtype, self.device, self.bits, self.matmul, console)
        require_fast(course, impl)
        return load_fast(self.model, console)


def choose_source(context: typer.Context, source: Source, fast: bool) -> Source:
    """What the options say, or what --fast stands for.

    Args:
        context: knows which options were given.
        source: what the options say without --fast.
        fast: whether --fast was given.

    Raises:
        CourseError: it was, and another option says something else.
    """
    if not fast:
        return source
    for name, fitting in FITTING.items():
        origin, value = context.get_parameter_source(name), context.params.get(name)
        if origin is None or origin.name != "COMMANDLINE" or value in fitting:
            continue
        given = f"--{name}" if value is True else f"--{name} {value}"
        raise CourseError(
            f"--fast has numbers in 4 and 8 bits, and kernels of its own on the CPU: leave out {given}"
        )
    return Source(source.model, Dtype.BFLOAT16, Device.CPU, 4, attention="tiled", fast=True)


def require_fast(course: Course, impl: Impl) -> None:
    """Refuse to begin where the fast engine isn't written yet: its kernels run where no stub could be reported.

    Raises:
        CourseError: the package has no fast engine at all.
        NotImplementedError: as the first stub of Day 4.7, or of a day that it needs, would raise it.
    """
    if importlib.util.find_spec("tiny_llm.fast") is None:
        raise CourseError("your code has no fast engine (tiny_llm.fast, Day 4.7); look at: --impl solution")
    require_written(course, impl, FAST_DAY, needed=True)
