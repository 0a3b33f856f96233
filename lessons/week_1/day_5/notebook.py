# %% [markdown]
# # Day 1.5: The model, to play with
#
# The chapter explains and the tests judge; here you open the whole model and watch an answer take shape. The cells
# call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import copy
from typing import Any

import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, slider, switch

# %% [markdown]
# ## Predict
#
# The default model, SmolLM2-135M, has 30 blocks of attention and MLP, and an embedding of 49,152 vectors. Which of
# the three is the largest, and what share has the embedding? The picture begins with another model. Write your guess
# down, then choose.

# %%
MODELS = {  # E, layers, H, Hkv, D, F, V, tied
    "Llama 3.1 70B": (8192, 80, 64, 8, 128, 28672, 128256, False),
    "SmolLM2-135M": (576, 30, 9, 3, 64, 1536, 49152, True),
    "Qwen2.5-0.5B": (896, 24, 14, 2, 64, 4864, 151936, True),
    "Qwen3-0.6B": (1024, 28, 16, 8, 128, 3072, 151936, True),
    "Llama 3.1 8B": (4096, 32, 32, 8, 128, 14336, 128256, False),
}


def sizes(model: str) -> Picture:
    E, layers, H, Hkv, D, F, V, tied = MODELS[model]
    parts = {
        "embedding": V * E,
        "attention": layers * (2 * H + 2 * Hkv) * D * E,
        "MLPs": layers * 3 * F * E,
        "head": 0 if tied else V * E,
    }
    total = sum(parts.values())
    shares = {name: part / total for name, part in parts.items()}
    figure, axes = new_figure(height=1.9)
    axes.barh(list(shares), list(shares.values()), color=COLORS["blue"])
    for row, share in enumerate(shares.values()):
        axes.text(share + 0.01, row, f"{share:.1%}", va="center")
    axes.set(
        xlim=(0, 1), xticks=[], title=f"{model}: {total / 1e9:.2f} billion weights, norms and biases left out"
    )
    axes.invert_yaxis()
    named = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return Picture(figure, f"The weights of {model}: {named}.")


explore(sizes, model=choice(list(MODELS)))

# %% [markdown]
# ## Experiment 1: what a token reads, layer by layer
#
# This is your model, with a cache of our own in the seam that notes the weights of each head. A row is a layer. The
# color is the weight of the head that reads the token of this column most; the orange line is the token itself.
# Choose a token: which layers read the
# words that it needs? Leave out the first token, where much of the weight goes, if you want to see the rest.

# %%
weights = lab.weights.load_weights()
tokenizer = lab.tokenizer.load_tokenizer()
SENTENCE = "The trophy does not fit into the suitcase because it is too large."
IDS = tokenizer.encode(SENTENCE)
PIECES = [tokenizer.decode([number]).strip() for number in IDS]


def all_weights() -> np.ndarray:
    """What each head of each layer reads: [layers, H, L, S]."""
    noted = []

    class Note(lab.kv_cache.NoCache):  # type: ignore[name-defined]
        def attend(self, query: Any, key: Any, value: Any, scale: float) -> Any:
            keys = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
            scores = query @ keys.mT * scale + lab.attention.causal_mask(len(IDS), len(IDS))
            noted.append(lab.numpy(lab.attention.softmax(scores))[0])
            return super().attend(query, key, value, scale)

    model = lab.model.Transformer(weights.config, weights)
    model.hidden(lab.array([IDS]), slice(0, len(IDS)), [Note() for _ in model.blocks])
    return np.stack(noted)


