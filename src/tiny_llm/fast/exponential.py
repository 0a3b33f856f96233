"""The exponential function of registers (Day 4.7)."""

from __future__ import annotations

import math

from tiny_llm.fast.compiling import exact_inlined
from tiny_llm.fast.vectors import floats, fma, largest, nearest, power_of_2

SERIES = tuple(math.log(2) ** k / math.factorial(k) for k in range(7))
"""2 to the power of r is SERIES[0] + SERIES[1] · r + … + SERIES[6] · r⁶, nearly, for r from −1/2 to 1/2."""


@exact_inlined
def exponential(x):
    """e to the power of each lane, off by at most 2e-7 · (1 + |x|) relative to it.

    With y = x · log₂ e it is 2 to a whole number, the nearest to y, times 2 to the rest, from −1/2 to 1/2: the
    polynomial of :data:`SERIES`. First y is limited to −126 … 127, for which ``power_of_2`` is made. So from −87.4
    down, −∞ too, it is 2⁻¹²⁶, which is nearly 0; from 88.1 up, ∞ too, it is 2¹²⁷.

    Args:
        x: a register; no lane is NaN.

    Returns:
        a register.
    """
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")
