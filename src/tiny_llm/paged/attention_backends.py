"""Choose between the ways to attend over pages (given code)."""

from __future__ import annotations

import os

import torch

from tiny_llm.paged.attention import PagedAttention, paged_attention

ATTENTIONS = ("auto", "reference", "cpu", "triton", "tiled")
"""The names: the fastest for the dtype and device; Day 3.2's reference path; the kernels of Days 3.3, 3.4 and 4.7."""


def choose_attention(name: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> PagedAttention:
    """Give the way to attend over pages that has this name.

    "auto" is Day 3.3's ``paged_attention_auto`` on the CPU, Day 3.4's kernel on a CUDA device, and Day 3.2's path
    elsewhere. Each kernel is imported only when it is asked for.

    Args:
        name: one of :data:`ATTENTIONS`.
        dtype: of keys and values.
        device: where they are. On the CPU, Triton's kernel is interpreted and slow.

    Raises:
        ValueError: there is no such name, or it does not work for the dtype or device. The message is one line and
            says what to choose instead.
    """
    if name not in ATTENTIONS:
        raise ValueError(f"there is no way {name!r} to attend; choose one of: {', '.join(ATTENTIONS)}")
    kind = torch.device(device).type
    compiled_for_cpu = kind == "cpu" and dtype in (torch.float32, torch.bfloat16)
    if name == "cpu" and not compiled_for_cpu:
        what = f"{dtype}".removeprefix("torch.")
        raise ValueError(
            f"the cpu way to attend takes float32 and bfloat16 on the CPU, not {what} on {kind}; choose reference"
        )
    if name == "tiled":
        return _tiled(dtype, kind)
    if name == "triton" or (name == "auto" and kind == "cuda"):
        return _triton(kind)
    if name == "reference" or not compiled_for_cpu:
        return paged_attention
    from tiny_llm.kernels.paged_attention_auto import paged_attention_auto
    from tiny_llm.kernels.paged_attention_cpu import paged_attention_cpu

    return paged_attention_cpu if name == "cpu" else paged_attention_auto


def _tiled(dtype: torch.dtype, kind: str) -> PagedAttention:
    if (dtype, kind) != (torch.bfloat16, "cpu"):
        what = f"{dtype}".removeprefix("torch.")
        raise ValueError(
            f"the tiled way to attend takes bfloat16 on the CPU, not {what} on {kind}; choose auto"
        )
    from tiny_llm.fast.attend import TiledAttention

    return TiledAttention()


def _triton(kind: str) -> PagedAttention:
    if kind not in ("cpu", "cuda"):
        raise ValueError(
            f"the triton way to attend is for CUDA devices, and the CPU; choose reference on {kind}"
        )
    if kind == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        from tiny_llm.kernels.paged_attention_triton import paged_attention_triton
    except ImportError as error:
        raise ValueError(f"{error}: cpu or reference") from error
    return paged_attention_triton
