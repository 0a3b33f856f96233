# %% [markdown]
# # Day 1.3: Masks and grouped heads, to play with
#
# The chapter explains and the tests judge; here you move the corner of the mask, cut a prompt into chunks and give
# heads the wrong keys. The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, recorded, slider, switch

# %% [markdown]
# ## Predict
#
# Five tokens stand in the text, and the last three of them are new. How many zeros does the [3, 5] mask have, and
# which is the first key that the first new token must not see? Write both down, then move S to 5. Before you go on,
# guess the mask for L = 1, and the one for L = 5 and S = 3.


# %%
def mask_of(L: int, S: int) -> Picture:
    seen = lab.numpy(lab.attention.causal_mask(L, S)) == 0
    figure, axes = new_figure(width=4.4, height=3.0)
    axes.imshow(np.where(seen, 0.6, 0.0), cmap="Blues", vmin=0, vmax=1)
    for (row, column), sees in np.ndenumerate(seen):
        axes.text(column, row, "0" if sees else "−inf", ha="center", va="center", size=8)
    axes.set(xlabel="key", ylabel="query", xticks=range(S), yticks=range(L))
    axes.set_title(f"L = {L}, S = {S}: {seen.sum()} zeros")
    return Picture(
        figure, f"The mask for L = {L} and S = {S} has {seen.sum()} zeros, row by row {seen.sum(1)}."
    )


explore(mask_of, L=slider(1, 8, 3), S=slider(1, 8, 3))

# %% [markdown]
# ## Experiment 1: a prompt in chunks
#
# An engine may run a prompt in chunks: each chunk's queries meet the keys of all chunks so far. The outputs must be
# those of the whole prompt in one call. Here are the real queries, keys and values of one layer; a bar is how far a
# token's output is from the right one. Move the size of the chunks. Then align the triangle with the other corner:
# for which size of chunks does the output stay right?

# %%
SENTENCE = "The trophy does not fit into the suitcase because it is too large."
real = recorded(SENTENCE)
COUNT = len(real.tokens)
LAYER = 12


def attend(first: int, last: int, mask: np.ndarray) -> np.ndarray:
    """The outputs of tokens first … last − 1 over all keys before last: [H, L, D]."""
    query = lab.array(real.query[LAYER : LAYER + 1, :, first:last])
    key, value = (lab.array(part[LAYER : LAYER + 1, :, :last]) for part in (real.key, real.value))
    out = lab.attention.scaled_dot_product_attention_grouped(query, key, value, mask=lab.array(mask))
    return lab.numpy(out)[0]


def in_chunks(size: int, corner: str) -> Picture:
    right = attend(0, COUNT, lab.numpy(lab.attention.causal_mask(COUNT, COUNT)))
    starts = range(0, COUNT, size)
    pieces = []
    for first in starts:
        last = min(first + size, COUNT)
        mask = lab.numpy(lab.attention.causal_mask(last - first, last))
        if corner == "top left":
            mask[:] = -np.inf
            mask[:, : last - first] = lab.numpy(lab.attention.causal_mask(last - first, last - first))
        pieces.append(attend(first, last, mask))
    wrong_by = np.abs(np.concatenate(pieces, axis=1) - right).max((0, 2)).round(3)
    figure, axes = new_figure(height=2.8)
    axes.bar(range(COUNT), wrong_by, color=COLORS["red"])
    for first in starts:
        axes.axvline(first - 0.5, color=COLORS["muted"], linestyle=":", linewidth=1)
    axes.set(ylabel="error of the output", xticks=range(COUNT), xlim=(-0.6, COUNT - 0.4))
    axes.set_ylim(0, max(1.0, 1.1 * wrong_by.max()))
    axes.set_xticklabels(real.tokens, rotation=45, ha="right")
    axes.set_title(f"chunks of {size}, triangle at the {corner}")
    return Picture(
        figure, f"In chunks of {size}, {(wrong_by > 0).sum()} of {COUNT} tokens get a wrong output."
    )


explore(in_chunks, size=slider(1, COUNT, 4), corner=choice(["bottom right", "top left"]))

# %% [markdown]
# ## Experiment 2: three heads, one set of keys
#
# Query heads 0, 1 and 2 share the keys of head 0, and so on. Do heads that share their keys look at the same tokens?
# Go through some layers. Then let them read the keys that `h % Hkv` would give them: the shapes fit, and no error is
# raised.


