# %% [markdown]
# # Day 4.2: Extend attention, to play with
#
# A scheduler fills each step with chunks, and finds what needn't be computed. Here you give it requests of your own
# and look at its steps. Most cells run a model that computes nothing, so they answer at once.

# %%
# %load_ext notebooks

# %%
import random
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from notebooks import COLORS, PALE, Picture, explore, lab, new_figure, settings, slider

idle = SimpleNamespace(  # a model that computes nothing
    config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=2048),
    embedding=SimpleNamespace(weight=torch.zeros(49152, 1)),
    hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
    logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 2),
)


def engine(pages: int, model: Any = idle, separate: bool = False, **options: Any) -> Any:
    allocator = lab.paged.allocator.PageAllocator(pages + 1)
    scheduler = lab.scheduling.scheduler.Scheduler(
        lab.prefix.trie_cache.TrieCache(allocator, 16), max_positions=2048, **options
    )
    pool = lab.paged.pool.KvPool(model.config, pages + 1, 16)
    return lab.scheduling.batch.ExtendBatch(
        lab.paged.model_runner.ModelRunner(model, pool), scheduler, separate
    )


def plans_of(core: Any) -> list[list[Any]]:
    """Step until no request is left; what was planned for each step."""
    plans: list[list[Any]] = []
    plan = core.scheduler.plan

    def noted() -> list[Any]:
        plans.append(plan())
        return plans[-1]

    core.scheduler.plan = noted
    while core.requests:
        core.step()
    return plans


# %% [markdown]
# ## Predict
#
# R1 has 250 tokens, R2 has 300, and each wants one token of output. Pages have 16 places, a chunk at most 128 tokens,
# and the budget is 256. How many runs of the model does it take? And how many if the first 200 tokens are the same?
# Write both down. Then move *common*, and look for the numbers at which something changes. Pale: found in the tree.

# %%
STEP_COLORS = ["blue", "orange", "green", "purple", "red", "yellow"]


def two_requests(common: int, chunk_size: int) -> Picture:
    core = engine(64, token_budget=256, chunk_size=chunk_size)
    for ids in list(range(250)), [*range(common), *range(1000, 1300 - common)]:
        core.push(lab.request.Request(ids, max_tokens=1))
    plans = plans_of(core)
    figure, axes = new_figure(height=2.0)
    for step, plan in enumerate(plans):
        color = COLORS[STEP_COLORS[step % 6]]
        for chunk in plan:
            row, start = chunk.running.rank, chunk.had + chunk.found
            axes.barh(row, chunk.found, 0.55, chunk.had, color=PALE["ink"], edgecolor="w")
            axes.barh(row, chunk.count, 0.55, start, color=color, edgecolor="w")
            words = f"{step}" if chunk.count < 40 else f"step {step}"
            axes.text(start + chunk.count / 2, row, words, color="w", ha="center", va="center", size=8)
    computed = sum(chunk.count for plan in plans for chunk in plan)
    axes.set(yticks=[0, 1], yticklabels=["R1", "R2"], ylim=(1.5, -0.5), xlim=(0, 300), xlabel="position")
    axes.set_title(f"{len(plans)} runs, {computed} tokens computed, {550 - computed} found")
    return Picture(
        figure,
        f"With {common} tokens in common: {len(plans)} runs, {computed} tokens computed, {550 - computed} found.",
    )


explore(two_requests, common=slider(0, 250, 0, 5), chunk_size=slider(16, 256, 128, 16))

# %% [markdown]
# ## Experiment 1: packed and padded
#
# One step in which some requests decode, while two prompts bring a chunk: one of 128 tokens, and one of the length
# that you choose. A model with fixed shapes takes the whole rectangle. Find the worst step that you can, and then all
# steps in which padding is less than 10 %.


# %%
def rectangle(decodes: int, other: int) -> Picture:
    core = engine(400, num_seats=100, token_budget=512)
    for rank in range(decodes):
        core.push(lab.request.Request([rank], max_tokens=3))
    if decodes:
        core.step()  # from now on these decode
    for rank, length in enumerate((128, other)):
        core.push(lab.request.Request([1000 + rank] * length, max_tokens=1))
    padded = lab.scheduling.padded.PaddedArguments.build(core.scheduler.plan(), 16)
    brought, (rows, cols) = lab.numpy(padded.q_lens), padded.tokens.shape
    share = brought.sum() / (rows * cols)
    figure, axes = new_figure(height=2.8)
    axes.barh(range(rows), cols, 1.0, color=PALE["orange"], edgecolor=COLORS["paper"], linewidth=0.3)
    axes.barh(range(rows), brought, 1.0, color=COLORS["blue"], edgecolor=COLORS["paper"], linewidth=0.3)
    axes.set(ylim=(rows - 0.5, -0.5), yticks=[], xlim=(0, 256), xlabel="columns", ylabel=f"{rows} requests")
    axes.set_title(f"{brought.sum()} tokens in {rows} × {cols} = {rows * cols:,}: efficiency {share:.1%}")
    words = f"{decodes} decodes, and chunks of 128 and {other} tokens"
    return Picture(figure, f"{words}: {share:.1%} of the rectangle are tokens, the rest is padding.")


