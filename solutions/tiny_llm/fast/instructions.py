"""What this machine's processor can do (Day 4.7, given code)."""

from __future__ import annotations

from functools import cache

from numba import config
from numba.core.codegen import get_host_cpu_features

DOT4 = "dot4"
"""Four products of unsigned and signed bytes per lane, added up, for 16 lanes: AVX-512 VNNI."""
DOT4_OF_8 = "dot4 of 8 lanes"
"""The same for 8 lanes: AVX-VNNI, of processors without AVX-512."""
DOT4_OF_4 = "dot4 of 4 lanes"
"""The same for 4 lanes: ARM's matrix instructions for bytes."""
SIGNED_DOT4_OF_4 = "signed dot4 of 4 lanes"
"""Four products of signed bytes per lane: ARM's dot product."""
HALF = "half"
"""From float16 to float32."""

_NEEDED = {
    DOT4: [{"+avx512f", "+avx512vnni"}],
    DOT4_OF_8: [{"+avxvnni"}],
    DOT4_OF_4: [{"+neon", "+i8mm"}],
    SIGNED_DOT4_OF_4: [{"+neon", "+dotprod"}],
    HALF: [{"+f16c"}, {"+neon"}],
}
"""Features of a processor, any of these sets."""


@cache
def has(instruction: str) -> bool:
    """Whether the compiler may use an instruction here: the processor has it, and Numba isn't told otherwise.

    Args:
        instruction: one of those above.
    """
    told = getattr(config, "CPU_FEATURES", None)  # NUMBA_CPU_FEATURES, such as `+avx2,-avx512f`
    features = (get_host_cpu_features() if told is None else told).split(",")
    return any(needed.issubset(features) for needed in _NEEDED[instruction])
