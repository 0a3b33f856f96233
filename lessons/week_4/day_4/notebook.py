# %% [markdown]
# # Day 4.4: Documents: the mask, to play with
#
# Documents that don't see one another can be kept, and used again in any company. Here you look at what a token sees,
# move the documents' positions, and ask the real model about documents of your own.

# %%
# %load_ext notebooks

# %%
from math import perm
from typing import Any

import numpy as np
import torch

from notebooks import (
    COLORS,
    PALE,
    Picture,
    choice,
    explore,
    lab,
    measure,
    new_figure,
    settings,
    slider,
    switch,
)

tokenizer = lab.tokenizer.load_tokenizer()


def segments_of(system: str, documents: tuple[str, ...], question: str) -> Any:
    prompt = lab.documents.prompt.DocumentPrompt(system, documents, question)
    return lab.documents.prompt.encode_prompt(prompt, tokenizer)


# %% [markdown]
# ## Predict
#
# The system prompt has 2 tokens, the documents 3 and 2, the question 2. How many of the 45 cells that the causal mask
# leaves open does isolation hide? And how many if the second document has 4 tokens? Write both down, then move the
# controls. Blue: open. Orange: hidden by isolation alone.


# %%
def mask_of(first: int, second: int) -> Picture:
    segments = lab.documents.prompt.Segments((1, 2), ((3,) * first, (4,) * second), (5, 6))
    seen = lab.numpy(lab.documents.mask.document_mask(segments)) == 0
    size = len(seen)
    causal = np.tril(np.ones((size, size), bool))
    hidden = int((causal & ~seen).sum())
    figure, axes = new_figure(width=4.2, height=3.8)
    for cells, color in (seen, "blue"), (causal & ~seen, "orange"):
        rows, cols = np.nonzero(cells)
        axes.scatter(cols, rows, s=3500 / size**1.6, marker="s", color=COLORS[color])
    edges = np.cumsum([2, first, second])
    for edge in edges:
        axes.axhline(edge - 0.5, color=COLORS["line"], linewidth=0.8)
        axes.axvline(edge - 0.5, color=COLORS["line"], linewidth=0.8)
    axes.set(xlim=(-0.6, size - 0.4), ylim=(size - 0.4, -0.6), aspect="equal", xlabel="key", ylabel="query")
    axes.set(xticks=range(0, size, 2), yticks=range(0, size, 2))
    axes.set_title(f"{hidden} of {causal.sum()} cells hidden")
    words = f"isolation hides {hidden} of {causal.sum()} cells"
    return Picture(figure, f"Documents of {first} and {second} tokens: {words}.")


explore(mask_of, first=slider(0, 8, 3), second=slider(0, 8, 2))

# %% [markdown]
# ## Experiment 1: what a token sees
#
# Choose a token; what it sees is blue, itself is dark. Each segment stands at its positions, from left to right. Go
# through the documents and the question, and say before each move what will be blue. Then take the other strategy:
# what changes, and what doesn't? Documents are cheap to change: give one of them other words.

# %%
SYSTEM, QUESTION = "Be brief", "Who sat"
DOCUMENTS = ("The cat sat on a mat", "A dog", "The bird sat in a tree")


def sees(token: int, strategy: str) -> Picture:
    segments = segments_of(SYSTEM, DOCUMENTS, QUESTION)
    positions = lab.documents.positions.segment_positions(segments, strategy, max_chunk_len=6)
    seen = lab.numpy(lab.documents.mask.document_mask(segments)) == 0
    number, names = 0, ["system", *(f"document {each + 1}" for each in range(len(DOCUMENTS))), "question"]
    token = min(token, len(positions) - 1)
    figure, axes = new_figure(height=2.6)
    for row, part in enumerate((segments.system, *segments.documents, segments.question)):
        for each in part:
            fill = (
                COLORS["blue"]
                if number == token
                else PALE["blue"]
                if seen[token, number]
                else COLORS["paper"]
            )
            axes.barh(row, 0.94, 0.8, positions[number], color=fill, edgecolor=COLORS["line"])
            word, ink = tokenizer.decode([each]).strip(), "w" if number == token else COLORS["ink"]
            axes.text(positions[number] + 0.47, row, word, color=ink, ha="center", va="center", size=7)
            number += 1
    axes.set(
        ylim=(len(names) - 0.4, -0.6),
        yticks=range(len(names)),
        yticklabels=names,
        xlim=(0, positions[-1] + 2),
    )
    axes.set(xlabel="position")
    count = int(seen[token].sum())
    axes.set_title(f"token {token} sees {count} of {len(positions)} tokens; {strategy} positions")
    words = f"stands at position {positions[token]} and sees {count} tokens"
    return Picture(figure, f"Token {token} {words} ({strategy} positions).")


explore(sees, token=slider(0, 17, 9), strategy=choice(["shared", "offset"]))

# %% [markdown]
# ## Experiment 2: how often is a document computed?
#
# From so many documents, each question brings some, in any order. After some number of random questions, a tree of
# prefixes (Day 4.1) has computed as many documents as it has nodes; isolated documents are computed once each. How
# many questions does it take until the tree is of use?


