# %% [markdown]
# # Day 3.6: Ragged batches: scheduling, to play with
#
# Here you fill steps with tokens, run short of pages, and trade the wait for the first token against the gaps
# between the others. The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, measure, new_figure, slider

TONES = [COLORS[name] for name in ("blue", "orange", "green", "purple", "red", "yellow")]


def engine(seats: int, budget: int, pages: int, page_size: int) -> Any:
    """Your engine, with a model that computes nothing: it always answers with token 0."""

    def zeros(*shape: int) -> Any:
        return lab.array(np.zeros(shape), "float32")

    model = SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=4096),
        embedding=SimpleNamespace(weight=zeros(10, 1)),
        hidden=lambda tokens, positions, caches: zeros(*tokens.shape, 1),
        logits=lambda hidden: zeros(*hidden.shape[:-1], 10),
    )
    pool = lab.paged.pool.KvPool(model.config, pages + 1, page_size)
    runner = lab.paged.model_runner.ModelRunner(model, pool)
    allocator = lab.paged.allocator.PageAllocator(pages + 1)
    state = lab.ragged.decode_state.DecodeState(allocator, page_size, seats, pages)
    return lab.ragged.batch.RaggedBatch(runner, state, budget)


def run_all(core: Any, lengths: list) -> tuple[np.ndarray, list, list]:
    """Tokens brought [steps, requests]; the steps in which each request got a token; pages taken after each step."""
    requests = [lab.request.Request([1] * prompt, output) for prompt, output in lengths]
    brought, taken = [], []
    tokens: list[list[int]] = [[] for _ in requests]

    def note(step: Any) -> None:
        counts = dict(step.issued)
        brought.append([counts.get(each, 0) for each in requests])
        taken.append(sum(core.decode_state.held))
        for steps, each in zip(tokens, requests, strict=True):
            steps += [len(brought)] * (each.num_generated - len(steps))

    lab.engine_core.generate_all(core, requests, note)
    return np.array(brought), tokens, taken


# %% [markdown]
# ## Predict
#
# Four seats, a budget of 2 tokens per step, pages in plenty. Four requests come at once, A to D. Each has a prompt
# of one token and generates three. In which step does D get its first token? How many requests ever decode
# together? Write it down. The picture begins with a budget of 8; go down from there.


# %%
def four_requests(budget: int) -> Picture:
    brought, tokens, _ = run_all(engine(4, budget, 100, 4), [(1, 3)] * 4)
    figure, axes = new_figure(height=2.2)
    first = [steps[0] for steps in tokens]
    for step, request in np.argwhere(brought):
        prompt = step + 1 == first[request]
        axes.barh(request, 0.9, left=step + 0.55, color=COLORS["orange" if prompt else "blue"])
    together = max((row > 0)[[step + 1 > f for f in first]].sum() for step, row in enumerate(brought))
    axes.set(yticks=range(4), yticklabels=list("ABCD"), xlim=(0.4, 13), ylim=(3.6, -0.6), xlabel="step")
    axes.set_title(
        f"budget {budget}: D's first token in step {first[3]}; decoding together, at most: {together}"
    )
    return Picture(
        figure,
        f"With a budget of {budget} the first tokens come in the steps {first}; at most {together} decode together. "
        "Prompts are orange, decodes blue.",
    )


explore(four_requests, budget=slider(1, 8, 8))

# %% [markdown]
# ## Experiment 1: what fills a step
#
# The chapter's six requests in four seats. A bar is a step, a color a request; the dashed line is the budget, and
# below are the pages of 4. Find a step that stays under the budget although a request still has much due: what does
# it lack? With which budget do more pages no longer help? And with how many pages does a larger budget no longer
# help?

# %%
SIX = [(4, 5), (2, 3), (13, 6), (6, 4), (1, 4), (1, 3)]


def filled_steps(budget: int, pages: int) -> Picture:
    brought, tokens, taken = run_all(engine(4, budget, pages, 4), SIX)
    figure, (above, below) = new_figure(height=3.4, rows=2, sharex=True, height_ratios=[3, 1])
    steps, bottom = np.arange(1, len(brought) + 1), np.zeros(len(brought))
    for request, counts in enumerate(brought.T):
        above.bar(steps, counts, bottom=bottom, color=TONES[request], label="ABCDEF"[request])
        bottom += counts
    above.axhline(budget, color=COLORS["muted"], ls="--")
    above.set(ylabel="tokens", ylim=(0, 19.5), yticks=[0, 4, 8, 12, 16], xlim=(0.4, 27))
    above.legend(ncols=6, loc="upper right")
    below.step(steps, taken, where="mid", color=COLORS["muted"])
    below.set(ylabel="pages", xlabel="step", ylim=(0, pages + 1), yticks=[0, pages])
    first = [steps[0] for steps in tokens]
    above.set_title(f"{len(brought)} steps; first tokens of A to F in steps {first}")
    return Picture(
        figure,
        f"Budget {budget}, {pages} pages: {len(brought)} steps, which bring {bottom.astype(int).tolist()} tokens; "
        f"first tokens in the steps {first}.",
    )


