"""The ways in which a decode state's books can be wrong; and some that look strange and are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coursekit.check import CheckFailed

from .decode_states import Held, check_unchanged, state_of, tables

HELD: Held = {0: ([4, 7], 4), 2: ([8, 3, 6], 9), 3: ([5], 0)}
"""Three of four seats, of at most five pages of 3 tokens; free are 1, 2, 9, 10 and 11."""

Break = Callable[[Any], int | None]
"""Breaks a state; the number of the page or the seat that the message must name, if there is only one."""


def state_with(lab: Any, held: Held) -> Any:
    """A state of four seats on pages 1 to 11."""
    return state_of(lab, num_pages=12, held=held)


def sound(lab: Any) -> Any:
    """A state in the middle of its work; seat 3 has a page for a step that failed."""
    return state_with(lab, HELD)


def hold(state: Any, seat: int, page: int) -> None:
    """One page more for a seat, in its sequence and its row; the allocator isn't told."""
    state.page_indices[seat, len(state.sequences[seat].pages)] = page
    state.sequences[seat].pages.append(page)


def _lose(state: Any) -> int:
    state.allocator.free_pages.remove(9)
    return 9


def _list_twice(state: Any) -> int:
    state.allocator.free_pages.append(10)
    return 10


def _free_and_held(state: Any) -> int:
    state.allocator.free_pages.append(7)
    return 7


def _null_free(state: Any) -> int:
    state.allocator.free_pages.insert(0, 0)
    return 0


def _freed_behind_its_back(state: Any) -> int:
    state.allocator.free([7])
    return 7


def _two_seats(state: Any) -> int:
    hold(state, 0, 8)
    return 8


def _one_seat_twice(state: Any) -> int:
    hold(state, 0, 4)
    return 4


def _three_of_two(state: Any) -> int:
    state.allocator.share([8])
    for seat in (0, 1):
        hold(state, seat, 8)
    return 8


def _unknown_held(state: Any) -> int:
    hold(state, 3, 12)
    return 12


def _negative_held(state: Any) -> int:
    hold(state, 3, -4)  # page 8, counted from the end: a page in use
    return -4


def _null_held(state: Any) -> int:
    hold(state, 3, 0)
    return 0


def _listed_not_held(state: Any) -> int:
    state.page_indices[3, 1] = 9
    return 3


def _listed_by_another(state: Any) -> int:
    state.page_indices[0, 2] = 8
    return 0


def _held_not_listed(state: Any) -> int:
    state.page_indices[2, 2] = 0
    return 2


def _other_order(state: Any) -> int:
    state.page_indices[2, 0], state.page_indices[2, 1] = 3, 8
    return 2


def _another_page(state: Any) -> int:
    state.page_indices[3, 0] = 10
    return 3


def _gap(state: Any) -> int:
    for column, page in enumerate([8, 0, 3, 6]):
        state.page_indices[2, column] = page
    return 2


def _empty_seat_lists(state: Any) -> int:
    state.page_indices[1, 0] = 9
    return 1


def _filled_up_with_minus_one(state: Any) -> int:
    state.page_indices[3, 1] = -1
    return 3


def _last_column(state: Any) -> int:
    state.page_indices[0, 4] = 1
    return 0


def _reserved_without_the_table(state: Any) -> int:
    state.sequences[0].reserve(6)
    return 0


def _released_without_the_table(state: Any) -> int:
    state.sequences[2].release()
    return 2


def _more_tokens_than_room(state: Any) -> int:
    state.sequences[2].length = 10
    return 2


def _tokens_without_pages(state: Any) -> int:
    state.sequences[1].length = 1
    return 1


def _negative_length(state: Any) -> int:
    state.sequences[3].length = -1
    return 3


BROKEN_PAGES: dict[str, Break] = {
    "a page that is neither free nor in use": _lose,
    "a free page that is listed twice": _list_twice,
    "a page that is free and in use": _free_and_held,
    "the null page on the free list": _null_free,
    "a seat's page that was freed by another user": _freed_behind_its_back,
    "a page that two seats hold, with one reference": _two_seats,
    "a page that one seat holds twice, with one reference": _one_seat_twice,
    "a page that three seats hold, with two references": _three_of_two,
    "a held page that doesn't exist": _unknown_held,
    "a held page with a negative number": _negative_held,
    "the null page in a seat": _null_held,
}
BROKEN_SEATS: dict[str, Break] = {
    "a row with a free page that its seat doesn't hold": _listed_not_held,
    "a row with a page of another seat behind its own": _listed_by_another,
    "a row that lacks its seat's last page": _held_not_listed,
    "a row with its seat's pages in another order": _other_order,
    "a row with another page than its seat's": _another_page,
    "a row with the null page between its pages": _gap,
    "a row of an empty seat that lists a page": _empty_seat_lists,
    "a row that is filled up with -1": _filled_up_with_minus_one,
    "a row with a page in its last column": _last_column,
    "a sequence that took pages, and its row doesn't list them": _reserved_without_the_table,
    "a sequence that gave its pages back, and its row still lists them": _released_without_the_table,
    "one token more than the pages of a seat have room for": _more_tokens_than_room,
    "a token in a seat without pages": _tokens_without_pages,
    "a negative length": _negative_length,
}
BROKEN = BROKEN_PAGES | BROKEN_SEATS


def _with_another_user(lab: Any) -> Any:
    state = sound(lab)
    state.allocator.allocate(2)
    return state


def _shared_with_another_user(lab: Any) -> Any:
    state = sound(lab)
    state.allocator.share([8, 3, 4])
    return state


SOUND: dict[str, Callable[[Any], Any]] = {
    "all seats are empty": lambda lab: state_with(lab, {}),
    "seats in the middle of their work": sound,
    "pages full to the last place": lambda lab: state_with(lab, {0: ([2, 1], 6), 3: ([4], 3)}),
    "pages for a step that failed": lambda lab: state_with(lab, {1: ([3, 9, 2], 1), 2: ([5, 6], 0)}),
    "every page is held, and one seat holds as many as it may": lambda lab: state_with(
        lab, {0: ([11, 2, 3, 9, 1], 15), 1: ([10, 4, 7], 7), 3: ([8, 5, 6], 8)}
    ),
    "another user of the allocator holds two pages": _with_another_user,
    "another user of the allocator shares three pages of seats": _shared_with_another_user,
    "two seats share two pages": lambda lab: state_with(lab, {1: ([5, 9, 2], 7), 2: ([5, 9], 6)}),
}


def check_accepted(state: Any, what: str) -> None:
    """`check()` finds no fault with books that are right, and changes nothing."""
    __tracebackhide__ = True
    before = tables(state)
    try:
        state.check()
    except NotImplementedError:
        raise
    except RuntimeError as error:
        books = ", ".join(f"{part} {numbers}" for part, numbers in before.items())
        raise CheckFailed(f"check() finds fault where all is right ({what}): {error}; {books}") from error
    check_unchanged(state, before, f"after check(), with {what}")
