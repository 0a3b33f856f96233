"""The pool of Day 3.1 takes memory as pages are written to, not when it is made."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tiny_llm.paged.pool import KvPool

CONFIG: Any = SimpleNamespace(num_layers=3, num_kv_heads=2, head_dim=32)
STATM = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not STATM.exists(), reason="only Linux tells how much of its memory a process has")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pool_takes_memory_only_for_what_is_written(dtype: torch.dtype) -> None:
    page_size = 16
    per_page = KvPool(CONFIG, 1, page_size, dtype).nbytes
    before = resident()
    pool = KvPool(CONFIG, 2**29 // per_page, page_size, dtype)
    made = resident() - before
    pool.keys[0, :4] = 1
    assert pool.nbytes > 2**28
    assert made < pool.nbytes / 8, (
        f"a pool of {pool.nbytes:,} bytes took {made:,} before anything was written"
    )
    assert resident() - before < pool.nbytes / 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_pages", [0, 1, 5])
def test_its_places_hold_zeros_and_each_array_has_its_own(dtype: torch.dtype, num_pages: int) -> None:
    pool, other = (KvPool(CONFIG, num_pages, 3, dtype) for _ in range(2))
    shape = (CONFIG.num_layers, num_pages, 3, CONFIG.num_kv_heads, CONFIG.head_dim)
    assert tuple(pool.keys.shape) == tuple(pool.values.shape) == shape
    assert (pool.keys.dtype, pool.values.dtype) == (dtype, dtype)
    pool.keys.fill_(1)
    assert not any(array.any() for array in (pool.values, other.keys, other.values))
