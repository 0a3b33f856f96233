"""For Day 4.7: matrices of floats in 8 bits, in float64, and what usual mistakes make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_2.packed import on_cpu, rounded_to_bfloat16

from coursekit.check import check

from .eight_bits import AWAY, TRUNCATED, UP, float32, in_steps
from .records import GROUP, Coded, check_records


def in_groups(weights: np.ndarray) -> np.ndarray:
    """[N, K] → [N, K/32, 32]."""
    return weights.reshape(len(weights), -1, GROUP)


def scales_of(weights: np.ndarray) -> np.ndarray:
    """The scales of weights [N, K], [N, K/32]."""
    return float32(np.abs(in_groups(weights)).max(axis=-1) / 127).astype(np.float16).astype(np.float64)


def counted(weights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Weights in steps of their scale, not yet rounded, [N, K]."""
    return in_steps(in_groups(weights), scales).reshape(weights.shape)


def random_weights(outputs: int, width: int, dtype: str = "float32") -> np.ndarray:
    """Weights of both signs that the dtype holds, float64 [N, K]: each group of its own size, none near halfway."""
    rng = np.random.default_rng([outputs, width])
    sizes = 10.0 ** rng.uniform(-2, 1, size=(outputs, width // GROUP))
    weights = (0.3 + rng.normal(size=(outputs, width))) * np.repeat(sizes, GROUP, axis=1)
    weights = rounded_to_bfloat16(weights) if dtype == "bfloat16" else float32(weights)
    return np.where(np.abs(counted(weights, scales_of(weights)) % 1 - 0.5) < 1e-4, 0, weights)


def in_8_bits(weights: np.ndarray) -> Coded:
    """Weights [N, K] with the nearest of 255 levels each."""
    scales = scales_of(weights)
    counts = np.clip(np.rint(counted(weights, scales)), -127, 127)
    return Coded((counts + 128).astype(np.uint8), scales, -128 * scales, 8)


def check_table(lab: Any, weights: np.ndarray, name: str, dtype: str = "float32") -> None:
    """Require that lay_out_8_bits gives each weight its nearest level."""
    __tracebackhide__ = True
    laid = lab.fast.weights8.lay_out_8_bits(on_cpu(lab, weights, dtype))
    expected, wrong = in_8_bits(weights), suspects(weights)
    check_records(laid, expected, name, **wrong)
    check(laid.bias, np.zeros(0), name=f"the bias of {name}", framework="numpy")


def suspects(weights: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """What usual mistakes give: for codes, scales and minima, by mistake."""
    right, groups = in_8_bits(weights), in_groups(weights)
    counts, peaks = counted(weights, right.scales), np.abs(groups).max(axis=-1)
    inside = np.clip(counts, -127, 127)
    levels = {
        TRUNCATED: np.trunc(inside),
        UP: np.floor(inside + 0.5),
        AWAY: np.copysign(np.floor(np.abs(inside) + 0.5), inside),
        "weights are counted in steps of the scale before it is rounded: the rounded one will be read": np.clip(
            np.rint(counted(weights, peaks / 127)), -127, 127
        ),
        "numbers beyond 127 are not kept within −127 … 127": np.rint(counts),
        "numbers are kept within −128 … 127, not −127 … 127": np.clip(np.rint(counts), -128, 127),
        "they are the numbers from −127 to 127: codes lie 128 higher": right.codes - 128.0,
        "code 127 stands for 0: it is 128": right.codes - 129.0,
    }
    spread = groups.max(axis=-1) - groups.min(axis=-1)
    scales = {
        "it is the largest magnitude / 128, not / 127": peaks / 128,
        "the levels go from the smallest to the largest weight: they lie evenly around 0": spread / 255,
        "the largest weight is taken, not the largest magnitude": groups.max(axis=-1) / 127,
    }
    return {
        "codes": {
            why: ((each + 128).astype(np.int64) & 255).astype(np.uint8) for why, each in levels.items()
        },
        "scales": {why: each.astype(np.float16).astype(np.float64) for why, each in scales.items()},
        "minima": {
            "it is −127 · scale: code 128 stands for 0": (-127 * right.scales).astype(np.float16),
            "it is the smallest weight: the levels lie evenly around 0": groups.min(axis=-1).astype(
                np.float16
            ),
        },
    }
