# %% [markdown]
# # Day 4.7: Make it fast, to play with
#
# Memory or arithmetic: one of them is the limit. Here you move both, spoil a group with an outlier, and add the same
# numbers in another order. The kernels that a cell uses for the first time are compiled, which may take a minute.

# %%
# %load_ext notebooks

# %%
import numpy as np
import torch

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, settings, slider, switch

# %% [markdown]
# ## Predict
#
# In 4 bits a weight of the blocks takes 0.625 bytes; a row needs two operations for it. At 15 GB/s and 1,500 billion
# operations per second, from how many rows on does arithmetic limit a block's multiplications? Write it down. And
# what happens to this number with a memory that is twice as fast?
#
# The curves are the most tokens per second that the blocks' 106 million weights allow. Bfloat16 and float32 are given
# the arithmetic of bytes, too, so that only the bytes differ.

# %%
FORMS = {
    "4 bits": (0.625, "blue"),
    "8 bits": (1.125, "green"),
    "bfloat16": (2.0, "orange"),
    "float32": (4.0, "purple"),
}
WEIGHTS = 106e6


def limits(memory: int, operations: int) -> Picture:
    figure, axes = new_figure(height=3.0)
    turns = []
    for name, (size, color) in FORMS.items():
        turn, most = operations / memory * size / 2, operations * 1e9 / (2 * WEIGHTS)
        first = min(most, memory * 1e9 / (WEIGHTS * size))
        axes.plot([1, max(turn, 1), 512], [first, most, most], color=COLORS[color], label=name)
        axes.plot(turn, most, "o", color=COLORS[color])
        turns.append(f"{name} {turn:.0f}")
    axes.set(xscale="log", xlim=(1, 512), xlabel="rows of a step")
    axes.set(yscale="log", ylim=(20, 2e4), ylabel="tokens per second")
    axes.legend(loc="lower right")
    axes.set_title(f"arithmetic is the limit from so many rows on:\n{', '.join(turns)}")
    return Picture(
        figure,
        f"At {memory} GB/s and {operations} GOP/s, arithmetic limits from these rows on: {', '.join(turns)}.",
    )


explore(
    limits,
    memory=slider(5, 100, 15, 5, "memory, GB/s"),
    operations=slider(100, 3000, 1500, 100, "billion operations per second"),
)

# %% [markdown]
# ## Experiment 1: one large number
#
# A row of 96 random numbers becomes three groups in 8 bits, and number 40 is as large as you make it. The bars are
# the errors. Which numbers pay for the outlier? How large must it be until small ones vanish, that is, get the code 0
# (✕)? Then let each number be kept as two rows, as the head does.


# %%
def outlier(size: float, twice: bool) -> Picture:
    row = np.random.default_rng(0).standard_normal(96).astype(np.float32)
    row[40] = size
    rows8 = lab.fast.rows8
    rows = rows8.make_rows8(192)
    (rows8.quantize_row_twice if twice else rows8.quantize_row)(row, 0, 96, 0, rows)
    kept = (rows.codes.reshape(6, 32) * rows.steps[:, None]).reshape(2, 96)
    errors = np.abs(kept[: 1 + twice].sum(0) - row)
    gone = [place for place in range(96) if not rows.codes[place]]
    figure, axes = new_figure(height=2.6)
    colors = [COLORS["orange" if 32 <= number < 64 else "blue"] for number in range(96)]
    axes.vlines(range(96), 1e-6, np.maximum(errors, 1e-6), colors, linewidth=2.5)
    axes.plot(gone, [1.3] * len(gone), "x", color=COLORS["red"], markersize=4)
    axes.set(yscale="log", ylim=(1e-6, 2), xlabel="number of the row", ylabel="error")
    for edge in (31.5, 63.5):
        axes.axvline(edge, color=COLORS["line"])
    axes.set_title(f"the outlier is {size:.0f}; numbers with code 0: {len(gone)} of 96")
    words = f"With an outlier of {size:.0f}, {len(gone)} of 96 numbers have the code 0"
    return Picture(figure, f"{words}; its group has {'two rows' if twice else 'one row'} of 8 bits.")


explore(outlier, size=slider(1.0, 200.0, 3.0, 1.0), twice=switch(False, "two rows for each"))

