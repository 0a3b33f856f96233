# %% [markdown]
# # Day 3.7: Serving, to play with
#
# Here you cancel requests at bad moments, turn the loop by hand, and send more requests than an engine can serve.
# The cells call your code; where a task is still missing, a line says which one.

# %%
# %load_ext notebooks

# %%
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from notebooks import COLORS, PALE, Picture, choice, explore, lab, new_figure, settings, slider

# %% [markdown]
# ## Predict
#
# A future is pending. The loop sees that it was not cancelled, and sets its result in the next line. What can go
# wrong between the two lines? How often would you see it in tests? Write it down. Then choose the moment at which
# the caller cancels, and compare the two lines with your ticket, whose caller tries to cancel at the same moments.

# %%
MOMENTS = ["never", "before the first line", "between the lines", "after the last line"]


def two_lines(moment: str) -> str:
    future: Future = Future()
    try:
        if moment == MOMENTS[1]:
            future.cancel()
        if not future.cancelled():
            if moment == MOMENTS[2]:
                future.cancel()
            future.set_result([7])
    except InvalidStateError:
        return "InvalidStateError, and the loop ends"
    if moment == MOMENTS[3]:
        future.cancel()
    return "cancelled" if future.cancelled() else f"the caller gets {future.result()}"


def your_ticket(moment: str) -> str:
    metrics = lab.ragged.metrics.Metrics()
    ticket = lab.ragged.ticket.Ticket(lab.request.Request([1], 1), lambda token: None, metrics)
    future, set_result = ticket.future, ticket.future.set_result
    ticket.request.token_ids.append(7)

    def cancel_just_before(result: list) -> None:
        if moment == MOMENTS[2]:
            future.cancel()
        set_result(result)

    future.set_result = cancel_just_before
    if moment == MOMENTS[1]:
        future.cancel()
    ticket.settle()
    if moment == MOMENTS[3]:
        future.cancel()
    return "cancelled" if future.cancelled() else f"the caller gets {future.result(timeout=0)}"


def both_ways(cancel: str) -> None:
    print(f"the two lines: {two_lines(cancel)}")
    print(f"your ticket:   {your_ticket(cancel)}")


explore(both_ways, cancel=choice(MOMENTS, title="the caller cancels"))

# %% [markdown]
# And how often? Suppose one request in ten is cancelled, at any moment of the 10 seconds that its answer takes. The
# window is the time between the two lines. Each point is a server with so many requests per second. Which window
# would your tests have to be lucky with?


# %%
def days_between(window: float) -> Picture:
    rates = np.array([0.1, 1, 10, 100, 1000])
    days = 1 / (rates * 0.1 * window * 1e-6 / 10) / 86_400
    figure, axes = new_figure(height=2.5)
    axes.plot(rates, days, "o-")
    for length, name in (
        (1 / 24, "an hour"),
        (1, "a day"),
        (30, "a month"),
        (365, "a year"),
        (36_500, "a century"),
    ):
        axes.axhline(length, color=COLORS["line"], lw=1)
        axes.text(2000, length, name, va="center", fontsize=8, color=COLORS["muted"])
    axes.set(xscale="log", yscale="log", xlim=(0.08, 1500), ylim=(0.01, 1e6))
    axes.set(
        xlabel="requests per second", ylabel="days", title=f"a window of {window} µs: days from hit to hit"
    )
    said = ", ".join(f"{day:.3g} at {rate:g}" for rate, day in zip(rates, days, strict=True))
    return Picture(
        figure, f"With a window of {window} µs, days from hit to hit at requests per second: {said}."
    )


explore(days_between, window=choice([0.1, 1, 10, 100, 1000], 1, title="window, µs"))

# %% [markdown]
# ## Experiment 1: the loop, turned by hand
#
# The chapter's four requests: A, B and C are submitted first, and D when A gets its third token. Pale: a request
# waits in the queue. Dark: it has a seat; a dot is a token that its client gets. Let B's client leave at another
# token, or never (0). Who gains by it, and how many steps? When is B's seat free for another request? What does a
# third seat change?


