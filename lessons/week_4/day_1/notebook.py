# %% [markdown]
# # Day 4.1: Sharing prefixes, to play with
#
# A tree keeps the full pages of requests that have ended. Here you watch it grow, make it forget, and find the
# traffic for which it is too small.

# %%
# %load_ext notebooks

# %%
import random
from typing import Any

import torch
from matplotlib.patches import Rectangle

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, settings, slider

# %% [markdown]
# ## Predict
#
# A request of 512 tokens has just ended, and the same 512 tokens come again; pages have 16 places. How many of them
# must be computed? And how many of 513? Write down both, then move the control. Then guess for which page size the
# worst case is worst.


# %%
def new_cache(pages: int, page_size: int, kind: str = "trie_cache.TrieCache") -> Any:
    module, name = kind.split(".")
    allocator = lab.paged.allocator.PageAllocator(pages + 1)
    return getattr(getattr(lab.prefix, module), name)(allocator, page_size)


def begin(cache: Any, ids: list[int]) -> tuple[Any, int]:
    """A new request takes its pages, and the model runs; what it found in the tree."""
    sequence = lab.paged.sequence.PagedSequence(cache.allocator, cache.page_size)
    found = cache.match(sequence, ids)
    try:
        cache.acquire(sequence, len(ids) - found)
    except lab.paged.allocator.OutOfPages:
        cache.release(sequence)
        raise
    cache.publish(sequence, ids, stop=len(ids))
    sequence.advance(len(ids) - found)
    cache.commit()
    return sequence, found


def second_time(tokens: int, page_size: int) -> Picture:
    lengths, due = range(440, 601), []
    for length in lengths:
        cache, ids = new_cache(700, page_size), list(range(length))
        cache.release(begin(cache, ids)[0])
        due.append(length - begin(cache, ids)[1])
    here = due[tokens - lengths[0]]
    figure, axes = new_figure(height=2.4)
    axes.plot(lengths, due, color=COLORS["muted"], linewidth=1.2)
    axes.plot([tokens], [here], "o", color=COLORS["orange"])
    axes.annotate(f"{here}", (tokens, here), (6, 4), textcoords="offset points", weight="bold")
    axes.set(xlabel="tokens of the prompt", ylabel="computed again", ylim=(0, 70))
    axes.set_title(f"tokens computed the second time, pages of {page_size}")
    words = f"Of a prompt of {tokens} tokens that comes again, {here} are computed with pages of {page_size}."
    return Picture(figure, words)


explore(second_time, tokens=slider(440, 600, 500), page_size=choice([4, 16, 64], 16))

# %% [markdown]
# ## Experiment 1: the tree grows, and forgets
#
# Six requests come; `+3` in the list means that the fourth one comes, `-3` that it ends. Drag *events* from 0 on.
# Before each step say which pages will be shared, and which one goes when the pool is full. Then change the size of
# the pool, the sentences, or the order of the events.
#
# Blue: a request holds the page. Gray: only the tree has it; the number behind the arrow says when it would be
# evicted. Dashed: it isn't in the tree.

# %%
SENTENCES = [
    "Once there was a cat that sat on a mat",
    "Once there was a cat that ran up a tree",
    "Once there was a dog that saw a cat that ran up a tree",
    "The moon is made of green cheese, says the cat",
    "Once there was a cat that sat on a mat and slept",
    "The moon is made of rock, says the dog",
]
EVENTS = ["+0", "+1", "-0", "+2", "-1", "-2", "+3", "-3", "+4", "-4", "+5", "-5"]
P = 4
tokenizer = lab.tokenizer.load_tokenizer()


def play(events: int, pages: int) -> tuple[Any, dict[int, Any], str]:
    """The cache, and the requests that run, when so many events have happened; what the last one found."""
    cache, running = new_cache(pages, P), dict[int, Any]()
    said = "nothing has happened"
    for event in EVENTS[:events]:
        number = int(event[1:])
        ids = tokenizer.encode(SENTENCES[number])
        if event[0] == "-":
            if number in running:
                cache.release(running.pop(number)[0])
            said = f"request {number} ends"
        else:
            try:
                sequence, found = begin(cache, ids)
            except lab.paged.allocator.OutOfPages:
                said = f"request {number} comes, and there are too few pages"
                continue
            running[number] = sequence, ids
            said = f"request {number} comes, and finds {found} of {len(ids)} tokens"
    return cache, running, said


def boxes_of(cache: Any, running: dict[int, Any]) -> tuple[list[Any], int]:
    """(row, depth, page, ids, kind) for each page; children stand to the right of their parent."""
    own: dict[Any, list[Any]] = {node: [] for node in [cache.root, *cache.nodes()]}
    for sequence, ids in running.values():
        own[cache.tip(sequence)].append((sequence, ids))
    boxes = []

    def place(node: Any, row: int) -> int:
        start = row
        for child in node.children.values():
            kind = "unheld" if child in cache.unheld else "held"
            boxes.append((row, node.depth, child.page, child.key, kind))
            row = place(child, row)
        for sequence, ids in own[node]:
            for depth in range(node.depth, len(sequence.pages)):
                boxes.append((row, depth, sequence.pages[depth], ids[depth * P : (depth + 1) * P], "own"))
            row += len(sequence.pages) > node.depth
        return max(row, start + 1)

    return boxes, place(cache.root, 0)


