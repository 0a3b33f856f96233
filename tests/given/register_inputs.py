"""Numbers for `register_cases.py`: of all sizes, with those at which rounding and signs show."""

from __future__ import annotations

import numpy as np

_EDGES = np.array(
    [
        0.0,
        0.5,
        1.5,
        2.5,
        1,
        3,
        127,
        8388607.5,
        2**23,
        2**24,
        2**31,
        1e-45,
        1e-40,
        2**-126,
        3.4e38,
        np.inf,
        np.nan,
    ],
    np.float32,
)
_TIES = np.array(
    [0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7F8000, 0x00008000, 0x00018000], np.uint32
)


def floats_of_all_kinds(seed: int) -> np.ndarray:
    """Float32 [1600]: edges with both signs, ties of bfloat16, any bits, and ordinary numbers, in random order."""
    random = np.random.default_rng(seed)
    any_bits = random.integers(0, 2**32, 600, dtype=np.uint32).view(np.float32)
    any_bits[np.isnan(any_bits)] = np.nan  # signaling ones may become quiet
    edges = np.tile(np.concatenate([_EDGES, -_EDGES, _TIES.view(np.float32)]), 10)
    ordinary = random.normal(size=1600 - 600 - len(edges)).astype(np.float32)
    return random.permutation(np.concatenate([any_bits, edges, ordinary]))


def finite(seed: int, count: int) -> np.ndarray:
    """Float32 [count], with exponents from −20 to 20."""
    random = np.random.default_rng(seed)
    return (random.normal(size=count) * 2.0 ** random.integers(-20, 20, count)).astype(np.float32)


def scattered(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b, c, float32 [1600] each: a · b lies at or near the middle of two float32, and c moves it by very little.

    Rounded to float64 first, a · b + c would be taken for the middle.
    """
    random = np.random.default_rng(seed)
    a = (1 + random.integers(0, 2**11, 1600) * 2.0**-11).astype(np.float32)
    b = (1 + random.integers(0, 2**12, 1600) * 2.0**-12 + 2.0**-12).astype(np.float32)
    c = random.choice([-1, 1], 1600) * 2.0 ** random.integers(-90, -40, 1600)
    sign = random.choice([-1, 1], 1600)
    return (a * sign).astype(np.float32), b, c.astype(np.float32)


def half_patterns() -> np.ndarray:
    """Uint16 [65536]: all there are."""
    return np.arange(65536, dtype=np.uint16)


def records(size: int) -> np.ndarray:
    """Uint8: records of ``size`` bytes, of which the last 32 are 16 float16; there are all float16."""
    stream = np.full((4096, size), 0xA5, np.uint8)
    stream[:, -32:] = half_patterns().view(np.uint8).reshape(4096, 32)
    return stream.reshape(-1)


def starts(count: int, most: int) -> np.ndarray:
    """Int64 [count]: from 0 to ``most``, in no order, some of them twice."""
    random = np.random.default_rng(count)
    return random.permutation(np.concatenate([[0, most, most], random.integers(0, most, count - 3)]))


def bytes_of_all_kinds(count: int) -> np.ndarray:
    """Uint8 [count]: random, with many 0, 15, 127, 128, 240 and 255."""
    random = np.random.default_rng(count)
    edges = random.choice(np.array([0, 15, 127, 128, 240, 255], np.uint8), count)
    return np.where(random.random(count) < 0.5, edges, random.integers(0, 256, count, dtype=np.uint8))


def counts() -> np.ndarray:
    """Of lanes, int64: none, some, all, and beyond."""
    return np.array([-(2**31), -1, *range(18), 100, 2**31 - 1])
