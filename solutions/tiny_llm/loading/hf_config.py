"""The `ModelConfig` in a Hugging Face folder's config.json."""

from __future__ import annotations

from pathlib import Path

from tiny_llm.config import ARCHITECTURES, MOST_HEAD_DIM, NORM_EPSILONS, ROPE_BASES, ModelConfig
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.fields import Fields, shown
from tiny_llm.loading.files import is_there, read_json
from tiny_llm.loading.rope_scaling import Llama3Scaling

_DEFAULT_ROPE_BASE = 10000.0
_DEFAULT_NORM_EPS = 1e-6


def config_from_folder(folder: Path) -> ModelConfig:
    """The config of the model, from the folder's config.json and generation_config.json.

    Raises:
        WeightsError: no config.json, a key is missing or makes no sense, or the model needs something that the model
            class doesn't support.
    """
    path = folder / "config.json"
    if not is_there(path):
        raise WeightsError(
            f"{folder} has no config.json: give a Hugging Face model's folder, or a .gguf file"
        )
    config = Fields(path, read_json(path))
    architecture = config.get("model_type")
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"{path} is for a model of type {shown(architecture)}, which isn't supported; choose one of: "
            + ", ".join(ARCHITECTURES)
        )
    _refuse_unsupported(config)
    heads = config.size("num_attention_heads")
    hidden = config.size("hidden_size")
    head_dim = config.size("head_dim", hidden // heads, MOST_HEAD_DIM)
    rope = _rope(config)
    rope_base = rope.number(
        "rope_theta", config.number("rope_theta", _DEFAULT_ROPE_BASE, *ROPE_BASES), *ROPE_BASES
    )
    return ModelConfig(
        architecture=architecture,
        num_layers=config.size("num_hidden_layers"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=config.size("num_key_value_heads", heads),
        head_dim=head_dim,
        feed_forward_size=config.size("intermediate_size"),
        vocab_size=config.size("vocab_size"),
        norm_eps=config.number("rms_norm_eps", _DEFAULT_NORM_EPS, *NORM_EPSILONS),
        rope_base=rope_base,
        max_positions=config.size("max_position_embeddings"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        bos_id=config.token_id("bos_token_id"),
        end_ids=declared_end_ids(folder),
        rope_divisors=_rope_divisors(rope, head_dim, rope_base),
    )


def declared_end_ids(folder: Path) -> tuple[int, ...]:
    """The end ids of generation_config.json and config.json, each once; either file may give one id or a list."""
    paths = [folder / name for name in ("generation_config.json", "config.json")]
    found = [Fields(path, read_json(path)).token_ids("eos_token_id") for path in paths if is_there(path)]
    return tuple(dict.fromkeys(i for ids in found for i in ids))


def _rope(config: Fields) -> Fields:
    """The rotary settings, which newer files call rope_parameters and older ones rope_scaling."""
    return config.within("rope_parameters" if config.get("rope_parameters") else "rope_scaling")


def _rope_type(rope: Fields) -> str:
    return rope.text("rope_type") or rope.text("type") or "default"


def _rope_divisors(rope: Fields, head_dim: int, base: float) -> tuple[float, ...]:
    """What the rotary frequencies are divided by; empty where they are used as they are."""
    if _rope_type(rope) != "llama3":
        return ()
    low = rope.number("low_freq_factor", None, 1e-3, 1e6)
    scaling = Llama3Scaling(
        factor=rope.number("factor", None, 1.0, 1e6),
        low_freq_factor=low,
        high_freq_factor=rope.number("high_freq_factor", None, low * 1.001, 1e7),
        original_max_position_embeddings=rope.size("original_max_position_embeddings"),
    )
    return scaling.divisors(head_dim, base)


def _refuse_unsupported(config: Fields) -> None:
    rope = _rope(config)
    scaling, activation = _rope_type(rope), config.text("hidden_act") or "silu"
    rotated = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    reasons = {
        f"rotary position scaling of the kind {scaling!r}": scaling not in ("default", "none", "llama3"),
        "rotary positions on part of a head": rotated not in (None, 1),
        "sliding-window attention": _slides(config),
        f"the activation {activation!r}": activation not in ("silu", "swish"),
        "a bias on the attention output": config.flag("attention_bias"),
        "a bias in the MLP": config.flag("mlp_bias"),
        "weights quantized in a format of its own": config.get("quantization_config") is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise WeightsError(
                f"{config.path} asks for {reason}, which isn't supported; choose another model"
            )


def _slides(config: Fields) -> bool:
    """Whether any layer looks only at a window. Qwen files name a window's size even where it is switched off."""
    if config.get("layer_types") is not None and "sliding_attention" in config.items("layer_types"):
        return True
    return config.flag("use_sliding_window") and bool(config.get("sliding_window"))