def tree(events: int, pages: int) -> Picture:
    cache, running, said = play(events, pages)
    boxes, rows = boxes_of(cache, running)
    order = {node.page: turn for turn, node in enumerate(cache.unheld, 1)}
    figure, axes = new_figure(height=3.0)
    axes.set(xlim=(0, 4.1), ylim=(max(rows, 5), -0.2))
    axes.axis("off")
    fills = {"held": PALE["blue"], "unheld": PALE["ink"], "own": COLORS["paper"]}
    for row, depth, page, ids, kind in boxes:
        edge: Any = {"edgecolor": COLORS["muted"], "linestyle": "--" if kind == "own" else "-"}
        axes.add_patch(Rectangle((depth + 0.02, row + 0.3), 0.94, 0.5, facecolor=fills[kind], **edge))
        axes.text(
            depth + 0.49, row + 0.55, tokenizer.decode(list(ids)).strip(), ha="center", va="center", size=8
        )
        turn = f"  → {order[page]}" if page in order else ""
        axes.text(depth + 0.03, row + 0.22, f"page {page}{turn}", size=7.5, color=COLORS["muted"])
    free = len(cache.allocator.free_pages)
    axes.set_title(f"{said}\nfree pages: {free}, evicted so far: {cache.evicted}")
    return Picture(
        figure, f"After {events} events: {said}; only the tree has {len(order)} pages, and {free} are free."
    )


explore(tree, events=slider(0, len(EVENTS), 4), pages=slider(5, 14, 9))

# %% [markdown]
# ## Experiment 2: how large must the tree be?
#
# Some chats go on at the same time. Each has 8 turns of 60 to 160 tokens, and each turn sends the whole conversation
# so far. The curve is the share of the prompt tokens that the tree had. Guess first: how does it fall when the pool
# gets too small, slowly or at once? Then compare the three orders in which the turns may come.


# %%
def turns_of(chats: int, order: str) -> list[list[int]]:
    """The prompts of all turns, in the order in which they come."""
    draw = random.Random(0)
    texts = [[draw.randrange(49152) for _ in range(1280)] for _ in range(chats)]
    ends = [list(range(draw.randint(60, 160), 1280, 150))[:8] for _ in range(chats)]
    line = [(turn, chat) for turn in range(8) for chat in range(chats)]
    if order == "one chat after another":
        line.sort(key=lambda each: each[1])
    elif order == "at random":
        whose = [chat for _, chat in line]
        draw.shuffle(whose)
        seen = [0] * chats
        line = []
        for chat in whose:
            line.append((seen[chat], chat))
            seen[chat] += 1
    return [texts[chat][: ends[chat][turn]] for turn, chat in line]


def share_found(chats: int, order: str) -> Picture:
    prompts, sizes, shares = turns_of(chats, order), range(100, 1001, 50), []
    for pages in sizes:
        cache, found = new_cache(pages, 16), 0
        for ids in prompts:
            sequence, known = begin(cache, ids)
            cache.release(sequence)
            found += known
        shares.append(100 * found / sum(map(len, prompts)))
    figure, axes = new_figure(height=2.5)
    axes.plot(sizes, shares, "o-")
    axes.set(ylim=(0, 100), xlabel="pages of the pool", ylabel="% of prompt tokens found")
    axes.set_title(f"{chats} chats; the turns come {order}")
    return Picture(
        figure,
        f"{chats} chats, {order}: {shares[0]:.0f} % found with 100 pages, {shares[-1]:.0f} % with 1,000.",
    )


explore(
    share_found,
    chats=slider(1, 16, 8),
    order=choice(["round robin", "at random", "one chat after another"]),
)

# %% [markdown]
# ## Measure
#
# In the chapter, a prompt of 572 tokens takes 2.3 s, and 0.21 s when the first 512 are found: eleven times less for
# 9.5 times fewer tokens. How much do you gain?

# %% tags=["measured"]
weights = lab.weights.load_weights()
model = lab.model.Transformer(weights.config, weights)
pool = lab.paged.pool.KvPool(weights.config, 101, 16)
common = 128 if settings.short() else 512
draw = random.Random(1)
system = [draw.randrange(49152) for _ in range(common)]


def prompt_pass(cache: Any) -> None:
    """A prompt that begins like all others and has 60 tokens of its own."""
    ids = system + [draw.randrange(49152) for _ in range(60)]
    sequence = lab.paged.sequence.PagedSequence(cache.allocator, 16)
    start = cache.match(sequence, ids)
    cache.acquire(sequence, len(ids) - start)
    cache.publish(sequence, ids, stop=len(ids))
    caches = [
        lab.paged.sequence.GatherCache(pool, layer, sequence) for layer in range(weights.config.num_layers)
    ]
    with torch.inference_mode():
        model.hidden(torch.tensor([ids[start:]]), slice(start, len(ids)), caches)
    sequence.advance(len(ids) - start)
    cache.commit()
    cache.release(sequence)


alone = measure(prompt_pass, new_cache(100, 16, "page_cache.BasePageCache"))
shared = measure(prompt_pass, new_cache(100, 16))
print(f"nothing shared       {alone:6.2f} s for {common + 60} tokens")
print(f"{common} tokens found     {shared:6.2f} s for 60 tokens: {alone / shared:.1f} times faster")

# %% [markdown]
# ## An open question
#
# A server puts the date and the time of day in front of its system prompt of 512 tokens, so that the model knows
# them: "It is Monday, 14:02." What does the tree find of each prompt, and what would you change?
#
# <details>
# <summary>One answer</summary>
#
# Once per minute all prompts begin in a new way, and not one page of the 512 tokens is found under the new beginning,
# though they are the same words. Put whatever changes behind whatever stays: first the system prompt, then the
# examples, then the conversation, and the time at the end, in the user's last message. The same holds for lists in
# random order, for a request's number, and for JSON whose keys come in another order each time. Providers that charge
# less for cached tokens tell their customers just that.
#
# </details>
