"""Kernels in Metal's language: on an Apple GPU, or on the CPU where there is none (given code)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

SIMD = 32
"""The threads of a simdgroup: they run in step, and `simd_sum` adds up over them."""

Kernel = Callable[..., list[mx.array]]
"""A compiled kernel; its arguments are those of what MLX's `metal_kernel` returns."""


def why_not() -> str | None:
    """Why no kernel can run on this machine; None where one can."""
    if mx.metal.is_available():
        return None
    from coursekit.metal.building import COMPILERS, compiler

    if compiler() is not None:
        return None
    names = " or ".join(COMPILERS[:2])
    return f"there is neither Metal here nor a C++ compiler ({names}) to run its kernels on the CPU"


def metal_kernel(
    name: str, input_names: Sequence[str], output_names: Sequence[str], source: str, header: str = ""
) -> Kernel:
    """MLX's `mx.fast.metal_kernel`; without Metal, the same for the CPU, where the source is compiled as C++.

    The kernel runs on the GPU whatever MLX's default device is. On the CPU it is slow, and strict: an index outside
    of an array is an error, a place that no thread writes holds NaN, and a loop that never ends is stopped.

    Args:
        name: for messages.
        input_names: what the source calls the inputs.
        output_names: what it calls the outputs.
        source: the body of the kernel; MLX writes its signature.
        header: functions that the body calls.

    Raises:
        RuntimeError: neither Metal nor a compiler is there; or, when the kernel is called, the source can't be
            compiled.
    """
    if mx.metal.is_available():
        kernel: Any = mx.fast.metal_kernel(name, list(input_names), list(output_names), source, header)
        return partial(kernel, stream=mx.gpu)
    if (reason := why_not()) is not None:
        raise RuntimeError(reason)
    from coursekit.metal.interpreter import InterpretedKernel

    return InterpretedKernel(name, input_names, output_names, source, header)
