"""For the tests of 4-bit weights: weights to quantize, and GGUF's Q4_1 blocks taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = {
    "signed": "weights around 0",
    "negative": "weights that are all negative",
    "offset": "weights that are all positive and far from 0",
    "narrow": "weights so far from 0 that float16 rounds their minimum by more than a step",
    "constant": "groups of equal weights among others",
}
CONSTANT = (0.0, 0.7, -3.1, 1e-3, 2049.0)  # the last one, float16 rounds by 1


def weights(kind: str, rows: int, width: int) -> np.ndarray:
    """A matrix of one of the KINDS, float64 holding float32 numbers: neighboring groups have other ranges."""
    rng = np.random.default_rng([rows, width, *kind.encode()])
    spread = np.repeat(rng.uniform(0.05, 2, size=(rows, width // 4)), 4, axis=1)
    values = rng.normal(size=(rows, width)) * spread
    if kind == "negative":
        values = -np.abs(values) - 0.01
    elif kind == "offset":
        values = 60 + rng.uniform(size=(rows, width))
    elif kind == "narrow":
        values = 1000.2 + 3.2 * rng.uniform(size=(rows, width))
        values[::2] += 0.25
    elif kind == "constant":
        values[::2, : width // 2] = 0.3
    return values.astype(np.float32).astype(np.float64)


def nearest_codes(
    groups: np.ndarray, scales: np.ndarray, minima: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For weights [out, groups, G] the code of the nearest level, the lowest of equals, and where two are as near.

    "As near" leaves room for float32 rounding; where the scale is 0, all levels are one and the code should be 0.
    """
    levels = minima[..., None, None] + np.arange(16) * scales[..., None, None]
    distance = np.abs(groups[..., None] - levels)
    order = np.sort(distance, axis=-1)
    slack = 1e-4 * scales[..., None] + 1e-6 * np.abs(groups)
    tied = (order[..., 1] - order[..., 0] < slack) & (scales[..., None] > 0)
    return distance.argmin(axis=-1), tied


def q4_1_parts(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of Q4_1 blocks, uint8 [out, in/32 · 20]: nibbles [out, in/32, 16], scales and minima [out, in/32].

    A block is a float16 scale, a float16 minimum and 16 bytes of two codes each.
    """
    blocks = stored.reshape(len(stored), -1, 20)
    numbers = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
    return blocks[..., 4:], numbers[..., 0], numbers[..., 1]


def random_bytes(blocks: tuple[int, int]) -> np.ndarray:
    """Q4_1 rows [out, in/32 · 20] with any nibbles, and scales and minima of all sizes and both signs."""
    rng = np.random.default_rng(222)
    exponents = rng.integers(-24, 12, size=(*blocks, 2))  # the smallest are float16's subnormal numbers
    numbers = (rng.normal(size=(*blocks, 2)) * 2.0**exponents).astype(np.float16)
    nibbles = rng.integers(256, size=(*blocks, 16)).astype(np.uint8)
    return np.concatenate((numbers.view(np.uint8), nibbles), axis=-1).reshape(blocks[0], -1)


def as_quantized(lab: Any, nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> Any:
    """A QuantizedTensor of these parts."""
    return lab.quantize.QuantizedTensor(
        lab.array(nibbles, "uint8"), lab.array(scales, "float16"), lab.array(minima, "float16")
    )


def bits(values: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers, as integers."""
    return np.ascontiguousarray(values, np.float32).view(np.int32)
