"""Weights: from a file on disk to the named tensors that the model is built from (given code).

    weights = load_weights("smollm2-135m", dtype="float32", device="cpu")
    weights.tensor("norm.weight")      # [E]
    weights.linear("blocks.0.qkv")     # a Linear, or a QuantizedLinear; with its bias where the model has one

Every supported family comes out under the same names and in the same form, whatever the names in its file:

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

With `bits=4` the matrices of the blocks (qkv, attention_out, gate_up, down) are QuantizedTensors, the others floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tiny_llm.config import ModelConfig
from tiny_llm.kernels.matmul_backends import choose_matmul
from tiny_llm.layers import Linear, Projection
from tiny_llm.loading.cache import convert_once, in_floats
from tiny_llm.loading.convert import Converted, convert, convert_to_4_bits
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.loading.sources import open_source
from tiny_llm.quantize import DequantizedMatmul, Matmul, QuantizedLinear, QuantizedTensor

__all__ = ["DTYPES", "Weights", "WeightsError", "load_weights"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The dtypes that weights can be loaded in, by name."""

_MODEST_BYTES = 2**26  # what the table of angles may take however small the model is


@dataclass(frozen=True)
class Weights:
    """A model's config and its tensors by name, on one device; the tensors in floats all have one dtype."""

    config: ModelConfig
    tensors: Mapping[str, Converted]
    matmul: Matmul = DequantizedMatmul  # the way to multiply by weights in 4 bits

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name, in floats.

        Raises:
            WeightsError: this model has no tensor of that name, or has it in 4 bits.
        """
        found = self._find(name)
        if isinstance(found, QuantizedTensor):
            raise WeightsError(
                f"{name!r} is in 4 bits: use linear(), or dequantize(weights.tensors[{name!r}])"
            )
        return found

    def linear(self, name: str) -> Projection:
        """The layer with `name`.weight and, where the model has one, `name`.bias.

        Returns:
            a Linear, or a QuantizedLinear where the weight is in 4 bits.

        Raises:
            WeightsError: there is no such weight, or :attr:`matmul` can't multiply by it.
        """
        weight = self._find(f"{name}.weight")
        bias = self.tensor(f"{name}.bias") if f"{name}.bias" in self.tensors else None
        if not isinstance(weight, QuantizedTensor):
            return Linear(weight, bias)
        try:
            return QuantizedLinear(weight, bias, self.matmul)
        except ValueError as error:
            raise WeightsError(str(error)) from error

    def _find(self, name: str) -> Converted:
        try:
            return self.tensors[name]
        except KeyError:
            raise WeightsError(
                f"this {self.config.architecture} model has no tensor {name!r}; weights.py lists the names"
            ) from None


def load_weights(
    source: str | Path = DEFAULT_MODEL,
    dtype: str = "float32",
    device: str = "cpu",
    bits: int | None = None,
    matmul: str = "auto",
) -> Weights:
    """Load a model.

    Args:
        source: `smollm2-135m` (installed with the course), the path of a .gguf file, the path of a Hugging Face
            folder with safetensors, or a hub id such as `HuggingFaceTB/SmolLM2-360M-Instruct`.
        dtype: the dtype of the loaded tensors: "float32", "bfloat16" or "float16".
        device: "cpu", "cuda" or "mps".
        bits: 4 for the matrices of the blocks in 4 bits per weight, in groups of 32. Matrices that a GGUF file
            has in Q4_1 or Q4_0 are taken over as they are. None for everything in `dtype`.
        matmul: with `bits`, the way to multiply by those matrices, by its name in `kernels/matmul_backends.py`.

    A GGUF file is dequantized once and the result kept in the user's cache folder (see `loading/cache.py`). A
    safetensors folder needs no arithmetic beyond a copy, so it is read afresh each time and nothing is kept; nor is
    anything with `bits`.

    Raises:
        WeightsError: no such model, a broken or incomplete file, a model that isn't supported, no network where
            one is needed, or a dtype, device, number of bits or way to multiply that isn't there. Its message is
            one line that says what to do.
    """
    target = _device(device)
    if dtype not in DTYPES:
        raise WeightsError(f"there is no dtype {dtype!r} for weights; choose one of: {', '.join(DTYPES)}")
    way = _matmul(bits, matmul, DTYPES[dtype], target)
    path = locate(source)
    config, tensors = _load_4_bits(path, DTYPES[dtype]) if bits else _load_floats(path, DTYPES[dtype])
    check_positions(path, config, sum(tensor.nbytes for tensor in tensors.values()))
    return Weights(config, {name: tensor.to(target) for name, tensor in tensors.items()}, way)


def check_positions(path: Path, config: ModelConfig, weight_bytes: int) -> None:
    """Refuse positions whose table of angles would take more memory than the weights: a damaged config has such."""
    table_bytes = 4 * config.head_dim * config.max_positions
    if table_bytes > max(weight_bytes, _MODEST_BYTES):
        raise WeightsError(
            f"{path} asks for {config.max_positions:,} positions, too many for so small a model: "
            "its config is damaged; download it again"
        )


def _load_floats(path: Path, dtype: torch.dtype) -> tuple[ModelConfig, Mapping[str, Converted]]:
    if not path.is_dir():
        return convert_once(path, in_floats(dtype))
    folder = open_source(path)
    return folder.config, convert(folder, dtype)


def _load_4_bits(path: Path, dtype: torch.dtype) -> tuple[ModelConfig, Mapping[str, Converted]]:
    opened = open_source(path)
    return opened.config, convert_to_4_bits(opened, dtype)


def _matmul(bits: int | None, name: str, dtype: torch.dtype, device: torch.device) -> Matmul:
    if bits is None:
        if name != "auto":
            raise WeightsError(
                f"{name!r} is a way to multiply 4-bit weights: ask for 4 bits too, or leave it out"
            )
        return DequantizedMatmul
    if bits != 4:
        raise WeightsError(f"weights can be kept in 4 bits, not in {bits}: ask for 4, or leave it out")
    try:
        return choose_matmul(name, dtype, device)
    except ValueError as error:
        raise WeightsError(str(error)) from error


def _device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in available:
        raise WeightsError(f"there is no device {name!r}; choose one of: {', '.join(available)}")
    if not available[name]:
        raise WeightsError(f"torch finds no {name} device here: choose cpu, or see `pdm run doctor`")
    return torch.device(name)
