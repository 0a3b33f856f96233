# %% [markdown]
# # Day 4.6: The engine, to play with
#
# Between the model's scores and the text that a caller sees, stop strings, filters and penalties decide. Here you
# turn each of them, and then ask your own engine.

# %%
# %load_ext notebooks

# %%
from typing import Any

import torch
from matplotlib.ticker import MaxNLocator

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, settings, slider

# %% [markdown]
# ## Predict
#
# The stop string is `"\nUser:"`, and the text so far ends with two line ends and `Use`. How many characters must be
# held back? Write it down. Then find the row in the picture: a row is a piece of the text that comes, a column a
# character. Blue has been sent, orange is held back, gray is cut off for good. Make the pieces larger: what may
# change, and what may never change?

# %%
TEXT = " Yes.\n\nUse it, User.\nUser: no"


def stopped(stop: str, size: int) -> Picture:
    stops, sent, rows = lab.engine.stops.StopStrings([stop]), 0, []
    for start in range(0, len(TEXT), size):
        sent += len(stops.push(TEXT[start : start + size]))
        rows.append((sent, min(start + size, len(TEXT)), stops.found is not None))
    sent += len(stops.flush())
    rows.append((sent, len(TEXT), True))
    figure, axes = new_figure(height=3.4)
    for row, (done, come, cut) in enumerate(rows):
        axes.barh(row, done, 0.8, color=COLORS["blue"])
        axes.barh(row, come - done, 0.8, done, color=COLORS["line" if cut else "orange"])
    axes.set(
        xticks=[each + 0.5 for each in range(len(TEXT))], xlim=(0, len(TEXT)), ylim=(len(rows) - 0.4, -0.6)
    )
    axes.set_xticklabels(TEXT.replace("\n", "↵").replace(" ", "␣"))
    axes.set(xlabel="text", ylabel="pieces; the last row is the end")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    most = max(come - done for done, come, cut in rows if not cut)
    axes.set_title(f"{sent} of {len(TEXT)} characters are sent, and at most {most} were held back at a time")
    return Picture(
        figure, f"Stop string {stop!r}, pieces of {size}: {sent} of {len(TEXT)} characters are sent."
    )


explore(stopped, stop=choice(["\nUser:", "User", "\n\n", "...", "no more"]), size=slider(1, 8, 1))

# %% [markdown]
# ## Experiment 1: how many tokens do the filters leave?
#
# These are the real model's scores behind each token of a sentence. A point is how many tokens stay, from the fewest
# to the most; the dotted line is at 1,024, the candidates. Look for the settings at which the first points turn red:
# for these rows the candidates aren't enough, and all 49,152 scores must be sorted. Which tokens could they stand
# behind?

# %%
SENTENCE = (
    "The trophy does not fit into the suitcase because it is too large. So they bought another one, in Rome."
)
tokenizer, weights = lab.tokenizer.load_tokenizer(), lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
with torch.inference_mode():
    ids = tokenizer.encode(SENTENCE)
    caches = [lab.kv_cache.NoCache() for _ in range(weights.config.num_layers)]
    logits = model.logits(model.hidden(torch.tensor([ids]), slice(0, len(ids)), caches)[0])


def kept(temperature: float, top_p: float) -> Picture:
    params = lab.engine.params.SamplingParams(temperature=temperature, top_p=top_p)
    scores = logits.double()
    scores = (scores - scores.amax(1, keepdim=True)) / temperature
    _, left, enough = lab.engine.step_sampler.keep_rows(scores, [params] * len(scores))
    counts = (left > -torch.inf).sum(1).tolist()
    order = sorted(range(len(counts)), key=lambda row: (counts[row], not enough[row]))
    figure, axes = new_figure(height=2.6)
    colors = [COLORS["blue" if enough[row] else "red"] for row in order]
    axes.scatter(range(len(order)), [counts[row] for row in order], color=colors, s=18)
    axes.axhline(1024, color=COLORS["muted"], linestyle=":")
    axes.set(yscale="log", ylim=(0.7, 2000), xlabel="rows, sorted", ylabel="tokens kept")
    short = int((~enough).sum())
    axes.set_title(f"{len(order)} rows; the candidates aren't enough for {short}")
    words = f"With temperature {temperature:.1f} and top-p {top_p:.2f}"
    return Picture(figure, f"{words}, 1,024 candidates aren't enough for {short} of {len(order)} rows.")


explore(kept, temperature=slider(0.2, 2.0, 0.5, 0.1), top_p=slider(0.5, 0.99, 0.8, 0.01))

