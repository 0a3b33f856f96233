"""Memory that the blocks of a fast model use, one after the other (Day 4.7, given code)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiny_llm.fast.parts import Parts
from tiny_llm.fast.rows8 import Rows8, make_rows8
from tiny_llm.positional_encoding import Angles


class Room(NamedTuple):
    """Memory that all blocks use, one after the other."""

    rows: Rows8
    qkv: np.ndarray  # float32 [T·(H + 2·Hkv)·D]
    query: np.ndarray  # float32 [T·H·D]
    key: np.ndarray  # float32 [T·Hkv·D]
    value: np.ndarray
    heads: np.ndarray  # float32 [T·H·D], what attention gives
    lse: np.ndarray  # float32 [T·H]
    gate_up: np.ndarray  # float32 [T·2·F]


def make_room(parts: Parts, tokens: int) -> Room:
    """Room for steps of so many tokens."""
    H, Hkv, D = parts.shape

    def numbers(width: int) -> np.ndarray:
        return np.zeros(tokens * width, np.float32)

    widest = max(parts.qkv.width, parts.out.width, parts.down.width)
    return Room(
        make_rows8(tokens * widest),
        numbers(parts.qkv.outputs),
        numbers(H * D),
        numbers(Hkv * D),
        numbers(Hkv * D),
        numbers(H * D),
        numbers(H),
        numbers(parts.gate_up.outputs),
    )


class Rooms:
    """The memory that all blocks of a model use: enough for the largest step so far."""

    def __init__(self, parts: Parts) -> None:
        """Nothing yet; ``parts`` are those of any block."""
        self.parts = parts
        self.tokens = 0
        self.angles: Angles | None = None

    def room(self, tokens: int) -> Room:
        """Room for a step of so many tokens, or more."""
        if tokens > self.tokens:
            self.tokens, self.newest = tokens, make_room(self.parts, tokens)
        return self.newest

    def tables(self, angles: Angles, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """The angles of a step, cos and sin, float32 [rows · length · D/2]: all blocks get the same.

        Raises:
            ValueError: as :meth:`tiny_llm.positional_encoding.RoPE.rotate` does.
        """
        if angles is not self.angles:
            given = angles[0].shape[:2]
            if given[0] not in (1, rows):
                raise ValueError(f"positions were given for {given[0]} rows; there are {rows}")
            if given[1] != length:
                raise ValueError(f"{given[1]} positions were given for {length} tokens")
            self.angles = angles
            self.cos, self.sin = (
                table.expand(rows, -1, -1, -1).reshape(-1).contiguous().numpy() for table in angles
            )
        return self.cos, self.sin
