"""The weights of a model, laid out for the kernels, and what they don't compute (Day 4.7, given code)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.vectors import LANES
from tiny_llm.fast.weights8 import LaidOut, lay_out_4_bits, lay_out_8_bits
from tiny_llm.layers import Linear, Projection, RMSNorm
from tiny_llm.model import Transformer, TransformerBlock
from tiny_llm.quantize import DequantizedMatmul, QuantizedLinear

HEAD_MULTIPLE = 32
"""What the size of a head is a multiple of: its two halves fill registers."""
AS_IT_IS = "use this model as it is, without fast=True"


class HeadNorms(NamedTuple):
    """The norms of query and key heads, of a model that has them."""

    query: np.ndarray  # float32 [D], or [0]
    key: np.ndarray
    eps: np.float32


Matrix = TypeVar("Matrix")
"""A projection's weights, as a form has them: :class:`LaidOut`, or packed."""


class Parts(NamedTuple, Generic[Matrix]):
    """The weights of a block."""

    attention_norm: np.ndarray  # float32 [E]
    attention_eps: np.float32
    qkv: Matrix
    heads: HeadNorms
    shape: tuple[int, int, int]  # H, Hkv, D
    out: Matrix
    mlp_norm: np.ndarray
    mlp_eps: np.float32
    gate_up: Matrix
    down: Matrix


def require_head(size: int) -> None:
    """Check the size of a head.

    Raises:
        ValueError: there are no kernels for it.
    """
    if size % HEAD_MULTIPLE:
        raise ValueError(
            f"a head has {size} numbers, and the fast kernels need a multiple of {HEAD_MULTIPLE}: {AS_IT_IS}"
        )


def require_sizes(name: str, outputs: int, width: int) -> None:
    """Check the sizes of a matrix.

    Raises:
        ValueError: there are no kernels for them.
    """
    if outputs % LANES or width % GROUP:
        raise ValueError(
            f"{name} is a matrix of {outputs} × {width}, and the fast kernels need a multiple of {LANES} × "
            f"a multiple of {GROUP}: {AS_IT_IS}"
        )


def laid_out(name: str, projection: Projection) -> LaidOut:
    """A projection's matrix in 4 bits; the kernels add a bias of qkv alone."""
    held = getattr(projection, "weight", None)
    weight = held if isinstance(held, LaidOut) else _lay_out(name, projection)
    if len(weight.bias) and not name.startswith("qkv"):
        raise ValueError(f"{name} has a bias, and the fast kernels add that of qkv alone: {AS_IT_IS}")
    return weight


def _lay_out(name: str, projection: Projection) -> LaidOut:
    if not isinstance(projection, QuantizedLinear) or not isinstance(projection.multiply, DequantizedMatmul):
        raise ValueError(
            f"{name} isn't in 4 bits as it was loaded: load the model with load_weights(…, bits=4, matmul='plain')"
        )
    weight = projection.multiply.weight
    if weight.group_size != GROUP:
        raise ValueError(
            f"{name} is in groups of {weight.group_size}, and the fast kernels need groups of {GROUP}: quantize it so"
        )
    require_sizes(name, *weight.shape)
    return lay_out_4_bits(weight, projection.bias)


def table_of(model: Transformer) -> LaidOut:
    """The embedding's table, laid out in 8 bits."""
    return _table("the embedding", model.embedding.weight)


def head_of(model: Transformer) -> LaidOut:
    """The matrix of a head that isn't the embedding's, laid out in 8 bits.

    Raises:
        ValueError: it isn't a Linear without bias, or there are no kernels for its sizes.
    """
    if not isinstance(model.head, Linear) or model.head.bias is not None:
        raise ValueError(
            f"the head isn't a Linear without bias, and the fast kernels have no other: {AS_IT_IS}"
        )
    return _table("the head", model.head.weight)


def _table(name: str, weight: Tensor) -> LaidOut:
    require_sizes(name, *weight.shape)
    return lay_out_8_bits(weight)


def _norm(norm: RMSNorm | None) -> np.ndarray:
    return np.zeros(0, np.float32) if norm is None else norm.weight.float().numpy()


def _head_norms(name: str, query: RMSNorm | None, key: RMSNorm | None) -> HeadNorms:
    eps = {norm.eps for norm in (query, key) if norm is not None} or {0.0}
    if len(eps) > 1:
        raise ValueError(
            f"{name}: the norms of queries and keys differ in eps, the fast kernels have one: {AS_IT_IS}"
        )
    return HeadNorms(_norm(query), _norm(key), np.float32(eps.pop()))


def parts_of(model: Transformer) -> list[Parts[LaidOut]]:
    """The weights of each block, laid out in 4 bits.

    Raises:
        ValueError: the model is fast already, or has a part that the fast kernels compute otherwise.
    """
    return parts_in(model, laid_out)


def parts_in(model: Transformer, matrix: Callable[[str, Projection], Matrix]) -> list[Parts[Matrix]]:
    """The weights of each block in any form.

    Args:
        matrix: gives what the form makes of a projection, whose name it gets for its messages.

    Raises:
        ValueError: as :func:`parts_of`, or as ``matrix`` does.
    """
    return [_parts(f"block {i}", block, matrix) for i, block in enumerate(model.blocks)]


def _parts(name: str, block: TransformerBlock, matrix: Callable[[str, Projection], Matrix]) -> Parts[Matrix]:
    if not isinstance(block, TransformerBlock):
        raise ValueError(
            f"{name} isn't a TransformerBlock: accelerate the model as it was loaded, and only once"
        )
    attention, mlp = block.attention, block.mlp
    if block.attention_norm.weight.device.type != "cpu":
        raise ValueError(
            "the fast kernels are for the CPU, and this model isn't there: load it with device='cpu'"
        )
    if attention.rope.interleaved:
        raise ValueError(
            f"{name} rotates interleaved pairs, the fast kernels pairs of two halves: {AS_IT_IS}"
        )
    require_head(attention.head_dim)
    return Parts(
        _norm(block.attention_norm),
        np.float32(block.attention_norm.eps),
        matrix(f"qkv of {name}", attention.qkv),
        _head_norms(name, attention.query_norm, attention.key_norm),
        (attention.num_heads, attention.num_kv_heads, attention.head_dim),
        matrix(f"out of {name}", attention.out),
        _norm(block.mlp_norm),
        np.float32(block.mlp_norm.eps),
        matrix(f"gate_up of {name}", mlp.gate_up),
        matrix(f"down of {name}", mlp.down),
    )
