"""Small random models in both file formats, with `transformers` as the oracle of what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tiny_llm.model import Transformer
from tiny_llm.weights import load_weights

# No two sizes are equal, and none is a power of two where the family allows it.
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "num_hidden_layers": 3,
    "intermediate_size": 56,
    "max_position_embeddings": 80,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROPE = {"rope_theta": 5000.0, "rope_type": "default"}
# Of eight pairs, three turn quickly, one is in between, and four are slow (see rope_scaling.py).
LLAMA3_ROPE = {
    "rope_theta": 5000.0,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}
FAMILIES: dict[str, Any] = {
    "llama": transformers.LlamaConfig(
        **SIZES,
        rope_parameters=ROPE,
        hidden_size=48,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
    ),
    "llama tied": transformers.LlamaConfig(
        **SIZES,
        rope_parameters=ROPE,
        hidden_size=48,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=12,
        tie_word_embeddings=True,
    ),
    "llama 3.1": transformers.LlamaConfig(
        **SIZES,
        rope_parameters=LLAMA3_ROPE,
        hidden_size=48,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=16,
    ),
    "qwen2": transformers.Qwen2Config(
        **SIZES, rope_parameters=ROPE, hidden_size=40, num_attention_heads=4, num_key_value_heads=2
    ),
    "qwen2 tied": transformers.Qwen2Config(
        **SIZES,
        rope_parameters=ROPE,
        hidden_size=36,
        num_attention_heads=6,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    ),
    "qwen3": transformers.Qwen3Config(
        **SIZES,
        rope_parameters=ROPE,
        hidden_size=40,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=14,
    ),
    "qwen3 tied": transformers.Qwen3Config(
        **SIZES,
        rope_parameters=ROPE,
        hidden_size=44,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
    ),
}
# Quantized types store blocks of 32 values, so these rows are multiples of 32.
BLOCKS = transformers.LlamaConfig(
    **{**SIZES, "intermediate_size": 96, "vocab_size": 80},
    rope_parameters=ROPE,
    hidden_size=64,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
)


def random_model(config: Any, seed: int = 0) -> Any:
    """A model with every parameter drawn, biases and norms too (transformers starts those at 0 and 1)."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=1.0 if "norm" in name else 0.0, std=0.2)
    return model.eval()


def tokens(model: Any, rows: int = 2, length: int = 19) -> torch.Tensor:
    """Random token ids [rows, length]."""
    return torch.randint(model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(1))


def expected_logits(model: Any) -> torch.Tensor:
    """What transformers computes for `tokens(model)`: [rows, length, V]."""
    with torch.no_grad():
        return model(tokens(model)).logits


def our_logits(model: Any, source: Path, dtype: str = "float32", device: str = "cpu") -> torch.Tensor:
    """What the course's model computes for the same tokens, with the weights loaded from `source`."""
    weights = load_weights(source, dtype, device)
    ids = tokens(model).to(device)
    return Transformer(weights.config, weights)(ids, slice(0, ids.shape[1])).float().cpu()


def permute_for_llama_cpp(rows: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's conversion does to the query and key rows of a Llama: neighbours turn together."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def rope_divisors(config: Any) -> np.ndarray:
    """What transformers divides each rotary frequency of a Llama 3.1 by, float32 [D/2]."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
    return (plain / scaled).numpy()


def write_gguf(
    path: Path,
    model: Any,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    skip: str = "",
    extra: dict[str, np.ndarray] | None = None,
    settings: dict[str, Any] | None = None,
    others: dict[str, GGMLQuantizationType] | None = None,
) -> Path:
    """Write a model as llama.cpp's converter would, its matrices stored as `kind`.

    `others` gives another kind to matrices whose names have a word in them. `skip` names a tensor to leave out;
    `extra` and `settings` add tensors and metadata.
    """
    config = model.config
    family = config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    ids = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    settings = {**{key: (i, gguf.GGUFValueType.UINT32) for key, i in ids.items()}, **(settings or {})}
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    for key, value in settings.items():
        writer.add_key_value(key, *value)
    if config.rope_parameters["rope_type"] == "llama3":
        extra = {"rope_freqs.weight": rope_divisors(config), **(extra or {})}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], config.num_hidden_layers)
    for name, tensor in {**model.state_dict(), **(extra or {})}.items():
        values = np.asarray(tensor)
        ours = names.get_name(name, try_suffixes=(".weight", ".bias")) or name
        if ours == skip or (name == "lm_head.weight" and config.tie_word_embeddings):
            continue
        if family == "llama" and "q_proj" in name:
            values = permute_for_llama_cpp(values, config.num_attention_heads)
        if family == "llama" and "k_proj" in name:
            values = permute_for_llama_cpp(values, config.num_key_value_heads)
        special = [other for word, other in (others or {}).items() if word in ours]
        stored = (*special, kind)[0] if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(ours, gguf.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
