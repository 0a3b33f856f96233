"""Weights as MLX arrays: read from the file by torch's loader, and handed over (given code).

    weights = load_weights("smollm2-135m", dtype="float32")

The names are those of `named_tensors.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.named_tensors import Weights

from .quantize import QuantizedTensor, quantize

__all__ = ["DTYPES", "Weights", "WeightsError", "load_weights"]

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
"""The dtypes that weights can be loaded in, by name."""


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
        device: "cpu" or "mps"; MLX's arrays belong to no device, so this only says what may be asked for.
        bits: 4 for the matrices of the blocks in 4 bits per weight, in groups of 32, quantized from the floats. None
            for everything in `dtype`.
        matmul: "auto": there is one way to multiply by 4-bit weights.

    Raises:
        WeightsError: no such model, a broken or incomplete file, a model that isn't supported, no network where
            one is needed, or a dtype, device, number of bits or way to multiply that isn't there. Its message is
            one line that says what to do.
    """
    if dtype not in DTYPES:
        raise WeightsError(f"there is no dtype {dtype!r} for weights; choose one of: {', '.join(DTYPES)}")
    if device not in ("cpu", "mps"):
        raise WeightsError(f"MLX has no device {device!r}; choose one of: cpu, mps")
    if bits not in (None, 4):
        raise WeightsError(f"weights can be kept in 4 bits, not in {bits}: ask for 4, or leave it out")
    if matmul != "auto":
        raise WeightsError(f"MLX has no way {matmul!r} to multiply 4-bit weights: leave it out")
    path = locate(source)
    # torch takes seconds to import, and nothing else of this track needs it.
    import torch

    from tiny_llm.loading.models import check_positions, load_floats
    from tiny_llm.loading.quantized import is_quantized

    config, tensors = load_floats(path, torch.float32 if bits else getattr(torch, dtype))
    check_positions(path, config, sum(tensor.nbytes for tensor in tensors.values()))
    arrays: dict[str, Any] = {}
    for name, tensor in tensors.items():
        in_4_bits = bits and is_quantized(name, tuple(tensor.shape))
        arrays[name] = _in_4_bits(path, name, tensor) if in_4_bits else to_mlx(tensor, DTYPES[dtype])
    return Weights(config, arrays)


def to_mlx(tensor: Any, dtype: mx.Dtype) -> mx.array:
    """A copy of a torch tensor on the CPU as an MLX array of ``dtype``. NumPy has no bfloat16, but the same bits."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return mx.array(tensor.view(torch.uint16).numpy()).view(mx.bfloat16).astype(dtype)
    return mx.array(tensor.numpy()).astype(dtype)


def _in_4_bits(path: Path, name: str, tensor: Any) -> QuantizedTensor:
    try:
        quantized = quantize(to_mlx(tensor, mx.float32))
    except ValueError as error:
        raise WeightsError(f"{path}: {name}: {error}; load this model without 4 bits") from error
    # Evaluated one by one, so that one matrix at most is in memory as floats.
    mx.eval(quantized.nibbles, quantized.scales, quantized.minima)
    return quantized
