# %% [markdown]
# # Day 2.1: The cache, to play with
#
# The chapter explains and the tests judge; here you try things out: what a cache weighs, how its storage grows, and
# how much of the past a layer really uses. The cells call your code; where a task is still missing, a line says
# which.

# %%
# %load_ext notebooks

# %%
import numpy as np

from notebooks import (
    COLORS,
    Picture,
    choice,
    explore,
    lab,
    measure,
    new_figure,
    recorded,
    settings,
    slider,
    switch,
)

# %% [markdown]
# ## Predict
#
# The model has 30 layers, 3 key-value heads of size 64, and weights of 538 MB in float32. How many bytes does the
# cache keep for each token? After how many tokens is it larger than the model? Write both down. Then move the slider
# to where the two bars are equal.

# %%
WEIGHTS_MB, LAYERS, POSITIONS = 538, 30, 8192


def cache_bytes(tokens: int, heads: int) -> int:
    new = lab.array(np.zeros((1, heads, 1, 64), np.float32))
    keys, values = lab.kv_cache.FullKvCache().append(new, new)
    return LAYERS * tokens * (lab.numpy(keys).nbytes + lab.numpy(values).nbytes)


def cache_and_weights(tokens: int, key_value_heads: int) -> Picture:
    megabytes = cache_bytes(tokens, key_value_heads) / 1e6
    figure, axes = new_figure(height=1.7)
    bars = axes.barh(
        ["weights", "cache"], [WEIGHTS_MB, megabytes], color=[COLORS["muted"], COLORS["blue"]], height=0.55
    )
    axes.bar_label(bars, fmt=" {:,.0f} MB")
    axes.set(xlim=(0, 2600), xlabel="MB, float32")
    beyond = "" if tokens <= POSITIONS else f", more than the model's {POSITIONS:,} positions"
    axes.set_title(f"one request of {tokens:,} tokens{beyond}")
    return Picture(
        figure,
        f"With {key_value_heads} key-value heads, the cache of {tokens:,} tokens takes {megabytes:,.0f} MB; "
        f"the weights take {WEIGHTS_MB} MB.",
    )


explore(
    cache_and_weights,
    tokens=slider(0, 16000, 2000, 500),
    key_value_heads=choice([1, 3, 9], 3),
)

# %% [markdown]
# Where are the bars equal with 9 heads, one for each query head? A GPU of 24 GB holds this model. For how many
# requests of 1,000 tokens has it room left?
#
# ## Experiment 1: room to spare
#
# Tokens are appended to your cache one by one. The upper line is the storage, the lower one the tokens in it; between
# them lies memory that stands empty. Look for the worst moment. Does a larger first storage save many moves?


# %%
def storage_sizes(tokens: int, first_capacity: int) -> list[int]:
    cache = lab.kv_cache.FullKvCache()
    cache.first_capacity = first_capacity
    new = lab.array(np.zeros((1, 1, 1, 1), np.float32))
    sizes = []
    for _ in range(tokens):
        cache.append(new, new)
        sizes.append(cache.keys.shape[2])
    return sizes


def room_to_spare(tokens: int, first_capacity: int) -> Picture:
    sizes = np.array(storage_sizes(tokens, first_capacity))
    held = np.arange(1, tokens + 1)
    moved = np.flatnonzero(np.diff(sizes)) + 1  # so many tokens were held, and copied, at each move
    figure, axes = new_figure(height=2.7)
    some = slice(None, None, 5)  # enough points for a drawing
    axes.fill_between(held[some], held[some], sizes[some], color=COLORS["line"], step="mid", label="empty")
    axes.step(held[some], sizes[some], where="mid", color=COLORS["orange"], label="storage")
    axes.plot([0, tokens], [0, tokens], color=COLORS["blue"], label="tokens held")
    axes.set(xlabel="tokens appended", ylabel="places", xlim=(0, 1600), ylim=(0, 2200))
    axes.legend(loc="upper left")
    empty = 1 - tokens / sizes[-1]
    said = f"moves: {len(moved)}; tokens copied: {moved.sum():,}; {empty:.0%} stands empty at the end"
    axes.set_title(said)
    return Picture(
        figure, f"After {tokens:,} tokens with a first storage of {first_capacity} places: {said}."
    )


explore(
    room_to_spare,
    tokens=slider(100, 1600, 700, 50),
    first_capacity=choice([1, 16, 64, 256, 1024], 64),
)

