"""Given code of Day 3.2: what is due of a request that runs, the table of some sequences, and an empty engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tiny_llm.engine_core import EngineCore
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.batch import PagedBatch
from tiny_llm.paged.running import Running
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.paged.tables import tables_of
from tiny_llm.request import Request


def running_of(prompt: list[int], output: list[int], held: int) -> Running:
    request = Request(prompt, 9)
    request.token_ids += output
    sequence = PagedSequence(PageAllocator(9), 4)
    sequence.length = held
    return Running(request, sequence)


@pytest.mark.parametrize(
    ("output", "held", "due", "decoding"),
    [
        ([], 0, 3, False),
        ([], 2, 1, False),
        ([], 3, 0, False),
        ([7], 3, 1, True),
        ([7, 8], 3, 2, False),
        ([7, 8], 4, 1, True),
        ([7, 8], 0, 5, False),
    ],
)
def test_what_is_due_is_what_the_pool_does_not_hold(output, held, due, decoding):
    running = running_of([1, 2, 3], output, held)
    assert (running.due, running.decoding) == (due, decoding)
    assert running.next_ids(2) == ([1, 2, 3, *output])[held : held + 2]
    assert running.next_ids(99) == ([1, 2, 3, *output])[held:]


def test_requests_that_run_are_compared_by_identity():
    one = running_of([1], [], 0)
    assert one != Running(one.request, one.sequence)


def test_a_table_lists_pages_in_order_and_is_filled_up_with_the_null_page():
    sequences = [PagedSequence(PageAllocator(9), 4) for _ in range(3)]
    sequences[0].pages, sequences[2].pages = [3, 1], [2, 5, 4]
    tables = tables_of(sequences)
    assert tables.dtype == torch.int32
    assert tables.tolist() == [[3, 1, 0], [0, 0, 0], [2, 5, 4]]
    assert [sequence.pages for sequence in sequences] == [[3, 1], [], [2, 5, 4]]


def engine(max_running: int = 2) -> PagedBatch:
    """An engine for requests of up to 12 tokens, which never runs its model."""
    model = SimpleNamespace(
        config=SimpleNamespace(max_positions=20), embedding=SimpleNamespace(weight=torch.zeros(10, 1))
    )
    runner: Any = SimpleNamespace(pool=SimpleNamespace(page_size=4), model=model)
    return PagedBatch(runner, PageAllocator(4), max_running, chunk_size=8)


def test_an_engine_starts_empty_and_says_what_it_can_do():
    core: EngineCore = engine(max_running=3)
    assert (core.requests, core.idle, core.num_seats, core.max_positions) == ([], 3, 3, 20)
    assert core.token_budget == 2 + 8  # two decodes and a chunk


@pytest.mark.parametrize(("max_running", "chunk_size"), [(0, 8), (2, 0), (-1, 8), (2, -1)])
def test_an_engine_without_room_for_a_request_or_a_token_is_refused(max_running, chunk_size):
    core = engine()
    with pytest.raises(ValueError, match=f"{min(max_running, chunk_size)}"):
        PagedBatch(core.runner, core.allocator, max_running, chunk_size)
