# %% [markdown]
# # Day 3.3: A paged kernel for the CPU, to play with
#
# Here you count bytes, deal work to threads, and find out where your own kernel wins. The cells call your code;
# where a task is still missing, a line says which one. A new kernel compiles for some seconds at its first call.

# %%
# %load_ext notebooks

# %%
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, slider

# %% [markdown]
# ## Predict
#
# How many bytes does yesterday's path move, for each byte of keys and values that it attends to? It gathers, and
# then multiplies. And how many if the pool is bfloat16, so that `key.float()` comes between the two? Write down two
# numbers. Then let one operation after the other happen: 16 sequences of 512 tokens decode, and the picture counts
# one layer.

# %%
TOKEN_BYTES = 2 * 3 * 64  # keys and values of 3 heads, at one byte per number
PATH = {
    "float32": [("gather reads", 4), ("gather writes", 4), ("product reads", 4)],
    "bfloat16": [
        ("gather reads", 2),
        ("gather writes", 2),
        (".float() reads", 2),
        (".float() writes", 4),
        ("product reads", 4),
    ],
}
TONES = [COLORS[name] for name in ("blue", "orange", "yellow", "red", "green")]


def bytes_moved(operations: int, pool: str) -> Picture:
    figure, axes = new_figure(height=1.9)
    path, attended = PATH[pool], 16 * 512 * TOKEN_BYTES * int(pool.strip("bfloat")) / 8 / 1e6
    left = 0.0
    for (name, width), tone in zip(path[:operations], TONES, strict=False):
        moved = 16 * 512 * TOKEN_BYTES * width / 1e6
        axes.barh(0, moved, left=left, color=tone)
        axes.text(
            left + moved / 2, 0, name.replace(" ", "\n"), color="white", ha="center", va="center", fontsize=8
        )
        left += moved
    axes.barh(1, attended, color=COLORS["muted"])
    axes.set(
        yticks=[0, 1],
        yticklabels=["moved", "attended to"],
        xlabel="MB per layer and step",
        xlim=(0, 46),
        ylim=(-0.5, 1.5),
    )
    done = f"{min(operations, len(path))} of {len(path)} operations"
    axes.set_title(f"{pool}, after {done}: moved to attended, {left / attended:.0f} to 1")
    return Picture(
        figure,
        f"A pool of {pool} after {done}: {left:.1f} MB moved for {attended:.1f} MB attended to, "
        f"{left / attended:.0f} to one.",
    )


explore(bytes_moved, operations=slider(0, 5, 0), pool=choice(["float32", "bfloat16"]))

# %% [markdown]
# ## Experiment 1: whole sequences, or parts dealt like cards
#
# Five sequences, with 300 to 1,500 keys and one that is as long as you like. Above, each worker gets a run of whole
# sequences, as a loop over the sequences would share them out. Below, the workers take the cards of your `deal` in
# turns. The step ends when the last worker is done. Make the long sequence longer: which of the two pictures helps
# it? With how many workers does another one no longer shorten the step?


# %%
def shared_out(workers: int, longest: int) -> Picture:
    kv_lens = np.array([300, longest, 1500, 700, 500], np.int32)
    whole = [[(row, int(kv_lens[row])) for row in rows] for rows in np.array_split(np.arange(5), workers)]
    cpu = lab.kernels.paged_attention_cpu
    tasks = cpu.deal(kv_lens, np.arange(5, dtype=np.int32)).tolist()
    cards = [(row, min(cpu.PART, int(kv_lens[row]) - part * cpu.PART)) for row, part in tasks]
    dealt = [cards[worker::workers] for worker in range(workers)]
    figure, both = new_figure(height=1.4 + 0.4 * workers, rows=2, sharex=True)
    tones, said = [COLORS[name] for name in ("muted", "blue", "orange", "green", "purple")], []
    for axes, shares, name in zip(both, (whole, dealt), ("whole sequences", "parts, dealt"), strict=True):
        for worker, share in enumerate(shares):
            left = 0
            for row, keys in share:
                axes.barh(worker, keys, left=left, color=tones[row], edgecolor=COLORS["paper"])
                left += keys
        slowest = max(sum(keys for _, keys in share) for share in shares)
        said.append(
            f"{name}: done after {slowest:,} keys, where {kv_lens.sum() / workers:,.0f} would be even"
        )
        axes.set(yticks=range(workers), ylabel="worker", ylim=(workers - 0.5, -0.5), title=said[-1])
    both[1].set_xlabel("keys (blue: the long sequence)")
    return Picture(figure, f"{workers} workers and a longest past of {longest:,} keys; {'; '.join(said)}.")


explore(shared_out, workers=slider(1, 8, 2), longest=slider(500, 8000, 1000, 500))

# %% [markdown]
# ## Experiment 2: what the kernel computes for nothing
#
# The kernel computes the scores of a tile for all rows, and then gives weight 0 to those that a token must not see.
# Blue scores are seen, pale ones are computed for nothing; the lines are tiles of 64 keys. For which steps is
# nothing wasted? Can it be more than half? Is this the reason why long chunks go another way, in Task 6?


