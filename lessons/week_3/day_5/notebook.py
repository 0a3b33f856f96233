# %% [markdown]
# # Day 3.5: Ragged batches: memory, to play with
#
# Here requests take pages one by one, strand one another, and are saved by a banker. The cells call your code;
# where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
from typing import Any

import numpy as np

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, settings, slider

# %% [markdown]
# ## Predict
#
# A pool of 6 pages of 4 tokens. Two requests, each with a prompt of 8 tokens and up to 8 of output. Each takes a
# page when it needs one. What happens, and at which token? Which rule would have prevented it, other than reserving
# everything? Write it down. Then make the pool smaller, page by page, and try the three rules.

# %%
RULES = ["whatever is free", "banker", "reserve all"]


def may_take(rule: str, free: int, held: list, most: list) -> list:
    """How many pages each request in line may take, if the others before it take none."""
    if rule == "banker":
        banker = lab.ragged.banker.Banker(free, held, most)
        return [banker.limit(ahead) for ahead in range(len(held))]
    return [free] * len(held)


def simulate(requests: list, pages: int, page_size: int, rule: str) -> tuple[np.ndarray, bool]:
    """Of requests (prompt, output, output at most): pages held per step and seat, and whether all have ended."""
    allocator, pages_for = lab.paged.allocator.PageAllocator(pages + 1), lab.paged.places.pages_for
    state = lab.ragged.decode_state.DecodeState(allocator, page_size, len(requests), pages)
    longest = [prompt + most - 1 for prompt, _, most in requests]
    line, history = list(range(len(requests))), []
    while line:
        tokens = [0] * len(requests)
        for ahead, seat in enumerate(line):  # each seat takes what it needs before the next one asks
            sequence, held = state.sequences[seat], [state.held[each] for each in line]
            most = [pages_for(longest[each], page_size) for each in line]
            new = 1 if sequence.length else requests[seat][0]
            room = longest[seat] if rule == "reserve all" else sequence.length + new
            lacks = pages_for(room, page_size) - held[ahead]
            if lacks <= may_take(rule, len(state.available_page_indices), held, most)[ahead]:
                asks = [room - sequence.length if each == seat else 0 for each in range(len(requests))]
                state.allocate(asks)
                sequence.advance(new)
                tokens[seat] = new
            elif rule == "reserve all":
                break  # no request overtakes another
        history.append(state.held)
        if not any(tokens):
            return np.array(history), False
        done = [s.length >= p + o - 1 for s, (p, o, _) in zip(state.sequences, requests, strict=True)]
        state.release(done)
        line = [seat for seat in line if not done[seat]]
    return np.array(history), True


def two_requests(pages: int, rule: str) -> Picture:
    held, ended = simulate([(8, 8, 8)] * 2, pages, 4, rule)
    figure, axes = new_figure(height=2.4)
    x = np.arange(1, len(held) + 1)
    axes.bar(x, held[:, 0], color=COLORS["blue"], label="A")
    axes.bar(x, held[:, 1], bottom=held[:, 0], color=COLORS["orange"], label="B")
    axes.axhline(pages, color=COLORS["muted"], ls="--")
    axes.set(xlim=(0.4, 17), ylim=(0, 10.5), xlabel="step", ylabel="pages held")
    axes.xaxis.get_major_locator().set_params(integer=True)
    end = f"both have ended after step {len(held)}" if ended else f"neither can go on in step {len(held)}"
    axes.set_title(f"{pages} pages, {rule}: {end}")
    axes.legend(loc="upper right")
    return Picture(
        figure, f"A pool of {pages} pages, rule: {rule}; {end}. At most {held.sum(1).max()} are held."
    )


explore(two_requests, pages=slider(4, 10, 10), rule=choice(RULES))

# %% [markdown]
# ## Experiment 1: reserved and held
#
# The chapter's sixteen requests: prompts of 100 tokens, up to 128 tokens of output each. They all begin together.
# Move the token after which they stop. The area between the two lines is memory that no request can use. For which
# answers is there none? What do larger pages change?


