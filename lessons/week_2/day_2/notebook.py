# %% [markdown]
# # Day 2.2: Sixteen levels, to play with
#
# The chapter explains and the tests judge; here you choose the groups and the bits, on weights and keys of the real
# model. The cells call your code; where a task is still missing, a line says which.

# %%
# %load_ext notebooks

# %%
from statistics import NormalDist

import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, recorded, slider

# %% [markdown]
# ## Predict
#
# A group shares a float16 scale and a float16 minimum. How many bits per weight is that with groups of 32, and with
# groups of 8? Which of them has the smaller error? Guess the error, too, as a part of the weights' size. Then choose.
#
# The dots are 64 neighbors of one row of the model's embedding; the lines are the 16 levels that each group gets.

# %%
weights = lab.weights.load_weights(bits=4, matmul="plain")
ROWS = lab.numpy(weights.tensor("embedding.weight")[100:356])  # [256, 576], float32
SHOWN = 64


def in_4_bits(rows: np.ndarray, group_size: int) -> tuple[np.ndarray, float]:
    """What is read back, and the bits per weight that it took."""
    quantized = lab.quantize.quantize(lab.array(rows), group_size)
    return lab.numpy(lab.quantize.dequantize(quantized)), 8 * quantized.nbytes / rows.size


def error(rows: np.ndarray, back: np.ndarray) -> float:
    return float(np.linalg.norm(back - rows) / np.linalg.norm(rows))


def groups_and_levels(group_size: int) -> Picture:
    back, bits = in_4_bits(ROWS, group_size)
    row = ROWS[0]
    figure, axes = new_figure(height=3)
    for start in range(0, SHOWN, group_size):
        group = row[start : start + group_size]
        levels = np.linspace(group.min(), group.max(), 16)
        axes.hlines(levels, start - 0.4, min(start + group_size, SHOWN) - 0.6, COLORS["line"], linewidth=0.8)
    axes.plot(row[:SHOWN], "o", markersize=3)
    axes.set(xlim=(-1, SHOWN), xlabel="weights of one row, in order", ylabel="value")
    found = f"groups of {group_size}: {bits:.2f} bits per weight, error {error(ROWS, back):.1%}"
    axes.set_title(found)
    return Picture(figure, f"Weights and the levels of their groups; {found}.")


explore(groups_and_levels, group_size=choice([8, 16, 32, 64, 192, 576], 32, title="weights per group"))

# %% [markdown]
# Which weights decide the levels of a group? Is there a group that has good luck?
#
# ## Experiment 1: other numbers of bits
#
# Up to 256 levels in a group, so 1 to 8 bits. *Even* levels are the chapter's: from the smallest weight to the
# largest in equal steps. The levels of the other curve stand closer together in the middle, where a bell curve has
# most of its weights; the formats NF4 and IQ4_NL have such levels. What does each bit do to the error? When is uneven
# spacing worth its trouble: with few bits or many, in small groups or large ones?


# %%
def levels_from_0_to_1(bits: int, group_size: int, uneven: bool) -> np.ndarray:
    even = np.linspace(0, 1, 2**bits)
    if not uneven:
        return even
    bell = NormalDist(0, 3**0.5)  # the error is least for a bell that is wider than that of the weights
    tail = bell.cdf(NormalDist().inv_cdf(0.5 / group_size))
    uneven_levels = np.array([bell.inv_cdf(tail + (1 - 2 * tail) * place) for place in even])
    return (uneven_levels - uneven_levels[0]) / np.ptp(uneven_levels)


def read_back(bits: int, group_size: int, uneven: bool = False) -> np.ndarray:
    groups = ROWS.reshape(-1, group_size)
    low, high = groups.min(1, keepdims=True), groups.max(1, keepdims=True)
    levels = levels_from_0_to_1(bits, group_size, uneven)
    between = (levels[1:] + levels[:-1]) / 2
    nearest = levels[np.searchsorted(between, (groups - low) / (high - low))]
    return (low + nearest * (high - low)).reshape(ROWS.shape)


def bits_and_error(bits: int, group_size: int) -> Picture:
    figure, (left, right) = new_figure(height=2.8, cols=2)
    few = slice(0, 8)
    left.plot(ROWS[few].ravel(), read_back(bits, group_size)[few].ravel(), ".", markersize=2, rasterized=True)
    left.set(xlabel="weight", ylabel="read back", xlim=(-0.35, 0.35), ylim=(-0.35, 0.35))
    left.set_title(f"{bits} bits, groups of {group_size}, even")
    numbers = list(range(1, 9))
    for uneven, color in ((False, "blue"), (True, "orange")):
        errors = [error(ROWS, read_back(number, group_size, uneven)) for number in numbers]
        label = "uneven" if uneven else "even"
        right.plot(numbers, errors, "o-", markersize=4, color=COLORS[color], label=label)
        right.plot(bits, errors[bits - 1], "o", markersize=9, color=COLORS[color])
    right.set(yscale="log", ylim=(0.003, 6), xlabel="bits", ylabel="error / size of the weights")
    right.minorticks_off()
    even, other = (error(ROWS, read_back(bits, group_size, uneven)) for uneven in (False, True))
    right.set_title(f"error: even {even:.1%}, uneven {other:.1%}")
    right.legend()
    return Picture(
        figure,
        f"{bits} bits in groups of {group_size}: the error is {even:.1%} with even levels, "
        f"{other:.1%} with uneven ones.",
    )


