# %% [markdown]
# # Day 1.4: Norm and MLP, to play with
#
# The chapter explains and the tests judge; here you look at the numbers that flow through the real model. The cells
# call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, recorded, slider, switch

# %% [markdown]
# ## Predict
#
# A vector is multiplied by 1,000 before it goes into RMSNorm. What happens to the result? And when it is multiplied
# by 0.001? Write both down, then move the exponent to 3 and to −3. Where does the result begin to shrink, and how
# does that place depend on eps?


# %%
def normed(exponent: int, eps: float) -> Picture:
    x = np.array([1.0, 7.0, -5.0, 5.0]) * 10.0**exponent
    norm = lab.layers.RMSNorm(lab.array(np.ones(4)), eps)
    y = lab.numpy(norm(lab.array(x)))
    figure, (left, right) = new_figure(height=2.2, cols=2)
    left.bar(range(4), x, color=COLORS["muted"])
    left.set(title="x", xticks=range(4))
    right.bar(range(4), y, color=COLORS["blue"])
    right.set(title="RMSNorm(x)", xticks=range(4), ylim=(-1.6, 1.6))
    named = ", ".join(f"{number:.2f}" for number in y)
    return Picture(figure, f"(1, 7, −5, 5) times 10 to the power {exponent} becomes ({named}).")


explore(normed, exponent=slider(-6, 6, 0), eps=choice([1e-5, 1e-6, 1e-12]))

# %% [markdown]
# ## Experiment 1: the stream of a real sentence
#
# Each block of the model adds to a stream of 576 numbers per token. The curve is the largest of these numbers before
# each norm of the 30 blocks, for one token; gray lines are the other tokens. Go through the tokens. One of them is
# unlike all the others: from which block to which? The dashed line is 256, the smallest whole number whose square
# doesn't fit into float16.

# %%
SENTENCE = "The trophy does not fit into the suitcase because it is too large."
real = recorded(SENTENCE)


def stream(token: int, after_the_norm: bool) -> Picture:
    numbers = real.stream
    if after_the_norm:
        numbers = lab.numpy(lab.layers.RMSNorm(lab.array(np.ones(576)), 1e-5)(lab.array(numbers)))
    largest = np.abs(numbers).max(-1)
    figure, axes = new_figure(height=3.0)
    blocks = np.arange(len(largest)) / 2
    axes.plot(blocks, largest, color=COLORS["line"], linewidth=1)
    axes.plot(blocks, largest[:, token], color=COLORS["blue"])
    axes.axhline(256, color=COLORS["red"], linestyle="--", linewidth=1)
    axes.set(yscale="log", ylim=(0.1, 1e5), xlabel="block", ylabel="largest number")
    axes.minorticks_off()
    where = ", after the norm" if after_the_norm else ""
    axes.set_title(f"token {token}, “{real.tokens[token].strip()}”{where}")
    top = largest[:, token].max()
    return Picture(
        figure, f"The largest number in the stream of token {token}{where} is {float(f'{top:.2g}'):,.0f}."
    )


explore(stream, token=slider(0, len(real.tokens) - 1, 4), after_the_norm=switch())

# %% [markdown]
# After the norm, with a weight of ones, no number can be larger than 24. Why 24?
#
# ## Experiment 2: how many of the 1,536 numbers does an MLP need?
#
# Between its two products an MLP has 1,536 numbers per token: the gate times up. Here only some of them go on to
# *down*, and the others are set to 0. A bar is how wrong the output of a block's MLP then is: 1 is as large as the
# output itself. How few are enough, if you may choose the largest? And if you may not choose?

# %%
weights = lab.weights.load_weights()


class Sparse:
    """In the place of `down`: only a share of the numbers goes through."""

    def __init__(self, block: int, share: float, choose: str) -> None:
        self.down = weights.linear(f"blocks.{block}.down")
        self.share, self.choose = share, choose

    def __call__(self, inner: object) -> object:
        numbers = lab.numpy(inner)
        rank = (
            np.abs(numbers)
            if self.choose == "the largest"
            else np.random.default_rng(0).random(numbers.shape)
        )
        smallest = np.quantile(rank, 1 - self.share, axis=-1, keepdims=True)
        return self.down(lab.array(np.where(rank >= smallest, numbers, 0)))


