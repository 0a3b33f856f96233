"""The `ModelConfig` in a Hugging Face folder's config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_llm.config import ARCHITECTURES, ModelConfig
from tiny_llm.loading.errors import WeightsError

_DEFAULT_ROPE_BASE = 10000.0
_DEFAULT_NORM_EPS = 1e-6


def config_from_folder(folder: Path) -> ModelConfig:
    """The config of the model, from the folder's config.json and generation_config.json.

    Raises:
        WeightsError: no config.json, a key is missing, or the model needs something that the model
            class doesn't support.
    """
    path = folder / "config.json"
    if not path.exists():
        raise WeightsError(
            f"{folder} has no config.json: give a Hugging Face model's folder, or a .gguf file"
        )
    config = read_json(path)
    architecture = config.get("model_type")
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"{path} is for a model of type {architecture!r}, which isn't supported; choose one of: "
            + ", ".join(ARCHITECTURES)
        )
    _refuse_unsupported(path, config)
    heads = _size(path, config, "num_attention_heads")
    hidden = _size(path, config, "hidden_size")
    return ModelConfig(
        architecture=architecture,
        num_layers=_size(path, config, "num_hidden_layers"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=_value(config, "num_key_value_heads", heads),
        head_dim=_value(config, "head_dim", hidden // heads),
        feed_forward_size=_size(path, config, "intermediate_size"),
        vocab_size=_size(path, config, "vocab_size"),
        norm_eps=_value(config, "rms_norm_eps", _DEFAULT_NORM_EPS),
        rope_base=_value({**config, **_rope(config)}, "rope_theta", _DEFAULT_ROPE_BASE),
        max_positions=_size(path, config, "max_position_embeddings"),
        tied_embeddings=bool(_value(config, "tie_word_embeddings", False)),
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        bos_id=config.get("bos_token_id"),
        end_ids=declared_end_ids(folder),
    )


def declared_end_ids(folder: Path) -> tuple[int, ...]:
    """The end ids of generation_config.json and config.json, each once; either file may give one id or a list."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        ids = read_json(path).get("eos_token_id") if path.exists() else None
        found += ids if isinstance(ids, list) else [] if ids is None else [ids]
    return tuple(dict.fromkeys(found))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        WeightsError: the file can't be read, isn't JSON, or isn't an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WeightsError(f"can't read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise WeightsError(f"{path} is damaged or only half a file ({error}): download it again") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} doesn't hold a JSON object: download it again")
    return content


def _size(path: Path, config: dict[str, Any], key: str) -> int:
    size = config.get(key)
    if not isinstance(size, int) or size < 1:
        raise WeightsError(f"{path} gives {size!r} as {key}, not a whole number above 0; download it again")
    return size


def _value(config: dict[str, Any], key: str, default: Any) -> Any:
    """The value, or the default where it is missing or null: the two mean the same in these files."""
    value = config.get(key)
    return default if value is None else value


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings, which newer files call rope_parameters and older ones rope_scaling."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _refuse_unsupported(path: Path, config: dict[str, Any]) -> None:
    rope = _rope(config)
    scaling = rope.get("rope_type", rope.get("type", "default"))
    reasons = {
        f"rotary position scaling ({scaling!r})": scaling not in ("default", "none"),
        "rotary positions on part of a head": _value({**config, **rope}, "partial_rotary_factor", 1.0) != 1.0,
        "sliding-window attention": _slides(config),
        f"the activation {config.get('hidden_act')!r}": _value(config, "hidden_act", "silu")
        not in ("silu", "swish"),
        "a bias on the attention output": bool(config.get("attention_bias")),
        "a bias in the MLP": bool(config.get("mlp_bias")),
        "weights quantized in a format of its own": "quantization_config" in config,
    }
    for reason, holds in reasons.items():
        if holds:
            raise WeightsError(f"{path} asks for {reason}, which isn't supported; choose another model")


def _slides(config: dict[str, Any]) -> bool:
    """Whether any layer looks only at a window. Qwen files name a window's size even where it is switched off."""
    if "sliding_attention" in (config.get("layer_types") or []):
        return True
    return bool(config.get("use_sliding_window")) and bool(config.get("sliding_window"))
