"""The tree of pages as text: whose pages they are, who holds them, and chains of pages as one line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.console import Console

from programs.trie_view import Known, draw_trie, ranges

P = 2


def decode(ids: Sequence[int]) -> str:
    return "\n".join("abcdefghij"[each] for each in ids)


def lines(
    prompts: Sequence[Sequence[int]],
    running: Sequence[int] = (),
    words: str = "",
    forgotten: Sequence[int] = (),
) -> list[str]:
    """The lines for requests that came one after the other, of which some still run, and some aren't known."""
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.sequence import PagedSequence
    from tiny_llm.prefix.trie_cache import TrieCache

    cache = TrieCache(PageAllocator(30), P)
    known = []
    for number, ids in enumerate(prompts, start=1):
        sequence = PagedSequence(cache.allocator, P)
        found = cache.match(sequence, ids)
        cache.acquire(sequence, len(ids) - found)
        cache.publish(sequence, ids, len(ids))
        sequence.advance(len(ids) - found)
        cache.commit()
        pages = list(sequence.pages) if number in running else []
        if number not in running:
            cache.release(sequence)
        if number not in forgotten:
            known.append(Known(number, ids, pages))
    console = Console(width=100)
    with console.capture() as capture:
        console.print(draw_trie(cache, known, (lambda ids: words) if words else decode))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_requests_that_begin_alike_hang_on_one_branch() -> None:
    assert lines([[0, 1, 2, 3, 4], [0, 1, 5, 6, 7], [8, 9, 0]]) == [
        "the tree: 4 of 29 pages of 2 tokens; 0 are held",
        "├── requests 1-2: page 1: a b",
        "│   ├── request 1: page 2: c d",
        "│   └── request 2: page 3: f g",
        "└── request 3: page 4: i j",
    ]


def test_pages_of_the_same_requests_are_one_line() -> None:
    assert lines([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 9]])[1:] == [
        "└── requests 1-2: 2 pages, 1-2: a b",
        "    └── request 1: page 3: e f",
    ]


def test_the_requests_that_hold_a_page_are_named() -> None:
    assert lines([[0, 1, 2, 3, 4], [0, 1, 5], [0, 1, 2, 3, 6]], running=[1, 2]) == [
        "the tree: 2 of 29 pages of 2 tokens; 2 are held",
        "└── requests 1-3, held by 1-2: page 1: a b",
        "    └── requests 1, 3, held by 1: page 2: c d",
    ]


def test_pages_of_the_same_requests_that_others_hold_are_not_one_line() -> None:
    """The second request finds the first page, and computes the second anew: the tree's is held by none."""
    assert lines([[0, 1, 2, 3, 4], [0, 1, 2, 3]], running=[2]) == [
        "the tree: 2 of 29 pages of 2 tokens; 1 are held",
        "└── requests 1-2, held by 2: page 1: a b",
        "    └── requests 1-2: page 2: c d",
    ]


def test_branches_stand_in_the_order_of_their_requests_and_some_have_no_known_request() -> None:
    assert lines([[0, 1, 2], [8, 9, 2], [0, 1, 4], [6, 7, 2]], forgotten=[1, 4])[1:] == [
        "├── no request: page 3: g h",
        "├── request 2: page 2: i j",
        "└── request 3: page 1: a b",
    ]


def test_without_a_page_the_tree_is_its_first_line() -> None:
    assert lines([[0]]) == ["the tree: 0 of 29 pages of 2 tokens; 0 are held"]


def test_only_the_first_words_of_a_page_are_shown_and_brackets_mean_nothing() -> None:
    [_, line] = lines([[0, 1, 2]], words="[red] one two three four five six seven eight nine")
    assert line.startswith("└── request 1: page 1: [red] one two three")
    assert line.endswith("…")
    assert len(line) < 70


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([4], "4"),
        ([4, 5, 6], "4-6"),
        ([4, 5, 9, 2, 3], "4-5, 9, 2-3"),
        ([1, 3, 5, 7, 9, 10], "1, 3, 5, …, 9-10"),
    ],
)
def test_numbers_in_a_row_are_one_range_and_of_many_the_middle_is_left_out(
    numbers: list[int], text: str
) -> None:
    assert ranges(numbers) == text