def mlp_out(block: int, share: float, choose: str) -> np.ndarray:
    """What the MLP of a block makes of the real stream of all tokens but the first."""
    x = lab.array(real.stream[2 * block + 1, 1:])
    norm = lab.layers.RMSNorm(weights.tensor(f"blocks.{block}.mlp_norm.weight"), weights.config.norm_eps)
    mlp = lab.layers.MLP(weights.linear(f"blocks.{block}.gate_up"), Sparse(block, share, choose))
    return lab.numpy(mlp(norm(x)))


def sparse(percent: int, keep: str) -> Picture:
    errors = []
    for block in range(30):
        all_of_it = mlp_out(block, 1.0, keep)
        errors.append(
            np.linalg.norm(mlp_out(block, percent / 100, keep) - all_of_it) / np.linalg.norm(all_of_it)
        )
    figure, axes = new_figure(height=2.6)
    axes.bar(range(30), errors, color=COLORS["orange"])
    axes.set(xlabel="block", ylabel="relative error", ylim=(0, 1.1))
    axes.set_title(f"{percent} % of the gated numbers, {keep}")
    return Picture(
        figure, f"With {percent} %, {keep}, the error is {np.mean(errors):.2f} on average over the blocks."
    )


explore(sparse, percent=slider(5, 100, 50, 5), keep=choice(["the largest", "at random"]))

# %% [markdown]
# ## Experiment 3: the neighbors of a word
#
# The table of vectors, used as a head, scores every token of the vocabulary against a vector. Give it the vector of a
# word itself. Which words come close to it, and are they close in meaning or in spelling? Then score without dividing
# by the lengths of the vectors, as the model's head does.

# %%
tokenizer = lab.tokenizer.load_tokenizer()
table = weights.tensor("embedding.weight")
lengths = np.linalg.norm(lab.numpy(table), axis=1)


def neighbors(word: str, divide_by_lengths: bool) -> Picture:
    embedding = lab.layers.Embedding(table)
    number = tokenizer.encode(f" {word}")[0]
    scores = lab.numpy(embedding.as_linear(embedding(lab.array([number]))))[0]
    if divide_by_lengths:
        scores = scores / lengths / lengths[number]
    best = np.argsort(-scores)[:8]
    names = [tokenizer.decode([i], skip_control_tokens=False).replace(" ", "␣") for i in best.tolist()]
    figure, axes = new_figure(height=2.8)
    axes.barh(range(8), scores[best], color=COLORS["green"])
    axes.set(yticks=range(8), xlabel="cosine" if divide_by_lengths else "score")
    axes.set_yticklabels(names)
    axes.invert_yaxis()
    axes.set_title(f"“␣{word}” against all {len(scores):,} tokens")
    return Picture(figure, f"The tokens next to “ {word}” are {', '.join(names[1:4])}.")


WORDS = ["Paris", "seven", "Monday", "king", "run", "blue"]
explore(neighbors, word=choice(WORDS), divide_by_lengths=switch(start=True))

# %% [markdown]
# ## Measure
#
# The chapter multiplies one token by the 7 MB of `gate_up` in about 260 µs, and nearly all of that is the reading of
# the weights. `down` has 3.5 MB more. So what will 8 tokens cost, and 64? Guess before you run the cell.

# %% tags=["measured"]
mlp = lab.layers.MLP(weights.linear("blocks.0.gate_up"), weights.linear("blocks.0.down"))
for tokens in (1, 8, 64, 512):
    x = lab.array(np.random.default_rng(0).standard_normal((tokens, 576)))
    seconds = measure(mlp, x)
    print(f"{tokens:3} tokens {1e6 * seconds:9.0f} µs   per token {1e6 * seconds / tokens:6.0f} µs")

# %% [markdown]
# ## An open question
#
# In Experiment 1 a block writes a huge number into the stream of the first token, always into the same place, and one
# of the last blocks takes it away again. What could it be good for?
#
# <details>
# <summary>One answer</summary>
#
# The norm divides by it. After the norm, the first token's vector is nearly the same whatever the text is: one number
# near 24, all others near 0. So its keys and values are nearly constant, and heads that want to read nothing have a
# place to look at: the attention sinks of Day 1.1. Sun et al. 2024, *Massive Activations in Large Language Models*
# (arXiv 2402.17762), find such numbers in many models, and that the models break when they are set to 0.
# They also make trouble: a stream in float16 or 8 bits must have room for them.
#
# </details>
