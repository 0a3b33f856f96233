"""The choice between the ways to multiply by a quantized matrix (given code)."""

from __future__ import annotations

import torch

from tiny_llm.kernels.quantized_matmul_cpu import KernelMatmul
from tiny_llm.kernels.quantized_matmul_torch import GROUP_SIZES, OUTPUTS_MULTIPLE, TorchInt4Matmul
from tiny_llm.layers import Projection
from tiny_llm.quantize import DequantizedMatmul, Matmul, QuantizedTensor

MATMULS = ("auto", "plain", "kernel", "torch")
"""The ways by name: the best for dtype and device, Day 2.2's, Day 2.3's kernels, torch's kernel."""


def choose_matmul(name: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> Matmul:
    """The way to multiply by quantized matrices that goes by a name.

    "auto" is plain on devices other than the CPU. On the CPU it is torch's kernel in a bfloat16 model, for the
    matrices that it takes, and our own otherwise: torch's rounds to bfloat16, which would spoil a float32 model.

    Args:
        name: one of :data:`MATMULS`.
        dtype: what the model computes in.
        device: where it runs.

    Raises:
        ValueError: there is no such name, or the way doesn't exist on the device. A message of one line says what
            to do.
    """
    if name not in MATMULS:
        raise ValueError(
            f"there is no way {name!r} to multiply 4-bit weights; choose one of: {', '.join(MATMULS)}"
        )
    on_cpu = torch.device(device).type == "cpu"
    if name == "plain" or (name == "auto" and not on_cpu):
        return DequantizedMatmul
    if not on_cpu:
        raise ValueError(
            f"the {name!r} way to multiply 4-bit weights is for the CPU; choose plain on {device}"
        )
    if name == "torch":
        return _torch_or_refuse
    return _torch_or_kernel if name == "auto" and dtype == torch.bfloat16 else KernelMatmul


def torch_takes(weight: QuantizedTensor) -> bool:
    """Whether torch has its 4-bit kernel for the CPU, and that takes matrices of this shape and group size."""
    return (
        hasattr(torch, "_weight_int4pack_mm_for_cpu")
        and weight.shape[0] % OUTPUTS_MULTIPLE == 0
        and weight.group_size in GROUP_SIZES
    )


def _torch_or_kernel(weight: QuantizedTensor) -> Projection:
    return TorchInt4Matmul(weight) if torch_takes(weight) else KernelMatmul(weight)


def _torch_or_refuse(weight: QuantizedTensor) -> Projection:
    if not torch_takes(weight):
        outputs, width = weight.shape
        raise ValueError(
            f"torch's 4-bit kernel doesn't take {outputs} × {width} in groups of {weight.group_size}; choose kernel"
        )
    return TorchInt4Matmul(weight)