# %%
def reserved_and_held(stop_after: int, page_size: int) -> Picture:
    pages_for = lab.paged.places.pages_for
    reserved = 16 * pages_for(100 + 128 - 1, page_size) * page_size
    allocator = lab.paged.allocator.PageAllocator(reserved // page_size + 1)
    state = lab.ragged.decode_state.DecodeState(allocator, page_size, 16, reserved // page_size // 16)
    held = []
    for new in [100] + [1] * (stop_after - 1):
        state.allocate([new] * 16)
        for sequence in state.sequences:
            sequence.advance(new)
        held.append(sum(state.held) * page_size)
    figure, axes = new_figure(height=2.4)
    axes.fill_between(range(stop_after), held, reserved, color=PALE["orange"], step="post")
    axes.step(range(stop_after), held, where="post", color=COLORS["blue"], label="held")
    axes.plot([0, stop_after - 1], [reserved] * 2, color=COLORS["orange"], label="reserved by Day 3.2")
    axes.set(xlim=(0, 128), ylim=(0, 4400), xlabel="step", ylabel="places")
    axes.legend(loc="lower right")
    share = 1 - np.mean(held) / reserved
    axes.set_title(f"answers of {stop_after} tokens: {share:.0%} of what was reserved is empty")
    return Picture(
        figure,
        f"Answers of {stop_after} tokens, pages of {page_size}: {reserved} places are reserved, "
        f"{np.mean(held):.0f} held on average, {max(held)} at most.",
    )


explore(reserved_and_held, stop_after=slider(2, 128, 30), page_size=choice([4, 16, 64], 16))

# %% [markdown]
# ## Experiment 2: the banker's table
#
# The chapter's four requests in line. Dark is what each holds, pale what it may still need, and green how many
# pages it may take now. Change the number of free pages, or let B take some. Whose limit falls when B takes a page,
# and whose doesn't? With how many free pages may D take all that it lacks? Can B ever take so many that A is
# stranded?

# %%
HELD, MOST = [2, 4, 3, 0], [4, 9, 6, 3]


def limits(free: int, b_takes: int) -> Picture:
    banker, held = lab.ragged.banker.Banker(free, HELD, MOST), list(HELD)
    allowed = banker.limit(1)
    refused = b_takes > allowed
    if not refused:
        banker.take(1, b_takes)
        held[1] += b_takes
    may = [banker.limit(ahead) for ahead in range(4)]
    figure, axes = new_figure(height=2.5)
    axes.bar(np.arange(4) - 0.2, MOST, 0.36, color=PALE["blue"])
    axes.bar(np.arange(4) - 0.2, held, 0.36, color=COLORS["blue"])
    axes.bar(np.arange(4) + 0.2, may, 0.36, color=COLORS["green"])
    for request, number in enumerate(may):
        axes.text(request + 0.2, number + 0.2, number, ha="center")
    axes.set(
        xticks=range(4),
        xticklabels=list("ABCD"),
        xlabel="the line, oldest first",
        ylabel="pages",
        ylim=(0, 13),
    )
    said = f"B asks for {b_takes}: " + (f"refused, it may take {allowed}" if refused else "granted")
    axes.set_title(f"free before: {free}; {said}; limits now {may}")
    return Picture(figure, f"With {free} pages free, {said}. The limits of A to D are {may}.")


explore(limits, free=slider(3, 12, 4), b_takes=slider(0, 6, 0, title="B takes"))

# %% [markdown]
# ## Experiment 3: what each rule costs
#
# Twelve requests with prompts of 32 tokens and up to 64 of output, on pages of 8: each may need 12 pages. Their
# answers stop at different tokens; you set the average. The picture shows how many steps all twelve need, for pools
# of several sizes; a cross says that the requests stranded one another. Which rule would you choose for a small
# pool, which for a large one? Does the banker still gain anything when the answers go on to their ends?


# %%
def three_rules(mean_answer: int) -> Picture:
    draw = np.random.default_rng(4)
    answers = np.clip(draw.normal(mean_answer, mean_answer / 4, 12), 1, 64).astype(int).tolist()
    requests, sizes = [(32, answer, 64) for answer in answers], [24, 48, 72, 96, 144]
    figure, axes = new_figure(height=2.8)
    said = []
    for rule, tone, mark in zip(RULES, ("red", "green", "muted"), "sov", strict=True):
        results = [simulate(requests, size, 8, rule) for size in sizes]
        steps = [len(held) for held, _ in results]
        ended = [done for _, done in results]
        axes.plot(sizes, np.where(ended, steps, np.nan), marker=mark, color=COLORS[tone], label=rule)
        stuck = [(size, step) for size, step, done in zip(sizes, steps, ended, strict=True) if not done]
        axes.plot(*np.reshape(stuck, (-1, 2)).T, "x", color=COLORS[tone], ms=9, mew=2.5)
        said.append(
            f"{rule}: {[step if done else 'stranded' for step, done in zip(steps, ended, strict=True)]}"
        )
    axes.set(xlabel="pages in the pool", ylabel="steps", ylim=(0, None), xticks=sizes)
    axes.set_title(f"answers of {np.mean(answers):.0f} tokens on average, at most 64")
    axes.legend()
    return Picture(figure, f"Steps for pools of {sizes} pages; {'; '.join(said)}.")


explore(three_rules, mean_answer=slider(4, 64, 16, 4))

# %% [markdown]
# ## Measure
#
# The chapter counts: for 256 requests of 600 tokens, `tables_of` lists 9,728 numbers anew in each step, where a
# table that stays gets 16 new ones. With 8,000 tokens it is 128,000 against 16. What does that mean in time, on
# your machine?


# %% tags=["measured"]
def one_step(state: Any) -> None:
    state.allocate([1] * 256)
    for sequence in state.sequences:
        sequence.advance(1)


for length in (600, 8000):
    pages = lab.paged.places.pages_for(length, 16) + (20 if settings.short() else 400)
    allocator = lab.paged.allocator.PageAllocator(256 * pages)
    state = lab.ragged.decode_state.DecodeState(allocator, 16, 256, pages)
    first = [length + seat % 16 for seat in range(256)]
    state.allocate(first)
    for sequence, new in zip(state.sequences, first, strict=True):
        sequence.advance(new)
    anew, stays = (
        measure(lab.paged.tables.tables_of, state.sequences),
        measure(one_step, state, seconds=0.3),
    )
    print(
        f"{length:5} tokens: the table anew {1e6 * anew:7.0f} µs, a step that keeps it {1e6 * stays:5.0f} µs"
    )

# %% [markdown]
# ## An open question
#
# Many clients don't say how many tokens they want at most. Then the most of a request is what the model can do:
# 8,192 tokens, 512 pages of 16, though nearly all answers end after a few hundred. What does the banker do then,
# with a pool of 2,000 pages and 64 requests? What else could an engine do?
#
# <details>
# <summary>One answer</summary>
#
# Everything remains safe, but the first requests in line can hardly spare a page: each of them might still want
# hundreds. So the later ones get few pages, and wait, though most of the pool is free: nearly as if all had been
# reserved. A banker is as good as its customers' limits are honest. Two ways out: let the operator set a smaller
# limit for requests that name none, and say so; or expect an average instead of the worst, and take pages back
# where the guess was wrong. SGLang does the second: it admits requests by a ratio of their `max_tokens` that it
# adapts while it runs, and retracts some when the pool is full. vLLM doesn't estimate at all: it preempts. You
# write that on Day 4.3.
#
# </details>
