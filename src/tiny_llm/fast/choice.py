"""Which fast form a model gets on this machine: measured once, and kept (Day 4.7, given code)."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import torch
from numba.core.codegen import get_host_cpu_features

from tiny_llm.cache_folder import cache_folder
from tiny_llm.fast import multiply, packed
from tiny_llm.fast.forms import FORMS, forms_for
from tiny_llm.fast.measuring import ROWS, Figures, measure
from tiny_llm.kernels.kept import fingerprint
from tiny_llm.loading.errors import WeightsError, unreadable
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.loading.sources import open_source

CLEARLY = 1.1
"""So many times as fast a form has to be to be taken instead of a more exact one."""


@dataclass(frozen=True)
class Choice:
    """A form, and why."""

    form: str
    figures: Figures
    kept: Path | None  # the file that the figures are kept in; None: they can't be kept

    @property
    def reason(self) -> str:
        """How the form compares with each other one, in words."""
        own = speed(self.figures[self.form])
        others = [form for form in self.figures if form != self.form]
        if not others:
            return "there is no other for its sizes"
        compared = (f"{own / speed(self.figures[form]):.2f} times as fast as {form}" for form in others)
        return f"{', '.join(compared)}; the most exact one is taken that is nearly as fast as the fastest"


def choose(figures: Figures) -> str:
    """The form that a model is run in, from figures of at least one form.

    A model has one form for all that it does: if its form changed with the number of rows, a request's tokens would
    depend on what else is in its step. What counts is the speed over all of :data:`ROWS`: the geometric mean of the
    tokens per second. It weighs them alike: twice as fast for one makes up for half as fast for another. Of the forms
    that come within a factor of :data:`CLEARLY` of the best, it is the most exact.
    """
    speeds = {form: speed(figures[form]) for form in FORMS if form in figures}
    return next(form for form, each in speeds.items() if each * CLEARLY >= max(speeds.values()))


def speed(figures: dict[int, float]) -> float:
    """Rows per second of a block's multiplications: the geometric mean over all numbers of rows."""
    return math.exp(sum(math.log(1e6 * rows / figures[rows]) for rows in ROWS) / len(ROWS))


def choose_for(source: str | Path = DEFAULT_MODEL) -> Choice:
    """Choose for a model on this machine: by figures that are kept, or else measured now and kept.

    They are kept in the cache folder, and hold for the same model file, processor, number of threads, torch, Numba
    and kernels. A file that can't be read, or that holds something else, counts as none.

    Args:
        source: as for :func:`tiny_llm.weights.load_weights`.

    Raises:
        WeightsError: the model can't be had, or has sizes for which no form has kernels.
    """
    path = locate(source)
    facts = _facts(path)
    file = _file_for(path, facts)
    figures = _read(file, facts)
    if figures is None:
        config = open_source(path).config
        forms = forms_for(config)
        if not forms:
            raise WeightsError(f"{path}: no fast form has kernels for its sizes: load it without fast=True")
        figures = measure(config, forms)
        # The copy of the weights goes to the same folder, and warns of one that can't be written to.
        with suppress(OSError):
            _write(file, facts, figures)
    return Choice(choose(figures), figures, file if file.is_file() else None)


def _facts(path: Path) -> dict[str, str]:
    """What figures hold for."""
    described = path / "config.json" if path.is_dir() else path
    try:
        status = described.stat()
    except OSError as error:
        raise unreadable(described, error) from error
    features = hashlib.sha256(get_host_cpu_features().encode()).hexdigest()[:12]
    return {
        "model": f"{path.resolve()}, {status.st_size} bytes of {status.st_mtime_ns}",
        "processor": f"{_processor()}, {features}",
        # not torch.get_num_threads(), which may change when Numba starts its threads: they share OpenMP's
        "threads": f"{numba.get_num_threads()}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS')}",
        "torch": torch.__version__,
        "numba": numba.__version__,
        "8-bit": fingerprint(Path(multiply.__file__), "multiply"),
        "floats": fingerprint(Path(packed.__file__), "Packed"),
    }


def _processor() -> str:
    """The processor's name, as far as the system tells."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _file_for(path: Path, facts: dict[str, str]) -> Path:
    """One for each model, processor and number of threads: machines may share the folder."""
    where = "\n".join((str(path.resolve()), facts["processor"], facts["threads"]))
    return cache_folder() / f"{path.stem}-{hashlib.sha256(where.encode()).hexdigest()[:12]}-fast-forms.json"


def _read(file: Path, facts: dict[str, str]) -> Figures | None:
    """The figures that a file holds for these facts, or None."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["facts"] != facts:
            return None
        return _checked(kept["figures"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _checked(kept: Any) -> Figures:
    """Figures as they were kept.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, OverflowError: they are something else.
    """
    figures = {form: {rows: float(kept[form][str(rows)]) for rows in ROWS} for form in FORMS if form in kept}
    if not figures or any(not 0 < each < math.inf for row in figures.values() for each in row.values()):
        raise ValueError("not the times of any form")
    return figures


def _write(file: Path, facts: dict[str, str], figures: Figures) -> None:
    """Write the file whole, or not at all.

    Raises:
        OSError: it can't be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".tmp", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as unfinished:
            json.dump({"facts": facts, "figures": figures}, unfinished, indent=2)
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)
