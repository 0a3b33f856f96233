"""The `ModelConfig` in a GGUF file's metadata."""

from __future__ import annotations

from typing import Any

from tiny_llm.config import ARCHITECTURES, ModelConfig
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.gguf_file import GGUFFile

_DEFAULT_ROPE_BASE = 10000.0


def config_from_gguf(file: GGUFFile) -> ModelConfig:
    """The config of the model in the file.

    Raises:
        WeightsError: a key is missing, or the model needs something that the model class doesn't support.
    """
    architecture = _get(file, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"{file.path.name} holds a model of architecture {architecture!r}, which isn't supported; choose one of: "
            + ", ".join(ARCHITECTURES)
        )
    _refuse_unsupported(file, architecture)
    get = file.metadata.get
    heads = _get(file, f"{architecture}.attention.head_count")
    hidden = _get(file, f"{architecture}.embedding_length")
    return ModelConfig(
        architecture=architecture,
        num_layers=_get(file, f"{architecture}.block_count"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=get(f"{architecture}.attention.head_count_kv", heads),
        head_dim=_head_dim(file, architecture),
        feed_forward_size=_get(file, f"{architecture}.feed_forward_length"),
        vocab_size=get(f"{architecture}.vocab_size") or len(_get(file, "tokenizer.ggml.tokens")),
        norm_eps=_get(file, f"{architecture}.attention.layer_norm_rms_epsilon"),
        rope_base=get(f"{architecture}.rope.freq_base", _DEFAULT_ROPE_BASE),
        max_positions=_get(file, f"{architecture}.context_length"),
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        bos_id=get("tokenizer.ggml.bos_token_id"),
        end_ids=declared_end_ids(file),
    )


def declared_end_ids(file: GGUFFile) -> tuple[int, ...]:
    """The ids that the file names as the end of a text, of a turn, or of a message, each once."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [file.metadata.get(f"tokenizer.ggml.{key}") for key in keys]
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def _get(file: GGUFFile, key: str) -> Any:
    try:
        return file.metadata[key]
    except KeyError:
        raise WeightsError(
            f"{file.path} has no {key!r} in its metadata: it isn't a whole model; choose another file"
        ) from None


def _head_dim(file: GGUFFile, architecture: str) -> int:
    heads = _get(file, f"{architecture}.attention.head_count")
    hidden = _get(file, f"{architecture}.embedding_length")
    if not isinstance(heads, int) or heads < 1:
        raise WeightsError(f"{file.path} gives {heads!r} as its number of heads, which isn't supported")
    get = file.metadata.get
    key_length = get(f"{architecture}.attention.key_length", hidden // heads)
    value_length = get(f"{architecture}.attention.value_length", key_length)
    rotated = get(f"{architecture}.rope.dimension_count", key_length)
    if not key_length == value_length == rotated:
        raise WeightsError(
            f"{file.path} has keys of {key_length}, values of {value_length} and {rotated} rotated dimensions: "
            "only models where these are equal are supported"
        )
    return key_length


def _refuse_unsupported(file: GGUFFile, architecture: str) -> None:
    scaling = file.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise WeightsError(f"{file.path} scales its rotary positions ({scaling!r}), which isn't supported")
    if "rope_freqs.weight" in file.tensors:
        raise WeightsError(
            f"{file.path} scales its rotary positions (Llama 3.1 and later do), which isn't supported; "
            "choose a Llama 3.0, SmolLM2 or Qwen model"
        )
    if file.metadata.get("split.count", 1) > 1:
        raise WeightsError(
            f"{file.path} is one of several parts: join them with llama.cpp's llama-gguf-split --merge"
        )
    if file.metadata.get(f"{architecture}.attention.sliding_window"):
        raise WeightsError(f"{file.path} uses sliding-window attention, which isn't supported")
    if file.metadata.get(f"{architecture}.expert_count"):
        raise WeightsError(f"{file.path} is a mixture of experts, which isn't supported")
