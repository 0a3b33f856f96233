"""For the tests of the quantized matmul: 4-bit matrices a second time, laid out for the kernels entry by entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK = 64
HALF = 32

# out, groups, G. The last block is part full, nearly full, full, just begun; one matrix is as wide as the model's.
SHAPES = [(1, 5, 4), (63, 3, 4), (64, 2, 32), (65, 3, 32), (130, 2, 64), (80, 18, 32)]


@dataclass(frozen=True)
class Matrix:
    """A matrix [out, in] in 4 bits, its parts apart; the scales and minima are numbers that float16 holds."""

    codes: np.ndarray  # uint8 [out, in]
    scales: np.ndarray  # float64 [out, groups]
    minima: np.ndarray  # float64 [out, groups]

    @property
    def group_size(self) -> int:
        return self.codes.shape[1] // self.scales.shape[1]

    @property
    def blocks(self) -> int:
        return math.ceil(len(self.codes) / BLOCK)

    @property
    def values(self) -> np.ndarray:
        """The weights, float64 [out, in]."""
        scales, minima = (np.repeat(part, self.group_size, axis=1) for part in (self.scales, self.minima))
        return self.codes * scales + minima

    def tensor(self, lab: Any) -> Any:
        """The QuantizedTensor of Day 2.2, on the CPU: the kernels are there."""
        halves = self.codes.reshape(*self.scales.shape, 2, self.group_size // 2)
        nibbles = halves[:, :, 0] + 16 * halves[:, :, 1]
        parts = ((nibbles, "uint8"), (self.scales, "float16"), (self.minima, "float16"))
        return lab.quantize.QuantizedTensor(*(on_cpu(lab, part, dtype) for part, dtype in parts))

    def packed(self, beyond: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Nibbles, scales and minima in blocks; `beyond` are the scales and minima of outputs that don't exist."""
        (outputs, width), groups = self.codes.shape, self.scales.shape[1]
        nibbles = np.zeros((self.blocks, width, HALF), np.uint8)
        scales, minima = np.full((2, self.blocks, groups, BLOCK), beyond, np.float32)
        for output in range(outputs):
            block, place = divmod(output, BLOCK)
            nibbles[block, :, place % HALF] += self.codes[output] << (4 if place >= HALF else 0)
            scales[block, :, place] = self.scales[output]
            minima[block, :, place] = self.minima[output]
        return nibbles, scales, minima

    def in_blocks(self) -> np.ndarray:
        """The weights as the kernels hold them, float64 [blocks, in, 64], 0 for outputs that don't exist."""
        filled = np.zeros((self.blocks * BLOCK, self.codes.shape[1]))
        filled[: len(self.codes)] = self.values
        return np.stack([block.T for block in np.split(filled, self.blocks)])

    def times(self, x: np.ndarray) -> np.ndarray:
        """x [..., in] · Wᵀ in float64, with zeros up to a whole block: [..., blocks · 64]."""
        out = np.zeros((*x.shape[:-1], self.blocks * BLOCK))
        out[..., : len(self.codes)] = x @ self.values.T
        return out

    def with_parts(
        self,
        codes: np.ndarray | None = None,
        scales: np.ndarray | None = None,
        minima: np.ndarray | None = None,
    ) -> Matrix:
        """The same with other parts, to show what a mistake gives."""
        return Matrix(
            self.codes if codes is None else codes,
            self.scales if scales is None else scales,
            self.minima if minima is None else minima,
        )

    def scaled_like_the_first_group(self) -> Matrix:
        """Every group has the scale and the minimum of its output's first group."""
        groups = self.scales.shape[1]
        scales, minima = (np.repeat(part[:, :1], groups, axis=1) for part in (self.scales, self.minima))
        return self.with_parts(scales=scales, minima=minima)

    def halves_swapped(self) -> Matrix:
        """Outputs j and j + 32 of each block have each other's codes."""
        filled = np.zeros((self.blocks * BLOCK, self.codes.shape[1]), np.uint8)
        filled[: len(self.codes)] = self.codes
        swapped = filled.reshape(self.blocks, 2, HALF, -1)[:, ::-1].reshape(filled.shape)
        return self.with_parts(codes=swapped[: len(self.codes)])


def random_matrix(outputs: int, groups: int, size: int) -> Matrix:
    """All codes, minima of both signs, scales and minima that differ from group to group."""
    rng = np.random.default_rng([outputs, groups, size])
    codes = rng.integers(16, size=(outputs, groups * size)).astype(np.uint8)
    scales = rng.uniform(0.02, 0.2, size=(outputs, groups)).astype(np.float16)
    minima = rng.normal(size=(outputs, groups)).astype(np.float16)
    return Matrix(codes, scales.astype(np.float64), minima.astype(np.float64))


def random_rows(*shape: int) -> np.ndarray:
    """Inputs of both signs whose sum isn't 0, as float32 numbers in float64."""
    rng = np.random.default_rng(shape)
    return (0.3 + rng.normal(size=shape)).astype(np.float32).astype(np.float64)


def rounded_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """The nearest number with 8 bits, the even one of two that are as near."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 256), exponent - 8)


def on_cpu(lab: Any, x: np.ndarray, dtype: str = "float32") -> Any:
    """An array on the CPU, whatever device the tests run on; MLX's belong to no device."""
    array = lab.array(x, dtype)
    return array if lab.backend == "mlx" else array.to("cpu")
