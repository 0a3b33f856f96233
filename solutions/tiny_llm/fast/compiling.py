"""How the kernels of this day are compiled (given code)."""

from __future__ import annotations

from typing import Any

import numba

# Imported for what they tell Numba: what kernels get for the functions of `vectors.py` and `tiles.py`.
from tiny_llm.fast import compiled_tiles as compiled_tiles
from tiny_llm.fast import compiled_vectors as compiled_vectors
from tiny_llm.kernels.kept import keep


def exact_kernel(function: Any) -> Any:
    """As :func:`tiny_llm.kernels.compiling.kernel`, but the compiler keeps to the order of all operations.

    So a row of a batch comes out as it would alone, to the last bit. The code says itself what is done side by side.
    """
    spread = "prange" in function.__code__.co_names
    return keep(numba.njit(parallel=spread, error_model="numpy")(function))


def exact_inlined(function: Any) -> Any:
    """A function that such kernels call; its body replaces the call."""
    return numba.njit(inline="always", error_model="numpy")(function)
