# %% [markdown]
# # Day 3.2: Paged attention, to play with
#
# Here you look into the metadata of a step, cut attention into parts, and see what a run of the model is filled
# with. The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, slider

TONES = [COLORS[name] for name in ("blue", "orange", "green")]

# %% [markdown]
# ## Predict
#
# Suppose attention used a triangular mask where q_len == kv_len, and no mask otherwise. Take a decode, a whole
# prompt, and a chunk of 2 tokens after a past of 3. Which of them come out wrong? Write it down, then try all
# three, and others. A red cell is a key that a token sees and must not see.


# %%
def suspected_rule(past: int, q_len: int) -> Picture:
    kv_len = past + q_len
    right = lab.numpy(lab.attention.causal_mask(q_len, kv_len)) == 0
    seen = np.tril(np.ones((q_len, kv_len), bool)) if past == 0 else np.ones((q_len, kv_len), bool)
    wrong = seen & ~right
    figure, axes = new_figure(width=5.4, height=0.9 + 0.32 * q_len)
    for row, column in np.argwhere(seen):
        color = COLORS["red"] if wrong[row, column] else COLORS["blue"]
        axes.barh(row, 0.92, left=column - 0.46, height=0.9, color=color)
    axes.set(xlim=(-0.6, 14), ylim=(q_len - 0.4, -0.6), xticks=range(kv_len), xlabel="key")
    axes.set(yticks=range(q_len), yticklabels=[f"at {past + row}" for row in range(q_len)])
    axes.set_title(f"q_len {q_len}, kv_len {kv_len}: {wrong.sum()} of {seen.sum()} looks are wrong")
    return Picture(
        figure,
        f"q_len {q_len} after a past of {past}: the rule shows them {seen.sum()} keys, {wrong.sum()} of them "
        "wrongly.",
    )


explore(suspected_rule, past=slider(0, 8, 8), q_len=slider(1, 6, 1))

# %% [markdown]
# ## Experiment 1: follow a token into the pool
#
# A has 8 tokens in the pool and decodes, B has 3 and brings a chunk, C brings a prompt of 3. Pages have 4 places.
# The pool is below, page by page. Choose a token of the step: its way through the table to its place is drawn in
# red. Then let B bring more. Which arrays change for C, although C has changed nothing? And what does B's row get
# when its page is full?


# %%
def step_of(b_brings: int) -> tuple:
    allocator = lab.paged.allocator.PageAllocator(7)
    a, b, _ = sequences = [lab.paged.sequence.PagedSequence(allocator, 4) for _ in "ABC"]
    for sequence, past in ((a, 6), (b, 3), (a, 2)):
        sequence.reserve(past)
        sequence.advance(past)
    counts = [1, b_brings, 3]
    for sequence, new in zip(sequences, counts, strict=True):
        sequence.reserve(new)
    tables = lab.paged.tables.tables_of(sequences)
    meta = lab.paged.metadata.ForwardMeta.build(tables, [8, 3, 0], counts, 4)
    return meta, np.repeat([0, 1, 2], counts)


def row_of_boxes(
    axes: Any, y: float, numbers: list, tones: list, marked: int | None, left: float = 0
) -> None:
    for i, (number, tone) in enumerate(zip(numbers, tones, strict=True)):
        edge = COLORS["red"] if i == marked else COLORS["muted"]
        axes.barh(y, 1, left=left + i, height=0.8, color=tone, edgecolor=edge, lw=2.5 if i == marked else 0.6)
        axes.text(left + i + 0.5, y, number, ha="center", va="center")


