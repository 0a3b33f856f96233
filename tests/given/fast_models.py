"""Small models with random weights in 4 bits, and an engine around one of them whose empty places hold NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tiny_llm.config import ModelConfig
from tiny_llm.engine.batch import ServedBatch
from tiny_llm.engine.limits import Limits
from tiny_llm.engine.make_batch import make_batch
from tiny_llm.fast.packed import onednn_takes
from tiny_llm.model import Transformer
from tiny_llm.quantize import QuantizedTensor, dequantize, quantize
from tiny_llm.request import Request
from tiny_llm.weights import Weights

V, POSITIONS = 80, 320
FAMILIES: dict[str, dict[str, Any]] = {
    "one query head per key head": {"num_heads": 2, "num_kv_heads": 2, "head_dim": 32},
    "two, and biases": {
        "architecture": "qwen2",
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "qkv_bias": True,
    },
    "three, and norms of the heads": {
        "architecture": "qwen3",
        "num_heads": 3,
        "num_kv_heads": 1,
        "head_dim": 64,
        "qk_norm": True,
    },
    "three, and a head of its own": {
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 32,
        "tied_embeddings": False,
    },
}
"""What is between the queries, and in which points these models are like those that people use."""


def small_model(family: str, dtype: torch.dtype | None = None) -> Transformer:
    """A model whose widths are all different: in float32 with its matrices in 4 bits, or all in a dtype."""
    fields = {
        "architecture": "llama",
        "num_layers": 2,
        "hidden_size": 160,
        "feed_forward_size": 224,
        "vocab_size": V,
        "norm_eps": 1e-5,
        "rope_base": 1000.0,
        "max_positions": POSITIONS,
        "tied_embeddings": True,
        "qkv_bias": False,
        "qk_norm": False,
        "bos_id": None,
        "end_ids": (),
        **FAMILIES[family],
    }
    config = ModelConfig(**fields)
    tensors = _tensors(config)
    if dtype is not None:
        tensors = {name: _in_floats(tensor).to(dtype) for name, tensor in tensors.items()}
    return Transformer(config, Weights(config, tensors))


def _in_floats(tensor: Any) -> Tensor:
    return dequantize(tensor) if isinstance(tensor, QuantizedTensor) else tensor


def _tensors(config: ModelConfig) -> dict[str, Any]:
    dice = torch.Generator().manual_seed(7)
    E, F, D = config.hidden_size, config.feed_forward_size, config.head_dim
    H, heads = config.num_heads, config.num_heads + 2 * config.num_kv_heads

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice)

    def norm(width: int) -> Tensor:
        return 1 + normal(width) / 4

    tensors: dict[str, Any] = {"embedding.weight": normal(V, E), "norm.weight": norm(E)}
    if not config.tied_embeddings:
        tensors["head.weight"] = normal(V, E) / E**0.5
    for i in range(config.num_layers):
        shapes = {"qkv": (heads * D, E), "attention_out": (E, H * D), "gate_up": (2 * F, E), "down": (E, F)}
        for name, (outputs, width) in shapes.items():
            tensors[f"blocks.{i}.{name}.weight"] = quantize(normal(outputs, width) / width**0.5)
        for name in ("attention_norm", "mlp_norm"):
            tensors[f"blocks.{i}.{name}.weight"] = norm(E)
        for name in ("query_norm", "key_norm") if config.qk_norm else ():
            tensors[f"blocks.{i}.{name}.weight"] = norm(D)
        if config.qkv_bias:
            tensors[f"blocks.{i}.qkv.bias"] = normal(heads * D)
    return tensors


def random_ids(count: int, seed: int) -> list[int]:
    """Token ids of the small models."""
    return torch.randint(V, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def engine(model: Transformer, attention: Any = "tiled", **limits: int) -> ServedBatch:
    """An engine without requests. Every place of its pool holds NaN until a token is written there.

    Args:
        model: one from :func:`accelerate`.
        attention: a name, or a way to attend.
        limits: those of :class:`Limits` that aren't as ever.
    """
    named = attention if isinstance(attention, str) else "auto"
    core = make_batch(model, Limits(**limits), named)
    core.runner.pool.keys.fill_(torch.nan)
    core.runner.pool.values.fill_(torch.nan)
    if attention is not named:
        core.runner.attention = attention
    return core


class Noted(Request):
    """A greedy request that notes the logits of each of its tokens."""

    def __init__(self, prompt_ids: Sequence[int], max_tokens: int = 6, **options: Any) -> None:
        self.logits: list[Tensor] = []
        super().__init__(prompt_ids, max_tokens, sample=self._greedy, **options)

    def _greedy(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        self.logits.append(logits.clone())
        return int(logits.argmax())


def differences(ours: Sequence[Noted], theirs: Sequence[Noted]) -> list[str]:
    """Where two runs of the same requests differ, be it in the last bit of a logit."""
    found = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert len(one.logits) == len(other.logits), f"request {number}: not as many tokens"
        for step, (a, b) in enumerate(zip(one.logits, other.logits, strict=True)):
            if not torch.equal(a, b):
                found.append(f"request {number}, token {step}: {float((a - b).abs().max())} apart")
    return found


def require_onednn(dtype: torch.dtype) -> None:
    """Skip the test where fast blocks in floats don't promise the same bits in any company."""
    if not onednn_takes(dtype):
        pytest.skip(f"this machine has no oneDNN for {dtype}, and nothing is promised without it")