explore(bits_and_error, bits=slider(1, 8, 4), group_size=choice([32, 96, 576], title="weights per group"))

# %% [markdown]
# ## Experiment 2: yesterday's cache in 4 bits
#
# Why only weights? Below are the keys or the values that one head of the real model caches for a text: a row is a
# token, a column one of the 64 numbers (a *channel*). Both are quantized by your code in groups of 32. A group can be
# half of a token's channels, or 32 tokens of one channel. Look at the stripes first, and guess which is better for
# keys, and which for values. Is it so in all layers?

# %%
TEXT = (
    "A lighthouse keeper wrote down the weather every evening for forty years. When he retired, nobody wanted the "
    "books. His daughter kept them in a trunk under the stairs, and one winter she began to read. On the page of "
    "the day on which she was born there was no weather at all. There was only her name, and under it, in pencil,"
)
cached = recorded(TEXT)


def cache_in_4_bits(layer: int, part: str) -> Picture:
    numbers = getattr(cached, part)[layer, 0, :64]  # [tokens, channels]
    along_token = error(numbers, in_4_bits(numbers, 32)[0])
    along_channel = error(numbers, in_4_bits(numbers.T.copy(), 32)[0].T)
    figure, (left, right) = new_figure(height=2.9, cols=2, width_ratios=[3, 2])
    most = np.abs(numbers).max()
    left.imshow(numbers, cmap="PuOr", vmin=-most, vmax=most, aspect="auto")
    left.set(xlabel="channel", ylabel="token", xticks=(0, 31, 63), yticks=(0, 31, 63))
    left.set_title(f"layer {layer}, {part}s of head 0")
    bars = right.bar(
        ["of one token", "of one channel"],
        [100 * along_token, 100 * along_channel],
        width=0.6,
        color=[COLORS["blue"], COLORS["orange"]],
    )
    right.bar_label(bars, fmt="%.0f%%")
    right.set(ylim=(0, 18), yticks=(0, 5, 10, 15), xlabel="32 numbers of a group are …", ylabel="error, %")
    return Picture(
        figure,
        f"Layer {layer}, {part}s: the error is {along_token:.0%} with groups of one token's channels, "
        f"{along_channel:.0%} with groups of one channel's tokens.",
    )


explore(cache_in_4_bits, layer=slider(0, 29, 11), part=choice(["key", "value"]))

# %% [markdown]
# ## Measure
#
# Today's layer makes a float32 matrix in each call. In the chapter, on two cores with AVX-512, making it takes more
# than twice as long as multiplying one row by it, so the layer is about 0.3 times as fast as the float32 one. And
# with more rows, as in a prompt? Where is the price no longer felt on your machine?

# %% tags=["measured"]
quantized = weights.tensors["blocks.0.gate_up.weight"]
matrix = lab.quantize.dequantize(quantized)
plain, in_nibbles = lab.layers.Linear(matrix), lab.quantize.QuantizedLinear(quantized)
megabytes = matrix.nbytes / 1e6, quantized.nbytes / 1e6
print(f"gate_up of a block: {megabytes[0]:.1f} MB in float32, {megabytes[1]:.1f} MB in 4 bits")
for rows in (1, 8, 64, 512):
    x = lab.array(np.random.default_rng(rows).standard_normal((rows, 576)))
    floats, nibbles = measure(plain, x), measure(in_nibbles, x)
    print(
        f"{rows:3} rows   float32 {1e6 * floats:6.0f} µs   4 bits {1e6 * nibbles:6.0f} µs   "
        f"{floats / nibbles:4.2f} times as fast"
    )

# %% [markdown]
# ## An open question
#
# Say that you want to keep the keys of yesterday's cache in 4 bits, in the groups that Experiment 2 likes better.
# Tokens arrive one at a time. What becomes difficult?
#
# <details>
# <summary>One answer</summary>
#
# Some channels of the keys are large for every token. In a group of one token's channels they stretch the steps of
# all the others; in a group of one channel's tokens they are among themselves. But such a group is complete only
# after 32 tokens: scale and minimum of an open group change with every token, and its old codes no longer fit. So the
# newest tokens stay in floats until there are 32 of them, and only then are quantized together. The values have
# hardly any such channels, so theirs are usually grouped token by token, which lets each token be stored at once.
# This is the plan of KIVI (Liu et al. 2024, arXiv 2402.02750).
#
# </details>
