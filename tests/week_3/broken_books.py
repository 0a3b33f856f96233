"""What an allocator must refuse, and the ways in which its books can be wrong."""

from __future__ import annotations

from typing import Any

from .pages import allocator_of

REFUSED = {
    "a page that is free": lambda held: [8],
    "a free page after one that is held": lambda held: [held[0], 8],
    "the null page": lambda held: [0],
    "the null page after one that is held": lambda held: [held[1], 0],
    "a page beyond the last": lambda held: [9],
    "a number far beyond the last": lambda held: [held[2], 300],
    "a negative number, which would count from the end": lambda held: [8 - 9],
    "a negative number that means a held page": lambda held: [held[0], held[1] - 9],
    "the same page twice": lambda held: [held[1], held[1]],
    "the same page twice, others between": lambda held: [held[0], held[1], held[2], held[0]],
    "three times what has two references": lambda held: [held[3]] * 3,
}


def blamed(allocator: Any, pages: list[int]) -> int:
    """The page for which a call with these pages is refused; there is one in each of the cases."""
    return next(
        page
        for page in pages
        if not 0 < page < allocator.num_pages or pages.count(page) > allocator.references[page]
    )


def with_four_held(lab: Any, free_page: int = 8) -> tuple[Any, list[int]]:
    """An allocator of 9 pages, with four pages held, the last of them twice; page 8 is free."""
    allocator = allocator_of(lab, 9)
    everything = allocator.allocate(8)
    held = [page for page in everything if page != free_page][:4]
    allocator.free([page for page in everything if page not in held])
    allocator.references[held[3]] = 2
    return allocator, held


def _lose(allocator: Any, held: list[int]) -> int:
    return allocator.free_pages.pop()


def _list_twice(allocator: Any, held: list[int]) -> int:
    allocator.free_pages.append(allocator.free_pages[0])
    return allocator.free_pages[0]


def _lose_one_and_list_another_twice(allocator: Any, held: list[int]) -> str:
    _lose(allocator, held)
    _list_twice(allocator, held)
    return ""


def _free_and_held(allocator: Any, held: list[int]) -> int:
    allocator.free_pages.append(held[0])
    return held[0]


def _held_for_lost(allocator: Any, held: list[int]) -> str:
    allocator.free_pages[0] = held[1]
    return ""


def _forget_a_holder(allocator: Any, held: list[int]) -> int:
    allocator.references[held[2]] = 0
    return held[2]


def _negative_and_lost(allocator: Any, held: list[int]) -> int:
    page = allocator.free_pages.pop()
    allocator.references[page] = -1
    return page


def _negative_and_free(allocator: Any, held: list[int]) -> int:
    allocator.references[allocator.free_pages[0]] = -1
    return allocator.free_pages[0]


def _null_in_use(allocator: Any, held: list[int]) -> str:
    allocator.references[0] = 1
    return ""


def _null_free(allocator: Any, held: list[int]) -> str:
    allocator.free_pages.append(0)
    return ""


def _unknown_free(allocator: Any, held: list[int]) -> int:
    allocator.free_pages.append(allocator.num_pages)
    return allocator.num_pages


def _negative_free(allocator: Any, held: list[int]) -> int:
    allocator.free_pages.append(-1)
    return -1


BROKEN = {
    "a page that is neither free nor in use": _lose,
    "a free page that is listed twice": _list_twice,
    "one page lost and another listed twice, so that the numbers add up": _lose_one_and_list_another_twice,
    "a page in use that is on the free list": _free_and_held,
    "a page in use on the free list in the place of a free one": _held_for_lost,
    "a page whose references were set to 0 without freeing it": _forget_a_holder,
    "a lost page with a negative number of references": _negative_and_lost,
    "a free page with a negative number of references": _negative_and_free,
    "a null page in use": _null_in_use,
    "a null page on the free list": _null_free,
    "a free page that does not exist": _unknown_free,
    "a free page with a negative number": _negative_free,
}
