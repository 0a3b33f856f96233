# %% [markdown]
# # Day 4.5: Documents: on pages, to play with
#
# A question joins the pages of its documents. Here you sort the places that it reads, count what a library of
# documents saves, and turn the two knobs of the remedy on the real model.

# %%
# %load_ext notebooks

# %%
import random
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from notebooks import COLORS, PALE, Picture, choice, explore, lab, new_figure, settings, slider

idle = SimpleNamespace(  # a model that computes nothing
    config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=8192),
    embedding=SimpleNamespace(weight=torch.zeros(49152, 1)),
    hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
    logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 2),
)


def engine(pages: int, page_size: int, model: Any = idle, remedy: tuple[float, float] = (1.0, 1.0)) -> Any:
    cache = lab.documents.page_cache.DocumentCache(lab.paged.allocator.PageAllocator(pages + 1), page_size)
    scheduler = lab.documents.scheduler.DocumentScheduler(cache, model.config.max_positions)
    pool = lab.paged.pool.KvPool(model.config, pages + 1, page_size)
    runner = lab.documents.runner.DocumentRunner(model, pool, remedy=lab.documents.attention.Remedy(*remedy))
    return lab.documents.batch.DocumentBatch(runner, scheduler)


def ask(core: Any, segments: Any, **options: Any) -> int:
    """Push a question and run until its first token; how many prompt tokens were computed."""
    request = lab.documents.request.DocumentRequest(segments, **{"max_tokens": 2, **options})
    core.push(request)
    computed = 0
    while not request.num_generated:
        computed += dict(core.step().issued).get(request, 0)
    return computed


# %% [markdown]
# ## Predict
#
# P = 4. The system prompt has 6 tokens, the documents have 5, 9 and 1, the question has 3. How many tokens are
# computed, if the tree is empty? How many keys does the question's first token see? Write both down. Then find a
# length of the system prompt for which no place is read as a loose one but at the end of a document.
#
# Blue: read as the system prompt. Green: pages full of one document's tokens. Orange: loose. Gray: not read.


# %%
def places_read(system: int, page_size: int) -> Picture:
    lengths, core = (5, 9, 1), engine(60, page_size)
    documents = tuple((10 + number,) * length for number, length in enumerate(lengths))
    computed = ask(core, lab.documents.prompt.Segments(tuple(range(20, 20 + system)), documents, (1, 2, 3)))
    question = core.scheduler.joins[0].question
    past = lab.documents.past.Past.of(question, page_size)
    figure, axes = new_figure(height=2.4)
    for row, branch in enumerate(question.branches):
        for index, place in enumerate(branch.sequence.places(0, system + lengths[row])):
            kind = "green" if place // page_size in past.pages else "orange" if place in past.loose else ""
            if not kind and index < past.system_len and place // page_size in past.system:
                kind = "blue"
            fill, ink = (COLORS[kind], "w") if kind else (PALE["ink"], COLORS["ink"])
            axes.barh(row, 0.94, 0.7, index, color=fill)
            axes.text(index + 0.47, row, f"{place}", color=ink, size=7, ha="center", va="center")
    axes.set(
        yticks=range(3), yticklabels=["branch a", "branch b", "branch c"], ylim=(2.6, -0.6), xlim=(0, 26)
    )
    axes.set(xlabel="token of the branch; the numbers are places of the pool")
    full = len(past.pages) * page_size
    axes.set_title(f"{computed} tokens computed; past: {past.system_len} + {full} + {len(past.loose)} places")
    words = (
        f"{past.system_len} places of the system prompt, {full} in full pages, {len(past.loose)} loose ones"
    )
    return Picture(figure, f"{computed} tokens computed. The question reads {words}.")


explore(places_read, system=slider(1, 16, 6), page_size=choice([1, 2, 4, 8], 4))

# %% [markdown]
# ## Experiment 1: a library
#
# 16 questions come one after the other, each about 3 to 6 of 8 documents, in any order. The curves count the prompt
# tokens that were computed so far. The chapter's documents have 500 tokens. Make them shorter: when is hardly
# anything gained any more? And what do large pages cost?


