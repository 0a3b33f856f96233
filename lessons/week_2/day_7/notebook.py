# %% [markdown]
# # Day 2.7: A queue, to play with
#
# The chapter explains and the tests judge; here your loop serves queues of your own, and you see who waits for whom.
# The cells call your code; where a task is still missing, a line says which.

# %%
# %load_ext notebooks

# %%
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, Picture, choice, explore, lab, new_figure, settings, slider

# %% [markdown]
# ## Predict
#
# Two slots, chunks of 4 tokens, three requests: A has a prompt of 3 tokens and an output of 5, B has 6 and 3, C has 2
# and
# 3. How many steps does it take? In which steps do B and C take a slot? Write down one line per step before you run
#    the cell. Then: which chunk size saves a step? And what do three slots save?
#
# A model that always says 0 stands in for the real one, so only the order of the work is seen. The numbers are
# tokens: of a prompt, how many are computed; of an output, how many there are. Change `QUEUE`, if you like.

# %%
QUEUE = [(3, 5), (6, 3), (2, 3)]  # tokens of the prompt, tokens of the output
TONES = [COLORS[name] for name in ("blue", "orange", "green", "purple", "red", "yellow", "muted")]


def zeros(*shape: int) -> Any:
    return lab.array(np.zeros(shape))


DUMMY = SimpleNamespace(
    config=SimpleNamespace(num_layers=1, max_positions=4096),
    embedding=SimpleNamespace(weight=zeros(1, 1)),
    hidden=lambda tokens, positions, caches: zeros(*tokens.shape, 1),
    logits=lambda hidden: zeros(*hidden.shape[:-1], 10),
)


def steps_of(
    queue: list[tuple[int, int]], slots: int, chunk: int | None
) -> list[list[tuple[int, int] | None]]:
    """A list for each step: of the prompt and of each slot, which request it is and how many tokens it has there."""
    requests = [lab.request.Request([1] * prompt, output) for prompt, output in queue]
    steps: list[list[tuple[int, int] | None]] = []

    def note(decoded: Any, prefill: Any) -> None:
        prompt = (requests.index(prefill.request), prefill.computed) if prefill else None
        steps.append([prompt, *((requests.index(r), r.num_generated) if r else None for r in decoded)])

    lab.batch.batch_generate(DUMMY, requests, max_slots=slots, chunk_size=chunk, observe=note)
    return steps


def timeline(axes: Any, steps: list[list[tuple[int, int] | None]], labels: bool = True) -> None:
    for step, rows in enumerate(steps, 1):
        for row, entry in enumerate(rows):
            if entry is None:
                continue
            request, tokens = entry
            axes.barh(
                row,
                0.92,
                left=step - 0.46,
                height=0.8,
                color=TONES[request % 7],
                alpha=0.5 if row == 0 else 1,
            )
            text = f"{chr(65 + request)} {tokens}" if labels else chr(65 + request)
            axes.text(
                step, row, text, ha="center", va="center", fontsize=8, color="white" if row else COLORS["ink"]
            )
    slots = len(steps[0]) - 1
    axes.set_yticks(range(slots + 1), ["prompt", *(f"slot {slot}" for slot in range(slots))])
    axes.set(xlabel="step", ylim=(slots + 0.6, -0.6))


def three_requests(chunk: int, slots: int) -> Picture:
    steps = steps_of(QUEUE, slots, chunk)
    figure, axes = new_figure(height=0.9 + 0.4 * slots)
    timeline(axes, steps)
    axes.set(xlim=(0.4, 12.6), xticks=range(1, 13))
    axes.set_title(f"{slots} slots, chunks of {chunk}: {len(steps)} steps")
    return Picture(
        figure, f"{len(QUEUE)} requests on {slots} slots in chunks of {chunk} take {len(steps)} steps."
    )


explore(three_requests, chunk=slider(1, 8, 4), slots=slider(1, 3, 2))

# %% [markdown]
# ## Experiment 1: in which order?
#
# Nine requests wait, A to I. The loop takes them first come, first served; here you may sort the queue before. Which
# order needs the fewest steps? In which one does a short request get its first token late? Look at the end of the
# timeline, too: what keeps the slots idle there? Write a queue of your own into `NINE` that makes an order look bad.

# %%
NINE = [(3, 4), (6, 12), (3, 2), (9, 3), (2, 9), (5, 2), (12, 4), (2, 3), (4, 14)]
ORDERS = {
    "as they came": lambda request: 0,
    "short answers first": lambda request: request[1],
    "long answers first": lambda request: -request[1],
    "short prompts first": lambda request: request[0],
}


def nine_requests(order: str, slots: int) -> Picture:
    queue = sorted(range(len(NINE)), key=lambda place: ORDERS[order](NINE[place]))
    steps = steps_of([NINE[place] for place in queue], slots, 4)
    steps = [[entry and (queue[entry[0]], entry[1]) for entry in rows] for rows in steps]
    figure, axes = new_figure(height=0.9 + 0.32 * slots)
    timeline(axes, steps, labels=False)
    axes.set(xlim=(0.4, max(30, len(steps)) + 0.6))
    idle = sum(entry is None for rows in steps for entry in rows[1:]) / (slots * len(steps))
    axes.set_title(f"{order}: {len(steps)} steps, slots idle {idle:.0%} of the time")
    return Picture(
        figure,
        f"Nine requests, {order}, on {slots} slots: {len(steps)} steps; the slots are idle {idle:.0%} of the time.",
    )


