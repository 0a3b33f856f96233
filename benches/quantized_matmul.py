"""How long the ways to multiply by a matrix take, side by side (Day 2.3).

    python benches/quantized_matmul.py --impl solution

Every way goes through matrices of several layers in turn, so that none of them lies in the nearest cache. The ways
take turns too, and the table has medians: what else goes on in the machine then hits all of them alike.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import numba
import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from programs.implementation import explain_stubs
from programs.options import ImplOption

prange = numba.prange
compiled = numba.njit(parallel=True, fastmath={"reassoc", "contract", "nsz"})
BLOCK, HALF, GROUP = 64, 32, 32

Way = Callable[[int], Any]  # multiplies by the matrix of that layer


@compiled
def inputs_side_by_side(
    x: np.ndarray, nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray
) -> None:
    """The layout of Day 2.2: neighbours in memory are inputs of one output.

    Each output ends in a number of its own, so after every group of 32 the partial sums in a register have to be
    added up across the register. Nothing of x is used twice while it is in a register.

    Args:
        x: float32 [in].
        nibbles: uint8 [out, in/G, G/2]; scales and minima: float32 [out, in/G].
        out: float32 [out]; overwritten.
    """
    half = nibbles.shape[2]
    for output in prange(len(nibbles)):
        total = np.float32(0)
        for group in range(nibbles.shape[1]):
            partial, x_sum = np.float32(0), np.float32(0)
            for j in range(half):
                byte = nibbles[output, group, j]
                x_low, x_high = x[2 * half * group + j], x[2 * half * group + half + j]
                partial += x_low * np.float32(np.int32(byte & 15)) + x_high * np.float32(np.int32(byte >> 4))
                x_sum += x_low + x_high
            total += scales[output, group] * partial + minima[output, group] * x_sum
        out[output] = total


@compiled
def one_input_at_a_time(
    x: np.ndarray, nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray
) -> None:
    """Day 2.3's layout; the partial sums are loaded and stored for every input instead of every fourth."""
    groups = scales.shape[1]
    size = len(x) // groups
    for block in prange(len(nibbles)):
        total, partial = np.zeros(BLOCK, np.float32), np.empty(BLOCK, np.float32)
        for group in range(groups):
            partial[:] = 0
            x_sum = np.float32(0)
            for k in range(group * size, (group + 1) * size):
                x_sum += x[k]
                for j in range(HALF):
                    byte = nibbles[block, k, j]
                    partial[j] += x[k] * np.float32(np.int32(byte & 15))
                    partial[HALF + j] += x[k] * np.float32(np.int32(byte >> 4))
            for j in range(BLOCK):
                total[j] += scales[block, group, j] * partial[j] + minima[block, group, j] * x_sum
        out[block * BLOCK : (block + 1) * BLOCK] = total


@compiled
def codes_in_64_bits(
    x: np.ndarray, nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray
) -> None:
    """Day 2.3's kernel without `np.int32`: Numba makes 64-bit integers of the codes, half as many to a register."""
    groups = scales.shape[1]
    size = len(x) // groups
    for block in prange(len(nibbles)):
        total, partial = np.zeros(BLOCK, np.float32), np.empty(BLOCK, np.float32)
        for group in range(groups):
            partial[:] = 0
            x_sum = np.float32(0)
            for k in range(group * size, (group + 1) * size, 4):
                x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
                x_sum += x0 + x1 + x2 + x3
                for j in range(HALF):
                    b0, b1 = nibbles[block, k, j], nibbles[block, k + 1, j]
                    b2, b3 = nibbles[block, k + 2, j], nibbles[block, k + 3, j]
                    lows = x0 * np.float32(b0 & 15) + x1 * np.float32(b1 & 15)
                    highs = x0 * np.float32(b0 >> 4) + x1 * np.float32(b1 >> 4)
                    partial[j] += lows + x2 * np.float32(b2 & 15) + x3 * np.float32(b3 & 15)
                    partial[HALF + j] += highs + x2 * np.float32(b2 >> 4) + x3 * np.float32(b3 >> 4)
            for j in range(BLOCK):
                total[j] += scales[block, group, j] * partial[j] + minima[block, group, j] * x_sum
        out[block * BLOCK : (block + 1) * BLOCK] = total


