"""The course's model in the forms that other engines read, each written once into the cache folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from coursekit.errors import CourseError

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.config import ModelConfig

MODEL = "smollm2-135m"
MOSTLY_F16 = 1
"""How a GGUF file says that its matrices are 16-bit floats."""
FORMAT = 1  # to be raised when the same model would give other files


def model_files(parent: Path) -> dict[str, Path]:
    """All forms, by the names under which runners find them in their settings.

    Args:
        parent: the folder that they lie in.

    Raises:
        CourseError: one can't be written.
        WeightsError: the model isn't installed.
    """
    return {
        "gguf": packaged_gguf(),
        "gguf_16_bit": gguf_16_bit(parent),
        "folder": hugging_face_folder(parent),
    }


def packaged_gguf() -> Path:
    """The file that the course's engine reads itself: 4 bits per weight."""
    from tiny_llm.loading.locate import locate

    return locate(MODEL)


def hugging_face_folder(parent: Path) -> Path:
    """The model as a Hugging Face folder in bfloat16, without a tokenizer: engines are given token ids."""
    return _made_once(parent / f"{MODEL}-hf-{FORMAT}", _write_folder)


def gguf_16_bit(parent: Path) -> Path:
    """The model as a GGUF file of 16-bit floats, with its tokenizer."""
    return _made_once(parent / f"{MODEL}-f16-{FORMAT}", _write_gguf) / "model.gguf"


def _write_gguf(folder: Path) -> None:
    """Copy the packaged file, with its matrices dequantized."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    source = GGUFReader(packaged_gguf())
    writer = GGUFWriter(folder / "model.gguf", "llama")
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(MOSTLY_F16)
    for tensor in source.tensors:
        vector = tensor.tensor_type == GGMLQuantizationType.F32
        floats = tensor.data if vector else dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
        writer.add_tensor(tensor.name, floats)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _made_once(place: Path, write: Callable[[Path], None]) -> Path:
    """What `write` has written into a folder, now or at an earlier time, whole.

    Raises:
        CourseError: it can't be written.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(f"{place.name}.lock")):
            if not place.exists():
                unfinished = place.with_name(f"{place.name}-unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)  # what a command that was killed has left
                unfinished.mkdir()
                write(unfinished)
                unfinished.rename(place)
    except OSError as error:
        raise CourseError(f"can't write {place}: {error.strerror}") from error
    return place


def _write_folder(folder: Path) -> None:
    from safetensors.torch import save_file

    from tiny_llm.weights import load_weights

    weights = load_weights(MODEL, dtype="bfloat16")
    floats = {name: weights.tensor(name) for name in weights.tensors}
    save_file(hf_tensors(weights.config, floats), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(hf_config(weights.config), indent=2), encoding="utf-8")


def hf_config(config: ModelConfig) -> dict[str, Any]:
    """What config.json says of a Llama."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.feed_forward_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "tie_word_embeddings": config.tied_embeddings,
        "vocab_size": config.vocab_size,
        "bos_token_id": config.bos_id,
        "eos_token_id": list(config.end_ids),
        "torch_dtype": "bfloat16",
    }


def hf_tensors(config: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under Hugging Face's names, taken apart where the course keeps several as one."""
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    apart = {
        "attention_norm": {"input_layernorm": config.hidden_size},
        "qkv": {"self_attn.q_proj": query, "self_attn.k_proj": key, "self_attn.v_proj": key},
        "attention_out": {"self_attn.o_proj": config.hidden_size},
        "mlp_norm": {"post_attention_layernorm": config.hidden_size},
        "gate_up": {"mlp.gate_proj": config.feed_forward_size, "mlp.up_proj": config.feed_forward_size},
        "down": {"mlp.down_proj": config.hidden_size},
    }
    named = {
        "embedding.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    }
    made = {theirs: tensors[ours].clone() for ours, theirs in named.items() if ours in tensors}
    for layer in range(config.num_layers):
        for ours, rows in apart.items():
            parts = tensors[f"blocks.{layer}.{ours}.weight"].split(list(rows.values()))
            for theirs, part in zip(rows, parts, strict=True):
                made[f"model.layers.{layer}.{theirs}.weight"] = part.clone()
    return made