explore(rectangle, decodes=slider(0, 64, 16, 4), other=slider(8, 256, 64, 8))

# %% [markdown]
# ## Experiment 2: what a promise costs
#
# 32 requests come at once, with prompts of 16 to 120 tokens. They stop after 16 to 96 tokens of output, but that
# isn't known before: each may generate up to *max tokens*, and the pages for so many are promised to it. The left
# curve says how many run together. Guess what it does if callers write 512 everywhere, to be on the safe side.


# %%
def stopping_at(length: int) -> Any:
    """A sampler that ends the text when it has so many tokens."""
    return lambda logits, ids: int(len(ids) + 1 >= length)


def together(max_tokens: int, pages: int) -> Picture:
    core, draw = engine(pages, num_seats=32, token_budget=256), random.Random(0)
    for _ in range(32):
        prompt = [draw.randrange(2, 49152) for _ in range(draw.randint(16, 120))]
        stop = stopping_at(len(prompt) + draw.randint(16, 96))
        core.push(lab.request.Request(prompt, max_tokens, end_ids=[1], sample=stop))
    running, used = [], []
    while core.requests:
        core.step()
        running.append(len(core.scheduler.running))
        used.append(sum(len(each.sequence.pages) for each in core.scheduler.running))
    figure, (left, right) = new_figure(height=2.4, cols=2)
    left.plot(running, drawstyle="steps-post")
    left.set(xlabel="step", ylim=(0, 33), title="requests that run")
    right.plot(used, color=COLORS["green"], drawstyle="steps-post")
    right.axhline(pages, color=COLORS["muted"], linestyle=":")
    right.set(xlabel="step", ylim=(0, 1.1 * pages), title=f"pages held, of {pages}")
    words = f"{len(running)} steps, with {np.mean(running):.1f} requests and {np.mean(used):.0f} pages on average."
    return Picture(figure, f"With max_tokens = {max_tokens} and {pages} pages: {words}")


explore(together, max_tokens=slider(96, 512, 256, 32), pages=slider(60, 400, 160, 20))

# %% [markdown]
# ## Measure
#
# With a budget of 128, the chapter's sixteen prompts take 78 runs if decodes run apart, in place of 60. On a GPU,
# decodes that ride along with a chunk are nearly free. And on your machine? Here are eight prompts of 100 tokens with
# the real model; the second line runs decodes and chunks in turn.

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
outputs = 2 if settings.short() else 12


def serve(separate: bool, prompts: int) -> tuple[int, float]:
    """The runs of the model, and the seconds that all of them take."""
    draw, core = random.Random(2), engine(80, model, separate, token_budget=128)
    for _ in range(prompts):
        core.push(lab.request.Request([draw.randrange(49152) for _ in range(100)], max_tokens=outputs))
    began = time.perf_counter()
    with torch.inference_mode():
        plans = plans_of(core)
    runs = [len({chunk.decode for chunk in plan}) if separate else 1 for plan in plans]
    return sum(runs), time.perf_counter() - began


serve(False, 1)  # the first run of a model takes longer
for separate in False, True:
    runs, seconds = serve(separate, 4 if settings.short() else 8)
    print(f"{'decodes apart' if separate else 'all in one run':15} {runs:3} runs   {seconds:6.2f} s")

# %% [markdown]
# ## An open question
#
# The first request that waits asks for 4,000 tokens of output, and there are too few pages for its promise. Behind it
# wait ten that would fit. Nothing begins. Should they overtake it?
#
# <details>
# <summary>One answer</summary>
#
# Each single time it looks right: the ten cost the large one next to nothing, and most callers have to wait less. But
# if small ones keep coming, the pages that become free are always taken by the next small one, and the large one
# never begins. So a scheduler that lets others overtake needs a limit: only so many times, or only for so long.
# Cluster schedulers call it *backfilling* when a job may overtake only if it will have ended before the large one
# could begin. They can do so because jobs say how long they take; a request doesn't. And the deeper trouble is the
# promise. Tomorrow it goes, and with it most of this waiting.
#
# </details>
