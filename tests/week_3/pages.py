"""Allocators, pools and sequences as the tests handle them, and a plain account of who holds which page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from shared.numbers import normal
from week_1.numpy_model import HKV, D

from coursekit.check import check_equal, check_raises

PAGE_SIZES = (1, 3, 16)
LAYERS, N = 4, 7
UNUSED = "a place was read that holds no token of this sequence; the test has put NaN into all such places"


def allocator_of(lab: Any, num_pages: int) -> Any:
    return lab.paged.allocator.PageAllocator(num_pages)


def books(allocator: Any) -> dict[str, list[int]]:
    """What an allocator knows: two of these are equal where nothing has changed."""
    return {
        "references of the pages": list(allocator.references),
        "free pages": sorted(allocator.free_pages),
    }


def in_use(allocator: Any) -> dict[int, int]:
    """Page -> references, of the pages that have any."""
    return {page: held for page, held in enumerate(allocator.references) if held}


def check_all_free(allocator: Any, *, when: str) -> None:
    """No page is held, and each is on the free list."""
    __tracebackhide__ = True
    kept = in_use(allocator)
    assert not kept, f"{when}, no page is needed any more; not given back: {', '.join(map(str, kept))}"
    everything = list(range(1, allocator.num_pages))
    check_equal(sorted(allocator.free_pages), everything, name=f"the free pages {when}")


def spoil(pool: Any) -> None:
    """NaN in every place of every layer, the null page's too."""
    for keys, values in zip(pool.keys, pool.values, strict=True):
        for array in (keys, values):
            array[...] = float("nan")
            float(
                array[0, 0, 0, 0]
            )  # MLX writes when a number is asked for, and can't do so in another thread


def pool_of(lab: Any, num_pages: int, page_size: int, layers: int = LAYERS, dtype: str = "float32") -> Any:
    """A pool full of NaN."""
    config = SimpleNamespace(num_layers=layers, num_kv_heads=HKV, head_dim=D)
    kind = lab.array([0.0], dtype).dtype
    pool = lab.paged.pool.KvPool(config, num_pages, page_size, dtype=kind, device=lab.device)
    spoil(pool)
    return pool


def pages_needed(tokens: int, page_size: int) -> int:
    """How many pages the tokens 0 … `tokens` − 1 touch."""
    return len({position // page_size for position in range(tokens)})


def place_of(pages: Sequence[int], position: int, page_size: int) -> int:
    """By counting: walk through the pages, token by token."""
    tokens = [(page, offset) for page in pages for offset in range(page_size)]
    page, offset = tokens[position]
    return page * page_size + offset


def filled(lab: Any, P: int, dtype: str = "float32") -> tuple[Any, np.ndarray, np.ndarray]:
    """A pool of random keys and values, and copies of them [layers, N, P, Hkv, D]."""
    pool = pool_of(lab, N, P, dtype=dtype)
    keys, values = normal(31, 2, LAYERS, N, P, HKV, D)
    for layer in range(LAYERS):
        pool.keys[layer][...], pool.values[layer][...] = (
            lab.array(keys[layer], dtype),
            lab.array(values[layer], dtype),
        )
    return pool, *stored(lab, pool)


def stored(lab: Any, pool: Any) -> tuple[np.ndarray, np.ndarray]:
    """The keys and values of a pool, float64 [layers, N, P, Hkv, D]: MLX has them layer by layer."""
    keys, values = (
        np.stack([lab.numpy(layer) for layer in part]).astype(np.float64) for part in (pool.keys, pool.values)
    )
    return keys, values


def as_one(lab: Any, part: Any) -> Any:
    """The keys or the values of a pool as one array [layers, N, P, Hkv, D], in their own dtype."""
    if lab.is_array(part):
        return part
    return lab.array(np.stack([lab.numpy(layer) for layer in part]), lab.dtype(part[0]))


def written(old: np.ndarray, layer: int, places: list[int], new: np.ndarray) -> np.ndarray:
    """The whole of the pool's keys or values after a write, page and offset counted by hand."""
    pool = old.copy()
    P = old.shape[2]
    for place, token in zip(places, new, strict=True):
        pool[layer, place // P, place - place // P * P] = token
    return pool


def through_pages(old: np.ndarray, layer: int, places: list[int], new: np.ndarray) -> np.ndarray:
    """What comes of indexing [N, P, Hkv, D] with places: whole pages are overwritten."""
    pool = old.copy()
    pool[layer][places] = new
    return pool


class Account:
    """Who holds what, as a dictionary: page -> references. Every call goes to the allocator and is checked."""

    def __init__(self, lab: Any, num_pages: int) -> None:
        self.lab = lab
        self.allocator = allocator_of(lab, num_pages)
        self.held: dict[int, int] = {}

    def allocate(self, count: int) -> None:
        """Taken, if that number is free; refused if not."""
        free = self.allocator.num_pages - 1 - len(self.held)
        if count > free:
            too_many = self.lab.paged.allocator.OutOfPages
            self._refused(too_many, "allocate", count, f"{count} pages wanted, {free} free")
            return
        pages = self.allocator.allocate(count)
        fresh = set(range(1, self.allocator.num_pages)) - set(self.held)
        valid = len(set(pages)) == len(pages) == count and set(pages) <= fresh
        assert valid, f"allocate({count}) gave {pages}; the pages that were free: {sorted(fresh)}"
        self.held |= dict.fromkeys(pages, 1)
        self._check()

    def free(self, pages: Sequence[int]) -> None:
        if self._not_held(pages):
            self._refused(ValueError, "free", pages, f"held are {self.held}")
            return
        self.allocator.free(pages)
        for page in pages:
            self.held[page] -= 1
        self.held = {page: held for page, held in self.held.items() if held}
        self._check()

    def share(self, pages: Sequence[int]) -> None:
        if self._not_held(pages):
            self._refused(ValueError, "share", pages, f"held are {self.held}")
            return
        self.allocator.share(pages)
        for page in pages:
            self.held[page] += 1
        self._check()

    def pick(self, numbers: Sequence[int]) -> list[int]:
        """Pages that are held, chosen by any numbers; none twice."""
        held = sorted(self.held)
        return list(dict.fromkeys(held[number % len(held)] for number in numbers)) if held else []

    def free_everything(self) -> None:
        """One reference after the other, until no page is held."""
        while self.held:
            self.free(list(self.held))
        check_all_free(self.allocator, when="after every reference was given up")

    def _not_held(self, pages: Sequence[int]) -> bool:
        return any(self.held.get(page, 0) < times for page, times in Counter(pages).items())

    def _refused(self, error: type[Exception], method: str, argument: Any, why: str) -> None:
        before = books(self.allocator)
        name = f"{method}({argument}), where {why},"
        check_raises(error, lambda: getattr(self.allocator, method)(argument), name=name)
        check_equal(books(self.allocator), before, name=f"what the allocator knows after the refused {name}")

    def _check(self) -> None:
        check_equal(in_use(self.allocator), dict(sorted(self.held.items())), name="the pages in use")
        free = [page for page in range(1, self.allocator.num_pages) if page not in self.held]
        check_equal(sorted(self.allocator.free_pages), free, name="the free pages")
