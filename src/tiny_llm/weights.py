"""Weights: from a file on disk to the named tensors that the model is built from (given code).

    weights = load_weights("smollm2-135m", dtype="float32", device="cpu")
    weights.tensor("norm.weight")      # [E]
    weights.linear("blocks.0.qkv")     # a Linear, with its bias where the model has one

Every supported family comes out under the same names and in the same form, whatever the file calls it:

    embedding.weight                [V, E]
    blocks.{i}.attention_norm.weight [E]
    blocks.{i}.qkv.weight           [(H + 2·Hkv)·D, E]   rows: query, key, value; with .bias in Qwen2
    blocks.{i}.query_norm.weight    [D]                  Qwen3, and key_norm likewise
    blocks.{i}.attention_out.weight [E, H·D]
    blocks.{i}.mlp_norm.weight      [E]
    blocks.{i}.gate_up.weight       [2·F, E]             rows: gate, up
    blocks.{i}.down.weight          [E, F]
    norm.weight                     [E]
    head.weight                     [V, E]               only where the head isn't the embedding
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tiny_llm.config import ModelConfig
from tiny_llm.layers import Linear
from tiny_llm.loading.cache import convert_once
from tiny_llm.loading.convert import convert
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.loading.sources import SafetensorsSource

__all__ = ["DTYPES", "Weights", "WeightsError", "load_weights"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The dtypes that weights can be loaded in, by name."""


@dataclass(frozen=True)
class Weights:
    """A model's config and its tensors by name, all of one dtype and on one device."""

    config: ModelConfig
    tensors: dict[str, Tensor]

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name.

        Raises:
            WeightsError: this model has none.
        """
        try:
            return self.tensors[name]
        except KeyError:
            raise WeightsError(
                f"this {self.config.architecture} model has no tensor {name!r}; weights.py lists the names"
            ) from None

    def linear(self, name: str) -> Linear:
        """The Linear with `name`.weight and, where the model has one, `name`.bias.

        Raises:
            WeightsError: there is no such weight.
        """
        return Linear(self.tensor(f"{name}.weight"), self.tensors.get(f"{name}.bias"))


def load_weights(source: str | Path = DEFAULT_MODEL, dtype: str = "float32", device: str = "cpu") -> Weights:
    """Load a model.

    Args:
        source: `smollm2-135m` (installed with the course), the path of a .gguf file, the path of a Hugging Face
            folder with safetensors, or a hub id such as `HuggingFaceTB/SmolLM2-360M-Instruct`.
        dtype: what the tensors are in afterwards: "float32", "bfloat16" or "float16".
        device: "cpu", "cuda" or "mps".

    A GGUF file is dequantised once and the result kept in the user's cache folder (see `loading/cache.py`). A
    safetensors folder needs no arithmetic beyond a copy, so it is read afresh each time and nothing is kept.

    Raises:
        WeightsError: no such model, a broken or incomplete file, a model that isn't supported, no network where
            one is needed, or a dtype or device that isn't there. Its message is one line that says what to do.
    """
    target = _device(device)
    if dtype not in DTYPES:
        raise WeightsError(f"there is no dtype {dtype!r} for weights; choose one of: {', '.join(DTYPES)}")
    path = locate(source)
    if path.is_dir():
        folder = SafetensorsSource(path)
        config, tensors = folder.config, convert(folder, DTYPES[dtype])
    else:
        config, tensors = convert_once(path, DTYPES[dtype])
    return Weights(config, {name: tensor.to(target) for name, tensor in tensors.items()})


def _device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in available:
        raise WeightsError(f"there is no device {name!r}; choose one of: {', '.join(available)}")
    if not available[name]:
        raise WeightsError(f"torch finds no {name} device here: choose cpu, or see `pdm run doctor`")
    return torch.device(name)
