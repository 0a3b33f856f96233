"""Which tensors a model has, in our names and in those of the two file formats.

Ours has two kinds of fused matrix, so that a layer multiplies twice instead of five times: `qkv` stacks the rows of
query, key and value, `gate_up` those of gate and up. Each of our tensors is therefore made of one or more parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiny_llm.config import ModelConfig

GGUF_NAMES = {
    "embedding": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attention_norm": "blk.{layer}.attn_norm",
    "query": "blk.{layer}.attn_q",
    "key": "blk.{layer}.attn_k",
    "value": "blk.{layer}.attn_v",
    "query_norm": "blk.{layer}.attn_q_norm",
    "key_norm": "blk.{layer}.attn_k_norm",
    "attention_out": "blk.{layer}.attn_output",
    "mlp_norm": "blk.{layer}.ffn_norm",
    "gate": "blk.{layer}.ffn_gate",
    "up": "blk.{layer}.ffn_up",
    "down": "blk.{layer}.ffn_down",
}
HF_NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "model.layers.{layer}.input_layernorm",
    "query": "model.layers.{layer}.self_attn.q_proj",
    "key": "model.layers.{layer}.self_attn.k_proj",
    "value": "model.layers.{layer}.self_attn.v_proj",
    "query_norm": "model.layers.{layer}.self_attn.q_norm",
    "key_norm": "model.layers.{layer}.self_attn.k_norm",
    "attention_out": "model.layers.{layer}.self_attn.o_proj",
    "mlp_norm": "model.layers.{layer}.post_attention_layernorm",
    "gate": "model.layers.{layer}.mlp.gate_proj",
    "up": "model.layers.{layer}.mlp.up_proj",
    "down": "model.layers.{layer}.mlp.down_proj",
}


@dataclass(frozen=True)
class Part:
    """One tensor of a file, which fills some or all rows of one of our tensors."""

    role: str  # a key of GGUF_NAMES and HF_NAMES
    kind: str  # "weight" or "bias"
    layer: int | None
    shape: tuple[int, ...]

    def name(self, names: dict[str, str]) -> str:
        """The name of this part in a file that uses ``names``."""
        return f"{names[self.role].format(layer=self.layer)}.{self.kind}"


Layout = dict[str, tuple[Part, ...]]


def layout(config: ModelConfig) -> Layout:
    """Every tensor of the model by our name, with the parts whose rows are stacked to make it."""
    hidden = config.hidden_size
    tensors: Layout = {
        "embedding.weight": (Part("embedding", "weight", None, (config.vocab_size, hidden)),),
        "norm.weight": (Part("norm", "weight", None, (hidden,)),),
    }
    if not config.tied_embeddings:
        tensors["head.weight"] = (Part("head", "weight", None, (config.vocab_size, hidden)),)
    for layer in range(config.num_layers):
        for name, parts in _block(config, layer):
            tensors[f"blocks.{layer}.{name}"] = parts
    return tensors


def shape(parts: tuple[Part, ...]) -> tuple[int, ...]:
    """The shape of the tensor that these parts make: their rows one after another."""
    return (sum(part.shape[0] for part in parts), *parts[0].shape[1:])


def _block(config: ModelConfig, layer: int) -> Iterator[tuple[str, tuple[Part, ...]]]:
    hidden, ffn, head_dim = config.hidden_size, config.feed_forward_size, config.head_dim
    rows = {
        "query": config.num_heads * head_dim,
        "key": config.num_kv_heads * head_dim,
        "value": config.num_kv_heads * head_dim,
    }

    def weight(role: str, *shape: int) -> Part:
        return Part(role, "weight", layer, shape)

    yield "attention_norm.weight", (weight("attention_norm", hidden),)
    yield "qkv.weight", tuple(weight(role, count, hidden) for role, count in rows.items())
    if config.qkv_bias:
        yield "qkv.bias", tuple(Part(role, "bias", layer, (count,)) for role, count in rows.items())
    if config.qk_norm:
        yield "query_norm.weight", (weight("query_norm", head_dim),)
        yield "key_norm.weight", (weight("key_norm", head_dim),)
    yield "attention_out.weight", (weight("attention_out", hidden, rows["query"]),)
    yield "mlp_norm.weight", (weight("mlp_norm", hidden),)
    yield "gate_up.weight", (weight("gate", ffn, hidden), weight("up", ffn, hidden))
    yield "down.weight", (weight("down", hidden, ffn),)
