"""How long attention over pages takes: the reference path, gathering, the kernel, and dense batches beside them.

    python benches/paged_attention.py decode         one query a sequence: a step of generation
    python benches/paged_attention.py queries        more and more queries over one past: where gathering wins

The pages lie in the pool in no order, as after an hour of service. Each way goes through the keys and values of
several layers, so that they come from memory and not from a cache; the times are those of one layer.
"""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from side_by_side import HKV, LAYERS, D, H, RepeatsOption, ThreadsOption, Ways, implementation, medians, show

from coursekit.running.import_path import Impl
from programs.cores import PAGE_SIZE
from programs.options import Dtype, ImplOption

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.paged.metadata import ForwardMeta
    from tiny_llm.paged.pool import KvPool

SIZES = ((16, 512), (1, 4096), (16, 4096))  # sequences, keys of each
MOST_KEYS = 16 * 512 * LAYERS  # of all layers: more is no nearer to the truth, only larger
QUERIES = (1, 2, 4, 8, 16, 32, 64, 128)
SCALE = D**-0.5
REFERENCE, GATHER, KERNEL, DENSE = "reference path", "gather, then torch", "kernel", "torch, dense batch"

DtypesOption = Annotated[list[Dtype] | None, typer.Option("--dtype", help="Of the pool; both by default.")]
BOTH = [Dtype.FLOAT32, Dtype.BFLOAT16]

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Time attention over pages, in turns."
)


@app.command()
def decode(
    impl: ImplOption = Impl.LEARNER,
    dtype: DtypesOption = None,
    repeats: RepeatsOption = 11,
    threads: ThreadsOption = 0,
) -> None:
    """One query a sequence, over 16 × 512, 1 × 4096 and 16 × 4096 keys."""
    with implementation(impl, threads):
        for count, keys in SIZES:
            for kind in dtype or BOTH:
                layers = max(1, min(LAYERS, MOST_KEYS // (count * keys)))
                taken = medians(_ways(count, 1, keys, kind, layers), repeats)
                title = f"{count} {'sequence' if count == 1 else 'sequences'} × {keys} keys, {kind}"
                show(title, {way: taken[way] / layers for way in taken}, KERNEL)


@app.command()
def queries(
    impl: ImplOption = Impl.LEARNER,
    keys: Annotated[int, typer.Option(min=128, help="The past and the new tokens together.")] = 512,
    dtype: DtypesOption = None,
    repeats: RepeatsOption = 11,
    threads: ThreadsOption = 0,
) -> None:
    """One sequence with 1 to 128 new tokens."""
    with implementation(impl, threads):
        for kind in dtype or BOTH:
            for count in QUERIES:
                ways = _ways(1, count, keys, kind, layers=10)
                taken = medians({name: ways[name] for name in (GATHER, KERNEL)}, repeats)
                show(f"{count} of {keys} tokens new, {kind}", {way: taken[way] / 10 for way in taken}, KERNEL)


def _ways(count: int, new: int, keys: int, dtype: Dtype, layers: int) -> Ways:
    import torch

    from tiny_llm.kernels.paged_attention_cpu import paged_attention_cpu
    from tiny_llm.paged.attention import paged_attention

    torch.manual_seed(33)
    pool, meta = _step(count, new, keys, dtype, layers)
    query = torch.randn(count * new, H, D, dtype=pool.keys.dtype)
    pages = list(zip(pool.keys, pool.values, strict=True))
    ways: Ways = {
        REFERENCE: lambda: [paged_attention(query, *each, meta, SCALE) for each in pages],
        GATHER: lambda: [_gathered(query, *each, meta) for each in pages],
        KERNEL: lambda: [paged_attention_cpu(query, *each, meta, SCALE) for each in pages],
    }
    if new == 1:
        ways[DENSE] = _dense(query, keys, layers)
    return ways


def _step(count: int, new: int, keys: int, dtype: Dtype, layers: int) -> tuple[KvPool, ForwardMeta]:
    """Sequences of so many keys, the last of them new, in a pool of random numbers."""
    import torch

    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.metadata import ForwardMeta
    from tiny_llm.paged.places import pages_for
    from tiny_llm.paged.pool import KvPool
    from tiny_llm.paged.sequence import PagedSequence
    from tiny_llm.paged.tables import tables_of

    num_pages = 1 + count * pages_for(keys, PAGE_SIZE)
    config: Any = SimpleNamespace(num_layers=layers, num_kv_heads=HKV, head_dim=D)
    pool, allocator = (
        KvPool(config, num_pages, PAGE_SIZE, getattr(torch, dtype)),
        PageAllocator(num_pages),
    )
    pool.keys.normal_()
    pool.values.normal_()
    random.Random(33).shuffle(allocator.free_pages)
    sequences = [PagedSequence(allocator, PAGE_SIZE) for _ in range(count)]
    for sequence in sequences:
        sequence.reserve(keys)
        sequence.advance(keys - new)
    return pool, ForwardMeta.build(tables_of(sequences), [keys - new] * count, [new] * count, PAGE_SIZE)


def _gathered(query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta) -> list[Tensor]:
    """Sequence by sequence, as the reference path does, with torch's fused attention."""
    from tiny_llm.kernels.paged_attention_auto import attend_fused
    from tiny_llm.paged.places import pages_for

    outs = []
    for row, (start, stop) in enumerate(pairwise(meta.starts)):
        kv_len = meta.kv_lens[row]
        numbers = meta.block_table[row, : pages_for(kv_len, PAGE_SIZE)]
        key, value = (pages[numbers].flatten(0, 1)[:kv_len] for pages in (keys, values))
        outs.append(attend_fused(query[start:stop], key, value, SCALE, causal=True)[0])
    return outs


def _dense(query: Tensor, keys: int, layers: int) -> Any:
    """torch's fused attention on a dense batch that is there already: no copy is counted."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as fused

    batch = [torch.randn(2, len(query), HKV, keys, D, dtype=query.dtype).unbind() for _ in range(layers)]
    return lambda: [
        fused(query[:, :, None], key, value, scale=SCALE, enable_gqa=True) for key, value in batch
    ]


if __name__ == "__main__":
    app()
