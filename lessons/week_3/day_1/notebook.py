# %% [markdown]
# # Day 3.1: Pages, to play with
#
# The chapter explains and the tests judge; here you fill pools, let requests come and go, and look for waste. The
# cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, slider

TONES = [COLORS[name] for name in ("blue", "orange", "green", "purple", "red", "yellow")]

# %% [markdown]
# ## Predict
#
# A page has 16 places. A request that has just ended had some number of tokens, any number. How many places of its
# last page were empty, on average? And at most? What share of the memory is that, for requests of 200 tokens? Write
# down your three numbers. Then look at 5,000 requests, and change the size of a page.


# %%
def empty_places(page_size: int, mean_length: int) -> Picture:
    lengths = np.random.default_rng(0).integers(1, 2 * mean_length, 5000).tolist()
    room = [lab.paged.places.pages_for(length, page_size) * page_size for length in lengths]
    empty = np.array(room) - lengths
    figure, axes = new_figure(height=2.4)
    counts = np.bincount(empty, minlength=page_size)
    axes.bar(range(page_size), counts, width=0.85 if page_size < 64 else 1, color=COLORS["blue"])
    axes.set(xlabel="empty places in the last page", ylabel="requests", xlim=(-0.6, page_size - 0.4))
    axes.xaxis.get_major_locator().set_params(integer=True)
    share = empty.sum() / sum(room)
    axes.set_title(f"pages of {page_size}: {empty.mean():.1f} places empty on average, {share:.1%} of all")
    return Picture(
        figure,
        f"Of 5,000 requests with {mean_length} tokens on average, pages of {page_size} leave {empty.mean():.1f} "
        f"places empty on average and {empty.max()} at most: {share:.1%} of the memory.",
    )


explore(empty_places, page_size=choice([1, 4, 16, 32, 64, 128], 16), mean_length=choice([50, 200, 1000], 200))

# %% [markdown]
# ## Experiment 1: a pool fills up
#
# The pool below has 96 places. Requests come with a few tokens, bring one more in each step, and end. Each has a
# color and a letter; a place in a pale tone is taken, but holds no token yet. Move *step* slowly. Find a request
# whose pages lie apart from one another: what had to happen before? Then find a step in which a request had to be
# turned away, and try whether pages of another size have room for it.


