"""Weights as MLX arrays: read from the file by torch's loader, and handed over (given code).

    weights = load_weights("smollm2-135m", dtype="float32")

The names are those of `named_tensors.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.named_tensors import Weights

from .packed_matmul import PackedMatmul
from .quantize import DequantizedMatmul, QuantizedTensor, quantize

__all__ = ["DTYPES", "Weights", "WeightsError", "load_weights"]

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
"""The dtypes that weights can be loaded in, by name."""

MATMULS: dict[str, Any] = {"auto": PackedMatmul, "plain": DequantizedMatmul}
"""The ways to multiply by 4-bit weights, by name."""


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
        bits: 4 for the matrices of the blocks in 4 bits per weight, in groups of 32. Matrices that a GGUF file
            has in Q4_1 or Q4_0 are taken over as they are. None for everything in `dtype`.
        matmul: with `bits`, the way to multiply by those matrices: "plain" (Day 2.2's), or "auto" (MLX's kernel).

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
    if matmul not in MATMULS:
        raise WeightsError(
            f"MLX has no way {matmul!r} to multiply 4-bit weights; choose one of: {', '.join(MATMULS)}"
        )
    if bits is None and matmul != "auto":
        raise WeightsError(
            f"{matmul!r} is a way to multiply 4-bit weights: ask for 4 bits too, or leave it out"
        )
    path = locate(source)
    # torch takes seconds to import, and nothing else of this track needs it.
    import torch

    from tiny_llm.loading.models import check_positions, load_4_bits, load_floats

    in_floats = getattr(torch, dtype)
    config, tensors = load_4_bits(path, in_floats, _quantize) if bits else load_floats(path, in_floats)
    check_positions(path, config, sum(tensor.nbytes for tensor in tensors.values()))
    arrays = {name: _to_mlx(tensor) for name, tensor in tensors.items()}
    return Weights(config, arrays, MATMULS[matmul])


def _to_mlx(tensor: Any) -> Any:
    """A copy of a torch tensor on the CPU as an MLX array, or of a QuantizedTensor of such."""
    import torch

    if isinstance(tensor, QuantizedTensor):
        return QuantizedTensor(_to_mlx(tensor.nibbles), _to_mlx(tensor.scales), _to_mlx(tensor.minima))
    if tensor.dtype == torch.bfloat16:
        # NumPy has no bfloat16, but the same bits.
        return mx.array(tensor.view(torch.uint16).numpy()).view(mx.bfloat16)
    return mx.array(tensor.numpy())


def _quantize(weight: Any, group_size: int) -> Any:
    """Quantize a torch tensor with MLX's `quantize`. The result holds torch tensors, which the loader stacks."""
    import torch

    small = quantize(_to_mlx(weight), group_size)
    parts: Any = (torch.from_numpy(np.array(part)) for part in (small.nibbles, small.scales, small.minima))
    return QuantizedTensor(*parts)
