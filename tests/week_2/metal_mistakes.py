"""What usual mistakes in a Metal kernel for 4-bit weights give, in float64 (Day 2.3 with MLX)."""

from __future__ import annotations

import numpy as np

from .packed import Matrix

SIMD = 32


def row_mistakes(matrix: Matrix, x: np.ndarray) -> dict[str, np.ndarray]:
    """What each mistake makes of x [..., in] · Wᵀ."""
    size, groups, outputs = matrix.group_size, matrix.scales.shape[1], len(matrix.codes)
    halves = matrix.codes.reshape(outputs, groups, 2, size // 2)
    neighbors = halves.swapaxes(2, 3).reshape(outputs, -1)
    exchanged = halves[:, :, ::-1].reshape(outputs, -1)
    scales, minima = (np.repeat(part, size, axis=1) for part in (matrix.scales, matrix.minima))
    share = matrix.values * (lane_of_inputs(matrix) == 0)
    first_bytes = matrix.values * (byte_of_inputs(matrix) < SIMD)
    weights = {
        "the low and the high codes are exchanged": matrix.with_parts(codes=exchanged).values,
        "byte j of a group holds inputs j and j + G/2, not 2j and 2j + 1": matrix.with_parts(
            codes=neighbors
        ).values,
        "every group is scaled like the first: which group a byte belongs to depends on G/2": (
            matrix.scaled_like_the_first_group().values
        ),
        "the minima are left out": matrix.codes * scales,
        "the scales are left out": matrix.codes + minima,
        "the minimum is multiplied by the scale, too": (matrix.codes + minima) * scales,
        "only the share of the first thread counts: add up over the 32 threads with simd_sum": share,
        "only the first 32 bytes of each output count: thread k takes the bytes k + 32, k + 64, … too": first_bytes,
        "every output has the weights of the first": np.repeat(matrix.values[:1], outputs, axis=0),
    }
    found = {mistake: x @ wrong.T for mistake, wrong in weights.items()}
    found["the sum is added up 32 times: by simd_sum, and over the threads once more"] = SIMD * (
        x @ matrix.values.T
    )
    return found


def byte_of_inputs(matrix: Matrix) -> np.ndarray:
    """[in]: which byte of an output's row holds each input."""
    half = matrix.group_size // 2
    group, place = np.divmod(np.arange(matrix.codes.shape[1]), matrix.group_size)
    return group * half + place % half


def lane_of_inputs(matrix: Matrix) -> np.ndarray:
    """[in]: which thread of a simdgroup has each input."""
    return byte_of_inputs(matrix) % SIMD
