"""The choice between the backends that multiply by a quantized matrix (given code).

The two kernel backends are imported only where they are chosen: they load Numba, which takes time and memory that
the plain backend doesn't need.
"""

from __future__ import annotations

import torch

from tiny_llm.layers import Projection
from tiny_llm.quantize import DequantizedMatmul, Matmul, QuantizedTensor

MATMULS = ("auto", "plain", "kernel", "torch")
"""The backends by name: the best for dtype and device, Day 2.2's, Day 2.3's kernels, torch's kernel."""


def choose_matmul(name: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> Matmul:
    """The backend of this name, as a function that takes a quantized matrix.

    "auto" is "plain" on devices other than the CPU. On the CPU, "auto" takes our own kernels, except in a bfloat16
    model, where it takes torch's kernel for every matrix that this kernel supports: torch's kernel rounds to
    bfloat16, which would spoil a float32 model.

    Args:
        name: one of :data:`MATMULS`.
        dtype: what the model computes in.
        device: where it runs.

    Raises:
        ValueError: no backend has this name, or the backend doesn't run on the device. A message of one line says
            what to do.
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
    return _torch_or_kernel if name == "auto" and dtype == torch.bfloat16 else _kernel


def torch_takes(weight: QuantizedTensor) -> bool:
    """Whether torch has its 4-bit kernel for the CPU, and the kernel supports this shape and group size."""
    from tiny_llm.kernels.quantized_matmul_torch import GROUP_SIZES, OUTPUTS_MULTIPLE

    return (
        hasattr(torch, "_weight_int4pack_mm_for_cpu")
        and weight.shape[0] % OUTPUTS_MULTIPLE == 0
        and weight.group_size in GROUP_SIZES
    )


def _kernel(weight: QuantizedTensor) -> Projection:
    from tiny_llm.kernels.quantized_matmul_cpu import KernelMatmul

    return KernelMatmul(weight)


def _torch(weight: QuantizedTensor) -> Projection:
    from tiny_llm.kernels.quantized_matmul_torch import TorchInt4Matmul

    return TorchInt4Matmul(weight)


def _torch_or_kernel(weight: QuantizedTensor) -> Projection:
    return _torch(weight) if torch_takes(weight) else _kernel(weight)


def _torch_or_refuse(weight: QuantizedTensor) -> Projection:
    if not torch_takes(weight):
        outputs, width = weight.shape
        raise ValueError(
            f"torch's 4-bit kernel doesn't take {outputs} × {width} in groups of {weight.group_size}; choose kernel"
        )
    return _torch(weight)
