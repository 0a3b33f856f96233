"""A model for benches to run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_llm.model import Transformer


def tiny_model(
    E: int = 16,
    H: int = 2,
    D: int = 8,
    F: int = 24,
    V: int = 37,
    max_positions: int = 200,
    dtype: str = "float32",
) -> Transformer:
    """One layer of random weights, with room for the prompts of the test."""
    import torch

    from tiny_llm.config import ModelConfig
    from tiny_llm.model import Transformer
    from tiny_llm.weights import Weights

    config = ModelConfig(
        architecture="llama",
        num_layers=1,
        hidden_size=E,
        num_heads=H,
        num_kv_heads=1,
        head_dim=D,
        feed_forward_size=F,
        vocab_size=V,
        norm_eps=1e-5,
        rope_base=100.0,
        max_positions=max_positions,
        tied_embeddings=True,
        qkv_bias=False,
        qk_norm=False,
        bos_id=None,
        end_ids=(),
    )
    shapes: dict[str, Sequence[int]] = {
        "embedding.weight": (V, E),
        "blocks.0.attention_norm.weight": (E,),
        "blocks.0.qkv.weight": ((H + 2) * D, E),
        "blocks.0.attention_out.weight": (E, H * D),
        "blocks.0.mlp_norm.weight": (E,),
        "blocks.0.gate_up.weight": (2 * F, E),
        "blocks.0.down.weight": (E, F),
        "norm.weight": (E,),
    }
    generator = torch.Generator().manual_seed(5)
    tensors = {
        name: torch.randn(*shape, generator=generator).to(getattr(torch, dtype))
        for name, shape in shapes.items()
    }
    return Transformer(config, Weights(config, tensors))