explore(filled_steps, budget=slider(1, 16, 8), pages=slider(5, 14, 9))

# %% [markdown]
# ## Experiment 2: the first token, or the gaps?
#
# The chapter's sixteen prompts arrive one after the other, in eight seats. Time is made up, but close to the
# chapter's machine: a step takes 45 ms, and 1.8 ms more for each token in it. For each budget you see how long
# requests wait for their first token, and the longest gap between two tokens of one request. Which budget would you
# choose for a chat? What if the answers are read later? Let requests come faster, and then take pages away: which
# of the lines moves?

# %%
LENGTHS = [(37, 8), (546, 29), (37, 48), (41, 37), (313, 48), (37, 32), (56, 18), (573, 48)]
LENGTHS += [(36, 22), (38, 48), (213, 48), (79, 48), (36, 48), (324, 48), (43, 48), (108, 48)]


def served(budget: int, per_second: float, pages: int) -> tuple[float, float, float]:
    """Mean wait for the first token, longest gap, end: in made-up seconds."""
    core, clock = engine(8, budget, pages, 16), 0.0
    requests = [lab.request.Request([1] * prompt, output) for prompt, output in LENGTHS]
    arrives = np.random.default_rng(6).exponential(1 / per_second, 16).cumsum().tolist()
    waiting = list(range(16))
    times: dict[Any, list[float]] = {each: [] for each in requests}
    while waiting or core.requests:
        if not core.requests:
            clock = max(clock, arrives[waiting[0]])
        while waiting and core.idle and arrives[waiting[0]] <= clock:
            core.push(requests[waiting.pop(0)])
        step = core.step()
        clock += 0.045 + 0.0018 * sum(count for _, count in step.issued)
        for each, _ in step.issued:
            if each.num_generated > len(times[each]):
                times[each].append(clock)
    waits = [times[each][0] - came for each, came in zip(requests, arrives, strict=True)]
    return float(np.mean(waits)), max(np.diff(times[each]).max() for each in requests), clock


def budgets(per_second: int, pages: int) -> Picture:
    sizes = [8, 16, 32, 64, 128, 512]
    waits, gaps, ends = np.transpose([served(size, per_second, pages) for size in sizes])
    figure, axes = new_figure(height=2.8)
    axes.plot(sizes, waits, "o-", label="first token, mean wait")
    axes.plot(sizes, gaps, "s-", label="longest gap")
    axes.set(xscale="log", yscale="log", xlabel="token budget", ylabel="seconds", ylim=(0.04, 40))
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
    axes.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    axes.legend(loc="upper center")
    axes.set_title(
        f"{per_second} requests per second, {pages} pages: all done after {ends[0]:.0f} … {ends[-1]:.0f} s"
    )
    said = ", ".join(f"{w:.2f} and {g:.2f}" for w, g in zip(waits, gaps, strict=True))
    return Picture(
        figure, f"For budgets of {sizes}: mean wait for the first token and longest gap, in s: {said}."
    )


explore(budgets, per_second=choice([1, 2, 4, 16], 2, title="per second"), pages=choice([60, 100, 214], 214))

# %% [markdown]
# ## Measure
#
# How much does a step of the real model take on your machine, and how much is it per token? These are chunks of a
# prompt, with an empty past. In the chapter, with a budget of 128, the worst gap between two tokens was 0.23 s.

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
pool, allocator = lab.paged.pool.KvPool(model.config, 17, 16), lab.paged.allocator.PageAllocator(17)
attention = lab.kernels.paged_attention_auto.paged_attention_auto
runner = lab.paged.model_runner.ModelRunner(model, pool, attention)
sequence = lab.paged.sequence.PagedSequence(allocator, 16)
sequence.reserve(256)


def step_of(tokens: int) -> None:
    sequence.length = 0
    runner.run([sequence], lab.paged.tables.tables_of([sequence]), [1] * tokens, [tokens])


sizes = [1, 16, 64, 128, 256]
times = [1000 * measure(step_of, size) for size in sizes]
for size, time in zip(sizes, times, strict=True):
    print(f"{size:3} tokens: {time:7.1f} ms, {time / size:6.1f} ms per token")
more = (times[-1] - times[0]) / 255
print(f"roughly {times[0]:.0f} ms for a step of one token, and {more:.1f} ms for each token more")

# %% [markdown]
# ## An open question
#
# The budget counts tokens, but what a reader feels is time: a token at position 8,000 reads 8,000 keys in each
# layer, and a token of a short prompt next to none. How would you keep every step under 100 ms?
#
# <details>
# <summary>One answer</summary>
#
# Predict the time of a step before it runs, from what the plan says: so much per step, so much per token, and so
# much for each key that a token attends to. The three numbers come from measurements, as above, and can be kept up
# to date while the engine runs. Decodes go first, as before; then each prompt gets as many tokens as fit into the
# time that is left, and fewer the longer its past is. Two things to watch: a prompt must get at least one token now
# and then, however long its past is, or it starves. And where the decodes alone take longer than 100 ms, no plan
# helps: then fewer requests must run together.
#
# </details>