def ways_for(rows: int, matrices: list[torch.Tensor]) -> dict[str, Way]:
    """What is compared for so many rows; the slower kernels for one row only."""
    from tiny_llm.kernels.quantized_matmul_cpu import KernelMatmul, multiply_row
    from tiny_llm.kernels.quantized_matmul_torch import TorchInt4Matmul
    from tiny_llm.quantize import DequantizedMatmul, quantize

    quantized = [quantize(matrix, GROUP) for matrix in matrices]
    rounded = [matrix.bfloat16() for matrix in matrices]
    plain = [DequantizedMatmul(matrix) for matrix in quantized]
    kernels = [KernelMatmul(matrix) for matrix in quantized]
    torchs = [TorchInt4Matmul(matrix) for matrix in quantized]
    x = torch.randn(rows, matrices[0].shape[1])
    x_rounded = x.bfloat16()
    linear = torch.nn.functional.linear
    ways: dict[str, Way] = {
        "float32 linear": lambda layer: linear(x, matrices[layer]),
        "bfloat16 linear": lambda layer: linear(x_rounded, rounded[layer]),
        "4 bits, dequantized each time": lambda layer: plain[layer](x),
        "4 bits, KernelMatmul": lambda layer: kernels[layer](x),
        "4 bits, torch's kernel": lambda layer: torchs[layer](x_rounded),
    }
    if rows > 1:
        ways["4 bits, all to multiply_rows"] = lambda layer: kernels[layer]._by_kernel(x)
        ways["4 bits, all to the BLAS"] = lambda layer: kernels[layer]._by_blas(x)
        return ways
    row, out = x[0].numpy(), np.empty(-(-len(matrices[0]) // BLOCK) * BLOCK, np.float32)
    as_stored = [
        (matrix.nibbles.numpy(), matrix.scales.float().numpy(), matrix.minima.float().numpy())
        for matrix in quantized
    ]
    in_blocks = [(one.packed.nibbles, one.packed.scales, one.packed.minima) for one in kernels]
    # These are the bare kernels, without the conversions around them that KernelMatmul takes care of.
    ways["  bare: multiply_row"] = lambda layer: multiply_row(row, *in_blocks[layer], out)
    ways["  bare: inputs side by side"] = lambda layer: inputs_side_by_side(
        row, *as_stored[layer], out[: len(matrices[0])]
    )
    ways["  bare: 64-bit codes"] = lambda layer: codes_in_64_bits(row, *in_blocks[layer], out)
    ways["  bare: one input at a time"] = lambda layer: one_input_at_a_time(row, *in_blocks[layer], out)
    return ways


def microseconds(ways: dict[str, Way], layers: int, repeats: int) -> dict[str, list[float]]:
    """For each way, what one multiplication took in each repeat."""
    for way in ways.values():
        way(0)  # compiles
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            for layer in range(layers):
                way(layer)
            times[name].append((time.perf_counter() - start) / layers * 1e6)
    return times


def main(
    impl: ImplOption = Impl.LEARNER,
    inputs: Annotated[int, typer.Option(min=GROUP, help="Columns of a matrix, a multiple of 32.")] = 576,
    outputs: Annotated[int, typer.Option(min=16, help="Rows of a matrix, a multiple of 16.")] = 1536,
    rows: Annotated[
        list[int] | None,
        typer.Option(min=1, help="How many rows to multiply at once; may be given several times."),
    ] = None,
    layers: Annotated[int, typer.Option(min=1, help="How many matrices take turns.")] = 30,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median of them is shown.")] = 15,
) -> None:
    """Time the ways to multiply by a matrix, in microseconds a multiplication."""
    course = Course.find()
    choose_implementation(course, impl)
    try:
        if inputs % GROUP or outputs % 16:
            raise CourseError("--inputs must be a multiple of 32, and --outputs of 16")
        with explain_stubs(course), torch.inference_mode():
            _show(inputs, outputs, rows or [1, 5, 16, 17, 32], layers, repeats)
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _show(inputs: int, outputs: int, rows: list[int], layers: int, repeats: int) -> None:
    torch.manual_seed(0)
    matrices = [torch.randn(outputs, inputs) / inputs**0.5 for _ in range(layers)]
    console = Console(highlight=False)
    threads = f"{torch.get_num_threads()} threads for torch, {numba.get_num_threads()} for Numba"
    console.print(f"{inputs} → {outputs}, {layers} matrices in turn, median of {repeats}; {threads}\n")
    for count in rows:
        times = microseconds(ways_for(count, matrices), layers, repeats)
        table = Table(box=None, pad_edge=False)
        table.add_column(f"{count} row{'s' * (count > 1)}", min_width=32)
        for heading in ("µs", "fastest", "× float32"):
            table.add_column(heading, justify="right")
        reference = statistics.median(times["float32 linear"])
        for name, measured in times.items():
            median = statistics.median(measured)
            table.add_row(name, f"{median:.0f}", f"{min(measured):.0f}", f"{reference / median:.2f}")
        console.print(table, "")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
