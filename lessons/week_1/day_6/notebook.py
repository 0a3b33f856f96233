# %% [markdown]
# # Day 1.6: Text, to play with
#
# The chapter explains and the tests judge; here you count the rows of your loop, let the model take another turn and
# watch bytes become characters. The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, slider

# %% [markdown]
# ## Predict
#
# The prompt has 5 tokens and you generate 6. How often does the model run, on how many tokens each time, and how many
# rows is that in all? Write the numbers down, then move the sliders. The model here is only a counter: it says the
# same token again and again, and your loop runs on it. A bar is one call.


# %%
class Counter:
    """In the place of the model: it counts the rows of each call."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(max_positions=1000)
        self.embedding = SimpleNamespace(weight=lab.array([[0.0]]))
        self.rows: list[int] = []

    def hidden(self, tokens: Any, positions: slice) -> Any:
        self.rows.append(tokens.shape[1])
        return lab.array(np.zeros((*tokens.shape, 1)))

    def logits(self, hidden: Any) -> Any:
        return lab.array([0.0, 1.0])


def calls(prompt: int, output: int) -> Picture:
    counter = Counter()
    list(lab.generate.generate_recompute(counter, [0] * prompt, output))
    rows = np.array(counter.rows)
    known = np.concatenate(([0], rows[:-1]))
    figure, axes = new_figure(height=2.8)
    axes.bar(range(1, len(rows) + 1), known, color=COLORS["line"], label="computed before")
    axes.bar(range(1, len(rows) + 1), rows - known, bottom=known, color=COLORS["blue"], label="new")
    axes.set(xlabel="call", ylabel="rows", title=f"{rows.sum():,} rows, {rows[-1]:,} of them needed")
    axes.legend(loc="upper left")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return Picture(
        figure, f"Prompt of {prompt}, {output} tokens: {len(rows)} calls with {rows.sum():,} rows in all."
    )


explore(calls, prompt=slider(1, 100, 3), output=slider(1, 100, 3))

# %% [markdown]
# Which of the two sliders makes the gray area grow faster?
#
# ## Experiment 1: one other word
#
# The bars are the probabilities of the tokens that your loop chooses. Where is the model sure, and where could it as
# well have gone on in another way? Let it take its second or third choice at one place, and see what becomes of
# the rest. At which places does the text come back to what it was going to say?

# %%
weights = lab.weights.load_weights()
tokenizer = lab.tokenizer.load_tokenizer()
PROMPT = "The best way to learn"
RANKS = {"best": 0, "second": 1, "third": 2}


def turned(place: int, rank: int, count: int = 16) -> tuple[list[int], list[float]]:
    """Tokens and their probabilities; at one place the token of another rank is taken."""
    ids = tokenizer.encode(PROMPT)
    chances: list[float] = []

    def sample(logits: Any, so_far: Sequence[int]) -> int:
        shares = lab.numpy(lab.attention.softmax(logits))
        at = rank if len(chances) == place else 0
        token = int(np.argsort(-shares, kind="stable")[at])
        chances.append(float(shares[token]))
        return token

    model = lab.model.Transformer(weights.config, weights)
    made = list(lab.generate.generate_recompute(model, ids, count, tokenizer.end_ids, sample))
    return made, chances


def other_word(place: int, choose: str) -> Picture:
    made, chances = turned(place, RANKS[choose])
    names = [repr(tokenizer.decode([number]))[1:-1] for number in made]
    colors = [COLORS["orange" if i == place else "blue"] for i in range(len(made))]
    figure, axes = new_figure(height=2.8)
    axes.bar(range(len(made)), chances, color=colors)
    axes.set(ylabel="probability", ylim=(0, 1), xticks=range(len(made)))
    axes.set_xticklabels(names, rotation=60, ha="right")
    axes.set_title(f"{PROMPT} …")
    text = tokenizer.decode(made).replace("\n", " ")
    return Picture(figure, f"{PROMPT}{text}")


explore(other_word, place=slider(0, 15, 1), choose=choice(list(RANKS)))

# %% [markdown]
# ## Experiment 2: when is a character a character?
#
# Each line is one token that your `StreamDecoder` takes in: its id, what it is when it is decoded alone, how many ids
# are held back after it, and the text that `push` gives. Move the slider on, one token at a time. Which character
# needs the most tokens? Then write something of your own into the list.

# %%
TEXTS = [
    "Crème brûlée 🍮!",
    "東京 means 'eastern capital'.",
    "Well done 👍🏽👩‍🚀",
    "ab\N{REPLACEMENT CHARACTER}cd",
]


def pieces(text: str, tokens: int) -> None:
    decoder = lab.generate.StreamDecoder(tokenizer)
    ids = tokenizer.encode(text)[:tokens]
    shown = ""
    for number in ids:
        new = decoder.push(number)
        shown += new
        alone = tokenizer.decode([number])
        print(f"{number:6}   alone {alone!r:12} held {len(decoder.held)}   push gives {new!r}")
    print(f"on the screen: {shown!r}, and at the end of the text {decoder.flush()!r} more")


explore(pieces, text=choice(TEXTS), tokens=slider(1, 24, 9))

# %% [markdown]
# ## Measure
#
# The chapter's machine makes 11.9 tokens per second after a prompt of 37. How long does your loop need for one token
# when the text is longer? Before you run the cell, guess the time for 256.

# %% tags=["measured"]
model = lab.model.Transformer(weights.config, weights)
for length in (16, 37, 64, 128, 256):
    seconds = measure(lambda L=length: list(lab.generate.generate_recompute(model, [100] * L, 1)))
    print(f"{length:3} tokens before it   {1000 * seconds:7.1f} ms   {1 / seconds:5.1f} tokens per second")

# %% [markdown]
# ## An open question
#
# Each call of your loop computes a prediction at *every* place, and all but the last are thrown away. Suppose that
# a small program guesses the next five tokens for you, cheaply and not always right. What are these predictions good
# for then?
#
# <details>
# <summary>One answer</summary>
#
# For checking. Append the five guesses and run the model once. The prediction before each guess says what the model
# would have chosen there. Take the guesses up to the first wrong one, and the model's own token in its place: between
# one and six tokens from one call, and exactly the tokens of the greedy loop. This is *speculative decoding*
# (Leviathan et al. 2022, arXiv 2211.17192). A smaller model, or a look at what stood in the text before, makes the
# guesses. It pays where five more rows cost hardly more than one: look at the measurement of Day 1.4.
#
# </details>
