"""How long attention takes: Day 1.3's, flash attention, the decode kernel and torch's fused one, side by side.

    python benches/attention.py prefill        many queries, causal: all of a prompt at once
    python benches/attention.py decode         one query a row over many keys: a step of generation

The ways take turns, round after round, so that a machine that slows down slows all of them; the medians are shown,
and as a ratio to torch's. The heads are those of SmolLM2-135M.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.programs.implementation import explain_stubs
from coursekit.programs.options import Dtype, ImplOption
from coursekit.running.import_path import Impl, choose_implementation

if TYPE_CHECKING:
    from torch import Tensor

H, HKV, D, LAYERS = 9, 3, 64, 30
DECODE_SIZES = ((16, 512), (1, 4096))  # B, S
FUSED = "torch, fused"

Ways = dict[str, Callable[[], object]]

RepeatsOption = Annotated[int, typer.Option(min=1, help="Rounds; the median of them is shown.")]
ThreadsOption = Annotated[int, typer.Option(min=0, help="Threads to use; 0 leaves it to the libraries.")]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Time attention four ways, in turns: Day 1.3's, flash attention, the decode kernel, torch's fused one.",
)


@app.command()
def prefill(
    impl: ImplOption = Impl.LEARNER,
    length: Annotated[int, typer.Option(min=1, help="L = S, the tokens of the prompt.")] = 2048,
    dtype: Annotated[
        Dtype, typer.Option(help="The number format of query, keys and values.")
    ] = Dtype.FLOAT32,
    repeats: RepeatsOption = 7,
    threads: ThreadsOption = 0,
) -> None:
    """Causal attention of a whole prompt: Day 1.3 with its mask, flash attention, torch's fused attention."""
    with _implementation(impl, threads):
        _show(f"{length} tokens, causal, {dtype}", _medians(_prefill_ways(length, dtype), repeats))


@app.command()
def decode(impl: ImplOption = Impl.LEARNER, repeats: RepeatsOption = 11, threads: ThreadsOption = 0) -> None:
    """One query a row, over 16 × 512 and 1 × 4096 keys, in float32 and bfloat16.

    Each way goes through the keys and values of 30 layers, as a step of generation does, so that they come from
    memory and not from a cache; the times are those of one layer.
    """
    with _implementation(impl, threads):
        for rows, keys in DECODE_SIZES:
            for dtype in (Dtype.FLOAT32, Dtype.BFLOAT16):
                name = f"{rows} {'row' if rows == 1 else 'rows'} × {keys} keys, {dtype}"
                medians = _medians(_decode_ways(rows, keys, dtype), repeats)
                _show(name, {way: taken / LAYERS for way, taken in medians.items()})


@contextmanager
def _implementation(impl: Impl, threads: int) -> Iterator[None]:
    """Run on one implementation with so many threads; a stub that is reached becomes advice."""
    import numba
    import torch

    course = Course.find()
    choose_implementation(course, impl)
    if threads:
        torch.set_num_threads(threads)
        numba.set_num_threads(min(threads, numba.get_num_threads()))
    try:
        with explain_stubs(course), torch.inference_mode():
            yield
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _heads(rows: int, queries: int, keys: int, dtype: Dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Random query, keys and values, the same each time."""
    import torch

    torch.manual_seed(24)
    kind = getattr(torch, dtype)
    return (
        torch.randn(rows, H, queries, D, dtype=kind),
        torch.randn(rows, HKV, keys, D, dtype=kind),
        torch.randn(rows, HKV, keys, D, dtype=kind),
    )


def _prefill_ways(length: int, dtype: Dtype) -> Ways:
    from torch.nn.functional import scaled_dot_product_attention as fused

    from tiny_llm.attention import causal_mask
    from tiny_llm.attention import scaled_dot_product_attention_grouped as grouped
    from tiny_llm.flash_attention import flash_attention

    query, key, value = _heads(1, length, length, dtype)
    return {
        "Day 1.3": lambda: grouped(query, key, value, mask=causal_mask(length, length, like=query)),
        "flash attention": lambda: flash_attention(query, key, value, causal=True),
        FUSED: lambda: fused(query, key, value, is_causal=True, enable_gqa=True),
    }


def _decode_ways(rows: int, keys: int, dtype: Dtype) -> Ways:
    from torch.nn.functional import scaled_dot_product_attention as fused

    from tiny_llm.attention import scaled_dot_product_attention_grouped as grouped
    from tiny_llm.flash_attention import flash_attention
    from tiny_llm.kernels.decode_attention_cpu import decode_attention

    layers = [_heads(rows, 1, keys, dtype) for _ in range(LAYERS)]
    return {
        "Day 1.3": lambda: [grouped(*heads) for heads in layers],
        "flash attention": lambda: [flash_attention(*heads) for heads in layers],
        "decode kernel": lambda: [decode_attention(*heads) for heads in layers],
        FUSED: lambda: [fused(*heads, enable_gqa=True) for heads in layers],
    }


def _medians(ways: Ways, repeats: int) -> dict[str, float]:
    """Milliseconds that each way takes; all have their turn in every round, after one that doesn't count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            times[name].append((time.perf_counter() - started) * 1e3)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def _show(title: str, medians: dict[str, float]) -> None:
    table = Table("", "ms", "× torch", box=None, title=title, title_justify="left", title_style="bold")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, taken in medians.items():
        table.add_row(name, f"{taken:.2f}", f"{taken / medians[FUSED]:.2f}")
    Console(highlight=False).print(table, "")


if __name__ == "__main__":
    app()