# %%
def documents_computed(documents: int, brought: int) -> Picture:
    draw, counts = np.random.default_rng(0), []
    known, tree = set[int](), set[tuple[int, ...]]()
    for _ in range(2000):
        chosen = tuple(draw.permutation(documents)[:brought].tolist())
        tree |= {chosen[:end] for end in range(1, brought + 1)}
        known |= set(chosen)
        counts.append((len(tree), len(known)))
    figure, axes = new_figure(height=2.6)
    asked = np.arange(1, 2001)
    axes.plot(asked, brought * asked, color=COLORS["muted"], linestyle=":", label="nothing kept")
    axes.plot(asked, [each[0] for each in counts], color=COLORS["orange"], label="tree of prefixes")
    axes.plot(asked, [each[1] for each in counts], color=COLORS["blue"], label="isolated")
    axes.set(xscale="log", yscale="log", xlabel="questions", ylabel="documents computed")
    axes.legend()
    axes.set_title(f"{brought} of {documents} documents: {perm(documents, brought):,} different beginnings")
    words = f"After 2,000 questions the tree has computed {counts[-1][0]:,} documents"
    return Picture(
        figure, f"{words}, isolated documents {counts[-1][1]}, of {brought * 2000:,} without either."
    )


explore(documents_computed, documents=slider(4, 30, 8), brought=slider(1, 4, 4))

# %% [markdown]
# ## Experiment 3: ask the model
#
# The question needs both documents together. The bars are the model's chances for some first words of the answer.
# Isolate the documents, exchange them, and compare: when do the bars change with the order? Then write documents and
# a question of your own, of which one document alone holds the answer.

# %%
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
FACTS = ("The red box holds the key.\n", "The key opens the cellar.\n")
ASKED = "What does the key open? It opens the"
WORDS = [" cellar", " door", " box", " red", " key"]


def first_word(isolated: bool, exchanged: bool) -> Picture:
    segments = segments_of("Facts:\n", FACTS[::-1] if exchanged else FACTS, ASKED)
    kept: list[np.ndarray] = []

    def keep(logits: torch.Tensor, ids: list[int]) -> int:
        kept.append(torch.softmax(logits.float(), 0).numpy())
        return 0

    with torch.inference_mode():
        if isolated:
            list(lab.documents.oracle.generate_documents(model, segments, 1, sample=keep))
        else:
            list(lab.generate.generate(model, segments.token_ids, 1, sample=keep))
    shares = [100 * float(kept[0][tokenizer.encode(word)[0]]) for word in WORDS]
    figure, axes = new_figure(height=2.2)
    axes.bar(WORDS, shares, 0.6, color=COLORS["blue" if isolated else "muted"])
    for place, share in enumerate(shares):
        axes.text(place, share + 1, f"{share:.1f}", ha="center")
    axes.set(ylim=(0, 100), ylabel="%")
    axes.set_title(f"chances of the next word, {'isolated' if isolated else 'full attention'}")
    best = max(zip(shares, WORDS, strict=True))
    words = f"of these, {best[1].strip()} is the likeliest word, with about {round(best[0], -1):.0f} %"
    return Picture(figure, f"{'Isolated' if isolated else 'Full attention'}: {words}.")


explore(first_word, isolated=switch(True, "isolated"), exchanged=switch(False, "documents exchanged"))

# %% [markdown]
# ## Measure
#
# For all 1,680 prompts with 4 of 8 documents, the chapter counts 2,080 documents with a tree and 8 with isolation.
# What does that mean in seconds on your machine? A run of the model over a question alone, and over a question with
# documents of 100 tokens, says what a document costs.

# %% tags=["measured"]
draw = np.random.default_rng(1)


def first_token(documents: int) -> None:
    """One dense run over system prompt, documents and question."""
    texts = tuple(tuple(draw.integers(49152, size=100).tolist()) for _ in range(documents))
    segments = lab.documents.prompt.Segments(tuple(range(20)), texts, tuple(range(30)))
    with torch.inference_mode():
        list(lab.documents.oracle.generate_documents(model, segments, 1))


few, many = (0, 1) if settings.short() else (0, 4)
seconds = [measure(first_token, count) for count in (few, many)]
each = (seconds[1] - seconds[0]) / many
print(f"no document      {seconds[0]:6.2f} s")
print(f"{many} of 100 tokens  {seconds[1]:6.2f} s: {each:.2f} s per document")
print(f"8 documents      {8 * each:6.1f} s")
print(f"2,080 documents  {2080 * each:6.0f} s")

# %% [markdown]
# ## An open question
#
# Isolation hides most of the mask of a prompt with many documents. How much less work could attention have with n
# documents of the same length, and does the oracle have it?
#
# <details>
# <summary>One answer</summary>
#
# The documents alone have about (nd)²/2 open cells with full attention and n · d²/2 with isolation, so there is n
# times less to do. The oracle computes all scores, and then adds −inf to most of them: it saves nothing. A kernel
# that knows the mask skips tiles in which nothing is open. PyTorch's FlexAttention does so with a *block mask*,
# FlashInfer with sparse blocks. Tomorrow you get it in a simpler way: each document becomes a sequence of its own,
# and never meets the others.
#
# </details>