# %% [markdown]
# ## Experiment 2: the same sum in another order
#
# 500 pairs of rows are multiplied and added up in float32, first from left to right, then in parts: each part is
# added up by itself, and then the parts, as threads or tiles that share a sum would do. A bar says how often the two
# differ by so many steps of the last bit. What do you expect of two parts, and of 16? How often would a token change?


# %%
def in_order(products: np.ndarray) -> np.ndarray:
    """The sum of each row in float32, strictly from left to right."""
    return np.add.accumulate(products, axis=-1, dtype=np.float32)[..., -1]


def orders(parts: int, length: int) -> Picture:
    draw = np.random.default_rng(1)
    left, right = draw.standard_normal((2, 500, length), dtype=np.float32)
    products = left * right
    whole, cut = in_order(products), in_order(in_order(products.reshape(500, parts, -1)))
    steps = np.rint((cut - whole) / np.spacing(np.abs(whole))).astype(int)
    figure, axes = new_figure(height=2.4)
    values, counts = np.unique(np.clip(steps, -20, 20), return_counts=True)
    axes.bar(values, counts, 0.8, color=[COLORS["blue" if value else "muted"] for value in values])
    axes.set(
        xlim=(-21, 21), xlabel="difference in steps of the last bit (beyond 20: at the edge)", ylabel="sums"
    )
    same = int((steps == 0).sum())
    axes.set_title(f"{length} numbers, parts: {parts}; {same} of 500 sums stay the same")
    return Picture(
        figure,
        f"Of 500 sums of {length} numbers, {same} are the same in {parts} parts.",
    )


explore(orders, parts=choice([1, 2, 4, 8, 16], 2), length=choice([64, 576, 1536], 576))

# %% [markdown]
# ## Measure
#
# In the chapter the matrix products of a step of 32 requests take 81 ms in bfloat16 and 19 ms in 4 × 8 bits. Here is
# one matrix, the 1,536 × 576 of a block, in float32, in bfloat16, and in your kernel, for steps of several sizes.
# What a row costs says which limit you are at.

# %% tags=["measured"]
draw = torch.Generator().manual_seed(2)
matrix = torch.randn(1536, 576, generator=draw)
laid = lab.fast.weights8.lay_out_4_bits(lab.quantize.quantize(matrix))
threads = torch.get_num_threads()


def in_8_bits(x: np.ndarray, out: np.ndarray) -> None:
    """The rows in 8 bits, times the weights in 4."""
    rows = lab.fast.rows8.make_rows8(x.size)
    lab.fast.small.quantize(len(x), threads, x.reshape(-1), 576, rows)
    lab.fast.multiply.multiply(laid, rows, len(x), False, threads, out)


print("rows   float32   bfloat16   4 × 8 bits")
for rows in (1, 8) if settings.short() else (1, 8, 32, 128, 512):
    x = torch.randn(rows, 576, generator=draw)
    seconds = [
        measure(torch.nn.functional.linear, x, matrix),
        measure(torch.nn.functional.linear, x.bfloat16(), matrix.bfloat16()),
        measure(in_8_bits, x.numpy(), np.zeros(rows * 1536, np.float32)),
    ]
    print(f"{rows:4} {1e6 * seconds[0]:7.0f} µs {1e6 * seconds[1]:7.0f} µs {1e6 * seconds[2]:9.0f} µs")

# %% [markdown]
# ## An open question
#
# For one request, memory is the limit: while the weights come, the arithmetic could serve some thirty rows, and 29 of
# thirty parts of it lie idle. How could a request that is alone make use of them?
#
# <details>
# <summary>One answer</summary>
#
# By bringing several rows to a step. Its next token is known only when the one before it is, so it has to be
# guessed: by a small model, by a few extra layers, or simply from the text so far, since answers often repeat it.
# The large model runs on all guessed tokens at once, like on a chunk of a prompt, and says of each what it would
# have chosen. What agrees, from the first guess on, is kept. This is *speculative decoding* (Leviathan et al. 2023,
# arXiv 2211.17192). The tokens are those that the large model gives alone, if a row comes out the same in any
# company: that is one more reason for today's order of additions. In a step of 32 requests there is nothing idle
# any more, and wrong guesses only cost.
#
# </details>
