"""The ways in which a decode state's tables can be wrong; and some that look strange and are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coursekit.checking.comparison import CheckFailed

from .decode_states import Held, check_unchanged, state_of, tables

HELD: Held = {0: ([4, 7], 4), 2: ([8, 3, 6], 9), 3: ([5], 0)}
"""Three of four slots, of at most five pages of 3 tokens; free are 1, 2, 9, 10 and 11."""

Break = Callable[[Any], int | None]
"""Breaks a state's tables; the number of the page or the slot that the message must name, if it is one."""


def sound(lab: Any) -> Any:
    """A state in the middle of its work; slot 3 has a page for a step that failed."""
    return state_of(lab, num_pages=12, held=HELD)


def _lose(state: Any) -> int:
    state.available_page_indices.remove(9)
    return 9


def _lose_a_held_one(state: Any) -> int:
    state.page_indices[3, 0] = 0
    return 5


def _list_twice(state: Any) -> int:
    state.available_page_indices.append(10)
    return 10


def _list_one_for_another(state: Any) -> None:
    stack = state.available_page_indices
    stack[stack.index(9)] = 10


def _free_and_held(state: Any) -> int:
    state.available_page_indices.append(7)
    return 7


def _held_for_free(state: Any) -> None:
    stack = state.available_page_indices
    stack[stack.index(9)] = 7


def _two_slots(state: Any) -> int:
    state.page_indices[0, 2] = 8
    return 8


def _one_slot_twice(state: Any) -> int:
    state.page_indices[0, 2] = 4
    return 4


def _swapped_for_anothers(state: Any) -> None:
    state.page_indices[0, 1] = 6


def _null_free(state: Any) -> int:
    state.available_page_indices.insert(0, 0)
    return 0


def _unknown_free(state: Any) -> int:
    state.available_page_indices.append(12)
    return 12


def _negative_free(state: Any) -> int:
    state.available_page_indices.append(-2)
    return -2


def _unknown_held(state: Any) -> int:
    state.page_indices[3, 1] = 12
    return 12


def _filled_up_with_minus_one(state: Any) -> int:
    state.page_indices[3, 1] = -1
    return -1


def _gap(state: Any) -> int:
    state.page_indices[2, 3], state.page_indices[2, 1] = 3, 0
    return 2


def _gap_in_front(state: Any) -> int:
    state.page_indices[3, 1], state.page_indices[3, 0] = 5, 0
    return 3


def _more_tokens_than_room(state: Any) -> int:
    state.lengths[2] = 10
    return 2


def _tokens_without_pages(state: Any) -> int:
    state.lengths[1] = 1
    return 1


def _negative_length(state: Any) -> int:
    state.lengths[3] = -1
    return 3


BROKEN: dict[str, Break] = {
    "a page that is neither free nor held": _lose,
    "a page that its slot has lost": _lose_a_held_one,
    "a free page that is listed twice": _list_twice,
    "one page lost and another listed twice, so that the numbers add up": _list_one_for_another,
    "a page that is free and held": _free_and_held,
    "a held page on the stack in the place of a free one": _held_for_free,
    "a page that two slots hold": _two_slots,
    "a page that one slot holds twice": _one_slot_twice,
    "a page of one slot in the place of another's": _swapped_for_anothers,
    "a null page on the stack": _null_free,
    "a free page that does not exist": _unknown_free,
    "a free page with a negative number": _negative_free,
    "a held page that does not exist": _unknown_held,
    "a row that is filled up with -1": _filled_up_with_minus_one,
    "a gap between the pages of a slot": _gap,
    "a gap in front of the only page of a slot": _gap_in_front,
    "one token more than the pages of a slot have room for": _more_tokens_than_room,
    "a token in a slot without pages": _tokens_without_pages,
    "a negative length": _negative_length,
}

SOUND: dict[str, Held] = {
    "nobody holds anything": {},
    "slots in the middle of their work": HELD,
    "pages full to the last place": {0: ([2, 1], 6), 3: ([4], 3)},
    "pages for a step that failed": {1: ([3, 9, 2], 1), 2: ([5, 6], 0)},
    "every page is held, and one slot holds as many as it may": {
        0: ([11, 2, 3, 9, 1], 15),
        1: ([10, 4, 7], 7),
        3: ([8, 5, 6], 8),
    },
}


def check_accepted(state: Any, what: str) -> None:
    """`check()` finds no fault with tables that are right, and changes nothing."""
    __tracebackhide__ = True
    before = tables(state)
    try:
        state.check()
    except NotImplementedError:
        raise
    except RuntimeError as error:
        raise CheckFailed(
            f"check() finds fault with tables that are right ({what}): {error}; "
            f"page_indices {before['page_indices']}, lengths {before['lengths']}, "
            f"available_page_indices {before['available_page_indices']}"
        ) from error
    check_unchanged(state, before, f"after check(), with {what}")
