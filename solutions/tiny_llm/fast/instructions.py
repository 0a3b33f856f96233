"""What this machine's processor can do (Day 4.7, given code)."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
from numba import config

DOT4 = "dot4"
"""Four products of 8-bit numbers per lane, added up: AVX-512 VNNI."""
DOT2 = "dot2"
"""Two products of bfloat16 numbers per lane, added up: AVX-512 BF16."""

_NEEDED = {DOT4: ("avx512f", "avx512vnni"), DOT2: ("avx512f", "avx512bf16")}


@cache
def has(instruction: str) -> bool:
    """Whether the compiler may use an instruction here: the processor has it, and Numba isn't told otherwise.

    Args:
        instruction: :data:`DOT4` or :data:`DOT2`.
    """
    if config.CPU_NAME and config.CPU_FEATURES is not None:  # NUMBA_CPU_NAME and NUMBA_CPU_FEATURES
        allowed = {each.removeprefix("+") for each in config.CPU_FEATURES.split(",") if each.startswith("+")}
    else:
        allowed = {name for name, present in llvm.get_host_cpu_features().items() if present}
    return allowed.issuperset(_NEEDED[instruction])