# %%
def engine(seats: int, budget: int, pages: int, page_size: int) -> Any:
    """Your engine, with a model that computes nothing: it always answers with token 0."""

    def zeros(*shape: int) -> Any:
        return lab.array(np.zeros(shape), "float32")

    model = SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64),
        embedding=SimpleNamespace(weight=zeros(10, 1)),
        hidden=lambda tokens, positions, caches: zeros(*tokens.shape, 1),
        logits=lambda hidden: zeros(*hidden.shape[:-1], 10),
    )
    pool = lab.paged.pool.KvPool(model.config, pages + 1, page_size)
    runner = lab.paged.model_runner.ModelRunner(model, pool)
    allocator = lab.paged.allocator.PageAllocator(pages + 1)
    state = lab.ragged.decode_state.DecodeState(allocator, page_size, seats, pages)
    return lab.ragged.batch.RaggedBatch(runner, state, budget)


def four_lives(b_leaves_at: int, seats: int) -> tuple[list, dict]:
    """After each admission who waits and who runs; the steps in which each request got a token."""
    batcher = lab.ragged.batcher.Batcher(engine(seats, 8, 7, 4))
    futures: dict[str, Any] = {}
    tokens: dict[str, list] = {name: [] for name in "ABCD"}
    steps: list[tuple] = []

    def submit(name: str, prompt: int, count: int) -> None:
        def listen(token: int) -> None:
            tokens[name].append(len(steps))
            if name == "B" and len(tokens["B"]) == b_leaves_at:
                futures["B"].cancel()
            if name == "A" and len(tokens["A"]) == 3:
                submit("D", 9, 2)

        futures[name] = batcher.submit(lab.request.Request([1] * prompt, count), listen)

    for name, prompt, count in (("A", 6, 4), ("B", 5, 9), ("C", 3, 3)):
        submit(name, prompt, count)
    while batcher.request_queue or batcher.tickets:
        batcher.admit()
        running = [ticket.future for ticket in batcher.tickets.values()]
        waiting = [ticket.future for ticket in batcher.request_queue]
        steps.append(tuple([n for n in futures if futures[n] in where] for where in (waiting, running)))
        batcher.retire(batcher.step())
    return steps, tokens


def draw_lives(b_leaves_at: int, seats: int) -> Picture:
    steps, tokens = four_lives(b_leaves_at, seats)
    figure, axes = new_figure(height=2.3)
    for number, (waiting, running) in enumerate(steps, start=1):
        for row, name in enumerate("ABCD"):
            tone = PALE["orange"] if name in waiting else COLORS["blue"] if name in running else None
            if tone:
                axes.barh(row, 0.94, left=number - 0.47, height=0.75, color=tone)
    for row, name in enumerate("ABCD"):
        axes.plot(tokens[name], [row] * len(tokens[name]), "o", color="white", ms=5)
    axes.set(yticks=range(4), yticklabels=list("ABCD"), ylim=(3.6, -0.6), xlim=(0.4, 22), xlabel="step")
    axes.xaxis.get_major_locator().set_params(integer=True)
    ends = {name: got[-1] for name, got in tokens.items()}
    left = f"B leaves at token {b_leaves_at}" if b_leaves_at else "B stays"
    axes.set_title(f"{left}: {len(steps)} steps; D's first token in step {tokens['D'][0]}")
    return Picture(
        figure, f"{left}, {seats} seats: {len(steps)} steps; the last tokens come in the steps {ends}."
    )


explore(draw_lives, b_leaves_at=slider(0, 8, 0, title="B leaves at token"), seats=slider(1, 4, 2))

# %% [markdown]
# ## Experiment 2: more requests than it can serve
#
# Half a minute of a made-up day: 8 seats, prompts of 24 tokens, answers of 32. A step takes 45 ms, and 1.8 ms more
# for each token. Raise the rate, request by request. At which rate does the queue no longer go back to nothing?
# Beyond it: what does a longer queue do to the wait for the first token, and what to the number of answers? How
# long a queue would you allow?