# %%
def group(layer: int, wrong_keys: bool) -> Picture:
    figure, axes = new_figure(height=3.0, cols=3, sharey=True)
    mask = lab.attention.causal_mask(COUNT, COUNT)
    kept = []
    for head, face in zip((3, 4, 5), axes, strict=True):
        key_head = head % 3 if wrong_keys else head // 3
        scores = real.query[layer, head] @ real.key[layer, key_head].T / 8
        weights = lab.numpy(lab.attention.softmax(lab.array(scores) + mask))
        kept.append(f"{weights[1:, 0].mean():.0%}")
        face.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        face.set(xticks=[], yticks=range(COUNT), title=f"head {head}, keys {key_head}")
        face.set_yticklabels(real.tokens)
    figure.suptitle(f"layer {layer}", weight="bold")
    return Picture(
        figure, f"Heads 3, 4, 5 of layer {layer} give the first token {', '.join(kept)} on average."
    )


explore(group, layer=slider(0, 29, 8), wrong_keys=switch(title="keys of h % Hkv"))

# %% [markdown]
# ## Experiment 3: a mask of your own
#
# A mask can hide more than the future. In a *sliding window* a token sees itself and the W − 1 tokens before it. How
# much of the weight of the real heads would be lost? Then let every token see the first one, too.


# %%
def share_seen(window: int, first_too: bool) -> np.ndarray:
    """For each layer, the share of the weight that lies within the window."""
    here = np.arange(COUNT)
    inside = here[:, None] - here < window
    inside[:, 0] |= first_too
    causal = lab.attention.causal_mask(COUNT, COUNT)
    shares = []
    for query, key in zip(real.query, np.repeat(real.key, 3, axis=1), strict=True):
        weights = lab.numpy(lab.attention.softmax(lab.array(query @ key.swapaxes(1, 2) / 8) + causal))
        shares.append((weights * inside).sum(-1)[:, window:].mean())  # of the tokens that lose something
    return np.array(shares)


def in_window(window: int, first_too: bool) -> Picture:
    shares = share_seen(window, first_too)
    figure, axes = new_figure(height=2.6)
    axes.bar(range(30), shares, color=COLORS["green" if first_too else "blue"])
    axes.set(xlabel="layer", ylabel="share of the weight", ylim=(0, 1))
    axes.set_title(f"what a window of {window} keeps{', with the first token' if first_too else ''}")
    return Picture(
        figure, f"A window of {window} keeps {shares.mean():.0%} of the weight, averaged over the layers."
    )


explore(in_window, window=slider(1, COUNT - 1, 4), first_too=switch(title="and the first token"))

# %% [markdown]
# ## Measure
#
# The chapter computes the scores of one new token over 2,048 keys in three ways: 0.44 ms with the keys repeated, 1.46
# with broadcasting, 0.07 as they lie. Here is the whole of your attention, for 9 query heads and fewer and fewer
# key-value heads. The last line repeats the keys and values of 3 heads for all 9 before it attends.

# %% tags=["measured"]
draw = np.random.default_rng(1)
query = lab.array(draw.standard_normal((1, 9, 1, 64)))
keys_of_3 = lab.array(draw.standard_normal((1, 3, 2048, 64)))
grouped = lab.attention.scaled_dot_product_attention_grouped
for Hkv in (9, 3, 1):
    keys = lab.array(draw.standard_normal((1, Hkv, 2048, 64)))
    print(f"Hkv = {Hkv}           {1000 * measure(grouped, query, keys, keys):6.2f} ms")


def repeated() -> None:
    keys_of_9 = keys_of_3.repeat_interleave(3, dim=1)
    grouped(query, keys_of_9, keys_of_3.repeat_interleave(3, dim=1))


print(f"Hkv = 3, repeated {1000 * measure(repeated):6.2f} ms")

# %% [markdown]
# ## An open question
#
# With a sliding window of W tokens in every layer, how far back can a word still have an influence on the answer?
#
# <details>
# <summary>One answer</summary>
#
# Farther than W. In the first layer a token reads W − 1 tokens back. In the second it reads tokens that have
# themselves read W − 1 tokens back, and so on: 30 layers reach 30 · (W − 1) tokens. Mistral 7B was built on this,
# with a window of 4,096 in 32 layers (Jiang et al. 2023, arXiv 2310.06825), and keeps the keys and values of 4,096
# tokens only. But each layer passes on a mixture, so details fade on the way. Later models, such as Gemma 2,
# alternate layers with a window and layers without one.
#
# </details>