# %% [markdown]
# ## Experiment 2: how much of the past does a layer use?
#
# A cache keeps everything. Here the last token of a text asks only the newest keys, and the curve says how far its
# attention output is off. The keys and values are the real model's; a thin line is a query head, the thick one their
# average. Guess first: how many of the keys are enough? Then move to another layer, and then keep the first token,
# too.

# %%
TEXT = (
    "A lighthouse keeper wrote down the weather every evening for forty years. When he retired, nobody wanted the "
    "books. His daughter kept them in a trunk under the stairs, and one winter she began to read. On the page of the "
    "day on which she was born there was no weather at all. There was only her name, and under it, in pencil, the"
)
past = recorded(TEXT)
TOKENS = len(past.tokens)
KEPT = [1, 2, 4, 8, 16, 32, 64, TOKENS]


def last_output(layer: int, places: list[int]) -> np.ndarray:
    query = past.query[layer][None, :, -1:]
    key, value = past.key[layer][None, :, places], past.value[layer][None, :, places]
    given = (lab.array(part) for part in (query, key, value))
    return lab.numpy(lab.attention.scaled_dot_product_attention_grouped(*given))[0, :, 0]


def forgetful(layer: int, keep_the_first_token: bool) -> Picture:
    whole = last_output(layer, list(range(TOKENS)))
    errors = []
    for kept in KEPT:
        places = set(range(TOKENS - kept, TOKENS)) | ({0} if keep_the_first_token else set())
        off = np.linalg.norm(last_output(layer, sorted(places)) - whole, axis=-1)
        errors.append(off / np.linalg.norm(whole, axis=-1))
    figure, axes = new_figure(height=2.9)
    axes.plot(KEPT, np.array(errors), color=COLORS["line"], linewidth=1)
    axes.plot(KEPT, np.mean(errors, axis=1), "o-")
    axes.set(xscale="log", xticks=KEPT, xticklabels=KEPT, ylim=(0, 2.5))
    axes.set(xlabel=f"newest keys kept, of {TOKENS}", ylabel="error / size of the output")
    axes.set_title(f"layer {layer}: attention without the older keys")
    at_16 = np.mean(errors[KEPT.index(16)])
    return Picture(
        figure, f"Layer {layer}: with the 16 newest keys of {TOKENS}, the output is off by {at_16:.0%}."
    )


explore(forgetful, layer=slider(0, 29, 12), keep_the_first_token=switch())

# %% [markdown]
# Is there a layer that could do with 8 keys, and one that needs them all?
#
# ## Measure
#
# The chapter's limit: a token takes at least as long as memory needs to deliver the weights and the past, so 20 to 30
# GB per second give at most 37 to 56 tokens per second. How near does your cache come? And how much faster is it than
# last week's loop, behind a prompt of the same length?

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
draw = np.random.default_rng(0)

# A short run measures short prompts only.
for length in (32, 128) if settings.short() else (32, 128, 512):
    prompt = draw.integers(100, 40_000, length).tolist()
    cached = lab.generate.generate(model, prompt, max_tokens=2000)
    recomputed = lab.generate.generate_recompute(model, prompt, max_tokens=2000)
    next(cached)  # the prompt itself
    with_cache, without = measure(next, cached), measure(next, recomputed)
    gigabytes = (1e6 * WEIGHTS_MB + cache_bytes(length, 3)) / 1e9
    print(
        f"prompt {length:3}   cached {1 / with_cache:5.1f} tokens/s ({gigabytes / with_cache:4.1f} GB/s)   "
        f"recomputed {1 / without:5.1f} tokens/s: {without / with_cache:4.1f} times as long per token"
    )

# %% [markdown]
# ## An open question
#
# In a chat, each question comes with the whole conversation before it, and `generate` begins with empty caches each
# time. What could an engine keep from one question to the next? What could go wrong with it?
#
# <details>
# <summary>One answer</summary>
#
# It could keep the caches of the conversation, and run only the tokens that are new. A key depends on all the tokens
# before it, so the cache may be used again exactly as far as the tokens are the same: if the chat program shortens
# the beginning of a long conversation, everything after the change is worth nothing. And memory held for someone who
# never comes back is missing elsewhere. So an engine must be able to give up such caches at any time. Week 4 builds
# this: shared prefixes, and least recently used ones that are dropped first.
#
# </details>
