# %% [markdown]
# # Day 3.4: The same kernel in Triton, to play with
#
# Here you fill processors with programs, see which numbers a program reads, and take a mask away. Without a GPU
# Triton's interpreter runs the kernels. (Triton exists for Linux only: elsewhere the first picture is all that
# works.) The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
from types import SimpleNamespace

import numpy as np
import torch

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, slider, switch

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict
#
# A GPU has 132 processors. One request decodes: one query, 9 heads on 3 key heads, 4,096 keys. If one program takes
# one key head of one sequence, how many processors work? And if each takes 512 keys of it? Write down two numbers.
# Then move the controls, and find out how many requests keep all processors busy, with short parts and with whole
# pasts.


# %%
def processors(requests: int, keys_per_program: int) -> Picture:
    programs = requests * 3 * (4096 // keys_per_program)
    busy = np.bincount(np.arange(programs) % 132, minlength=132)
    figure, axes = new_figure(height=2.0)
    for number in range(132):
        color = COLORS["blue"] if busy[number] else PALE["muted"]
        axes.barh(number // 33, 0.85, left=number % 33, height=0.85, color=color)
        if busy[number] > 1:
            axes.text(
                number % 33 + 0.42, number // 33, int(busy[number]), color="white", ha="center", va="center"
            )
    axes.invert_yaxis()
    axes.axis("off")
    axes.set_title(f"{programs} programs: {min(programs, 132)} of 132 processors work")
    return Picture(
        figure,
        f"{requests} requests of 4,096 keys, {keys_per_program} keys per program: {programs} programs, "
        f"{min(programs, 132)} of 132 processors work.",
    )


explore(
    processors,
    requests=slider(1, 48, 1),
    keys_per_program=choice([4096, 2048, 1024, 512, 128], title="keys per program"),
)

# %% [markdown]
# A number in a square says that this processor gets more than one program. If short parts keep more processors
# busy, why doesn't an engine always take the shortest? (Each part has results of its own, and something has to
# merge them.)
#
# ## Experiment 1: which numbers a program reads
#
# The pool below has 8 pages of 4 places; each place holds 3 heads of 4 numbers. The sequence has 9 tokens in the
# pages
# 2, 5 and 1. Your `load_tile` fetches a tile of 8 positions for one head; what it reads is blue. On the right is the
# tile, in which white rows are zeros that were never read. Move *start*: when does the tile use three pages? When
# does it read nothing at all? And how do the pieces that lie side by side in memory change with the head?

# %%
tl, triton = lab.kernels.compiling_triton.tl, lab.kernels.compiling_triton.triton
load_tile = lab.kernels.paged_attention_triton.load_tile


@triton.jit
def one_tile(pages, table, out, head, start, stop, TILE: tl.constexpr):  # type: ignore
    positions = start + tl.arange(0, TILE)
    tile = load_tile(pages, table, head, positions, positions < stop, 3, 4, 4, 4)
    cells = tl.arange(0, TILE)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(out + cells, tile)


def reads(head: int, start: int) -> Picture:
    pages = torch.arange(
        1, 8 * 4 * 3 * 4 + 1, dtype=torch.float32, device=device
    )  # each number tells where it lies
    table = torch.tensor([2, 5, 1], dtype=torch.int32, device=device)
    out = torch.zeros(8, 4, device=device)
    one_tile[(1,)](pages, table, out, head, start, 9, TILE=8)
    tile = out.cpu().numpy().astype(int)
    figure, (left, right) = new_figure(height=3.0, cols=2, width_ratios=[5, 1])
    read = np.isin(np.arange(1, 385), tile).reshape(32, 12).T
    left.imshow(read, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    for page in range(1, 8):
        left.axvline(4 * page - 0.5, color=COLORS["muted"], lw=1)
    for line in (3.5, 7.5):
        left.axhline(line, color=COLORS["line"], lw=1)
    left.set(xticks=np.arange(8) * 4 + 1.5, xticklabels=[f"page {page}" for page in range(8)])
    left.set(yticks=[1.5, 5.5, 9.5], yticklabels=["head 0", "head 1", "head 2"])
    right.imshow(tile > 0, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    right.set(xticks=[], yticks=range(8), yticklabels=range(start, start + 8), title="tile")
    used = sorted({(number - 1) // 48 for number in tile.flatten().tolist() if number})
    left.set_title(f"numbers read: {(tile > 0).sum()}, from pages {used}")
    return Picture(
        figure,
        f"Head {head}, positions {start} to {start + 7}: {(tile > 0).sum()} numbers are read, from pages {used}.",
    )


explore(reads, head=slider(0, 2, 0), start=slider(0, 12, 0))

# %% [markdown]
# ## Experiment 2: without a mask
#
# This kernel counts: each program adds up the ones of its row, 5, 64 or 200 of them. Take the mask away, and it
# goes on to the end of its tile, whatever lies there. Which tile sizes hide the mistake, and in which rows? What
# would the third program read if its row were the last one in memory?


# %%
@triton.jit
def row_sums(x, lengths, out, width, SIZE: tl.constexpr, masked: tl.constexpr):  # type: ignore
    row = tl.program_id(0)
    length = tl.load(lengths + row)
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, length, SIZE):
        i = start + tl.arange(0, SIZE)
        wanted = i < length if masked else i >= 0
        total += tl.load(x + row * width + i, mask=wanted, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


def sums(size: int, masked: bool) -> Picture:
    lengths = torch.tensor([5, 64, 200], dtype=torch.int32, device=device)
    ones, out = torch.ones(1024, device=device), torch.zeros(3, device=device)
    row_sums[(3,)](ones, lengths, out, 200, SIZE=size, masked=masked)
    counted, wanted = out.cpu().int().tolist(), lengths.tolist()
    figure, axes = new_figure(height=2.0)
    axes.barh(range(3), counted, color=COLORS["red"])
    axes.barh(range(3), np.minimum(counted, wanted), color=COLORS["blue"])
    for row, count in enumerate(counted):
        axes.text(count + 3, row, count, va="center")
    axes.set(
        yticks=range(3), yticklabels=[f"row of {length}" for length in wanted], xlim=(0, 280), xlabel="sum"
    )
    axes.invert_yaxis()
    axes.set_title(
        f"tiles of {size}, {'with a mask' if masked else 'without a mask'}; what is too much is red"
    )
    return Picture(
        figure, f"Rows of {wanted} ones in tiles of {size}, masked: {masked}; the sums are {counted}."
    )


explore(sums, size=choice([4, 16, 64, 128, 256], 64, title="tile"), masked=switch(True, title="mask"))

# %% [markdown]
# ## Measure
#
# Without a GPU: how much slower is the interpreter than yesterday's compiled kernel? It is a tool to be right with,
# not to be fast with. With a GPU: how many GB/s does your kernel read, in a decode of 64 sequences of 4,096 tokens
# in bfloat16? The chapter names 3,000 GB/s for a current data-center GPU; compare with the data sheet of yours.


# %% tags=["measured"]
def decode_step(count: int, keys: int, dtype: torch.dtype) -> tuple:
    pages = count * keys // 16 + 1
    config = SimpleNamespace(num_layers=1, num_kv_heads=3, head_dim=64)
    pool = lab.paged.pool.KvPool(config, pages, 16, dtype, device)
    pool.keys.normal_()
    pool.values.normal_()
    table = torch.randperm(pages - 1, dtype=torch.int32).reshape(count, -1) + 1
    meta = lab.paged.metadata.ForwardMeta.build(table, [keys - 1] * count, [1] * count, 16, device)
    return torch.randn(count, 9, 64, dtype=dtype, device=device), pool.keys[0], pool.values[0], meta, 0.125


def triton_kernel(*arguments: object) -> None:
    lab.kernels.paged_attention_triton.paged_attention_triton(*arguments)
    if device == "cuda":
        torch.cuda.synchronize()


if device == "cuda":
    seconds = measure(triton_kernel, *decode_step(64, 4096, torch.bfloat16))
    print(f"64 × 4,096 keys: {1e6 * seconds:.0f} µs, {64 * 4096 * 2 * 3 * 64 * 2 / seconds / 1e9:,.0f} GB/s")
else:
    for count, keys in ((1, 64), (1, 256), (2, 256)):
        arguments = decode_step(count, keys, torch.float32)
        interpreted = measure(triton_kernel, *arguments)
        compiled = measure(lab.kernels.paged_attention_cpu.paged_attention_cpu, *arguments)
        print(
            f"{count} × {keys:3} keys: interpreted {1000 * interpreted:6.1f} ms, Day 3.3's kernel "
            f"{1000 * compiled:5.2f} ms: {interpreted / compiled:4.0f} times as long"
        )

# %% [markdown]
# ## An open question
#
# Programs share nothing but memory, and run in any order. So the parts of a long past are merged after the launch,
# by other kernels. Could the programs do it themselves, in the same launch? And would the interpreter tell you
# whether you did it right?
#
# <details>
# <summary>One answer</summary>
#
# Yes, with a counter in memory for each sequence and key head. A program writes its part, and then adds 1 to the
# counter with an *atomic* operation, one that no other program can interrupt; it returns what was there before. The
# program that sees the number of parts − 1 was the last, so all other parts are complete, and it merges them. Two
# things are easy to forget: the part must be visible to other processors before the counter is (atomics of Triton
# have `sem="acq_rel"` for that), and the counter must be 0 again for the next launch. No program ever waits for
# another, and that is necessary: nothing says that both run at the same time. The interpreter runs programs one
# after the other, so the mistakes that matter here can't happen in it.
#
# </details>