# %%
def half_minute(per_second: float, max_queue: int) -> tuple[np.ndarray, list, int, int]:
    """Times, and how many requests wait then; waits for first tokens; how many were answered, and refused."""
    batcher = lab.ragged.batcher.Batcher(engine(8, 64, 40, 16), max_queue)
    arrivals = deque(np.random.default_rng(7).exponential(1 / per_second, 1000).cumsum().tolist())
    clock, log, waits, refused = 0.0, [], [], 0
    silent: list[tuple] = []  # when each request without a token came, and the list for its tokens
    while clock < 30:
        while arrivals[0] <= clock:
            came = arrivals.popleft()
            got: list[int] = []
            try:
                batcher.submit(lab.request.Request([1] * 24, 32), got.append)
                silent.append((came, got))
            except lab.ragged.errors.QueueFull:
                refused += 1
        batcher.admit()
        if not batcher.tickets:
            clock = arrivals[0]
            continue
        tokens = sum(min(each.due, 24) for each in batcher.core.state.seats if each is not None)
        clock += 0.045 + 0.0018 * min(64, tokens)
        batcher.retire(batcher.step())
        log.append((clock, len(batcher.request_queue)))
        waits += [clock - came for came, got in silent if got]
        silent = [(came, got) for came, got in silent if not got]
    return np.array(log[::4]).T, waits, batcher.metrics.finished, refused


def draw_half_minute(per_second: float, max_queue: int) -> Picture:
    (clock, waiting), waits, finished, refused = half_minute(per_second, max_queue)
    figure, axes = new_figure(height=2.5)
    axes.fill_between(clock, waiting, step="post", color=PALE["orange"])
    axes.step(clock, waiting, where="post", color=COLORS["orange"])
    axes.set(xlim=(0, 30), ylim=(0, 66), xlabel="made-up seconds", ylabel="requests that wait")
    said = f"{finished} answers, {refused} refused; first token after {np.mean(waits):.1f} s on average"
    axes.set_title(f"{per_second:g} per second: {said}")
    return Picture(
        figure,
        f"{per_second:g} requests per second and a queue of at most {max_queue}: {said}. "
        f"At most {waiting.max():.0f} wait.",
    )


explore(
    draw_half_minute,
    per_second=slider(1, 10, 2, title="per second"),
    max_queue=choice([1, 4, 16, 64], 64, title="queue"),
)

# %% [markdown]
# ## Measure
#
# Two hundred callers on eight threads, as tonight, but with a model that computes nothing: what is left is the cost
# of queue, loop, seats and pages. In the chapter a step of the real model takes tens of milliseconds. What share of
# such a step is your batcher's?

# %% tags=["measured"]
callers = 20 if settings.short() else 200
spare, batcher = (lab.ragged.batcher.Batcher(engine(16, 128, 80, 16)) for _ in range(2))
spare.stop()
spare.loop()  # ends at once; a loop that is still missing says so here, and not on a thread
batcher.start()
try:
    began = time.perf_counter()
    with ThreadPoolExecutor(8) as threads:
        futures = list(
            threads.map(lambda number: batcher.submit(lab.request.Request([1] * 20, 30)), range(callers))
        )
    answers = [future.result(timeout=120) for future in futures]
    seconds = time.perf_counter() - began
finally:
    batcher.stop()
stats = batcher.stats()
print(f"{callers} callers, {sum(map(len, answers)):,} tokens in {stats.steps} steps: {seconds:.2f} s")
print(
    f"{1000 * seconds / stats.steps:.2f} ms per step, which is {seconds / stats.steps / 0.05:.0%} of a step of 50 ms"
)
print(
    f"all have their 30 tokens: {all(len(answer) == 30 for answer in answers)}; free pages: {stats.free_pages} of 80"
)

# %% [markdown]
# ## An open question
#
# Your server gets the signal to stop. 16 requests run, 200 wait in the queue, and in 30 seconds the machine is
# gone. Other servers stand behind the same address. `stop(drain=True)` would finish all of them. What should happen
# to whom, and in which order?
#
# <details>
# <summary>One answer</summary>
#
# First of all no new requests: the health check must say so before the door closes, so that the others get them.
# Those that wait have lost nothing yet. They should be told `UNAVAILABLE` at once, and their clients try another
# server: 200 answers don't fit into 30 seconds, and a caller that waits in vain until the end has lost those seconds,
# too. Those that run have cost something, and are worth finishing, up to a time limit that leaves room for the rest
# of the shutdown; what isn't complete then ends with an error, never in silence. So between `drain=True` and
# `drain=False` there is a third way: abandon the queue, drain the engine. In `Batcher` that would be one more flag,
# and one more question for `wait_for_work`.
#
# </details>
