# %% [markdown]
# # Day 2.4: Tiles, to play with
#
# The chapter explains and the tests judge; here you cut attention into tiles, fold them one by one, and find out when
# the peak of a real query rises. The cells call your code; where a task is still missing, a line says which.

# %%
# %load_ext notebooks

# %%
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap

from notebooks import (
    COLORS,
    PALE,
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
# One head, causal, L = S = 2,048, in tiles of 128 queries and 256 keys, so 16 × 8 tiles. How many of the 128 have to
# be computed? How many of those need a mask? Write both down before you run the cell. Blue tiles need no mask, pale
# ones do, gray ones aren't computed; the title says which part of the computed scores no query sees. Then try other
# tiles: which ones compute the fewest scores for nothing? Why isn't that the best choice?

# %%
L = 2048


def kinds_of_tiles(queries: int, keys: int) -> np.ndarray:
    """0: every score is hidden, 1: some are, 2: none is."""
    hidden = lab.numpy(lab.attention.causal_mask(L, L)) < 0
    tiles = hidden.reshape(L // queries, queries, L // keys, keys)
    return np.where(tiles.all((1, 3)), 0, np.where(tiles.any((1, 3)), 1, 2))


def tiles_over_a_triangle(queries: int, keys: int) -> Picture:
    kinds = kinds_of_tiles(queries, keys)
    figure, axes = new_figure(width=5.6, height=4.4)
    colors = ListedColormap([PALE["muted"], PALE["orange"], COLORS["blue"]])
    axes.imshow(kinds, cmap=colors, vmin=0, vmax=2, extent=(0, L, L, 0))
    axes.hlines(np.arange(0, L, queries), 0, L, COLORS["paper"], linewidth=0.7)
    axes.vlines(np.arange(0, L, keys), 0, L, COLORS["paper"], linewidth=0.7)
    axes.plot([0, L], [0, L], color=COLORS["ink"], linewidth=1)
    axes.set(xlabel="keys", ylabel="queries", ylim=(L, 0), xlim=(0, L), aspect="equal")
    computed, masked = int((kinds > 0).sum()), int((kinds == 1).sum())
    useless = 1 - L * (L + 1) / 2 / (computed * queries * keys)
    axes.set_title(f"{computed} of {kinds.size} tiles, {masked} masked; {useless:.0%} of the scores unseen")
    return Picture(
        figure,
        f"In tiles of {queries} queries and {keys} keys, {computed} of {kinds.size} tiles are computed, "
        f"{masked} of them with a mask; {useless:.0%} of their scores are hidden.",
    )


SIZES = [64, 128, 256, 512, 1024, 2048]
explore(tiles_over_a_triangle, queries=choice(SIZES, 128), keys=choice(SIZES, 256))

# %% [markdown]
# ## Experiment 1: one query, tile by tile
#
# A real query of the model asks 72 keys, in nine tiles of 8. Your `OnlineSoftmax` folds them one by one. Above are
# the scores; the line is the peak. Below is the result so far in its first 32 numbers, on top of the final one. Look
# for the tile that changes the result most. Does the peak rise in it? Then fold in the other order.

# %%
TEXT = (
    "A lighthouse keeper wrote down the weather every evening for forty years. When he retired, nobody wanted the "
    "books. His daughter kept them in a trunk under the stairs, and one winter she began to read. On the page of "
    "the day on which she was born there was no weather at all. There was only her name, and under it, in pencil,"
)
real = recorded(TEXT)
TILE, KEYS = 8, 72


def scores_of(layer: int, head: int, token: int) -> np.ndarray:
    scores = real.key[layer, head // 3, :KEYS] @ real.query[layer, head, token] / 8  # √64 is 8
    return np.where(np.arange(KEYS) <= token, scores, -np.inf).astype(np.float32)


def folded(layer: int, head: int, token: int, order: list[int]) -> tuple[Any, list[float]]:
    """The state after these tiles, in this order, and the peak after each of them."""
    scores, values = scores_of(layer, head, token), real.value[layer, head // 3, :KEYS]
    state = lab.flash_attention.OnlineSoftmax.empty(lab.array(np.zeros((1, 64))))
    peaks = []
    for tile in order:
        part = slice(tile * TILE, (tile + 1) * TILE)
        state.fold(lab.array(scores[None, part]), lab.array(values[part]))
        peaks.append(state.peak.item())
    return state, peaks


def tile_by_tile(tiles: int, order: str) -> Picture:
    layer, head, token = 0, 7, KEYS - 1
    whole = list(range(KEYS // TILE)) if order == "first to last" else list(range(KEYS // TILE))[::-1]
    state, peaks = folded(layer, head, token, whole[:tiles])
    final, _ = folded(layer, head, token, whole)
    so_far, at_last = lab.numpy(state.result())[0], lab.numpy(final.result())[0]
    figure, (above, below) = new_figure(height=4.2, rows=2)
    seen = np.isin(np.arange(KEYS) // TILE, whole[:tiles])
    above.bar(
        range(KEYS), scores_of(layer, head, token), color=np.where(seen, COLORS["blue"], COLORS["line"])
    )
    peak = peaks[-1] if peaks else -np.inf
    above.axhline(peak if peaks else np.nan, color=COLORS["red"])
    above.set(xlabel="key", ylabel="score")
    above.set_title(f"{tiles} tiles: peak {peak:.2f}, total {state.total.item():.2f}")
    below.plot(at_last[:32], color=COLORS["line"], linewidth=5)
    below.plot(so_far[:32], "o-", markersize=3, color=COLORS["blue"])
    off = np.linalg.norm(so_far - at_last) / np.linalg.norm(at_last)
    below.set(xlabel="number of the result", ylabel="value")
    below.set_title(f"result so far: off by {off:.0%}")
    return Picture(
        figure, f"After {tiles} of 9 tiles, {order}, the peak is {peak:.2f}; the result is off by {off:.0%}."
    )


explore(tile_by_tile, tiles=slider(0, 9, 3), order=choice(["first to last", "last to first"]))

# %% [markdown]
# ## Experiment 2: how often does the peak rise?
#
# Each fold rescales the sums, whether the peak has risen or not. Here the last eight queries of the text, in all
# heads of a layer, fold nine tiles in order; a bar says in how many of the cases the tile brought a new peak. (The
# first tile always does.) Guess for random scores: the second of two tiles has the higher score in half of the cases,
# the third of three in a third … that is the line. Which layers are like that? What could be in the first tile of the
# others?


# %%
def share_of_rises(layer: int, order: str) -> np.ndarray:
    whole = list(range(KEYS // TILE)) if order == "first to last" else list(range(KEYS // TILE))[::-1]
    peaks = [folded(layer, head, token, whole)[1] for head in range(9) for token in range(KEYS - 8, KEYS)]
    return (np.diff(np.array(peaks), axis=1, prepend=-np.inf) > 0).mean(0)


def rising_peaks(layer: int, order: str) -> Picture:
    shares = share_of_rises(layer, order)
    tiles = np.arange(1, len(shares) + 1)
    figure, axes = new_figure(height=2.6)
    axes.bar(tiles, 100 * shares, color=COLORS["blue"], width=0.6)
    axes.plot(tiles, 100 / tiles, "o-", color=COLORS["orange"], markersize=4, label="random scores")
    axes.set(
        xlabel="tile, in the order of folding", ylabel="new peak, % of queries", ylim=(0, 105), xticks=tiles
    )
    axes.legend()
    later = shares[1:].sum()
    axes.set_title(f"layer {layer}, {order}: {later:.1f} rises per query after the first tile")
    return Picture(
        figure, f"Layer {layer}, {order}: after the first tile, the peak rises {later:.1f} times per query."
    )


explore(rising_peaks, layer=slider(0, 29, 0), order=choice(["first to last", "last to first"]))

# %% [markdown]
# ## Measure
#
# On two cores with AVX-512, the chapter takes 400 ms for 2,048 tokens with Day 1.3's attention, and 55 ms in tiles of
# 128 queries and 256 keys. What happens on your machine with tiles that are much smaller, and with one single tile?
# Before you run the cell, write down which line will be the fastest.

# %% tags=["measured"]
draw = np.random.default_rng(4)
tokens = 256 if settings.short() else 2048
query, key, value = (lab.array(draw.standard_normal((1, heads, tokens, 64))) for heads in (9, 3, 3))
mask = lab.attention.causal_mask(tokens, tokens)
grouped, flash = lab.attention.scaled_dot_product_attention_grouped, lab.flash_attention.flash_attention

plain = measure(grouped, query, key, value, None, mask)
print(f"{tokens} tokens, Day 1.3 {30 * ' '}{1000 * plain:6.0f} ms")
for queries, keys in ((16, 32), (64, 64), (128, 256), (256, 512), (tokens, tokens)):
    queries, keys = min(queries, tokens), min(keys, tokens)
    seconds = measure(lambda q=queries, k=keys: flash(query, key, value, None, None, True, q, k))
    kilobytes = 9 * queries * keys * 4 / 1e3
    print(
        f"tiles {queries:4} × {keys:4}, {kilobytes:8,.0f} kB of scores   {1000 * seconds:6.0f} ms, "
        f"{plain / seconds:4.1f} times as fast"
    )

# %% [markdown]
# ## An open question
#
# In Experiment 2 most tiles bring no new peak, or one that is hardly higher. Rescaling costs a pass over `out`. Could
# a fold leave it out, although the peak has risen a little, and still be exact?
#
# <details>
# <summary>One answer</summary>
#
# Yes. The peak is subtracted so that exp() doesn't overflow; any number near it does as well, as long as `out` and
# `total` are measured against the same one. So a fold may keep its old peak until a score lies, say, 5 above it:
# weights then grow up to exp(5), about 150, which float32 holds easily, and the division at the end makes up for it.
# FlashAttention-4, for NVIDIA's Blackwell GPUs, leaves out most rescalings in this way. It pays there because the
# matrix units are so fast that the work around them decides. The result may differ in its last digits, no more.
#
# </details>
