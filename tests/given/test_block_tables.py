"""The block table that is kept up to date: each row has the pages of its sequence, and no others."""

from __future__ import annotations

import random

import pytest

from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.scheduling.block_tables import BlockTables

ROWS, WIDTH = 4, 6


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_each_row_has_the_pages_of_its_sequence(seed: int) -> None:
    dice, tables = random.Random(seed), BlockTables(ROWS, WIDTH)
    sequences = [PagedSequence(PageAllocator(2), 1) for _ in range(3 * ROWS)]
    for _ in range(100):
        for each in sequences:
            change(dice, each, room=sum(bool(one.pages) for one in sequences) < ROWS)
        chosen = [each for each in sequences if each.pages and dice.random() < 0.8]
        dice.shuffle(chosen)
        expected = [each.pages + [NULL_PAGE] * (WIDTH - len(each.pages)) for each in chosen]
        assert tables.table(chosen).reshape(len(chosen), WIDTH).tolist() == expected
        assert len(tables.row_of) + len(tables.free) == ROWS
        assert tables.listed.keys() <= tables.row_of.keys(), "a sequence that has lost its row is forgotten"


def change(dice: random.Random, sequence: PagedSequence, room: bool) -> None:
    """It grows, is cut or gives up all its pages; one without pages begins only where a row is free for it."""
    kind = dice.choice(["stay", "grow", "grow", "cut", "end"])
    if kind == "grow" and (sequence.pages or room) and len(sequence.pages) < WIDTH:
        sequence.pages += dice.sample(range(1, 99), dice.randint(1, WIDTH - len(sequence.pages)))
    elif kind == "cut":
        sequence.pages = sequence.pages[: dice.randint(0, len(sequence.pages))]
    elif kind == "end":
        sequence.pages = []