def reads(token: int, without_first: bool) -> Picture:
    read = all_weights()[:, :, token].max(1)
    read[:, 0] *= not without_first
    figure, axes = new_figure(width=5.2, height=4.8)
    axes.imshow(read, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.axvline(token, color=COLORS["orange"], linewidth=1)
    axes.set(
        xticks=range(len(PIECES)), ylabel="layer", title=f"token {token}, “{PIECES[token]}”: what it reads"
    )
    axes.set_xticklabels(PIECES, rotation=60, ha="right")
    layer, place = np.unravel_index(read[:, :token].argmax() if token else 0, (30, max(token, 1)))
    return Picture(
        figure,
        f"Token {token} reads “{PIECES[place]}” most, in layer {layer}, with {read[layer, place]:.2f}.",
    )


explore(reads, token=slider(0, len(IDS) - 1, 10), without_first=switch(start=True))

# %% [markdown]
# ## Experiment 2: the answer takes shape
#
# Any place of the stream can go through the last norm and the head. Here the model stops after a number of blocks and
# says what it would answer. The curve is the probability of the answer of the whole model after each block. Where is
# it decided, and does it grow from the beginning?

# %%
PROMPTS = [
    "The capital of France is",
    "The opposite of hot is",
    "The trophy does not fit into the suitcase because it is too",
    "One, two, three, four,",
]


def chances(model: Any, ids: list[int]) -> np.ndarray:
    """The probability of each token of the vocabulary to be the next one."""
    hidden = model.hidden(lab.array([ids]), slice(0, len(ids)))
    return lab.numpy(lab.attention.softmax(model.logits(hidden[0, -1])))


def cut_after(model: Any, blocks: int) -> Any:
    """The model with its first blocks only."""
    short = copy.copy(model)
    short.blocks = model.blocks[:blocks]
    return short


def takes_shape(prompt: str, blocks: int) -> Picture:
    ids = tokenizer.encode(prompt)
    model = lab.model.Transformer(weights.config, weights)
    steps = range(0, 31, 2)
    by_block = np.stack([chances(cut_after(model, number), ids) for number in steps])
    answer = int(by_block[-1].argmax())
    now = by_block[blocks // 2]
    best = now.argsort()[::-1][:5]
    figure, (left, right) = new_figure(height=2.6, cols=2)
    left.plot(steps, by_block[:, answer], "o-", markersize=3)
    left.axvline(blocks, color=COLORS["orange"], linewidth=1)
    left.set(xlabel="blocks", ylabel="probability", ylim=(0, 1), title=f"of “{tokenizer.decode([answer])}”")
    right.barh(range(5), now[best], color=COLORS["orange"])
    right.set(yticks=range(5), xlim=(0, 1), title=f"the best five after {blocks} blocks")
    right.set_yticklabels([repr(tokenizer.decode([number])) for number in best.tolist()])
    right.invert_yaxis()
    first = steps[int((by_block.argmax(1) == answer).argmax())]
    return Picture(
        figure, f"“{prompt}”: the answer is the most likely token after {first} blocks, and not before."
    )


explore(takes_shape, prompt=choice(PROMPTS), blocks=slider(0, 30, 16, 2))

# %% [markdown]
# ## Experiment 3: a block that does nothing
#
# Whatever a block does is added to the stream, so the model also runs without it. A bar is the probability of the
# right answer when one block is silent: its attention, its MLP or both. The line is the whole model. Which blocks
# could you do without? Which ones are indispensable, and what happens in them? Remember the stream of the first token
# in the notebook of Day 1.4.


# %%
def silent(model: Any, number: int, parts: str) -> Any:
    """The model in which a part of one block adds nothing."""
    changed, block = copy.copy(model), copy.copy(model.blocks[number])
    if parts != "MLP":
        block.attention = lambda x, angles, cache: 0 * x
    if parts != "attention":
        block.mlp = lambda x: 0 * x
    changed.blocks = [*model.blocks[:number], block, *model.blocks[number + 1 :]]
    return changed


def without(prompt: str, silent_part: str) -> Picture:
    ids = tokenizer.encode(prompt)
    model = lab.model.Transformer(weights.config, weights)
    whole = chances(model, ids)
    answer = int(whole.argmax())
    left = [chances(silent(model, number, silent_part), ids)[answer] for number in range(30)]
    figure, axes = new_figure(height=2.6)
    axes.bar(range(30), left, color=COLORS["purple"])
    axes.axhline(whole[answer], color=COLORS["muted"], linestyle="--", linewidth=1)
    axes.set(xlabel="block", ylabel="probability", ylim=(0, 1))
    axes.set_title(f"“{tokenizer.decode([answer])}” when one block is silent: {silent_part}")
    worst = ", ".join(map(str, sorted(np.argsort(left)[:3])))
    return Picture(figure, f"“{prompt}”: the blocks {worst} are missed most ({silent_part}).")


explore(without, prompt=choice(PROMPTS), silent_part=choice(["MLP", "attention", "both"]))

# %% [markdown]
# ## Measure
#
# The chapter counts that the head on every row of a prompt of 37 tokens takes 21 % of all multiplications, and 0.6 %
# on the last row. Do the shares of the time agree with that on your machine?

# %% tags=["measured"]
model = lab.model.Transformer(weights.config, weights)
tokens = lab.array([list(range(100, 137))])
hidden = model.hidden(tokens, slice(0, 37))
blocks = measure(model.hidden, tokens, slice(0, 37))
for name, rows in (("every row", hidden[0]), ("last row ", hidden[0, -1])):
    head = measure(model.logits, rows)
    print(
        f"blocks {1000 * blocks:5.1f} ms   head on {name} {1000 * head:5.1f} ms, {head / (blocks + head):.1%} of both"
    )

# %% [markdown]
# ## An open question
#
# In Experiment 2 some answers are decided many blocks before the end. Could an engine stop there and save the rest of
# the work?
#
# <details>
# <summary>One answer</summary>
#
# It is called *early exit*, and the picture, the *logit lens*, shows the difficulty: the engine must know, without
# running the rest, that the rest would change nothing. With one prompt the answer is there five blocks before the
# end; with another it only comes in the last one. And a token that has left early has no keys and values in the
# blocks above, where later tokens look for them. LayerSkip (Elhoushi et al. 2024, arXiv 2404.16710) trains a model
# for it, and checks the early tokens with the remaining blocks afterwards, several at a time.
#
# </details>
