"""How fast the multiplications of a block are on this machine, in each form (Day 4.7, given code).

The four multiplications of a block are what forms differ in; its small operations and attention take about as long in
each. So nothing else is timed.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from numba import get_num_threads

from tiny_llm.config import ModelConfig
from tiny_llm.fast.multiply import multiply
from tiny_llm.fast.packed import Packed
from tiny_llm.fast.rows8 import GROUP, make_rows8
from tiny_llm.fast.small import quantize
from tiny_llm.fast.weights8 import LaidOut, lay_out

ROWS = (1, 32, 512)
"""The rows of a step: a request alone, many that decode, a prompt."""

Figures = dict[str, dict[int, float]]
"""Microseconds of a block's multiplications: of each form, for each number of rows."""

Pass = Callable[[int], None]
"""Called with a number of rows: multiplies them by the matrices of a block."""

_BYTES = 64 * 2**20  # of weights that a round reads: more than caches hold, as when a model decodes
_RUNS, _SECONDS = 5, 0.1  # of one figure: at most so many rounds, and none after so many seconds of it


def measure(config: ModelConfig, forms: Sequence[str]) -> Figures:
    """Time some forms, on blocks of a model's sizes with random weights: medians of a few rounds.

    The forms take turns, so that a busy machine slows them all. With the default model it takes one or two seconds,
    once the kernels are compiled. Blocks of a large model, which take long, are run once for a figure.
    """
    passes = {form: _passes(config, form) for form in forms}
    for of_form in passes.values():
        of_form[0](ROWS[0])  # compiles what isn't compiled yet
    times: dict[str, dict[int, list[float]]] = {form: {rows: [] for rows in ROWS} for form in forms}
    for rows in ROWS:
        for _ in range(_RUNS):
            for form in forms:
                if sum(times[form][rows]) < _SECONDS:
                    times[form][rows].append(_seconds(passes[form], rows))
    return {
        form: {rows: 1e6 * statistics.median(each) for rows, each in of_form.items()}
        for form, of_form in times.items()
    }


def _seconds(passes: Sequence[Pass], rows: int) -> float:
    """Of one pass. Many rows are bound by arithmetic: there one block does."""
    chosen = passes if rows < ROWS[-1] else passes[:1]
    start = time.perf_counter()
    for each in chosen:
        each(rows)
    return (time.perf_counter() - start) / len(chosen)


def _shapes(config: ModelConfig) -> list[tuple[int, int]]:
    """[N, K] of the four matrices of a block."""
    E, F, D = config.hidden_size, config.feed_forward_size, config.head_dim
    heads = (config.num_heads + 2 * config.num_kv_heads) * D
    return [(heads, E), (E, config.num_heads * D), (2 * F, E), (E, F)]


def _passes(config: ModelConfig, form: str) -> list[Pass]:
    """Blocks, enough for a round."""
    shapes = _shapes(config)
    numbers = sum(outputs * width for outputs, width in shapes)
    if form == "8-bit":
        laid = [_laid_out(*shape) for shape in shapes]
        copies = _copies(config, sum(each.records.nbytes for each in laid))
        return [_pass_8([each._replace(records=each.records.copy()) for each in laid]) for _ in range(copies)]
    dtype = torch.float32 if form == "float32" else torch.bfloat16
    packed = [Packed(torch.randn(shape) / shape[1] ** 0.5, None, dtype) for shape in shapes]
    return [
        _pass_floats([_copy(each) for each in packed])
        for _ in range(_copies(config, numbers * dtype.itemsize))
    ]


def _copies(config: ModelConfig, nbytes: int) -> int:
    return min(config.num_layers, -(-_BYTES // nbytes))


def _copy(packed: Packed) -> Packed:
    other = copy.copy(packed)
    other.weight = packed.weight.clone()
    return other


def _laid_out(outputs: int, width: int) -> LaidOut:
    codes = torch.randint(16, (outputs, width), dtype=torch.uint8)
    scales = torch.rand(outputs, width // GROUP) / width
    return lay_out(codes, scales, -8 * scales, 4)


def _pass_floats(matrices: Sequence[Packed]) -> Pass:
    inputs = [torch.randn(ROWS[-1], each.width).to(each.dtype) for each in matrices]

    def run(rows: int) -> None:
        for each, x in zip(matrices, inputs, strict=True):
            each(x[:rows])

    return run


def _pass_8(matrices: Sequence[LaidOut]) -> Pass:
    widest, workers = max(each.width for each in matrices), get_num_threads()
    x = torch.randn(ROWS[-1] * widest).numpy()
    rows8 = make_rows8(len(x))
    out = torch.zeros(ROWS[-1] * max(each.outputs for each in matrices)).numpy()

    def run(rows: int) -> None:
        for each in matrices:
            quantize(rows, workers, x, each.width, rows8)
            multiply(each, rows8, rows, False, workers, out)

    return run