# %%
def pool_at(step: int, page_size: int) -> tuple[dict, int]:
    """The sequences by name after some steps, and how many requests were turned away."""
    dice, OutOfPages = random.Random(5), lab.paged.allocator.OutOfPages
    allocator = lab.paged.allocator.PageAllocator(96 // page_size + 1)
    refused = 0
    running: dict[str, Any] = {}
    ends: dict[str, int] = {}
    for now in range(step + 1):
        for name in [name for name in running if ends[name] == now]:
            running.pop(name).release()
        if now % 2 == 0:  # a new request, and how many tokens it has, now and at its end
            name, prompt, output = chr(65 + now // 2), dice.randint(3, 14), dice.randint(4, 20)
            sequence = lab.paged.sequence.PagedSequence(allocator, page_size)
            running[name], ends[name] = sequence, now + output
        for name, sequence in list(running.items()):
            new = 1 if sequence.length else prompt
            try:
                sequence.reserve(new)
                sequence.advance(new)
            except OutOfPages:
                running.pop(name).release()
                refused += 1
    return running, refused


def draw_pool(step: int, page_size: int) -> Picture:
    running, refused = pool_at(step, page_size)
    figure, axes = new_figure(height=2.2)
    for name, sequence in running.items():
        color = TONES[(ord(name) - 65) % 6]
        filled = sequence.places(0, sequence.length)
        for place in range(96):
            page = place // page_size + 1
            if page in sequence.pages:
                full = place + page_size in filled  # page 0 isn't drawn
                axes.barh(place // 24, 1, left=place % 24, height=0.9, color=color, alpha=1 if full else 0.25)
        for page in sequence.pages:
            row, left = divmod((page - 1) * page_size, 24)
            axes.text(left + 0.5, row, name, color="white", ha="center", va="center", weight="bold")
    for place in range(0, 96, page_size):
        axes.barh(place // 24, page_size, left=place % 24, height=0.9, fill=False, edgecolor=COLORS["muted"])
    axes.set(xlim=(-0.1, 24.1), ylim=(3.6, -0.6), yticks=[], xticks=[])
    tokens, taken = sum(s.length for s in running.values()), sum(len(s.pages) for s in running.values())
    said = f"step {step}: requests: {len(running)}, {tokens} tokens in {taken} of {96 // page_size} pages"
    axes.set_title(f"{said}; turned away: {refused}")
    return Picture(figure, f"The pool at {said} of {page_size} places; turned away: {refused}.")


explore(draw_pool, step=slider(0, 50, 4), page_size=choice([1, 2, 4, 8], 4))

# %% [markdown]
# ## Experiment 2: why not one piece for each request?
#
# Here each request says at once how many places it needs, 10 to 70. In the upper memory it gets one piece without a
# gap, the first that is long enough; in the lower one it gets pages of 4. A request that finds no room waits, and
# those behind it wait, too. Look for a step in which the upper memory has enough free places for the request that
# waits, but no gap that is long enough. Does that ever happen below?


# %%
def one_piece(pieces: list, length: int) -> list | None:
    """The first gap that is long enough, as begin and end."""
    start = 0
    for begin, end, _ in [*sorted(pieces), (256, 256, None)]:
        if begin - start >= length:
            return [(start, start + length)]
        start = end
    return None


def in_pages(allocator: Any, length: int) -> list | None:
    count = lab.paged.places.pages_for(length, 4)
    if count > len(allocator.free_pages):
        return None
    return [(4 * page - 4, 4 * page) for page in allocator.allocate(count)]


def memory_at(step: int, paged: bool, arrivals: int) -> tuple[list, list]:
    """After some steps: the pieces (begin, end, request), and the requests that wait (number, length, stay)."""
    dice, allocator = random.Random(arrivals), lab.paged.allocator.PageAllocator(256 // 4 + 1)
    pieces: list[tuple] = []
    waiting: list[tuple] = []
    ends: dict[int, int] = {}
    for now in range(step + 1):
        gone = [piece for piece in pieces if ends[piece[2]] <= now]
        pieces = [piece for piece in pieces if piece not in gone]
        if paged:
            allocator.free([end // 4 for _, end, _ in gone])
        waiting.append((now, dice.randint(10, 70), dice.randint(3, 12)))
        while waiting:
            number, length, stay = waiting[0]
            taken = in_pages(allocator, length) if paged else one_piece(pieces, length)
            if taken is None:
                break
            pieces += [(begin, end, number) for begin, end in taken]
            ends[number] = now + stay
            waiting.pop(0)
    return pieces, waiting


def two_memories(step: int, arrivals: int) -> Picture:
    figure, both = new_figure(height=2.7, rows=2)
    said = []
    for axes, paged in zip(both, (False, True), strict=True):
        pieces, waiting = memory_at(step, paged, arrivals)
        for begin, end, number in pieces:
            axes.barh(0, end - begin, left=begin, color=TONES[number % 6], edgecolor=COLORS["paper"], lw=0.6)
        free = 256 - sum(end - begin for begin, end, _ in pieces)
        waits = f"the first that waits wants {waiting[0][1]}" if waiting else "no request waits"
        said.append(f"{'pages of 4' if paged else 'one piece each'}: {free} places free, {waits}")
        axes.set(xlim=(0, 256), yticks=[], title=said[-1], facecolor=PALE["muted"])
    both[1].set(xlabel="place")
    return Picture(figure, f"Two memories of 256 places at step {step}; {said[0]}; {said[1]}.")


explore(two_memories, step=slider(0, 60, 5), arrivals=slider(1, 5, 1))

# %% [markdown]
# ## Measure
#
# The chapter's loop copies the whole past of a request for each token, in each layer: `gather`. How fast does your
# machine copy, and does it matter whether the pages of a request are neighbors? The chapter's sixteen requests make
# it copy 5.3 GB in all.

# %% tags=["measured"]
config = SimpleNamespace(num_layers=1, num_kv_heads=3, head_dim=64)
pool = lab.paged.pool.KvPool(config, 2049, 16)
everywhere = np.arange(16, 2049 * 16)
pool.write(0, lab.array(everywhere), *(lab.array(np.ones((len(everywhere), 3, 64))) for _ in "kv"))
numbers = np.random.default_rng(2).permutation(2048) + 1
for tokens in (64, 512, 4096, 32768):
    speeds = []
    for pages in (range(1, 2049), numbers):
        places = lab.array(np.array(lab.paged.places.places_of(list(pages), 0, tokens, 16)))
        speeds.append(tokens * 1536 / measure(pool.gather, 0, places) / 1e9)
    print(
        f"{tokens:6} tokens: {speeds[0]:5.2f} GB/s from neighbors, {speeds[1]:5.2f} GB/s from pages in any order"
    )
    if tokens == 512:
        print(f"        at this speed the 5.3 GB take {5.3 / speeds[1]:.1f} s")

# %% [markdown]
# ## An open question
#
# Some models look at the last 1,024 tokens only, in most of their layers: a *sliding window*. There the pages of
# older tokens could be free again, while the other layers still need theirs. But a page number is valid in all
# layers. How would you change pool, allocator or sequences?
#
# <details>
# <summary>One answer</summary>
#
# Give each kind of layer a list of pages of its own. A request then has two lists: one for the layers that see
# everything, one for the layers with a window, which gives up its oldest page from time to time. If a page holds
# the same number of bytes for both kinds, one pool and one allocator serve them both, and any free page fits either
# list. vLLM does it in this way: its *hybrid KV cache manager* puts layers of one kind into groups, and each group
# has its own block table. The price: fewer layers share a page, so a request fills more pages, and each list has a
# last page with empty places.
#
# </details>
