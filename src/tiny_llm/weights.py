"""Weights: from a file on disk to the named tensors that the model is built from (given code).

    weights = load_weights("smollm2-135m", dtype="float32", device="cpu")

What `weights` then holds, by which names, is in `named_tensors.py`. With `bits=4` the matrices of the blocks (qkv,
attention_out, gate_up, down) are QuantizedTensors, the others floats.
"""

from __future__ import annotations

from pathlib import Path

import torch

from tiny_llm.kernels.matmul_backends import choose_matmul
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.loading.models import check_positions, load_4_bits, load_floats
from tiny_llm.named_tensors import Weights
from tiny_llm.quantize import DequantizedMatmul, Matmul

__all__ = ["DTYPES", "Weights", "WeightsError", "load_weights"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
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
    config, tensors = load_4_bits(path, DTYPES[dtype]) if bits else load_floats(path, DTYPES[dtype])
    check_positions(path, config, sum(tensor.nbytes for tensor in tensors.values()))
    return Weights(config, {name: tensor.to(target) for name, tensor in tensors.items()}, way)


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
