"""A ladder of Week 4: what planning costs, without a model (4.1 to 4.3)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ladder import Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from programs.cores import PAGE_SIZE

if TYPE_CHECKING:
    from tiny_llm.prefix.trie_cache import TrieCache
    from tiny_llm.scheduling.scheduler import Scheduler

REQUESTS = 256
PAGES = 10_000
PASTS = (64, 300, 600)  # tokens
PROMPT = 8000  # tokens to match
EVICTED = 500  # pages
TIMES = 20

MILLISECONDS = Quantity("milliseconds", "ms", places=2)

LADDERS = (Ladder("host", f"On the host, with {PAGES:,} pages of {PAGE_SIZE} tokens", (MILLISECONDS,)),)

BARS = (
    Bar("planning does not grow with the past", f"plan-{PASTS[0]}", f"plan-{PASTS[-1]}", MILLISECONDS, 0.67),
    Bar(
        "nor does it with preemption", f"preemptive-{PASTS[0]}", f"preemptive-{PASTS[-1]}", MILLISECONDS, 0.67
    ),
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Planning at several lengths of the past, matching and evicting; none of them needs a model."""
    for name, label, make in (
        ("plan", "plan (4.2)", _scheduler),
        ("preemptive", "plan (4.3)", _preemptive),
    ):
        for past in PASTS:
            run = partial(_plan, make, past)
            yield Case(
                f"{name}-{past}", "host", f"{label}: {REQUESTS} decodes, {past} past tokens", run, TIMES
            )
    yield Case("match", "host", f"match a prompt of {PROMPT:,} tokens", _match, TIMES)
    yield Case("evict", "host", f"evict {EVICTED} pages", _evict, TIMES)


Make = Callable[["TrieCache", int], "Scheduler"]


def _scheduler(cache: TrieCache, positions: int) -> Scheduler:
    from tiny_llm.scheduling.scheduler import Scheduler

    return Scheduler(cache, positions, REQUESTS, PROMPT)


def _preemptive(cache: TrieCache, positions: int) -> Scheduler:
    from tiny_llm.scheduling.preemption import PreemptiveScheduler

    return PreemptiveScheduler(cache, positions, REQUESTS, PROMPT)


def _plan(make: Make, past: int, times: int) -> Values:
    """Steps of decodes, as the engine plans them: the plan, the block table, the metadata, and the commit."""
    from tiny_llm.request import Request

    scheduler = make(_cache(), past + times + 1)
    requests = [Request([number] * past, times + 1) for number in range(REQUESTS)]
    for request in requests:
        scheduler.push(request)
    step = _stepper(scheduler)
    while sum(each.sequence.length for each in scheduler.running) < REQUESTS * past:
        step()
    seconds = []
    for _ in range(times):
        for request in requests:
            request.token_ids.append(0)
        seconds.append(step())
    return _milliseconds(seconds)


def _milliseconds(seconds: Sequence[float]) -> Values:
    """The median: one time that another program has taken says nothing."""
    return {"milliseconds": 1000 * statistics.median(seconds)}


def _stepper(scheduler: Scheduler) -> Callable[[], float]:
    """A step without the model; it returns how many seconds it took but for what the model's run would do."""
    from tiny_llm.paged.metadata import ForwardMeta
    from tiny_llm.paged.places import pages_for
    from tiny_llm.scheduling.block_tables import BlockTables

    tables = BlockTables(REQUESTS, pages_for(scheduler.max_positions, PAGE_SIZE))

    def step() -> float:
        started = time.perf_counter()
        plan = scheduler.plan()
        sequences, counts = [chunk.running.sequence for chunk in plan], [chunk.count for chunk in plan]
        table = tables.table(sequences)
        ForwardMeta.build(table, [each.length for each in sequences], counts, PAGE_SIZE)
        planned = time.perf_counter()
        for sequence, count in zip(sequences, counts, strict=True):
            sequence.advance(count)
        ran = time.perf_counter()
        scheduler.commit()
        return planned - started + time.perf_counter() - ran

    return step


def _cache() -> TrieCache:
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.prefix.trie_cache import TrieCache

    return TrieCache(PageAllocator(1 + PAGES), PAGE_SIZE)


def _filled(cache: TrieCache, token_ids: Sequence[int]) -> None:
    """A request has come and gone: its full pages are in the tree."""
    from tiny_llm.paged.sequence import PagedSequence

    sequence = PagedSequence(cache.allocator, PAGE_SIZE)
    cache.acquire(sequence, len(token_ids))
    cache.publish(sequence, token_ids, len(token_ids))
    sequence.advance(len(token_ids))
    cache.commit()
    cache.release(sequence)


def _match(times: int) -> Values:
    from tiny_llm.paged.sequence import PagedSequence

    cache, prompt = _cache(), [number % 1000 for number in range(PROMPT)]
    _filled(cache, prompt)
    seconds = []
    for _ in range(times):
        sequence = PagedSequence(cache.allocator, PAGE_SIZE)
        started = time.perf_counter()
        cache.match(sequence, [*prompt, 0])
        seconds.append(time.perf_counter() - started)
        cache.release(sequence)
    return _milliseconds(seconds)


def _evict(times: int) -> Values:
    """Evict from a full tree: each time as many pages, of requests of five pages each."""
    seconds = []
    for _ in range(times):
        cache = _cache()
        for number in range(PAGES // 5):
            _filled(cache, [number] * (5 * PAGE_SIZE))
        started = time.perf_counter()
        cache.evict(EVICTED)
        seconds.append(time.perf_counter() - started)
    return _milliseconds(seconds)
