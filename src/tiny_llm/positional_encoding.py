"""Rotary position embeddings (Days 1.2 and 2.6).

Each pair of numbers in a head is turned by an angle that grows with the token's position. The score of a
query and a key then depends only on how far apart their tokens are.

Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Positions = slice | list[slice] | Tensor
Angles = tuple[Tensor, Tensor]


def rope_tables(
    head_dim: int, max_positions: int, base: float, divisors: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The cosine and sine of every angle that can occur.

    Pair i (of D/2) at position p is turned by p · base^(−2i/D) radians, or by p · base^(−2i/D) / divisors[i].

    Args:
        head_dim: D, even.
        max_positions: how many positions, from 0.
        base: the larger it is, the more slowly the later pairs turn: 10,000 in the paper, up to 1,000,000 in newer
            models.
        divisors: D/2 numbers by which the frequencies are divided, one for each pair (Llama 3.1 and later); None
            leaves the frequencies as they are.

    Returns:
        cos and sin, NumPy float32 [max_positions, D/2] each. The angles are computed in float64: in float32 they
        would be visibly off after some thousand positions.
    """
    raise NotImplementedError("Week 1 Day 2 Task 1: The table of angles")


def rotate_half_split(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]): the pairing of Llama and Qwen weights as Hugging Face stores them.

    (a, b) becomes (a·cos − b·sin, b·cos + a·sin).

    Args:
        x: [B, L, H, D].
        cos: of a shape that broadcasts to [B, L, H, D/2]; sin likewise.

    Returns:
        [B, L, H, D], in the dtype of ``x``.
    """
    raise NotImplementedError("Week 1 Day 2 Task 2: Rotate, half-split")


def rotate_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[2i], x[2i + 1]): the pairing of the paper, and of Llama weights as Meta stores them.

    Arguments and result are those of :func:`rotate_half_split`.
    """
    raise NotImplementedError("Week 1 Day 2 Task 3: Rotate, interleaved")


class RoPE:
    """Rotary position embedding with its table of angles.

    ``positions`` says where the new tokens stand, in one of three ways:

    - a slice: one sequence; ``slice(5, 8)`` says that L = 3 new tokens stand at 5, 6 and 7;
    - a list of slices: one for each of B rows;
    - an integer array [L] or [B, L]: any position for any token.
    """

    def __init__(
        self,
        head_dim: int,
        max_positions: int,
        base: float = 10000.0,
        interleaved: bool = False,
        device: torch.device | str | None = None,
        divisors: Sequence[float] | None = None,
    ) -> None:
        """Compute the table.

        Args:
            head_dim: D, even.
            max_positions: positions 0 … max_positions − 1 can be asked for.
            base: see :func:`rope_tables`.
            interleaved: True for the interleaved pairing, False for half-split.
            device: where the table lies.
            divisors: see :func:`rope_tables`.
        """
        self.max_positions = max_positions
        self.interleaved = interleaved
        cos, sin = rope_tables(head_dim, max_positions, base, divisors)
        self.cos = torch.as_tensor(cos, device=device)
        self.sin = torch.as_tensor(sin, device=device)

    def __call__(self, x: Tensor, positions: Positions) -> Tensor:
        """Turn ``x`` [B, L, H, D] by the angles of ``positions``; see :meth:`angles` and :meth:`rotate`."""
        return self.rotate(x, self.angles(positions))

    def angles(self, positions: Positions) -> Angles:
        """Look up cos and sin, once for all the layers of a model.

        Returns:
            cos and sin, float32 [1 or B, L, 1, D/2] each.

        Raises:
            ValueError: a slice doesn't lie within 0 … ``max_positions``, or a list's slices differ in length.
        """
        if isinstance(positions, slice):
            return self._angles_for_slice(positions)
        if isinstance(positions, list):
            return self._angles_for_rows(positions)
        return self._angles_for_tokens(positions)

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        """Turn ``x`` [B, L, H, D] by ``angles`` in this object's pairing.

        Raises:
            ValueError: there are not as many positions as tokens, or ``angles`` has neither 1 row nor B rows.
        """
        cos, sin = angles
        if cos.shape[0] not in (1, x.shape[0]):
            raise ValueError(f"positions were given for {cos.shape[0]} rows; there are {x.shape[0]}")
        if cos.shape[1] != x.shape[1]:
            raise ValueError(f"{cos.shape[1]} positions were given for {x.shape[1]} tokens")
        return rotate_interleaved(x, cos, sin) if self.interleaved else rotate_half_split(x, cos, sin)

    def _angles_for_slice(self, positions: slice) -> Angles:
        """cos and sin [1, L, 1, D/2] for one run of positions, which may be empty; without a start it begins at 0.

        Raises:
            ValueError: the slice doesn't lie within the table's positions.
        """
        raise NotImplementedError("Week 1 Day 2 Task 4: A run of positions")

    def _angles_for_rows(self, positions: list[slice]) -> Angles:
        """cos and sin [B, L, 1, D/2]: row b stands at ``positions[b]``, a run as in :meth:`_angles_for_slice`.

        Raises:
            ValueError: a slice doesn't lie within the table's positions, or the slices differ in length.
        """
        raise NotImplementedError("Week 2 Day 6 Task 1: RoPE and masks for a batch")

    def _angles_for_tokens(self, positions: Tensor) -> Angles:
        """cos and sin [1 or B, L, 1, D/2] for an integer array [L] or [B, L]."""
        rows = positions if positions.ndim == 2 else positions[None]
        return self.cos[rows][:, :, None], self.sin[rows][:, :, None]
