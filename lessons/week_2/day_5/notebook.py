# %% [markdown]
# # Day 2.5: Few queries, many keys, to play with
#
# The chapter explains and the tests judge; here you move points under a roofline, share work among threads, and take
# bits away from the keys of the real model. The cells call your code; where a task is still missing, a line says
# which.

# %%
# %load_ext notebooks

# %%
from collections.abc import Callable

import numpy as np

from notebooks import (
    COLORS,
    Picture,
    choice,
    explore,
    lab,
    measure,
    new_figure,
    recorded,
    settings,
    slider,
)

# %% [markdown]
# ## Predict
#
# One new token; 9 query heads on 3 key heads; float32. How many operations does attention do for each byte of keys
# and values, if a multiplication and an addition are two operations? What changes with a longer past, with a batch of
# 16, with bfloat16? Write it down, then try: the point is the step that you choose, under the roof of the chapter's
# two cores (30 GB per second, 300 GFLOP/s). How many new tokens does it take to leave the slope? And which model (how
# many query heads to a key head) needs the fewest?

# %%
MEMORY, ARITHMETIC, S = 30.0, 300.0, 4096  # GB per second, billion operations per second, keys


def under_the_roof(new_tokens: int, query_heads_per_key_head: int, dtype: str) -> Picture:
    size = {"float32": 4, "bfloat16": 2}[dtype]
    queries = new_tokens * query_heads_per_key_head
    operations = 4 * queries * S * 64
    moved = (2 * queries + 2 * S) * 64 * size  # queries and results, keys and values
    intensity = operations / moved
    reached = min(ARITHMETIC, MEMORY * intensity)
    figure, axes = new_figure(height=2.9)
    roof = np.array([0.3, ARITHMETIC / MEMORY, 1000])
    axes.plot(roof, np.minimum(ARITHMETIC, MEMORY * roof), color=COLORS["muted"])
    axes.plot(intensity, reached, "o", markersize=10, color=COLORS["blue"])
    axes.set(
        xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s, at most", ylim=(5, 600)
    )
    bound = "memory" if reached < ARITHMETIC else "arithmetic"
    axes.set_title(f"{intensity:.1f} operations per byte: {bound} is the limit")
    return Picture(
        figure,
        f"{new_tokens} new tokens, {query_heads_per_key_head} query heads to a key head, {dtype}: "
        f"{intensity:.1f} operations per byte allow {reached:.0f} GFLOP/s; {bound} is the limit.",
    )


explore(
    under_the_roof,
    new_tokens=slider(1, 64, 1),
    query_heads_per_key_head=choice([1, 3, 8, 16], 3),
    dtype=choice(["float32", "bfloat16"]),
)

# %% [markdown]
# ## Experiment 1: who waits for whom
#
# One row with 4,096 keys and 3 key heads. Each head's past is cut into parts; a part of a head is a piece of work,
# and each thread gets a run of pieces. The picture is the work of the threads over time: a block is a piece, its
# color the head. All threads must be done before the parts can be merged. With 2 threads, what is the smallest number
# of parts with which no thread waits? With 8? And what do twice as many parts change?

# %%
HEADS = ("blue", "orange", "green")