def token_way(token: int, b_brings: int) -> Picture:
    meta, owner = step_of(b_brings)
    token = min(token, len(owner) - 1)
    pale = [PALE[name] for name in ("blue", "orange", "green")]
    positions, places, table = (
        lab.numpy(x).tolist() for x in (meta.positions, meta.slot_mapping, meta.block_table)
    )
    position, place, row = positions[token], places[token], owner[token]
    figure, axes = new_figure(height=3.6)
    names = {0: "token", 1: "positions", 2: "slot_mapping"}
    for y, numbers in enumerate(([f"{'ABC'[b]}" for b in owner], positions, places)):
        row_of_boxes(axes, y, numbers, [pale[b] for b in owner], token)
    for b, pages in enumerate(table):
        tones = [pale[b] if page else PALE["muted"] for page in pages]
        row_of_boxes(axes, b, pages, tones, position // 4 if b == row else None, left=14)
        axes.text(13.6, b, "ABC"[b], ha="right", va="center")
    holders = {page: b for b, pages in enumerate(table) for page in pages if page}
    for page in range(7):
        new = [str(p) if p in places else "" for p in range(4 * page, 4 * page + 4)]
        tones = [pale[holders[page]] if page in holders else COLORS["paper"]] * 4
        at = place % 4 if page == place // 4 else None
        row_of_boxes(axes, 4.6 + page // 4 * 1.7, new, tones, at, left=page % 4 * 5.2)
        axes.text(page % 4 * 5.2, 4 + page // 4 * 1.7, page, fontsize=8, color=COLORS["muted"])
    for y, name in names.items():
        axes.text(-0.3, y, name, ha="right", va="center")
    axes.text(14, -0.75, "block_table", fontsize=8, color=COLORS["muted"])
    axes.set(xlim=(-4.2, 23.2), ylim=(7, -1.1))
    axes.axis("off")
    said = f"{'ABC'[row]}'s token at position {position} lies in page {place // 4}, place {place}"
    axes.set_title(f"cu_seqlens_q {meta.starts}: {said}")
    return Picture(figure, f"In a step with cu_seqlens_q {meta.starts}: {said}.")


explore(token_way, token=slider(0, 8, 0), b_brings=slider(1, 5, 1))

# %% [markdown]
# ## Experiment 2: attention in parts
#
# Twelve keys with scores and values of their own, cut in two at a place of your choice. Each part gives an average
# of its values and a log-sum-exp. Three ways to make one number of the two averages: their mean, a mean that counts
# the keys of each part, and your `merge_attention`. Which of the lines stays where it is while you cut? Raise the
# score of the last key, and cut again.

# %%
VALUES = np.array([2, 9, 4, 7, 1, 8, 3, 6, 5, 9, 2, 7], float)
SCORES = np.array([0.2, 1.1, -0.5, 0.8, 0.1, -1.0, 0.6, 1.4, -0.3, 0.4, 0.9, 0.0])


def attend(scores: np.ndarray, values: np.ndarray) -> tuple:
    one, key, value = (lab.array(np.reshape(x, (-1, 1, 1))) for x in ([1.0], scores, values))
    return lab.paged.attention.attend_to(one, key, value, 1.0, False)


def in_two_parts(cut: int, last_score: float) -> Picture:
    scores = np.append(SCORES[:-1], last_score)
    parts = [attend(scores[:cut], VALUES[:cut]), attend(scores[cut:], VALUES[cut:])]
    out = {"whole": attend(scores, VALUES)[0], "part 1": parts[0][0], "part 2": parts[1][0]}
    out["merged"] = lab.paged.attention.merge_attention(parts)[0]
    answers = {name: float(lab.numpy(x).item()) for name, x in out.items()}
    answers["mean of both"] = (answers["part 1"] + answers["part 2"]) / 2
    answers["mean by keys"] = (cut * answers["part 1"] + (12 - cut) * answers["part 2"]) / 12
    figure, (left, right) = new_figure(height=2.6, cols=2)
    left.bar(range(12), np.exp(scores), color=[COLORS["blue"]] * cut + [COLORS["orange"]] * (12 - cut))
    left.set(xlabel="key", xticks=[0, 11], title="weights, exp(score)")
    names = ["part 1", "part 2", "mean of both", "mean by keys", "merged"]
    colors = [COLORS[name] for name in ("blue", "orange", "muted", "muted", "green")]
    right.barh(names, [answers[name] for name in names], color=colors)
    right.axvline(answers["whole"], color=COLORS["red"])
    right.set(xticks=[], xlim=(0, 10.5), ylim=(4.6, -0.6), title=f"the whole: {answers['whole']:.2f} (red)")
    for y, name in enumerate(names):
        right.text(10.4, y, f"{answers[name]:.2f}", va="center", ha="right")
    said = ", ".join(f"{name} {answer:.2f}" for name, answer in answers.items())
    return Picture(figure, f"Twelve keys cut at {cut}: {said}.")


explore(in_two_parts, cut=slider(0, 12, 6), last_score=slider(0.0, 4.0, 0.0, 0.5))

# %% [markdown]
# ## Experiment 3: what a run of the model is filled with
#
# The chapter's sixteen requests go through `PagedBatch`, with a model that computes nothing, on 214 pages of 16.
# Let fewer of them run at a time, and watch the number of runs. Then change the chunks: which requests does a small
# chunk help, and what does it cost? Look at the lower picture, too: how far apart are the two lines, and why?

# %%
LENGTHS = [(37, 8), (546, 29), (37, 48), (41, 37), (313, 48), (37, 32), (56, 18), (573, 48)]
LENGTHS += [(36, 22), (38, 48), (213, 48), (79, 48), (36, 48), (324, 48), (43, 48), (108, 48)]


def dummy_model() -> SimpleNamespace:
    def zeros(*shape: int) -> object:
        return lab.array(np.zeros(shape), "float32")

    return SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=8192),
        embedding=SimpleNamespace(weight=zeros(10, 1)),
        hidden=lambda tokens, positions, caches: zeros(*tokens.shape, 1),
        logits=lambda hidden: zeros(*hidden.shape[:-1], 10),
    )


def runs(max_running: int, chunk_size: int) -> np.ndarray:
    """For each run: tokens of decodes, tokens of prompts, pages reserved, pages with tokens."""
    model, paged = dummy_model(), lab.paged
    runner = paged.model_runner.ModelRunner(model, paged.pool.KvPool(model.config, 215, 16))
    core = paged.batch.PagedBatch(runner, paged.allocator.PageAllocator(215), max_running, chunk_size)
    counts = []

    def note(step: Any) -> None:
        decodes = sum(n for each, n in step.issued if n == 1 and each.num_generated > 1)
        filled = sum(paged.places.pages_for(each.sequence.length, 16) for each in core.running)
        prompts = sum(n for _, n in step.issued) - decodes
        counts.append((decodes, prompts, sum(len(each.sequence.pages) for each in core.running), filled))

    requests = [lab.request.Request([1] * prompt, output) for prompt, output in LENGTHS]
    lab.engine_core.generate_all(core, requests, note)
    return np.array(counts).T


def draw_runs(max_running: int, chunk_size: int) -> Picture:
    decodes, prompts, reserved, filled = runs(max_running, chunk_size)
    figure, (above, below) = new_figure(height=3.8, rows=2, sharex=True)
    x = np.arange(len(decodes))
    above.stairs(decodes + prompts, fill=True, color=COLORS["orange"], label="prompts")
    above.stairs(decodes, fill=True, color=COLORS["blue"], label="decodes")
    above.set(
        ylabel="tokens", title=f"{len(x)} runs of the model, {(decodes + prompts).mean():.0f} tokens each"
    )
    below.plot(x, reserved, color=COLORS["muted"], label="reserved")
    below.plot(x, filled, color=COLORS["green"], label="with tokens")
    below.set(xlabel="run", ylabel="pages", ylim=(0, 220), yticks=[0, 100, 200])
    for axes in (above, below):
        axes.legend(loc="upper right")
    said = f"{len(x)} runs; at most {reserved.max()} pages reserved and {filled.max()} with tokens in them"
    return Picture(figure, f"{max_running} requests at a time, chunks of {chunk_size}: {said}.")


explore(
    draw_runs,
    max_running=choice([1, 2, 5, 8, 16], 16, title="at a time"),
    chunk_size=choice([16, 32, 128, 512], 128, title="chunk"),
)

# %% [markdown]
# ## Measure
#
# Each run of the real model reads 538 MB of weights, for one token or for many. So what does one more sequence
# cost? Behind each sequence lie 63 tokens. The chapter's engine, with sixteen requests at a time, reaches 39 tokens
# per second in all, prompts included.

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
pool, allocator = lab.paged.pool.KvPool(model.config, 65, 16), lab.paged.allocator.PageAllocator(65)
runner = lab.paged.model_runner.ModelRunner(model, pool)
sequences = [lab.paged.sequence.PagedSequence(allocator, 16) for _ in range(16)]
for sequence in sequences:
    sequence.reserve(64)


def decode(count: int) -> None:
    for sequence in sequences[:count]:
        sequence.length = 63
    tables = lab.paged.tables.tables_of(sequences[:count])
    runner.run(sequences[:count], tables, [1] * count, [1] * count)


for count in (1, 2, 4, 8, 16):
    seconds = measure(decode, count)
    print(f"{count:2} sequences: {1000 * seconds:6.1f} ms per run, {count / seconds:6.1f} tokens per second")

# %% [markdown]
# ## An open question
#
# *Speculative decoding*: a small, fast model guesses the next four tokens of a request. The large model then
# computes the newest token and the four guesses in one run, and keeps the guesses that it would have chosen itself.
# Which parts of today's code would have to change?
#
# <details>
# <summary>One answer</summary>
#
# Fewer than one expects. The request brings a chunk of 5 tokens behind its past: the metadata and attention know
# such chunks already, and the rule that aligns the mask at the bottom right is what is needed. Two things are new.
# All five rows have to go through the head, not the last one alone, for each row checks the guess that comes after
# it. And the guesses that were wrong must leave the pool again: the sequence's length goes back to the last token
# that was kept. The pages need no cleaning, since the next step writes over these places before anyone reads them.
#
# </details>