explore(nine_requests, order=choice(list(ORDERS)), slots=slider(1, 6, 3))

# %% [markdown]
# ## Experiment 2: who waits for a chunk?
#
# Sixteen requests on five slots again, now with time: a decode takes 1, and a chunk of n tokens takes 0.6 + n/40,
# about as on the chapter's two cores. A row is a request, a dot is a token that its reader sees. Choose large chunks
# and look for the stripes in which no reader sees anything; then small chunks. Which size would you want as the
# reader of request 3, which as the last in the queue, which as the one who pays for the machine?

# %%
draw = np.random.default_rng(7)
SIXTEEN = [
    (int(prompt), int(output))
    for prompt, output in zip(draw.choice([40, 60, 90, 250, 570], 16), draw.integers(15, 64, 16), strict=True)
]


def token_times(chunk: int, slots: int) -> list[list[float]]:
    """When each request gets its tokens, in decodes."""
    times: list[list[float]] = [[] for _ in SIXTEEN]
    now, computed = 0.0, [0] * 16
    for prompt, *decoded in steps_of(SIXTEEN, slots, chunk):
        if prompt is not None and prompt[1] > computed[prompt[0]]:
            request, tokens = prompt
            now += 0.6 + (tokens - computed[request]) / 40
            computed[request] = tokens
            if tokens == SIXTEEN[request][0]:
                times[request].append(now)  # the last chunk brings the first token
        now += any(entry is not None for entry in decoded)
        for entry in decoded:
            if entry is not None:
                times[entry[0]].append(now)
    return times


def who_waits(chunk: int, slots: int) -> Picture:
    times = token_times(chunk, slots)
    figure, axes = new_figure(height=3.2)
    for request, tokens in enumerate(times):
        axes.plot(tokens, [request] * len(tokens), ".", markersize=2.5, color=TONES[request % 6])
    axes.set(xlabel="time, in decodes", ylabel="request", ylim=(15.7, -0.7))
    gap = max(max(np.diff(tokens), default=0) for tokens in times)
    first = np.mean([tokens[0] for tokens in times])
    end = max(tokens[-1] for tokens in times)
    axes.set_xlim(0, max(300, 1.02 * end))
    said = f"worst gap {gap:.1f}, first token after {first:.0f} on average, all done after {end:.0f}"
    axes.set_title(said)
    return Picture(figure, f"Chunks of {chunk} on {slots} slots: {said}, in decodes.")


explore(who_waits, chunk=choice([16, 32, 64, 128, 256, 1024], 128), slots=slider(1, 10, 5))

# %% [markdown]
# ## Measure
#
# On two cores with AVX-512, a prompt of 573 tokens takes as long as about fifteen decodes; in chunks of 128, the
# others stand still for about four. Here five requests are being answered by the real model when a sixth with such a
# prompt comes. How long do the five stand still on your machine? And what do the small chunks cost the sixth?

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
LONG, ANSWER = (150, 8) if settings.short() else (573, 26)


def served(chunk: int | None) -> tuple[float, float, float]:
    """Seconds: the longest step, a step without a prompt, and until the sixth request has its first token."""
    ids = np.random.default_rng(8).integers(100, 40_000, 1000).tolist()
    requests = [lab.request.Request(ids[:20], ANSWER) for _ in range(5)] + [
        lab.request.Request(ids[:LONG], 4)
    ]
    ends, first = [time.perf_counter()], list[float]()
    with_prompt: list[bool] = []

    def note(decoded: Any, prefill: Any) -> None:
        ends.append(time.perf_counter())
        with_prompt.append(prefill is not None)
        first.extend(ends[-1:] if requests[5].num_generated and not first else [])

    lab.batch.batch_generate(model, requests, max_slots=6, chunk_size=chunk, observe=note)
    steps, prompts = np.diff(ends), np.array(with_prompt)
    return steps[5:].max(), float(np.median(steps[~prompts])), first[0] - ends[5]


for chunk in (None, 64) if settings.short() else (None, 128, 32):
    longest, decode, first = served(chunk)
    print(
        f"chunks of {chunk or 'all':>4}   longest step {1000 * longest:5.0f} ms, {longest / decode:4.1f} decodes   "
        f"first token of the sixth after {1000 * first:5.0f} ms"
    )

# %% [markdown]
# ## An open question
#
# An engine promises its readers a token every 100 ms. Could it choose the chunk size by itself?
#
# <details>
# <summary>One answer</summary>
#
# It knows how long its steps took, and which chunks and how many decodes were in them. From these it can fit a
# line, much like the 0.6 + n/40 above, and before each step take the largest chunk that fits into what is left of
# the 100 ms. While no slot is busy, there is no request to disturb, and the chunk may be as large as the prompt.
# Where a single decode already takes longer than 100 ms, no chunk size helps: there are too many slots. Engines
# mostly leave the choice to you, as a budget of tokens per step; Day 4.2 builds that. Sarathi-Serve (arXiv
# 2403.02310) chooses the budget by measuring beforehand.
#
# </details>