# %% [markdown]
# ## Experiment 2: two penalties
#
# A model that always gives eight words the same scores, 3.5, 3, 2.5 and so on, and always takes the best. The upper
# row shows 48 words, the bars count them. Guess the pattern for a presence penalty of 1 with no frequency penalty,
# and the other way round. Then make one of them negative.

# %%
WORDS = ["la", "di", "da", "dum", "doo", "hey", "oh", "yeah"]


def song(presence: float, frequency: float) -> Picture:
    params = lab.engine.params.SamplingParams(presence_penalty=presence, frequency_penalty=frequency)
    sampler, words = lab.engine.step_sampler.RowSampler(params, prompt_len=0), list[int]()
    scores = torch.tensor([3.5 - 0.5 * word for word in range(8)])
    for _ in range(48):
        words.append(sampler(scores, words))
    figure, (top, bottom) = new_figure(height=3.0, rows=2, height_ratios=[1, 2])
    tones = [COLORS[name] for name in ("blue", "orange", "green", "purple", "red", "yellow", "muted", "ink")]
    top.bar(range(48), 1, 0.9, color=[tones[word] for word in words])
    top.set(yticks=[], xlim=(-0.6, 47.6), xlabel="token")
    bottom.bar(WORDS, [words.count(word) for word in range(8)], color=tones)
    bottom.set(ylabel="times")
    used = len(set(words))
    top.set_title(f"presence {presence:.2f}, frequency {frequency:.2f}: different words: {used}")
    named = ", ".join(f"{WORDS[word]} {words.count(word)}" for word in sorted(set(words)))
    return Picture(figure, f"Presence {presence:.2f} and frequency {frequency:.2f}: {named} of 48.")


explore(song, presence=slider(-2.0, 2.0, 0.0, 0.25), frequency=slider(-0.5, 2.0, 0.0, 0.05))

# %% [markdown]
# ## Your own engine
#
# One prompt and three answers, through `LLM`. Change what you like: the prompt, the seed, the stop string, or `n`.
# What comes out differs from machine to machine at a temperature above 0, since close scores may change places.

# %% tags=["measured"]
PROMPT = "Three things that a cat wants:\n1."
params = lab.engine.params.SamplingParams(
    temperature=0.8, top_p=0.95, seed=7, n=3, max_tokens=4 if settings.short() else 24, stop="\n4."
)
with lab.engine.llm.LLM(model, tokenizer, limits=lab.engine.limits.Limits(num_pages=64)) as llm:
    for answer in llm.generate(PROMPT, params)[0].outputs:
        print(answer.finish_reason, repr(answer.text))

# %% [markdown]
# ## Measure
#
# In the chapter, 32 tokens at a temperature of 0.8 and a top-p of 0.95 are chosen in 194 ms row by row, and in 31 ms
# all at once. And on your machine? The third line is greedy.

# %% tags=["measured"]
rows = 8 if settings.short() else 32
some = logits[torch.arange(rows) % len(logits)]


def samplers(temperature: float) -> list[Any]:
    wanted = lab.engine.params.SamplingParams(temperature=temperature, top_p=0.95, seed=0)
    return [lab.engine.step_sampler.RowSampler(wanted, len(ids)) for _ in range(rows)]


def row_by_row(temperature: float) -> None:
    for sampler, scores in zip(samplers(temperature), some, strict=True):
        sampler(scores, ids)


def at_once(temperature: float) -> None:
    each = [lab.engine.step_sampler.Row(sampler, ids) for sampler in samplers(temperature)]
    lab.engine.step_sampler.choose_step(some, each)


for name, choose, temperature in (
    ("row by row", row_by_row, 0.8),
    ("all at once", at_once, 0.8),
    ("greedy, at once", at_once, 0.0),
):
    print(f"{rows} tokens, {name:16} {1000 * measure(choose, temperature):7.1f} ms")

# %% [markdown]
# ## An open question
#
# A caller wants an answer that is JSON, and nothing else. Asking the model nicely works often, but not always. Where
# in the engine would you make sure of it?
#
# <details>
# <summary>One answer</summary>
#
# Where the penalties are: before a token is chosen. From the text so far a grammar knows which characters may come
# next, and so which tokens; the scores of all others become −∞. The rest stays as it is, filters and draws too. The
# difficulty is time: 49,152 tokens must be judged for each row of each step, while the model runs on the next one.
# XGrammar and llguidance prepare for each state of the grammar a mask of the tokens that are allowed in any case.
# vLLM and SGLang use them as *structured outputs*. What no mask can give is a good answer: a model that is forced
# onto a path that it finds unlikely writes valid nonsense.
#
# </details>
