# %% [markdown]
# # Day 2.6: A batch, to play with
#
# The chapter explains and the tests judge; here you fill slots, see what padding would steal, and find the batch that
# pays on your machine. The cells call your code; where a task is still missing, a line says which.

# %%
# %load_ext notebooks

# %%
import numpy as np
from matplotlib.patches import Rectangle

from notebooks import (
    COLORS,
    PALE,
    Picture,
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
# A batch has four slots. Slots 0, 1 and 3 hold requests with 5, 2 and 7 tokens; slot 2 is idle. Each request gets one
# new token. How many columns do the keys of the batch have? Which of them may the new token of slot 1 see, and at
# which positions do the three new tokens stand? Write it down; then change slot 1.
#
# Each cell below is a column of your cache's keys, with the position of the token that lies there; blue cells may be
# seen by the new token of their row. What happens to the other rows when slot 1 gets the longest request? And when it
# is idle, too?

# %%
OTHERS = {0: 5, 3: 7}


def batch_of(lengths: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Positions in the columns of each slot, and which columns the new token sees; [slots, columns] both."""
    cache = lab.kv_cache.BatchingKvCache(4)
    for slot, length in lengths.items():
        past = lab.kv_cache.FullKvCache()
        if length:
            old = lab.array(np.arange(1.0, length + 1).reshape(1, 1, length, 1))  # position + 1: padding is 0
            past.append(old, old)
        cache.add(slot, past)
    new = lab.array(np.array([lengths.get(slot, 0) + 1.0 for slot in range(4)]).reshape(4, 1, 1, 1))
    keys, _, mask = cache.update_and_fetch(new, new)
    return lab.numpy(keys)[:, 0, :, 0] - 1, lab.numpy(mask)[:, 0, 0] == 0


def four_slots(tokens_in_slot_1: int, slot_1_idle: bool) -> Picture:
    lengths = OTHERS if slot_1_idle else {**OTHERS, 1: tokens_in_slot_1}
    positions, seen = batch_of(lengths)
    columns = positions.shape[1]
    figure, axes = new_figure(height=2.3)
    for slot in range(4):
        for column in range(columns):
            color = PALE["blue"] if seen[slot, column] else PALE["muted"]
            axes.add_patch(Rectangle((column - 0.46, slot - 0.4), 0.92, 0.8, color=color))
            if positions[slot, column] >= 0:
                axes.text(column, slot, f"{positions[slot, column]:.0f}", ha="center", va="center")
    axes.set(xlim=(-0.6, 12.6), ylim=(3.6, -0.6), xlabel="column", ylabel="slot", yticks=range(4))
    axes.set_xticks(range(columns))
    held = int((positions >= 0).sum())
    axes.set_title(f"{columns} columns; {held} of {positions.size} places hold a token")
    return Picture(
        figure, f"The batch has {columns} columns; {held} of its {positions.size} places hold a token."
    )


explore(four_slots, tokens_in_slot_1=slider(0, 12, 2), slot_1_idle=switch(title="slot 1 is idle"))

# %% [markdown]
# ## Experiment 1: what padding would steal
#
# Padding is zeros, so its scores are 0. That sounds harmless. Here the last query of a text asks its real keys and a
# number of columns of padding, which no mask has hidden: the bars say how much of its attention goes to the padding,
# head by head. Guess first: with one column? With 8? Why do the heads differ so much?

# %%
real = recorded("The trophy does not fit into the suitcase because it is too large.")


def stolen_shares(layer: int, padding: int) -> np.ndarray:
    shares = []
    for head in range(9):
        query, keys = real.query[layer, head, -1], real.key[layer, head // 3]
        scores = np.concatenate([np.zeros(padding), keys @ query / 8])
        shares.append(lab.numpy(lab.attention.softmax(lab.array(scores)))[:padding].sum())
    return np.array(shares)


def padding_in_sight(layer: int, padding: int) -> Picture:
    shares = 100 * stolen_shares(layer, padding)
    figure, axes = new_figure(height=2.4)
    bars = axes.bar(range(9), shares, color=COLORS["red"], width=0.6)
    axes.bar_label(bars, fmt="%.0f%%")
    axes.set(xlabel="head", ylabel="weight on padding, %", ylim=(0, 112), xticks=range(9))
    axes.set_title(f"layer {layer}: {len(real.tokens)} tokens and {padding} columns of padding in sight")
    return Picture(
        figure,
        f"Layer {layer}, {padding} columns of padding in sight: they get {shares.min():.0f}% to "
        f"{shares.max():.0f}% of the weight of a head.",
    )


explore(padding_in_sight, layer=slider(0, 29, 1), padding=slider(0, 64, 8))

# %% [markdown]
# ## Experiment 2: how large a group?
#
# Sixty requests; most answers are short, some are long. Static batching takes them in groups, and a group lasts as
# long as its longest answer. The picture is the rows of the batch over time, one group after another: blue is a row
# with a request, gray is idle. How does the share of idle rows grow with the group? What if an oracle told you the
# answers' lengths, so that similar ones go together?

# %%
ANSWERS = np.random.default_rng(6).exponential(50, 60).astype(int).clip(3, 256)


def groups_in_time(slots: int, similar_lengths_together: bool) -> Picture:
    answers = np.sort(ANSWERS) if similar_lengths_together else ANSWERS
    figure, axes = new_figure(height=2.7)
    start = 0
    for first in range(0, len(answers), slots):
        group = answers[first : first + slots]
        axes.barh(range(slots), group.max(), left=start, height=1, color=COLORS["line"])
        axes.barh(range(len(group)), group, left=start, height=0.9, color=COLORS["blue"])
        start += group.max()
    idle = 1 - answers.sum() / (start * slots)
    axes.set(xlim=(0, 3400), ylim=(slots - 0.5, -0.5), xlabel="decode steps", ylabel="slot")
    axes.set_title(f"{slots} slots: {start:,} steps, {idle:.0%} of the rows are idle")
    return Picture(
        figure, f"With {slots} slots, 60 requests take {start:,} steps; {idle:.0%} of the rows are idle."
    )


explore(groups_in_time, slots=slider(1, 20, 5), similar_lengths_together=switch())

# %% [markdown]
# ## Measure
#
# On two cores with AVX-512, a step for five requests takes about twice as long as a step for one. Here each slot has
# a past of 64 tokens. Until which batch does your machine give more tokens per second? And is it worth it for a
# reader, who sees one token per step?

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
past = lab.array(np.zeros((1, 3, 64, 64), np.float32))


def full_batch(slots: int) -> tuple:
    """A batch in which every slot has a past of 64 tokens, and the arguments of a step."""
    batch = lab.static_batch.Batch(model, slots)
    for slot in range(slots):
        caches = [lab.kv_cache.FullKvCache() for _ in range(weights.config.num_layers)]
        for cache in caches:
            cache.append(past, past)
        batch.add(slot, caches)
    return batch, [7] * slots, [64] * slots


alone = None
for slots in (1, 2, 5) if settings.short() else (1, 2, 5, 10, 20):
    batch, tokens, positions = full_batch(slots)
    seconds = measure(batch.decode, tokens, positions)
    alone = seconds if alone is None else alone
    print(
        f"{slots:2} slots   {1000 * seconds:4.0f} ms per step, {seconds / alone:4.2f} times as long as one   "
        f"{slots / seconds:5.1f} tokens/s"
    )

# %% [markdown]
# ## An open question
#
# Nobody tells an engine how long an answer will be. Could it find out enough to put similar requests together? And
# would you want it to?
#
# <details>
# <summary>One answer</summary>
#
# It knows `max_tokens`, and the prompt: a small model can guess from it whether the answer is short ("yes or no?") or
# long ("tell me a story"), and research engines do. The price is waiting: a request must wait until enough others
# like it have come. And a long answer that was taken for a short one holds up its group. Tomorrow's way needs no
# guess: a slot goes to the next request as soon as it is idle, so lengths may be as different as they like.
#
# </details>
