# %% [markdown]
# # Day 1.2: Rotary positions, to play with
#
# The chapter explains and the tests judge; here you turn queries and keys yourself. The cells call your code; where a
# task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, recorded, slider

# %% [markdown]
# ## Predict
#
# The query at position 7 and the key at position 4 have the score 1.3. What is the score at 107 and 104? And at 4 and
# 7? Write your guesses down, then move the two sliders. Each clock is one pair of the head (D = 8, base 100), and the
# number above it is what this pair adds to the score.

# %%
QUERY = np.array([0.9, 0.4, -0.9, 0.9, -1.2, 1.2, 0.1, 0.1])  # pair i is the numbers i and i + 4
KEY = np.array([0.8, -0.5, -0.6, 1.2, -0.7, 0.6, -0.3, 0.9])


def hands(vector: np.ndarray, position: int) -> np.ndarray:
    """The four pairs of a vector as points in the plane, turned to a position: [4, 2]."""
    rope = lab.positional_encoding.RoPE(head_dim=8, max_positions=200, base=100.0)
    turned = rope(lab.array(vector.reshape(1, 1, 1, 8)), slice(position, position + 1))
    return lab.numpy(turned).reshape(2, 4).T


def clocks(query_at: int, key_at: int) -> Picture:
    both = {"query": hands(QUERY, query_at), "key": hands(KEY, key_at)}
    parts = (both["query"] * both["key"]).sum(1)
    figure, axes = new_figure(height=2.3, cols=4)
    angles = np.linspace(0, 2 * np.pi, 60)
    for pair, face in enumerate(axes):
        face.plot(np.cos(angles), np.sin(angles), color=COLORS["line"], linewidth=1)
        for (name, points), color in zip(both.items(), ("blue", "orange"), strict=True):
            x, y = points[pair] / np.hypot(*points[pair])
            face.plot([0, x], [0, y], color=COLORS[color], linewidth=2.5, label=name)
        face.set(aspect="equal", title=f"pair {pair}: {parts[pair]:+.2f}")
        face.axis("off")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(f"query at {query_at}, key at {key_at}: score {parts.sum():.2f}", weight="bold")
    return Picture(
        figure, f"Query at {query_at}, key at {key_at}: the four pairs add up to {parts.sum():.2f}."
    )


explore(clocks, query_at=slider(0, 120, 7), key_at=slider(0, 120, 4))

# %% [markdown]
# Leave the key where it is and move the query on, one position at a time. Which pair changes most, and which one
# hardly at all?
#
# ## Experiment 1: how many speeds does it take?
#
# A vector that is turned should look like itself at its own position and like nothing else anywhere near. The curve
# compares a vector of ones at position 0 with the same vector further on: 1 means that it can't be told apart. Begin
# with one pair and add more. Then choose another base: what do you gain, and what do you lose?


# %%
def likeness(base: float, pairs: int) -> np.ndarray:
    """How much a vector turned to each position still looks like the one at 0: 1 is the same."""
    rope = lab.positional_encoding.RoPE(head_dim=64, max_positions=400, base=base)
    start = np.zeros((1, 400, 1, 64))
    start[..., :pairs] = 1  # half-split: the first number of each pair stands in the first half
    turned = lab.numpy(rope(lab.array(start), slice(0, 400)))[0, :, 0]
    return turned @ turned[0] / pairs


def speeds(pairs: int, base: float) -> Picture:
    curve = likeness(base, pairs)
    figure, axes = new_figure(height=2.6)
    axes.plot(curve)
    axes.set(xlabel="distance in tokens", ylabel="likeness", ylim=(-1.05, 1.05), xlim=(0, 400))
    axes.set_title(f"{pairs} of 32 pairs, base {base:,.0f}")
    highest = curve[100:].max()
    return Picture(
        figure,
        f"With {pairs} of the pairs, base {base:,.0f}: beyond 100 tokens it comes up to {highest:.2f} again.",
    )


explore(speeds, pairs=slider(1, 32, 1), base=choice([100.0, 10_000.0, 100_000.0, 1_000_000.0], 100_000.0))

