"""How much a step has to compute and to move, from the model's sizes, its weights, and the step's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.profiling.spans import ATTENTION, MATMUL, SAMPLING, SMALL

if TYPE_CHECKING:
    from tiny_llm.config import ModelConfig
    from tiny_llm.model import Transformer

FLOAT32 = 4
"""Bytes of a logit."""


@dataclass(frozen=True)
class Pass:
    """A run of the model over the new tokens of some sequences."""

    q_lens: tuple[int, ...]  # the new tokens of each
    kv_lens: tuple[int, ...]  # its tokens after the step

    @property
    def tokens(self) -> int:
        return sum(self.q_lens)

    @property
    def seen(self) -> int:
        """Pairs of a new token and a token that it sees: the last of them sees all, each one before it one less."""
        return sum(q * kv - q * (q - 1) // 2 for q, kv in zip(self.q_lens, self.kv_lens, strict=True))


@dataclass
class Work:
    """What a step ran the model on."""

    passes: list[Pass] = field(default_factory=list)
    head_rows: list[int] = field(default_factory=list)  # of each run of the head

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.passes)


@dataclass(frozen=True)
class Sizes:
    """What of a model its work depends on."""

    layers: int
    E: int
    H: int
    Hkv: int
    D: int
    F: int
    V: int
    block_bytes: int  # the projections of all layers
    head_bytes: int
    activation: int  # bytes of a number between the operations
    cached: int  # bytes of a number of a key or value

    @classmethod
    def of(cls, model: Transformer) -> Sizes:
        """The sizes of a model that is loaded."""
        config: ModelConfig = model.config
        weight = model.embedding.weight
        fast = any(hasattr(block, "parts") for block in model.blocks)
        return cls(
            config.num_layers,
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            config.feed_forward_size,
            config.vocab_size,
            sum(stored_bytes(each) for block in model.blocks for each in _projections(block)),
            stored_bytes(getattr(model.head, "__self__", model.head)),
            FLOAT32 if fast else weight.itemsize,
            weight.itemsize,
        )


def _projections(block: Any) -> list[Any]:
    holder = getattr(block, "parts", None)
    if holder is not None:
        return [holder.qkv, holder.out, holder.gate_up, holder.down]
    return [block.attention.qkv, block.attention.out, block.mlp.gate_up, block.mlp.down]


def stored_bytes(thing: Any) -> int:
    """The bytes of all tensors and arrays that an object holds, directly or in its parts."""
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if isinstance(thing, tuple):
        return sum(stored_bytes(each) for each in thing)
    if isinstance(thing, (int, float, str, bool)) or thing is None or not hasattr(thing, "__dict__"):
        return 0
    return sum(stored_bytes(each) for each in vars(thing).values())


@dataclass(frozen=True)
class Cost:
    """Arithmetic operations, and bytes that are read or written at least once."""

    operations: float
    bytes: float


def costs(sizes: Sizes, work: Work) -> dict[str, Cost]:
    """What each kind of operation has to do in a step; the host has no such number."""
    made = {kind: [0.0, 0.0] for kind in (MATMUL, ATTENTION, SMALL, SAMPLING)}
    for each in work.passes:
        for kind, cost in (
            (MATMUL, block_matmuls(sizes, each.tokens)),
            (ATTENTION, attention(sizes, each)),
            (SMALL, small_operations(sizes, each.tokens)),
        ):
            made[kind][0] += cost.operations
            made[kind][1] += cost.bytes
    for rows in work.head_rows:
        for kind, cost in ((MATMUL, head_matmul(sizes, rows)), (SAMPLING, sampling(sizes, rows))):
            made[kind][0] += cost.operations
            made[kind][1] += cost.bytes
    return {kind: Cost(*both) for kind, both in made.items()}


def block_matmuls(sizes: Sizes, tokens: int) -> Cost:
    """2 · T · weights operations; the weights once, and each projection's rows in and out."""
    pairs = (
        (sizes.E, (sizes.H + 2 * sizes.Hkv) * sizes.D),
        (sizes.H * sizes.D, sizes.E),
        (sizes.E, 2 * sizes.F),
        (sizes.F, sizes.E),
    )
    weights = sum(rows * columns for rows, columns in pairs)
    numbers = sum(rows + columns for rows, columns in pairs)
    moved = sizes.block_bytes + sizes.layers * tokens * numbers * sizes.activation
    return Cost(2 * sizes.layers * tokens * weights, moved)


def head_matmul(sizes: Sizes, rows: int) -> Cost:
    """2 · rows · E · V operations; the table once, states in and logits out."""
    return Cost(
        2 * rows * sizes.E * sizes.V,
        sizes.head_bytes + rows * (sizes.E * sizes.activation + sizes.V * FLOAT32),
    )


def attention(sizes: Sizes, step: Pass) -> Cost:
    """4 · H · D operations for each pair of tokens; keys and values once, the new ones
    written, queries and results.
    """
    operations = 4 * sizes.layers * sizes.H * sizes.D * step.seen
    cached = 2 * (sum(step.kv_lens) + step.tokens) * sizes.Hkv * sizes.D * sizes.cached
    rows = 2 * step.tokens * sizes.H * sizes.D * sizes.activation
    return Cost(operations, sizes.layers * (cached + rows))


def small_operations(sizes: Sizes, tokens: int) -> Cost:
    """Two norms (4·E each), rotation (3 per number), gate (5·F) and two additions (E) for each token and layer.

    Each reads its numbers and writes its results once.
    """
    E, F, rotated = sizes.E, sizes.F, (sizes.H + sizes.Hkv) * sizes.D
    operations = sizes.layers * (8 * E + 3 * rotated + 5 * F + 2 * E) + 4 * E
    numbers = sizes.layers * (4 * E + 2 * rotated + 3 * F + 6 * E) + 2 * E
    return Cost(tokens * operations, tokens * numbers * sizes.activation)


def sampling(sizes: Sizes, rows: int) -> Cost:
    """One operation per logit, which is read once."""
    return Cost(rows * sizes.V, rows * sizes.V * FLOAT32)


def pass_of(shape: Sequence[int], positions: Any, meta: Any) -> Pass:
    """What a call of ``model.hidden`` ran on.

    Args:
        shape: B, L of its tokens.
        positions: as it got them.
        meta: the metadata of a cache on pages, which know the sequences, or None.
    """
    if meta is not None:
        return Pass(tuple(later - earlier for earlier, later in pairwise(meta.starts)), tuple(meta.kv_lens))
    B, L = shape
    return Pass((L,) * B, tuple(_ends(positions, B)))


def _ends(positions: Any, B: int) -> list[int]:
    if isinstance(positions, slice):
        return [int(positions.stop)] * B
    if isinstance(positions, (list, tuple)):
        return [int(each.stop) for each in positions]
    ends = positions.reshape(-1, positions.shape[-1]).max(dim=-1).values + 1
    return [int(each) for each in ends.expand(B)]
