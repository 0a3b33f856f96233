"""What Day 4.7's kernels don't compute is refused in one line, by name: nothing is left out silently."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fast_models import POSITIONS, small_model

from tiny_llm.fast.accelerate import accelerate
from tiny_llm.fast.attend import TiledAttention
from tiny_llm.fast.float_model import accelerate_floats
from tiny_llm.fast.parts import require_sizes
from tiny_llm.kernels.quantized_matmul_cpu import KernelMatmul
from tiny_llm.kv_cache import DenseCache, FullKvCache, NoCache
from tiny_llm.layers import Linear, RMSNorm
from tiny_llm.model import Transformer
from tiny_llm.quantize import QuantizedLinear, QuantizedTensor, dequantize, quantize

FAMILY = "two, and biases"


WAYS = {"8-bit": (accelerate, None), "floats": (accelerate_floats, torch.float32)}
"""What makes a model fast, and the dtype of the model that it takes; None for weights in 4 bits."""


def message(model: Transformer, way: str = "8-bit") -> str:
    with pytest.raises(ValueError, match=r"^[^\n]+: [^\n]+$") as found:  # what to do stands behind the colon
        WAYS[way][0](model)
    return str(found.value)


@pytest.mark.parametrize("name", ["out", "gate_up", "down"])
def test_a_bias_that_no_kernel_adds(name: str) -> None:
    model = small_model(FAMILY)
    part: Any = model.blocks[1].attention if name == "out" else model.blocks[1].mlp
    linear = getattr(part, name)
    linear.bias = torch.zeros(linear.multiply.weight.shape[0])
    assert f"{name} of block 1 has a bias" in message(model)


def test_a_projection_that_is_not_in_4_bits() -> None:
    model = small_model(FAMILY)
    mlp: Any = model.blocks[0].mlp
    mlp.down = Linear(dequantize(mlp.down.multiply.weight))
    assert "down of block 0 isn't in 4 bits" in message(model)


def test_a_projection_that_was_prepared_for_another_way_to_multiply() -> None:
    model = small_model(FAMILY)
    mlp: Any = model.blocks[0].mlp
    mlp.down = QuantizedLinear(mlp.down.multiply.weight, matmul=OtherMatmul)
    assert "down of block 0 isn't in 4 bits as it was loaded" in message(model)


class OtherMatmul(KernelMatmul):
    """Another way, which has kept the weight as it was, too."""

    def __init__(self, weight: QuantizedTensor) -> None:
        super().__init__(weight)
        self.weight = weight


@pytest.mark.parametrize(("outputs", "width"), [(48, 48), (40, 64), (16, 16)])
def test_sizes_that_registers_or_groups_do_not_fill(outputs: int, width: int) -> None:
    with pytest.raises(
        ValueError, match=f"the table is a matrix of {outputs} × {width}, and the fast kernels"
    ):
        require_sizes("the table", outputs, width)
    require_sizes("the table", 48, 64)


def test_groups_of_another_size() -> None:
    model = small_model(FAMILY)
    mlp: Any = model.blocks[0].mlp
    mlp.down = QuantizedLinear(quantize(dequantize(mlp.down.multiply.weight), 16))
    assert "in groups of 16" in message(model)


def test_a_number_of_outputs_that_registers_do_not_fill() -> None:
    model = small_model(FAMILY)
    mlp: Any = model.blocks[0].mlp
    mlp.down = QuantizedLinear(quantize(torch.ones(150, 224)))
    assert "150 × 224" in message(model)


def test_a_vocabulary_that_registers_do_not_fill() -> None:
    model = small_model(FAMILY)
    model.embedding.weight = model.embedding.weight[:75]
    assert "the embedding is a matrix of 75" in message(model)


def test_a_head_of_another_kind_or_with_a_bias() -> None:
    model = small_model("three, and a head of its own")
    weight: Any = model.head
    model.head = Linear(weight.weight, torch.zeros(len(weight.weight)))
    assert "the head isn't a Linear without bias" in message(model)
    model.head = QuantizedLinear(quantize(weight.weight))
    assert "the head isn't a Linear without bias" in message(model)


def test_heads_of_another_size() -> None:
    model = small_model(FAMILY)
    model.blocks[0].attention.head_dim = 48
    assert "a head has 48 numbers" in message(model)


@pytest.mark.parametrize("way", WAYS)
def test_pairs_that_are_interleaved(way: str) -> None:
    model = small_model(FAMILY, WAYS[way][1])
    model.rope.interleaved = True
    assert "interleaved" in message(model, way)


@pytest.mark.parametrize("way", WAYS)
def test_norms_of_heads_that_differ_in_eps(way: str) -> None:
    model = small_model("three, and norms of the heads", WAYS[way][1])
    attention = model.blocks[0].attention
    assert attention.key_norm is not None
    attention.key_norm = RMSNorm(attention.key_norm.weight, 0.5)
    assert "differ in eps" in message(model, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_is_fast_already(way: str) -> None:
    assert "only once" in message(WAYS[way][0](small_model(FAMILY, WAYS[way][1])), way)


def test_pages_of_another_dtype() -> None:
    pages = torch.zeros(2, 3, 4, 1, 32)
    query: Any = torch.zeros(1, 2, 32)
    with pytest.raises(ValueError, match="pages in bfloat16, not float32: choose auto"):
        TiledAttention()(query, pages[0], pages[1], None, 1.0, True)  # type: ignore[arg-type]


def test_heads_of_another_size_beside_the_plain_blocks() -> None:
    pages = torch.zeros(2, 3, 4, 1, 16, dtype=torch.bfloat16)
    query: Any = torch.zeros(1, 2, 16)
    with pytest.raises(ValueError, match="a multiple of 32 numbers, not 16: choose auto"):
        TiledAttention()(query, pages[0], pages[1], None, 1.0, True)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, POSITIONS])
def test_as_many_positions_as_tokens(length: int) -> None:
    fast = accelerate(small_model(FAMILY))
    with pytest.raises(ValueError, match=f"{length} positions were given for 5 tokens"):
        fast(torch.zeros(1, 5, dtype=torch.int64), slice(0, length))
    with pytest.raises(ValueError, match="positions were given for 2 rows; there are 1"):
        fast(torch.zeros(1, 5, dtype=torch.int64), [slice(0, 5), slice(0, 5)])


class Keeping(DenseCache):
    """A cache that keeps the very arrays that it is given first."""

    def __init__(self) -> None:
        self.pair: Any = None

    def update_and_fetch(self, key: torch.Tensor, value: torch.Tensor) -> Any:
        if self.pair is None:
            self.pair = key, value
            return NoCache().update_and_fetch(key, value)
        self.pair = tuple(torch.cat(each, dim=2) for each in zip(self.pair, (key, value), strict=True))
        return *self.pair, None


@pytest.mark.parametrize("way", WAYS)
def test_a_cache_may_keep_the_keys_and_values_that_it_is_given(way: str) -> None:
    fast = WAYS[way][0](small_model(FAMILY, WAYS[way][1]))
    logits = []
    for kind in (Keeping, FullKvCache):
        caches = [kind() for _ in fast.blocks]
        fast(torch.tensor([[5, 6, 7]]), slice(0, 3), caches)
        logits.append(fast(torch.tensor([[8]]), slice(3, 4), caches))
    assert torch.equal(*logits)


def test_a_projection_that_is_not_in_floats() -> None:
    model = small_model(FAMILY, torch.float32)
    mlp: Any = model.blocks[1].mlp
    mlp.down = QuantizedLinear(quantize(mlp.down.weight))
    assert "down of block 1 isn't in floats" in message(model, "floats")
