"""`pdm run doctor`: what this machine offers the course, and what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coursekit.backends import Backend
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from coursekit.tracks import covered, name_days

if TYPE_CHECKING:
    from tiny_llm.fast.measuring import Figures


@dataclass(frozen=True)
class Finding:
    """One thing looked for: what was found, and what it costs to be without it (empty when nothing is missing)."""

    name: str
    found: str
    cost: str = ""


def doctor() -> None:
    """Say what this machine offers (Python, torch, processor, GPU, Triton, MLX, model) and what is missing."""
    choose_implementation(Course.find(), Impl.SOLUTION)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    console = Console(highlight=False)
    with Console(stderr=True).status("looking around …"):
        findings = [finding for look in LOOKS for finding in look()]
    for finding in findings:
        mark = "[yellow]–[/yellow]" if finding.cost else "[green]✓[/green]"
        text = escape(finding.found) + (f"\n[dim]{escape(finding.cost)}[/dim]" if finding.cost else "")
        table.add_row(mark, f"[bold]{finding.name}[/bold]", text)
    console.print(table)


def _python() -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch() -> Iterator[Finding]:
    import torch

    yield Finding("torch", torch.__version__)
    cores = os.cpu_count() or 1
    threads = torch.get_num_threads()
    cost = (
        "" if threads > 1 else "one thread only: everything on the CPU takes longer (OMP_NUM_THREADS sets it)"
    )
    yield Finding("threads", f"{threads} of {cores} logical processors", cost)


def _instructions() -> Iterator[Finding]:
    import torch

    if platform.machine() not in ("x86_64", "AMD64"):
        yield Finding("vector units", torch.backends.cpu.get_cpu_capability())
        return
    capabilities = torch.cpu.get_capabilities()
    avx512, amx = capabilities.get("avx512_f", False), capabilities.get("amx_bf16", False)
    yield Finding(
        "AVX-512",
        "yes" if avx512 else f"no, {torch.backends.cpu.get_cpu_capability()}",
        "" if avx512 else "the course's CPU kernels run, at about half the speed that the book shows",
    )
    yield Finding(
        "AMX",
        "yes" if amx else "no",
        ""
        if amx
        else "bfloat16 matrix products on the CPU are no faster than float32 ones: stay with float32",
    )


def _gpu() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        yield Finding("GPU", f"{torch.cuda.get_device_name()} (--device cuda)")
    elif torch.backends.mps.is_available():
        yield Finding("GPU", "Apple GPU (--device mps)")
    else:
        cost = "the course is made for the CPU: only the tests and timings marked gpu are left out"
        yield Finding("GPU", "none that torch can use", cost)


def _triton() -> Iterator[Finding]:
    import torch

    if importlib.util.find_spec("triton") is None:
        yield Finding(
            "Triton", "not installed", f"there is none for {platform.system()}: Day 3.4 can't run here"
        )
    elif torch.cuda.is_available():
        yield Finding("Triton", "yes, compiled for the GPU")
    else:
        cost = "no CUDA GPU: Day 3.4's kernel is checked in the interpreter, slowly, and not timed"
        yield Finding("Triton", "its interpreter (TRITON_INTERPRET=1)", cost)


def _mlx() -> Iterator[Finding]:
    if importlib.util.find_spec("mlx") is None:
        yield Finding(
            "MLX", "not installed", f"no --backend mlx on {platform.system()}; the torch track is complete"
        )
        return
    from importlib.metadata import version

    course = Course.find()
    manifest = load_manifest(course)
    days = name_days(covered(course, Backend.MLX.package, manifest), manifest)
    where = "Apple GPU" if sys.platform == "darwin" else "CPU"
    yield Finding("MLX", f"{version('mlx')} on the {where} (--backend mlx, Days {days})")


def _model() -> Iterator[Finding]:
    from tiny_llm.loading.errors import WeightsError
    from tiny_llm.loading.gguf_file import read_gguf
    from tiny_llm.loading.locate import locate

    try:
        path = locate("smollm2-135m")
        read_gguf(path)
    except WeightsError as error:
        yield Finding("model", "can't be used", f"{error}; without it, name another with --model")
        return
    yield Finding("model", f"smollm2-135m ({path.name}, {path.stat().st_size / 2**20:.0f} MiB)")


def _fast_forms() -> Iterator[Finding]:
    """The form that `LLM(fast=True)` takes; where no figures are kept they are measured now."""
    if importlib.util.find_spec("numba") is None:
        cost = "the engine of Day 4.7 can't run here"
        yield Finding("fast form", "no Numba", cost)
        return
    from numba.core.errors import NumbaError

    from tiny_llm.fast.choice import choose_for
    from tiny_llm.loading.errors import WeightsError

    try:
        choice = choose_for("smollm2-135m")
    except (
        WeightsError,
        NumbaError,
        RuntimeError,
    ) as error:  # a processor that a compiler or torch doesn't know
        yield Finding("fast form", "not measured", f"{error}")
        return
    found = "\n".join((f"{choice.form}: {choice.reason}", "", *_table_of(choice.figures)))
    if choice.kept is None:
        cost = "this can't be kept, so each start measures anew: set TINY_LLM_CACHE to a folder that can be written"
        yield Finding("fast form", found, cost)
        return
    yield Finding("fast form", f"{found}\n\nkept in {choice.kept} (delete it to have it measured anew)")


def _table_of(figures: Figures) -> Iterator[str]:
    """How long a block's multiplications take, and how many rows that is per second."""
    counts = list(next(iter(figures.values())))
    yield "µs, rows/s" + "".join(f"{f'{count:,} row' + 's' * (count > 1):>18}" for count in counts)
    for form, of_form in figures.items():
        cells = (f"{of_form[count]:>9,.0f} {1e6 * count / of_form[count]:>8,.0f}" for count in counts)
        yield f"{form:10}" + "".join(cells)


LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _torch,
    _instructions,
    _gpu,
    _triton,
    _mlx,
    _model,
    _fast_forms,
)
