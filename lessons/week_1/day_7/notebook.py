# %% [markdown]
# # Day 1.7: Sampling, to play with
#
# The chapter explains and the tests judge; here you bend real distributions and listen to what the model then says.
# The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import random
from functools import cache

import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, slider, switch

# %% [markdown]
# ## Predict
#
# The scores of two tokens are 2.0 and −2.0, and both have occurred; a third, with the score 0, has not. The
# repetition penalty is 1.25. If it divided both scores, what would become of the second token's probability? Write
# it down, then raise the penalty with your rule, and with the rule that only divides.


# %%
def shares(scores: np.ndarray) -> np.ndarray:
    return lab.numpy(lab.attention.softmax(lab.array(scores)))


def penalized(penalty: float, only_divide: bool) -> Picture:
    before = np.array([2.0, -2.0, 0.0])
    after = lab.numpy(lab.sampler.apply_repetition_penalty(lab.array(before), [0, 1], penalty))
    if only_divide:
        after = before / [penalty, penalty, 1]
    old, new = shares(before), shares(after)
    figure, axes = new_figure(height=2.4)
    axes.bar(np.arange(3) - 0.2, old, width=0.4, color=COLORS["line"], label="before")
    axes.bar(np.arange(3) + 0.2, new, width=0.4, color=COLORS["blue"], label="after")
    for token, share in enumerate(new):
        axes.text(token + 0.2, share * 1.1, f"{share:.4f}", ha="center")
    axes.set(yscale="log", ylim=(0.001, 4), xticks=range(3), ylabel="probability")
    axes.set_xticklabels([f"score {number:g}" for number in before])
    axes.legend(loc="upper right")
    return Picture(figure, f"Penalty {penalty}: the second token goes from {old[1]:.4f} to {new[1]:.4f}.")


explore(penalized, penalty=slider(0.5, 3.0, 1.0, 0.25), only_divide=switch(title="only divide"))

# %% [markdown]
# ## Experiment 1: temperature
#
# Two real distributions of the course's model, one sure and one unsure. Move the temperature. At which temperature is
# the best token of the unsure one as likely as that of the sure one is at 1? And how much probability is left, at 2,
# for the tokens that are not in the picture?

# %%
weights = lab.weights.load_weights()
tokenizer = lab.tokenizer.load_tokenizer()
PROMPTS = ("The capital of France is", "Once upon a time, there was a")
SHOWN = 12


@cache
def logits_after(prompt: str) -> np.ndarray:
    """The model's scores of the next token."""
    ids = tokenizer.encode(prompt)
    model = lab.model.Transformer(weights.config, weights)
    return lab.numpy(model.logits(model.hidden(lab.array([ids]), slice(0, len(ids)))[0, -1]))


def hot(temperature: float) -> Picture:
    figure, axes = new_figure(height=2.8, cols=2)
    rest = []
    for prompt, face in zip(PROMPTS, axes, strict=True):
        scores = logits_after(prompt)
        new = shares(lab.numpy(lab.sampler.apply_temperature(lab.array(scores), temperature)))
        best = np.argsort(-scores)[:SHOWN]
        rest.append(f"{1 - new[best].sum():.0%}")
        face.bar(range(SHOWN), new[best], color=COLORS["blue"])
        face.text(SHOWN, 0.95, f"all other tokens: {rest[-1]}", ha="right", va="top")
        face.set(ylim=(0, 1), xticks=range(SHOWN), title=f"{prompt} …")
        face.set_xticklabels([tokenizer.decode([i]).strip() or "␣" for i in best.tolist()], rotation=90)
    axes[0].set_ylabel("probability")
    return Picture(
        figure, f"At temperature {temperature}, {rest[0]} and {rest[1]} are outside of the picture."
    )


explore(hot, temperature=slider(0.1, 3.0, 1.0, 0.1))

# %% [markdown]
# ## Experiment 2: two filters and a temperature of 1
#
# The same two distributions, with the scale of the probabilities logarithmic: blue tokens stay, gray ones are
# dropped. Begin with top-p alone, then min-p alone. Try to find one setting that cuts both tails where you would.
# Which of the two filters makes that possible?


# %%
def filtered(top_p: float, min_p: float) -> Picture:
    figure, axes = new_figure(height=2.6, cols=2, sharey=True)
    kept = []
    for prompt, face in zip(PROMPTS, axes, strict=True):
        scores = lab.array(logits_after(prompt))
        left = lab.numpy(lab.sampler.keep_min_p(lab.sampler.keep_top_p(scores, top_p), min_p))
        order = np.argsort(-logits_after(prompt))[:200]
        stays = np.isfinite(left[order])
        kept.append(int(np.isfinite(left).sum()))
        all_shares = shares(logits_after(prompt))[order]
        face.vlines(np.arange(200), 1e-6, all_shares, color=np.where(stays, COLORS["blue"], COLORS["line"]))
        face.set(yscale="log", ylim=(1e-5, 1), xlabel="rank of the token", title=f"{kept[-1]:,} tokens stay")
        face.text(198, 0.6, f"{prompt} …", ha="right", va="top", style="italic")
    axes[0].set_ylabel("probability")
    return Picture(figure, f"top-p {top_p}, min-p {min_p}: {kept[0]:,} and {kept[1]:,} tokens stay.")