# %% [markdown]
# ## Experiment 2: heads that count tokens
#
# These are the real queries and keys of the course's model. Turning twice adds up, so you can take the key of a token
# and put it anywhere: here each token of the sentence is placed 0, 1, 2 … tokens before the query of the last one. A
# thin line is one of these keys, the thick line their mean. Look for a head that wants one distance whatever the
# token is, and for one that cares about the token and hardly about the distance.

# %%
SENTENCE = "The trophy does not fit into the suitcase because it is too large."
FARTHEST = 40
real = recorded(SENTENCE)


def scores_by_distance(layer: int, head: int) -> np.ndarray:
    """The scores of each key, the first token's left out, at each distance: [L − 1, FARTHEST]."""
    L = len(real.tokens)
    rope = lab.positional_encoding.RoPE(head_dim=64, max_positions=L + FARTHEST, base=100_000.0)
    keys = real.key[layer, head // 3, 1:].reshape(L - 1, 1, 1, 1, 64)  # each stands at its own position
    at_end = [rope(lab.array(key[None]), slice(L - 2 - i, L - 1 - i)) for i, key in enumerate(keys)]
    last = np.broadcast_to(real.query[layer, head, -1], (1, FARTHEST, 1, 64))
    queries = lab.numpy(rope(lab.array(last), slice(0, FARTHEST)))[0, :, 0]
    return np.stack([lab.numpy(key).reshape(64) for key in at_end]) @ queries.T / 8


def by_distance(layer: int, head: int) -> Picture:
    scores = scores_by_distance(layer, head)
    mean = scores.mean(0)
    figure, axes = new_figure(height=3.0)
    axes.plot(scores.T, color=COLORS["muted"], linewidth=0.7, alpha=0.6)
    axes.plot(mean, color=COLORS["blue"], linewidth=2.6)
    axes.set(xlabel="how many tokens before the query", ylabel="score", xlim=(0, FARTHEST - 1))
    axes.set_title(f"layer {layer}, head {head}: the same tokens at other distances")
    best = int(mean.argmax())
    return Picture(figure, f"Layer {layer}, head {head}: the mean score is highest at a distance of {best}.")


explore(by_distance, layer=slider(0, 29, 16), head=slider(0, 8, 0))

# %% [markdown]
# Compare layer 9, head 0, and layer 28, head 2. A score that is higher by 5 makes a weight 148 times as large. Then
# count the tokens from crest to crest in layer 16, head 0: which pair of the chapter's list do you see at work?
#
# ## Measure
#
# The chapter computes the angles of all positions once. What would it cost to compute them for every call, and what
# does the turning itself cost? The model has 8,192 positions; here 512 tokens come in.

# %% tags=["measured"]
rope = lab.positional_encoding.RoPE(head_dim=64, max_positions=8192, base=100_000.0)
queries = lab.array(np.random.default_rng(0).standard_normal((1, 512, 9, 64)))
angles = rope.angles(slice(0, 512))
table = measure(lab.positional_encoding.rope_tables, 64, 8192, 100_000.0)
look_up = measure(rope.angles, slice(0, 512))
turn = measure(rope.rotate, queries, angles)
print(f"compute the table, once          {1e6 * table:9.1f} µs")
print(f"look angles up, once per pass    {1e6 * look_up:9.1f} µs")
print(f"turn nine query heads, per layer {1e6 * turn:9.1f} µs")

# %% [markdown]
# ## An open question
#
# The slowest pair of this model needs 438,460 tokens for one turn, and the model reads 8,192 at most. So this pair
# turns by less than 7 degrees in the longest text. What is it good for?
#
# <details>
# <summary>One answer</summary>
#
# For everything that has nothing to do with position. A score that must be the same at any distance ("is this the
# name that we are talking about?") can live in pairs that hardly turn. Some models make that explicit and turn a part
# of the pairs only: GPT-NeoX and the first Phi models turn a part of each head and leave the rest as it is. The price
# shows when texts get longer than those of the training. Then the slow pairs come to angles that they have never
# seen, and that is where Llama 3.1's divisors step in.
#
# </details>
