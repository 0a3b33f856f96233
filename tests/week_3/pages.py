"""Allocators, pools and sequences as the tests handle them, and a plain account of who holds which block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_1.numpy_model import HKV, D

from coursekit.check import check_equal, check_raises

BLOCK_SIZES = (1, 3, 16)
LAYERS, N = 4, 7
UNUSED = "a slot was read that holds no token of this sequence; the test has put NaN into all of those"


def allocator_of(lab: Any, num_blocks: int) -> Any:
    return lab.paged.allocator.BlockAllocator(num_blocks)


def books(allocator: Any) -> dict[str, list[int]]:
    """What an allocator knows: two of these are equal where nothing has changed."""
    return {
        "references of the blocks": list(allocator.references),
        "free blocks": sorted(allocator.free_blocks),
    }


def in_use(allocator: Any) -> dict[int, int]:
    """Block -> references, of the blocks that have any."""
    return {block: held for block, held in enumerate(allocator.references) if held}


def check_all_free(allocator: Any, *, when: str) -> None:
    """Nobody holds a block, and each is on the free list."""
    __tracebackhide__ = True
    kept = in_use(allocator)
    assert not kept, f"{when}, nobody needs a block any more; not given back: {', '.join(map(str, kept))}"
    everything = list(range(1, allocator.num_blocks))
    check_equal(sorted(allocator.free_blocks), everything, name=f"the free blocks {when}")


def spoil(pool: Any) -> None:
    """NaN in every slot of every layer, the null block's too."""
    pool.keys[...] = float("nan")
    pool.values[...] = float("nan")


def pool_of(lab: Any, num_blocks: int, block_size: int, layers: int = LAYERS, dtype: str = "float32") -> Any:
    """A pool full of NaN."""
    config = SimpleNamespace(num_layers=layers, num_kv_heads=HKV, head_dim=D)
    kind = lab.array([0.0], dtype).dtype
    pool = lab.paged.pool.KvPool(config, num_blocks, block_size, dtype=kind, device=lab.device)
    spoil(pool)
    return pool


def normal(seed: int, *shape: int) -> np.ndarray:
    """Random numbers that float32 holds exactly."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(np.float64)


def blocks_needed(tokens: int, block_size: int) -> int:
    """How many blocks the tokens 0 … `tokens` − 1 touch."""
    return len({position // block_size for position in range(tokens)})


def slot_of(blocks: Sequence[int], position: int, block_size: int) -> int:
    """By counting: walk through the blocks, token by token."""
    places = [(block, place) for block in blocks for place in range(block_size)]
    block, place = places[position]
    return block * block_size + place


def filled(lab: Any, P: int, dtype: str = "float32") -> tuple[Any, np.ndarray, np.ndarray]:
    """A pool of random keys and values, and copies of them [layers, N, P, Hkv, D]."""
    pool = pool_of(lab, N, P, dtype=dtype)
    keys, values = normal(31, 2, LAYERS, N, P, HKV, D)
    pool.keys[...], pool.values[...] = lab.array(keys, dtype), lab.array(values, dtype)
    return pool, lab.numpy(pool.keys).astype(np.float64), lab.numpy(pool.values).astype(np.float64)


def written(old: np.ndarray, layer: int, slots: list[int], new: np.ndarray) -> np.ndarray:
    """The whole of the pool's keys or values after a write, block and place counted by hand."""
    pool = old.copy()
    P = old.shape[2]
    for slot, token in zip(slots, new, strict=True):
        pool[layer, slot // P, slot - slot // P * P] = token
    return pool


def through_blocks(old: np.ndarray, layer: int, slots: list[int], new: np.ndarray) -> np.ndarray:
    """What comes of indexing [N, P, Hkv, D] with slots: whole blocks are overwritten."""
    pool = old.copy()
    pool[layer][slots] = new
    return pool


class Account:
    """Who holds what, as a dictionary: block -> references. Every call goes to the allocator and is checked."""

    def __init__(self, lab: Any, num_blocks: int) -> None:
        self.lab = lab
        self.allocator = allocator_of(lab, num_blocks)
        self.held: dict[int, int] = {}

    def allocate(self, count: int) -> None:
        """Taken, if there are so many; refused if not."""
        free = self.allocator.num_blocks - 1 - len(self.held)
        if count > free:
            too_many = self.lab.paged.allocator.OutOfBlocks
            self._refused(too_many, "allocate", count, f"{count} blocks wanted, {free} free")
            return
        blocks = self.allocator.allocate(count)
        fresh = set(range(1, self.allocator.num_blocks)) - set(self.held)
        valid = len(set(blocks)) == len(blocks) == count and set(blocks) <= fresh
        assert valid, f"allocate({count}) gave {blocks}; the blocks that were free: {sorted(fresh)}"
        self.held |= dict.fromkeys(blocks, 1)
        self._check()

    def free(self, blocks: Sequence[int]) -> None:
        if self._not_held(blocks):
            self._refused(ValueError, "free", blocks, f"held are {self.held}")
            return
        self.allocator.free(blocks)
        for block in blocks:
            self.held[block] -= 1
        self.held = {block: held for block, held in self.held.items() if held}
        self._check()

    def share(self, blocks: Sequence[int]) -> None:
        if self._not_held(blocks):
            self._refused(ValueError, "share", blocks, f"held are {self.held}")
            return
        self.allocator.share(blocks)
        for block in blocks:
            self.held[block] += 1
        self._check()

    def pick(self, numbers: Sequence[int]) -> list[int]:
        """Blocks that are held, chosen by any numbers; none twice."""
        held = sorted(self.held)
        return list(dict.fromkeys(held[number % len(held)] for number in numbers)) if held else []

    def free_everything(self) -> None:
        """One reference after the other, until nobody holds anything."""
        while self.held:
            self.free(list(self.held))
        check_all_free(self.allocator, when="after every reference was given up")

    def _not_held(self, blocks: Sequence[int]) -> bool:
        return any(self.held.get(block, 0) < times for block, times in Counter(blocks).items())

    def _refused(self, error: type[Exception], method: str, argument: Any, why: str) -> None:
        before = books(self.allocator)
        name = f"{method}({argument}), where {why},"
        check_raises(error, lambda: getattr(self.allocator, method)(argument), name=name)
        check_equal(books(self.allocator), before, name=f"what the allocator knows after the refused {name}")

    def _check(self) -> None:
        check_equal(in_use(self.allocator), dict(sorted(self.held.items())), name="the blocks in use")
        free = [block for block in range(1, self.allocator.num_blocks) if block not in self.held]
        check_equal(sorted(self.allocator.free_blocks), free, name="the free blocks")