explore(filtered, top_p=slider(0.05, 1.0, 1.0, 0.05), min_p=slider(0.0, 0.5, 0.0, 0.02))

# %% [markdown]
# ## Experiment 3: would you notice a wrong sampler?
#
# The first distribution with top-k 6, and your `draw` on random numbers. The bars are how often each token has come;
# the dots are its probability, with twice the standard deviation that so many draws have. Raise the number of draws.
# Then let the draws come from temperature 0.9 while the dots stay at 1: from how many draws on do you see it?


# %%
def frequencies(draws: int, wrong_temperature: bool) -> Picture:
    scores = logits_after(PROMPTS[0])
    best = np.argsort(-scores)[:6]
    right = shares(scores[best])
    used = lab.array(scores[best] / (0.9 if wrong_temperature else 1.0))
    source = random.Random(1)
    drawn = [lab.sampler.draw(used, source.random()) for _ in range(draws)]
    often = np.bincount(drawn, minlength=6) / draws
    figure, axes = new_figure(height=2.6)
    axes.bar(range(6), often, color=COLORS["orange"])
    axes.errorbar(
        range(6), right, 2 * np.sqrt(right * (1 - right) / draws), fmt="o", markersize=3, color=COLORS["ink"]
    )
    axes.set(xticks=range(6), ylabel="share", ylim=(0, 1), title=f"{draws:,} draws")
    axes.set_xticklabels([tokenizer.decode([number]) for number in best.tolist()])
    return Picture(
        figure,
        f"In {draws:,} draws the best token comes {often[0]:.1%} of the time; {right[0]:.1%} is right.",
    )


explore(frequencies, draws=choice([30, 300, 3000]), wrong_temperature=switch())

# %% [markdown]
# ## Experiment 4: stories
#
# Two beginnings of a story, with the seeds 1 and 2. Raise the temperature until the text falls apart. Then mend
# it with min-p alone. How far can you go?


# %%
def stories(temperature: float, min_p: float) -> None:
    ids = tokenizer.encode("Once upon a time")
    model = lab.model.Transformer(weights.config, weights)
    for seed in (1, 2):
        params = lab.sampler.SamplingParams(temperature=temperature, min_p=min_p, seed=seed)
        sample = lab.sampler.Sampler(params)
        made = lab.generate.generate_recompute(model, ids, 14, tokenizer.end_ids, sample)
        print(f"seed {seed}: Once upon a time …{tokenizer.decode(list(made))!r}")


explore(stories, temperature=slider(0.0, 3.0, 0.8, 0.2), min_p=slider(0.0, 0.5, 0.0, 0.05))

# %% [markdown]
# ## Measure
#
# The chapter calls the sampler 50 lines on a row of 49,152 numbers, and the loop of Day 1.6 makes about 12 tokens per
# second. Which of the settings costs most, and is it much beside the 84 ms of a token? It will be, when a token takes
# 1 ms on a GPU.

# %% tags=["measured"]
scores = lab.array(logits_after(PROMPTS[1]))
SETTINGS = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.0},
    "top-k 50": {"temperature": 1.0, "top_k": 50},
    "top-p 0.9": {"temperature": 1.0, "top_p": 0.9},
    "min-p 0.1": {"temperature": 1.0, "min_p": 0.1},
}
for name, settings in SETTINGS.items():
    sampler = lab.sampler.Sampler(lab.sampler.SamplingParams(seed=1, **settings))
    print(f"{name:12} {1000 * measure(sampler, scores, [1, 2, 3]):6.2f} ms")

# %% [markdown]
# ## An open question
#
# A request with a seed is sent twice to the same server, once alone and once when the server is busy. The sampler
# takes one random number per token, as yours does, and yet the two texts part after fifty tokens. No one has a bug.
# How can that be?
#
# <details>
# <summary>One answer</summary>
#
# The random numbers are the same; the scores aren't, in their last digits. A busy server computes the request in a
# batch of another size, with other kernels that add up in another order, and floating-point sums depend on the order.
# A draw falls on another token only if the random number lies in the tiny gap between the two running sums. That is
# rare, but one such token is enough: from there on the texts are different. Greedy decoding has the same weakness
# wherever the two best scores are nearly equal. Who wants the same text always needs kernels whose order of adding
# doesn't depend on the batch, and pays for it in speed.
#
# </details>
