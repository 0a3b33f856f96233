"""The `ModelConfig` in a GGUF file's metadata."""

from __future__ import annotations

import numpy as np

from tiny_llm.config import ARCHITECTURES, MOST_HEAD_DIM, NORM_EPSILONS, ROPE_BASES, ModelConfig
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.fields import Fields, shown
from tiny_llm.loading.gguf_file import GGUFFile

_DEFAULT_ROPE_BASE = 10000.0
_ROPE_DIVISORS = "rope_freqs.weight"
_FLOAT32 = 0  # ggml's number of the type
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def config_from_gguf(file: GGUFFile) -> ModelConfig:
    """The config of the model in the file.

    Raises:
        WeightsError: a key is missing or makes no sense, or the model needs something that the model class doesn't
            support.
    """
    fields = Fields(file.path, file.metadata)
    architecture = fields.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"{file.path.name} holds a model of architecture {shown(architecture)}, which isn't supported; "
            "choose one of: " + ", ".join(ARCHITECTURES)
        )
    _refuse_unsupported(fields, architecture)
    heads = fields.size(f"{architecture}.attention.head_count")
    head_dim = _head_dim(fields, architecture, heads)
    return ModelConfig(
        architecture=architecture,
        num_layers=fields.size(f"{architecture}.block_count"),
        hidden_size=fields.size(f"{architecture}.embedding_length"),
        num_heads=heads,
        num_kv_heads=fields.size(f"{architecture}.attention.head_count_kv", heads),
        head_dim=head_dim,
        feed_forward_size=fields.size(f"{architecture}.feed_forward_length"),
        vocab_size=_vocab_size(fields, architecture),
        norm_eps=fields.number(f"{architecture}.attention.layer_norm_rms_epsilon", None, *NORM_EPSILONS),
        rope_base=fields.number(f"{architecture}.rope.freq_base", _DEFAULT_ROPE_BASE, *ROPE_BASES),
        max_positions=fields.size(f"{architecture}.context_length"),
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        bos_id=fields.token_id("tokenizer.ggml.bos_token_id"),
        end_ids=declared_end_ids(file),
        rope_divisors=_rope_divisors(file, head_dim),
    )


def declared_end_ids(file: GGUFFile) -> tuple[int, ...]:
    """The ids that the file names as the end of a text, of a turn, or of a message, each once."""
    fields = Fields(file.path, file.metadata)
    ids = [fields.token_id(f"tokenizer.ggml.{key}") for key in _END_KEYS]
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def is_rope_divisors(name: str) -> bool:
    """Whether a tensor of that name belongs to the config rather than to the weights."""
    return name == _ROPE_DIVISORS


def _vocab_size(fields: Fields, architecture: str) -> int:
    if fields.get(f"{architecture}.vocab_size"):
        return fields.size(f"{architecture}.vocab_size")
    return len(fields.items("tokenizer.ggml.tokens"))


def _head_dim(fields: Fields, architecture: str, heads: int) -> int:
    hidden = fields.size(f"{architecture}.embedding_length")
    key_length = fields.size(f"{architecture}.attention.key_length", hidden // heads, MOST_HEAD_DIM)
    value_length = fields.size(f"{architecture}.attention.value_length", key_length)
    rotated = fields.size(f"{architecture}.rope.dimension_count", key_length)
    if not key_length == value_length == rotated:
        raise WeightsError(
            f"{fields.path} has keys of {key_length}, values of {value_length} and {rotated} rotated dimensions: "
            "only models where these are equal are supported"
        )
    return key_length


def _rope_divisors(file: GGUFFile, head_dim: int) -> tuple[float, ...]:
    """What the rotary frequencies are divided by: the tensor that Llama 3.1 and later have; empty without it."""
    entry = file.tensors.get(_ROPE_DIVISORS)
    if entry is None:
        return ()
    pairs = head_dim // 2
    if entry.shape != (pairs,) or entry.type_id != _FLOAT32 or entry.offset + 4 * pairs > file.size:
        raise WeightsError(
            f"{file.path}: {_ROPE_DIVISORS} doesn't hold {pairs} float32 numbers: download it again"
        )
    return tuple(np.fromfile(file.path, "<f4", pairs, offset=entry.offset).tolist())


def _refuse_unsupported(fields: Fields, architecture: str) -> None:
    scaling = fields.text(f"{architecture}.rope.scaling.type") or "none"
    reasons = {
        f"scales its rotary positions ({scaling!r})": scaling != "none",
        "uses sliding-window attention": bool(fields.get(f"{architecture}.attention.sliding_window")),
        "is a mixture of experts": bool(fields.get(f"{architecture}.expert_count")),
    }
    for reason, holds in reasons.items():
        if holds:
            raise WeightsError(f"{fields.path} {reason}, which isn't supported; choose another model")
    if fields.get("split.count") not in (None, 0, 1):
        raise WeightsError(
            f"{fields.path} is one of several parts: join them with llama.cpp's llama-gguf-split --merge"
        )
