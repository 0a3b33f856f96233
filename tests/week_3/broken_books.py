"""What an allocator must refuse, and the ways in which its books can be wrong."""

from __future__ import annotations

from typing import Any

from .pages import allocator_of

REFUSED = {
    "a block that is free": lambda held: [8],
    "a free block after one that is held": lambda held: [held[0], 8],
    "the null block": lambda held: [0],
    "the null block after one that is held": lambda held: [held[1], 0],
    "a block beyond the last": lambda held: [9],
    "a number far beyond the last": lambda held: [held[2], 300],
    "a negative number, which would count from the end": lambda held: [8 - 9],
    "a negative number that means a held block": lambda held: [held[0], held[1] - 9],
    "the same block twice": lambda held: [held[1], held[1]],
    "the same block twice, others between": lambda held: [held[0], held[1], held[2], held[0]],
    "three times what has two references": lambda held: [held[3]] * 3,
}


def with_four_held(lab: Any, free_block: int = 8) -> tuple[Any, list[int]]:
    """An allocator of 9 blocks, with four blocks held, the last of them twice; block 8 is free."""
    allocator = allocator_of(lab, 9)
    everything = allocator.allocate(8)
    held = [block for block in everything if block != free_block][:4]
    allocator.free([block for block in everything if block not in held])
    allocator.references[held[3]] = 2
    return allocator, held


def _lose(allocator: Any, held: list[int]) -> int:
    return allocator.free_blocks.pop()


def _list_twice(allocator: Any, held: list[int]) -> int:
    allocator.free_blocks.append(allocator.free_blocks[0])
    return allocator.free_blocks[0]


def _lose_one_and_list_another_twice(allocator: Any, held: list[int]) -> str:
    _lose(allocator, held)
    _list_twice(allocator, held)
    return ""


def _free_and_held(allocator: Any, held: list[int]) -> int:
    allocator.free_blocks.append(held[0])
    return held[0]


def _held_for_lost(allocator: Any, held: list[int]) -> str:
    allocator.free_blocks[0] = held[1]
    return ""


def _forget_a_holder(allocator: Any, held: list[int]) -> int:
    allocator.references[held[2]] = 0
    return held[2]


def _negative_and_lost(allocator: Any, held: list[int]) -> int:
    block = allocator.free_blocks.pop()
    allocator.references[block] = -1
    return block


def _negative_and_free(allocator: Any, held: list[int]) -> int:
    allocator.references[allocator.free_blocks[0]] = -1
    return allocator.free_blocks[0]


def _null_in_use(allocator: Any, held: list[int]) -> str:
    allocator.references[0] = 1
    return ""


def _null_free(allocator: Any, held: list[int]) -> str:
    allocator.free_blocks.append(0)
    return ""


def _unknown_free(allocator: Any, held: list[int]) -> int:
    allocator.free_blocks.append(allocator.num_blocks)
    return allocator.num_blocks


BROKEN = {
    "a block that is neither free nor in use": _lose,
    "a free block that is listed twice": _list_twice,
    "one block lost and another listed twice, so that the numbers add up": _lose_one_and_list_another_twice,
    "a block in use that is on the free list": _free_and_held,
    "a block in use on the free list in the place of a free one": _held_for_lost,
    "a block whose references were set to 0 without freeing it": _forget_a_holder,
    "a lost block with a negative number of references": _negative_and_lost,
    "a free block with a negative number of references": _negative_and_free,
    "a null block in use": _null_in_use,
    "a null block on the free list": _null_free,
    "a free block that does not exist": _unknown_free,
}