# %%
def library(document: int, page_size: int) -> Picture:
    draw, system = random.Random(0), tuple(range(40))
    texts = [tuple(draw.randrange(49152) for _ in range(document)) for _ in range(8)]
    chosen = [draw.sample(texts, draw.randint(3, 6)) for _ in range(16)]
    joins = engine(60000 // page_size, page_size)
    prefixes = lab.prefix.trie_cache.TrieCache(
        lab.paged.allocator.PageAllocator(60001 // page_size), page_size
    )
    counts = {name: [0] for name in ("nothing shared", "prefixes shared", "documents on pages")}
    for number, documents in enumerate(chosen):
        segments = lab.documents.prompt.Segments(system, tuple(documents), (number,) * 20)
        ids, sequence = segments.token_ids, lab.paged.sequence.PagedSequence(prefixes.allocator, page_size)
        found = prefixes.match(sequence, ids)
        prefixes.acquire(sequence, len(ids) - found)
        prefixes.publish(sequence, ids, stop=len(ids))
        sequence.advance(len(ids) - found)
        prefixes.commit()
        prefixes.release(sequence)
        brought = len(ids), len(ids) - found, ask(joins, segments, max_tokens=1)
        for name, computed in zip(counts, brought, strict=True):
            counts[name].append(counts[name][-1] + computed)
    figure, axes = new_figure(height=2.6)
    for (name, curve), color in zip(counts.items(), ("muted", "orange", "blue"), strict=True):
        axes.plot(curve, "o-", color=COLORS[color], label=name, markersize=3)
    axes.set(xlabel="questions", ylabel="tokens computed", ylim=(0, None))
    axes.legend()
    last = [curve[-1] for curve in counts.values()]
    axes.set_title(f"documents of {document} tokens: {last[2]:,} of {last[0]:,} are computed")
    words = f"{last[0]:,} tokens with nothing shared, {last[1]:,} with prefixes shared"
    return Picture(figure, f"Computed: {words}, {last[2]:,} with documents on pages.")


explore(library, document=slider(20, 500, 500, 20), page_size=choice([4, 16, 64], 16))

# %% [markdown]
# ## Experiment 2: the remedy
#
# The answer to this question stands in one of three documents, and the bars are the model's chances for some first
# words of the answer. Temperature and scale of 1 are no remedy. First move one of them alone, to both sides. Which
# one makes the documents loud, which one makes them clear? The chapter uses 0.7 and 0.8. Then ask something of your
# own.

# %%
weights, tokenizer = lab.weights.load_weights(), lab.tokenizer.load_tokenizer()
model = lab.model.Transformer(weights.config, weights)
DOCUMENTS = (
    "The dog sleeps in the kitchen. Its name is Odin.\n",
    "The tram in Varnholm is painted green. A ticket costs two crowns.\n",
    "The bus in Varnholm is painted red. A ticket costs five crowns.\n",
)
ASKED = "In Varnholm, the color of the tram is"
WORDS = [" green", " red", " blue", " yellow", " white"]


def remedy(temperature: float, scale: float) -> Picture:
    prompt = lab.documents.prompt.DocumentPrompt("Facts:\n", DOCUMENTS, ASKED)
    kept: list[np.ndarray] = []

    def keep(logits: torch.Tensor, ids: list[int]) -> int:
        kept.append(torch.softmax(logits.float(), 0).numpy())
        return 0

    with torch.inference_mode():
        core = engine(20, 16, model, (temperature, scale))
        ask(core, lab.documents.prompt.encode_prompt(prompt, tokenizer), sample=keep)
    shares = [100 * float(kept[0][tokenizer.encode(word)[0]]) for word in WORDS]
    figure, axes = new_figure(height=2.2)
    axes.bar(WORDS, shares, 0.6, color=[COLORS["green"], *[COLORS["muted"]] * 4])
    for place, share in enumerate(shares):
        axes.text(place, share + 1, f"{share:.1f}", ha="center")
    axes.set(ylim=(0, 100), ylabel="%")
    axes.set_title(f"chances of the next word; temperature {temperature:.1f}, scale {scale:.1f}")
    best = max(zip(shares, WORDS, strict=True))[1].strip()
    words = f"With temperature {temperature:.1f} and scale {scale:.1f}"
    return Picture(figure, f"{words}, {best} is the likeliest of five colors.")


explore(remedy, temperature=slider(0.2, 1.6, 1.0, 0.1), scale=slider(0.4, 1.6, 1.0, 0.1))

# %% [markdown]
# ## Measure
#
# In the chapter the first token of a question comes after 4.02 s if nothing is shared, and after 0.53 s with
# documents on pages, both as the mean of 16 questions. Here are questions about the same documents of 200 tokens. The
# dense run is yesterday's oracle.

# %% tags=["measured"]
draw = random.Random(1)
length = 50 if settings.short() else 200
texts = [tuple(draw.randrange(49152) for _ in range(length)) for _ in range(3)]
core = engine(100, 16, model)


def first_token(name: str, documents: list[tuple[int, ...]], dense: bool = False) -> None:
    question = tuple(draw.randrange(49152) for _ in range(20))
    segments = lab.documents.prompt.Segments(tuple(range(40)), tuple(documents), question)
    began = time.perf_counter()
    with torch.inference_mode():
        if dense:
            computed = len(segments.token_ids)
            list(lab.documents.oracle.generate_documents(model, segments, 1))
        else:
            computed = ask(core, segments, max_tokens=1)
    print(f"{name:36} {computed:4} tokens   {time.perf_counter() - began:6.2f} s")


first_token("dense", texts, dense=True)
first_token("on pages, documents never seen", texts)
first_token("on pages, all seen, another order", texts[::-1])
first_token("on pages, two of them", texts[1:])

# %% [markdown]
# ## An open question
#
# With shared positions, the keys of a question are the same in whatever order its documents come, up to rounding. But
# the salt of the question depends on the order. The same question about the same documents in another order finds the
# documents, and computes itself anew. Would you make the salt forget the order?
#
# <details>
# <summary>One answer</summary>
#
# It would find more: questions that come again, and long conversations whose documents are fetched anew for each
# turn. The price is that an answer would depend on who came before. Its keys would have been summed up in another
# order, so their last bits differ, and now and then a token does, too. An engine that promises the same tokens for
# the same request can't do that. Whoever can do without the promise can have it more cheaply: sort the documents
# before the prompt is made. Then the order is always the same, and the salt with it.
#
# </details>
