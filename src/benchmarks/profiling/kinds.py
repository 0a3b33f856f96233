"""What kind of operation a name stands for."""

from __future__ import annotations

from benchmarks.profiling.spans import ATTENTION, MATMUL, SMALL

TORCH_MATMULS = (
    "linear",
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "einsum",
    "mv",
    "addmv",
    "_weight_int4pack_mm",
)
TORCH_ATTENTION = ("attention",)
KERNEL_MATMULS = ("matmul", "multiply")
KERNEL_ATTENTION = ("attention", "attend")
WRITING = ("write",)
"""Kernels that keep keys and values: they count for attention, as a cache's `attend` does both."""


def kind_of_torch(name: str) -> str:
    """The kind of an operation of torch, such as aten::linear."""
    short = name.rpartition("::")[2]
    if any(word in short for word in TORCH_ATTENTION):
        return ATTENTION
    return MATMUL if short in TORCH_MATMULS or "_mm_" in short or short.endswith("_mm") else SMALL


def kind_of_kernel(module: str, name: str) -> str:
    """The kind of a kernel: by its own name, then by the name of the module that it stands in."""
    for where in (name, module.rpartition(".")[2]):
        if any(word in where for word in KERNEL_ATTENTION) or where in WRITING:
            return ATTENTION
        if any(word in where for word in KERNEL_MATMULS):
            return MATMUL
    return SMALL