def pieces_on_threads(threads: int, parts: int) -> Picture:
    pieces = [(head, 4096 // parts) for head in HEADS for _ in range(parts)]
    figure, axes = new_figure(height=2.9)
    longest = 0
    for thread, run in enumerate(np.array_split(np.arange(len(pieces)), threads)):
        for place, piece in enumerate(run):
            head, keys = pieces[piece]
            axes.barh(thread, keys, left=place * keys, color=COLORS[head], edgecolor=COLORS["paper"])
            longest = max(longest, (place + 1) * keys)
    busy = 3 * 4096 / (threads * longest)
    axes.set(
        xlabel="keys read, one after another", ylabel="thread", ylim=(threads - 0.4, -0.6), xlim=(0, 12_500)
    )
    axes.set_yticks(range(threads))
    axes.set_title(f"{threads} threads, {3 * parts} pieces: {busy:.0%} of the threads' time is work")
    return Picture(
        figure,
        f"{3 * parts} pieces on {threads} threads: the last is done after {longest:,} keys; {busy:.0%} is work.",
    )


explore(pieces_on_threads, threads=slider(1, 16, 2), parts=slider(1, 16, 1))

# %% [markdown]
# The given `part_count` chooses the parts, and lets none have fewer than 256 keys. What speaks against 1,000 parts?
#
# ## Experiment 2: how many bits does a key need?
#
# A bfloat16 is a float32 without its last 16 bits: of the 23 bits behind the point, 7 are left. Here you choose how
# many are left, and your kernel attends to keys and values that were rounded like that: real ones, of the model, for
# one text. The curves say how far the result of the last token is off, layer by layer. How many bits take the error
# below 1%? Are keys and values equally sensitive? FP8 caches (e4m3) keep 3 bits.

# %%
TEXT = (
    "A lighthouse keeper wrote down the weather every evening for forty years. When he retired, nobody wanted the "
    "books. His daughter kept them in a trunk under the stairs, and one winter she began to read. On the page of "
    "the day on which she was born there was no weather at all. There was only her name, and under it, in pencil,"
)
real = recorded(TEXT)


def rounded(numbers: np.ndarray, bits: int) -> np.ndarray:
    """The nearest numbers that have so many bits behind the point."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.round(np.ldexp(mantissa, bits + 1)), exponent - bits - 1).astype(np.float32)


def last_result(layer: int, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    given = (lab.array(part[None]) for part in (real.query[layer][:, -1:], key, value))
    return lab.numpy(lab.kernels.decode_attention_cpu.decode_attention(*given))


def errors_by_layer(bits: int, what: str) -> list[float]:
    errors = []
    for layer in range(30):
        key, value = real.key[layer], real.value[layer]
        exact = last_result(layer, key, value)
        key = rounded(key, bits) if what == "keys" else key
        value = rounded(value, bits) if what == "values" else value
        off = np.linalg.norm(last_result(layer, key, value) - exact)
        errors.append(float(off / np.linalg.norm(exact)))
    return errors


def fewer_bits(bits: int) -> Picture:
    figure, axes = new_figure(height=2.9)
    worst = []
    for what, color in (("keys", "blue"), ("values", "orange")):
        errors = errors_by_layer(bits, what)
        worst.append(max(errors))
        axes.plot(
            range(30),
            100 * np.array(errors),
            "o-",
            markersize=3.5,
            color=COLORS[color],
            label=f"{what} rounded",
        )
    axes.axhline(1, color=COLORS["line"])
    axes.set(yscale="log", ylim=(0.002, 200), xlabel="layer", ylabel="error of the result, %")
    axes.legend(loc="upper right", ncols=2)
    axes.set_title(f"{bits} bits behind the point")
    return Picture(
        figure,
        f"With {bits} bits behind the point, the result is off by up to {worst[0]:.1%} with rounded keys, "
        f"by up to {worst[1]:.1%} with rounded values.",
    )


explore(fewer_bits, bits=slider(0, 10, 7))

# %% [markdown]
# ## Measure
#
# With float32 and one row of 4,096 keys, on two cores with AVX-512, your kernel takes about 0.6 times as long as Day
# 1.3's attention, which is the quotient of the chapter's 0.7 and 1.1. And at which length does it begin to gain? The
# GB per second say how near it comes to memory. (Several layers in turn, so that the keys come from memory.)

# %% tags=["measured"]
draw = np.random.default_rng(5)
layers = 4 if settings.short() else 12
grouped = lab.attention.scaled_dot_product_attention_grouped
decode = lab.kernels.decode_attention_cpu.decode_attention


def all_layers(attention: Callable, query: object, pasts: list) -> None:
    for key, value in pasts:
        attention(query, key, value)


for keys in (256, 1024) if settings.short() else (256, 1024, 4096, 8192):
    query = lab.array(draw.standard_normal((1, 9, 1, 64)))
    pasts = [[lab.array(draw.standard_normal((1, 3, keys, 64))) for _ in "kv"] for _ in range(layers)]
    plain, fast = (measure(all_layers, way, query, pasts) / layers for way in (grouped, decode))
    gigabytes = 2 * 3 * keys * 64 * 4 / 1e9
    print(
        f"{keys:4} keys   Day 1.3 {1e6 * plain:6.0f} µs   kernel {1e6 * fast:6.0f} µs, {gigabytes / fast:4.1f} GB/s"
        f"   {fast / plain:4.2f} times as long"
    )

# %% [markdown]
# ## An open question
#
# DeepSeek's models have 128 query heads and cache, for each token and layer, one vector of 576 numbers, which all
# heads share, as key and (most of it) as value. Where does a decode step of such a model lie under the roof?
#
# <details>
# <summary>One answer</summary>
#
# Each number is read once and serves 128 heads, in the score and in the sum: about 4 × 128 operations for the 2 bytes
# of a bfloat16, some 240 per byte. (512 of the 576 numbers are used twice, the other 64 once.) That is far beyond the
# ridge of a CPU, and near that of a large GPU: decode attention waits for arithmetic, no longer for memory. Such a
# kernel needs matrix instructions, even for one token. This is *multi-head latent attention* (DeepSeek-AI 2024, arXiv
# 2405.04434); its first aim is a small cache, 576 numbers instead of 2 × 128 × 128.
#
# </details>
