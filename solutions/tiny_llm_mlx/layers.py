"""The parts of a transformer block that are not attention (Day 1.4)."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from .attention import linear

Projection = Callable[[mx.array], mx.array]
"""Anything that maps [..., in] to [..., out]: a Linear today, one with packed or quantized weights later."""


class Linear:
    """A weight matrix [out, in] with an optional bias [out]; calling it multiplies."""

    def __init__(self, weight: mx.array, bias: mx.array | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: mx.array) -> mx.array:
        """[..., in] → [..., out]."""
        return linear(x, self.weight, self.bias)


class RMSNorm:
    """Scale each vector to a root mean square of 1, then by a learned weight.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
    """

    def __init__(self, weight: mx.array, eps: float = 1e-6) -> None:
        """Hold the weight [E] and eps, which keeps a vector of zeros from being divided by zero."""
        self.weight = weight
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        """x · weight / √(mean(x²) + eps), over the last axis.

        Args:
            x: [..., E].

        Returns:
            [..., E], in the dtype of ``x``. The squares, their mean and the root are computed in float32.
        """
        wide = x.astype(mx.float32)
        mean_square = wide.square().mean(axis=-1, keepdims=True)
        return (wide * mx.rsqrt(mean_square + self.eps) * self.weight).astype(x.dtype)


def silu(x: mx.array) -> mx.array:
    """x · sigmoid(x), element by element; any shape, same dtype. Source: Hendrycks and Gimpel 2016."""
    return x * mx.sigmoid(x)


class MLP:
    """The feed-forward part of a block, SwiGLU: down(silu(gate(x)) · up(x)).

    The gate and up projections lie in one matrix, so that one call computes both.

    Source: Shazeer 2020, "GLU Variants Improve Transformer".
    """

    def __init__(self, gate_up: Projection, down: Projection) -> None:
        """Hold the projections.

        Args:
            gate_up: [..., E] → [..., 2·F]; the first F outputs are the gate's, the last F are up's.
            down: [..., F] → [..., E].
        """
        self.gate_up = gate_up
        self.down = down

    def __call__(self, x: mx.array) -> mx.array:
        """[..., E] → [..., E]."""
        gate, up = mx.split(self.gate_up(x), 2, axis=-1)
        return self.down(silu(gate) * up)


class Embedding:
    """A table with one vector for each token of the vocabulary."""

    def __init__(self, weight: mx.array) -> None:
        """Hold the table [V, E]."""
        self.weight = weight

    def __call__(self, token_ids: mx.array) -> mx.array:
        """Look up: integer ids of any shape [...] → vectors [..., E]."""
        return self.weight[token_ids]

    def as_linear(self, x: mx.array) -> mx.array:
        """Use the same table as the output head: [..., E] → one score for each token [..., V]."""
        return linear(x, self.weight)
