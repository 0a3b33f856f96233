"""How long attention takes: Day 1.3's, flash attention, the decode kernel and torch's fused one, side by side.

    python benches/attention.py prefill        many queries, causal: all of a prompt at once
    python benches/attention.py decode         one query a row over many keys: a step of generation

The ways take turns, round after round, so that a machine that slows down slows all of them; the medians are shown,
and as a ratio to torch's. The heads are those of SmolLM2-135M.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from side_by_side import HKV, LAYERS, D, H, RepeatsOption, ThreadsOption, Ways, implementation, medians, show

from coursekit.running.import_path import Impl
from programs.options import Dtype, ImplOption

if TYPE_CHECKING:
    from torch import Tensor

DECODE_SIZES = ((16, 512), (1, 4096))  # B, S
FUSED = "torch, fused"

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
    with implementation(impl, threads):
        show(f"{length} tokens, causal, {dtype}", medians(_prefill_ways(length, dtype), repeats), FUSED)


@app.command()
def decode(impl: ImplOption = Impl.LEARNER, repeats: RepeatsOption = 11, threads: ThreadsOption = 0) -> None:
    """One query a row, over 16 × 512 and 1 × 4096 keys, in float32 and bfloat16.

    Each way goes through the keys and values of 30 layers, as a step of generation does, so that they come from
    memory and not from a cache; the times are those of one layer.
    """
    with implementation(impl, threads):
        for rows, keys in DECODE_SIZES:
            for dtype in (Dtype.FLOAT32, Dtype.BFLOAT16):
                name = f"{rows} {'row' if rows == 1 else 'rows'} × {keys} keys, {dtype}"
                taken = medians(_decode_ways(rows, keys, dtype), repeats)
                show(name, {way: taken[way] / LAYERS for way in taken}, FUSED)


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


if __name__ == "__main__":
    app()
