# %% [markdown]
# # Day 4.3: Out of pages, to play with
#
# A request that needs a page takes it from one that stands below it. Here you make pages scarce and see who pays for
# it. Most cells run a model that computes nothing, so they answer at once.

# %%
# %load_ext notebooks

# %%
import random
import time
from types import SimpleNamespace
from typing import Any

import torch

from notebooks import COLORS, PALE, Picture, explore, lab, new_figure, settings, slider, switch

idle = SimpleNamespace(  # a model that computes nothing
    config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=2048),
    embedding=SimpleNamespace(weight=torch.zeros(49152, 1)),
    hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
    logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 2),
)


def engine(pages: int, page_size: int, model: Any = idle, kind: Any = None, **options: Any) -> Any:
    cache = lab.prefix.trie_cache.TrieCache(lab.paged.allocator.PageAllocator(pages + 1), page_size)
    kind = kind or lab.scheduling.preemption.PreemptiveScheduler
    scheduler = kind(cache, max_positions=2048, **options)
    pool = lab.paged.pool.KvPool(model.config, pages + 1, page_size)
    return lab.scheduling.batch.ExtendBatch(lab.paged.model_runner.ModelRunner(model, pool), scheduler)


# %% [markdown]
# ## Predict
#
# A, B and C came in this order, with equal priorities, and all decode. The pool is full. In the next step, C's token
# needs a new page. Which request gives it one? And which, if it is A's token? Write both down.
#
# The picture has A, B and C of the chapter: 5, 8 and 4 tokens of prompt, 6, 5 and 3 of output, pages of 4 places.
# Take pages away until a request is preempted (✕), and say each time who it will be. Then do it again with another
# level of C. Gray: only the tree has the page.

# %%
HOLDERS = {"A": "blue", "B": "orange", "C": "green"}


def holders_of(core: Any, names: dict[Any, str]) -> dict[int, str]:
    """Who has each page at this moment."""
    holders = {node.page: "tree" for node in core.scheduler.cache.unheld}
    for each in core.scheduler.running:
        holders |= dict.fromkeys(each.sequence.pages, names[each.request])
    return holders


def three_requests(pages: int, level_of_c: int) -> Picture:
    core, names = engine(pages, 4, token_budget=8), dict[Any, str]()
    seen: list[dict[int, str]] = []
    lost: list[tuple[int, str]] = []
    for name, prompt, output in ("A", range(2, 7), 6), ("B", range(12, 20), 5), ("C", range(22, 26), 3):
        request = lab.request.Request(prompt, output, priority=level_of_c * (name == "C"))
        names[request] = name
        core.push(request)
    sample = core.sample

    def noted(*given: Any) -> None:
        seen.append(holders_of(core, names))
        sample(*given)

    core.sample = noted
    while core.requests:
        lost += [(len(seen) - 1, names[request]) for request in core.step().preempted]
    figure, axes = new_figure(height=2.6)
    for step, holders in enumerate(seen):
        for page, name in holders.items():
            kept = name == "tree"
            axes.barh(page, 0.96, 0.8, step + 0.02, color=PALE["ink"] if kept else COLORS[HOLDERS[name]])
            axes.text(
                step + 0.5, page, name, color=COLORS["ink"] if kept else "w", ha="center", va="center", size=8
            )
    for step, name in lost:
        axes.text(step + 0.5, 0.2, f"✕ {name}", color=COLORS["red"], ha="center", va="center", weight="bold")
    axes.set(ylim=(pages + 0.6, -0.3), yticks=range(1, pages + 1), xlim=(0, max(len(seen), 12)))
    axes.set(xlabel="step", ylabel="page")
    axes.set_title(f"{len(seen)} steps, {len(lost)} preemptions")
    victims = ", ".join(f"{name} in step {step}" for step, name in lost) or "no request"
    return Picture(
        figure, f"{pages} pages, C has level {level_of_c}: {len(seen)} steps; {victims} preempted."
    )


explore(three_requests, pages=slider(3, 9, 9), level_of_c=slider(0, 3, 0, title="level of C"))

# %% [markdown]
# ## Experiment 1: reserve or preempt
#
# 32 requests like the chapter's stop after 16 to 96 tokens of output, and each may generate up to *max tokens*. Both
# schedulers serve them on pools from 60 to 400 pages. Before you move the control: which of the three curves depend
# on *max tokens*?


# %%
def stopping_at(length: int) -> Any:
    """A sampler that ends the text when it has so many tokens."""
    return lambda logits, ids: int(len(ids) + 1 >= length)


def serve(kind: Any, pages: int, max_tokens: int) -> tuple[int, int, int]:
    """The runs of the model, the tokens computed, and the preemptions."""
    core, draw, computed = engine(pages, 16, kind=kind, num_seats=32), random.Random(0), []
    for _ in range(32):
        prompt = [draw.randrange(2, 49152) for _ in range(draw.randint(16, 120))]
        stop = stopping_at(len(prompt) + draw.randint(16, 96))
        core.push(lab.request.Request(prompt, max_tokens, end_ids=[1], sample=stop))
    while core.requests:
        computed.append(sum(count for _, count in core.step().issued))
    return len(computed), sum(computed), getattr(core.scheduler, "preemptions", 0)