# %%
def seen_scores(new_tokens: int, past: int) -> Picture:
    kv_len = past + new_tokens
    seen = lab.numpy(lab.attention.causal_mask(new_tokens, kv_len)) == 0
    figure, axes = new_figure(height=2.6)
    rows = np.arange(new_tokens + 1)
    axes.fill_betweenx([0, new_tokens], 0, kv_len, color=PALE["orange"])
    counts = seen.sum(axis=1)
    axes.fill_betweenx(rows, 0, np.append(counts, counts[-1]), step="post", color=COLORS["blue"])
    for tile in range(64, kv_len, 64):
        axes.axvline(tile, color=COLORS["paper"], lw=0.8)
    axes.set(xlim=(0, 640), ylim=(new_tokens, 0), xlabel="key", ylabel="new token")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_title(
        f"new tokens: {new_tokens}, keys: {kv_len}; {1 - seen.mean():.1%} of the scores for nothing"
    )
    return Picture(
        figure,
        f"New tokens: {new_tokens}, over {kv_len} keys; {seen.sum():,} of {seen.size:,} scores are seen, "
        f"{1 - seen.mean():.1%} are computed for nothing.",
    )


explore(seen_scores, new_tokens=slider(1, 128, 1), past=slider(0, 512, 256, 32))

# %% [markdown]
# ## Measure
#
# First the table of Task 6: one layer, 512 keys, more and more of them new. In the chapter the kernel wins up to 8
# queries, and `FEW_QUERIES` is set to that. What should it be on your machine?

# %% tags=["measured"]
SCALE = 64**-0.5


def step(count: int, new: int, keys: int) -> tuple:
    """A query, a layer's pages in any order, and the metadata, for some sequences."""
    pages = count * keys // 16 + 1
    config = SimpleNamespace(num_layers=1, num_kv_heads=3, head_dim=64)
    pool, draw = lab.paged.pool.KvPool(config, pages, 16), np.random.default_rng(3)
    kv = (lab.array(draw.standard_normal((16 * pages, 3, 64))) for _ in "kv")
    pool.write(0, lab.array(np.arange(16 * pages)), *kv)
    table = lab.array(draw.permutation(pages - 1).reshape(count, -1) + 1, "int32")
    meta = lab.paged.metadata.ForwardMeta.build(table, [keys - new] * count, [new] * count, 16)
    return lab.array(draw.standard_normal((count * new, 9, 64))), pool.keys[0], pool.values[0], meta


def gather_and_fuse(query: Any, keys: Any, values: Any, meta: Any, scale: float) -> Any:  # one sequence
    key, value = (pages[meta.block_table[0]].flatten(0, 1) for pages in (keys, values))
    return lab.kernels.paged_attention_auto.attend_fused(query, key, value, scale, True)


kernel = lab.kernels.paged_attention_cpu.paged_attention_cpu
for new in (1, 4, 8, 16, 32, 128):
    arguments = step(1, new, 512)
    by_kernel, by_gather = (1000 * measure(way, *arguments, SCALE) for way in (kernel, gather_and_fuse))
    faster = "the kernel" if by_kernel < by_gather else "gathering"
    print(
        f"{new:3} queries: kernel {by_kernel:6.2f} ms, gather and torch {by_gather:6.2f} ms: {faster} is faster"
    )

# %% [markdown]
# Then a decode step of one layer. In the chapter the reference takes 6.3 ms for 16 sequences of 512 keys, and the
# kernel
# 1.3 ms. How close does the kernel come to the speed at which your memory can be read?

# %% tags=["measured"]
for count, keys in ((1, 512), (16, 512), (16, 2048)):
    arguments = step(count, 1, keys)
    reference, by_kernel = (
        measure(way, *arguments, SCALE) for way in (lab.paged.attention.paged_attention, kernel)
    )
    gigabytes = count * keys * TOKEN_BYTES * 4 / 1e9
    print(
        f"{count:2} × {keys:4} keys: reference {1000 * reference:6.2f} ms, kernel {1000 * by_kernel:6.2f} ms, "
        f"which is {gigabytes / by_kernel:5.1f} GB/s"
    )

# %% [markdown]
# ## An open question
#
# Suppose your kernel reads the pages as fast as the memory allows. More threads don't help any more, and neither
# does less arithmetic. By which changes could a decode step still become faster?
#
# <details>
# <summary>One answer</summary>
#
# Only by reading fewer bytes. Smaller numbers: bfloat16 pages halve the bytes, and production engines store keys
# and values in 8 bits (`--kv-cache-dtype fp8` in vLLM), with a scale to widen them by. Fewer heads: this model has
# nine query heads on three key heads already, and some models keep one small vector per token instead of keys and
# values (multi-head latent attention, in DeepSeek's models). Fewer tokens: sliding windows in most layers. Or the
# same bytes for more requests: where sixteen of them share a long beginning, it could be read once for all, and
# merged with the rest by log-sum-exp. The pages make that possible (Day 4.1), but the kernel must be told which
# rows share what.
#
# </details>
