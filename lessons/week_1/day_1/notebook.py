# %% [markdown]
# # Day 1.1: Attention, to play with
#
# The chapter explains and the tests judge; here you try things out. Run a cell with Shift+Enter. The cells call your
# code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, recorded, slider

# %% [markdown]
# ## Predict
#
# The scores 1, 0 and 2 become the weights 0.24, 0.09 and 0.67. Before you move anything: what will the bars do when
# 100 is added to all three scores? And what when all three are multiplied by 5?


# %%
def three_weights(add: float, times: float) -> Picture:
    scores = times * np.array([1.0, 0.0, 2.0]) + add
    weights = lab.numpy(lab.attention.softmax(lab.array(scores)))
    figure, (left, right) = new_figure(height=2.2, cols=2)
    left.bar(range(3), scores, color=COLORS["muted"])
    left.set(title="scores", xticks=range(3))
    right.bar(range(3), weights, color=COLORS["blue"])
    right.set(title="weights", xticks=range(3), ylim=(0, 1.1))
    for place, weight in enumerate(weights):
        right.text(place, weight + 0.02, f"{weight:.3f}", ha="center")
    named = ", ".join(f"{weight:.3f}" for weight in weights)
    return Picture(figure, f"Scores {scores.tolist()} give the weights {named}.")


explore(three_weights, add=slider(-200, 200, 0, 50), times=slider(0.0, 10.0, 1.0, 0.5))

# %% [markdown]
# Set *times* to 0, too. Which of the two controls could break a softmax that forgets to subtract the largest score?
#
# ## Experiment 1: what real heads look at
#
# These are the queries and keys of the course's model (30 layers of 9 heads) for one sentence. A row is a query, a
# column a key, and a token sees itself and the tokens before it. Look for a head that reads the token just before,
# and for heads that put nearly everything on the first token. Change the sentence, if you like.

# %%
SENTENCE = "The trophy does not fit into the suitcase because it is too large."
real = recorded(SENTENCE)
hidden = np.triu(np.full((len(real.tokens),) * 2, -np.inf, np.float32), 1)


def weights_of(layer: int, head: int) -> np.ndarray:
    query, key = real.query[layer, head], real.key[layer, head // 3]  # three query heads share a key head
    scores = query @ key.T / np.sqrt(query.shape[-1]) + hidden
    return lab.numpy(lab.attention.softmax(lab.array(scores)))


def one_head(layer: int, head: int) -> Picture:
    weights = weights_of(layer, head)
    figure, axes = new_figure(width=5.2, height=4.6)
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    places = range(len(real.tokens))
    axes.set(xticks=places, yticks=places)
    axes.set_xticklabels(real.tokens, rotation=60, ha="right")
    axes.set_yticklabels(real.tokens)
    axes.set_title(f"layer {layer}, head {head}: who reads whom")
    first = weights[1:, 0].mean()
    return Picture(
        figure,
        f"The weights of layer {layer}, head {head}; {first:.0%} of them are on the first token, on average.",
    )


explore(one_head, layer=slider(0, 29, 1), head=slider(0, 8, 0))

# %% [markdown]
# ## Experiment 2: why the scores are divided by √D
#
# Random queries and keys of D numbers each. The curve is the largest of 16 weights, averaged; a softmax that sees
# larger scores gives more and more to one key. Which divisor keeps the curve flat?


# %%
def largest_weight(divide_by: str) -> Picture:
    draw = np.random.default_rng(0)
    sizes = [4, 8, 16, 32, 64, 128, 256]
    largest = []
    for D in sizes:
        query, keys = draw.standard_normal((400, 1, D)), draw.standard_normal((400, 16, D))
        scores = (query * keys).sum(-1) / {"1": 1.0, "√D": D**0.5, "D": D}[divide_by]
        largest.append(lab.numpy(lab.attention.softmax(lab.array(scores))).max(-1).mean())
    figure, axes = new_figure(height=2.4)
    axes.plot(sizes, largest, "o-")
    axes.set(xscale="log", xticks=sizes, xticklabels=sizes, ylim=(0, 1), xlabel="D")
    axes.set_title(f"largest of 16 weights, scores divided by {divide_by}")
    ends = f"{largest[0]:.2f} at D = {sizes[0]} to {largest[-1]:.2f} at D = {sizes[-1]}"
    return Picture(figure, f"With scores divided by {divide_by}, the largest of 16 weights goes from {ends}.")


explore(largest_weight, divide_by=choice(["1", "√D", "D"], title="divide by"))

# %% [markdown]
# ## Measure
#
# The chapter counts 1.1 billion scores for a prompt of 2,048 tokens. How does the time of one layer (9 heads of 64)
# grow with the length on your machine? Doubling L makes four times as many scores.

# %% tags=["measured"]
draw = np.random.default_rng(1)
before = None
for L in (128, 256, 512, 1024):
    query, key, value = (lab.array(draw.standard_normal((9, L, 64))) for _ in range(3))
    seconds = measure(lab.attention.scaled_dot_product_attention, query, key, value)
    growth = "" if before is None else f"   {seconds / before:.1f} times the line above"
    print(f"L = {L:4}   {1000 * seconds:7.2f} ms{growth}")
    before = seconds

# %% [markdown]
# ## An open question
#
# In Experiment 1, many heads of the later layers put nearly all their weight on the first token, whatever it is. The
# weights of a query must sum to 1. What could such a head be doing?
#
# <details>
# <summary>One answer</summary>
#
# Nothing, on purpose. A head that finds nothing to read can't give weights of 0, so it learns to put its weight on a
# token that is always there, and to keep a value there that adds next to nothing. Such tokens are called *attention
# sinks* (Xiao et al. 2023, arXiv 2309.17453). Engines that drop old tokens from a long chat must keep them: without
# its sink the model talks nonsense.
#
# </details>