def two_policies(max_tokens: int) -> Picture:
    sizes = [60, 80, 120, 200, 400]
    reserve = [serve(lab.scheduling.scheduler.Scheduler, size, max_tokens) for size in sizes]
    preempt = [serve(lab.scheduling.preemption.PreemptiveScheduler, size, max_tokens) for size in sizes]
    figure, (left, right) = new_figure(height=2.6, cols=2)
    left.plot(sizes, [each[0] for each in reserve], "o-", color=COLORS["orange"], label="reserve")
    left.plot(sizes, [each[0] for each in preempt], "o-", color=COLORS["blue"], label="preempt")
    left.set(title="runs of the model", xlabel="pages", ylim=(0, None))
    left.legend()
    twice = [now[1] - before[1] for now, before in zip(preempt, reserve, strict=True)]
    right.plot(sizes, twice, "o-", color=COLORS["purple"])
    right.set(title="tokens computed twice", xlabel="pages", ylim=(-20, 1500))
    for size, (_, _, times), tokens in zip(sizes, preempt, twice, strict=True):
        right.annotate(f"{times}", (size, tokens), (3, 6), textcoords="offset points", size=8)
    words = (
        f"with {sizes[1]} pages, {reserve[1][0]} runs with reservation, and {preempt[1][0]} with preemption"
    )
    return Picture(figure, f"max_tokens = {max_tokens}: {words}, where {twice[1]} tokens are computed twice.")


explore(two_policies, max_tokens=slider(96, 384, 256, 32))

# %% [markdown]
# A number at a point of the right picture counts the preemptions. How many tokens does one of them cost, compared
# with the mean length of a request?
#
# ## Experiment 2: the one who comes late
#
# Client X sends 40 requests of 100 tokens at once, client Y sends 5 of them some steps later. Each wants 8 tokens of
# output, and there are 4 seats. Guess how long Y's first request waits. Then take away the names: all requests come
# from one client, and the order of arrival is all that counts.


# %%
def two_clients(y_comes: int, named: bool) -> Picture:
    core, draw = engine(200, 16, num_seats=4, token_budget=128), random.Random(1)
    first_token: dict[Any, int] = {}
    came: dict[Any, tuple[str, int]] = {}
    for step in range(600):
        count, who = {0: (40, "X"), y_comes: (5, "Y")}.get(step, (0, ""))
        for _ in range(count):
            ids = [draw.randrange(2, 49152) for _ in range(100)]
            request = lab.request.Request(ids, 8, client=who if named else "all")
            came[request] = who, step
            core.push(request)
        if core.requests:
            core.step()
        for request in came:
            if request.num_generated:
                first_token.setdefault(request, step)
    figure, axes = new_figure(height=2.6)
    for row, (request, (who, step)) in enumerate(came.items()):
        axes.plot([step, first_token[request]], [row, row], color=COLORS["line"], linewidth=1)
        axes.plot(
            first_token[request], row, "o", color=COLORS["blue" if who == "X" else "orange"], markersize=4
        )
    waits = [first_token[request] - step for request, (who, step) in came.items() if who == "Y"]
    axes.set(ylim=(len(came), -1), xlabel="step", ylabel="request", xlim=(-2, 110))
    axes.set_title(
        f"wait (gray) and first token of X (blue) and Y (orange)\nsteps that Y's first request waits: {waits[0]}"
    )
    words = f"Y comes in step {y_comes}; its requests wait {min(waits)} to {max(waits)} steps."
    return Picture(figure, f"{'With names' if named else 'Without names'}: {words}")


explore(two_clients, y_comes=slider(5, 80, 10, 5, "Y comes in step"), named=switch(True, "X and Y are named"))

# %% [markdown]
# ## Measure
#
# In the chapter a pool of 60 pages serves 48 output tokens per second if it preempts, and 32 if it reserves; with
# pages for all it is 87. Here are eight requests with the real model, with a pool that is large enough and with one
# that isn't.

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
schedulers = {
    "reserve": lab.scheduling.scheduler.Scheduler,
    "preempt": lab.scheduling.preemption.PreemptiveScheduler,
}
for pages in (12, 64):
    for name, kind in schedulers.items():
        core, draw = engine(pages, 16, model, kind, num_seats=8), random.Random(2)
        for _ in range(2 if settings.short() else 8):
            prompt = [draw.randrange(2, 49152) for _ in range(draw.randint(16, 48))]
            stop = stopping_at(len(prompt) + (4 if settings.short() else draw.randint(12, 24)))
            core.push(lab.request.Request(prompt, 96, end_ids=[1], sample=stop))
        requests, began = core.requests, time.perf_counter()
        with torch.inference_mode():
            while core.requests:
                core.step()
        tokens = sum(request.num_generated for request in requests) / (time.perf_counter() - began)
        print(f"{pages} pages, {name}   {tokens:5.1f} output tokens per second")

# %% [markdown]
# ## An open question
#
# The victim is the request that stands lowest. Another rule would waste less: the request that has computed the
# fewest tokens. What could go wrong with it?
#
# <details>
# <summary>One answer</summary>
#
# Take two requests that need the whole pool in the end. The younger one has fewer tokens, and makes way. When it is
# back, it computes its prompt anew, and may soon have more tokens than the other one; now that one makes way. With
# rank, the request that came first goes on in any case, and that is what proves that all of them end. A rule that
# looks at progress needs something else that makes an end certain. SGLang, which takes the request with the fewest
# output tokens, also raises its estimate of what requests will need, and so lets fewer of them begin.
#
# </details>
