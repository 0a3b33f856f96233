"""What the kernels see of a tile: float32 as it is, and the bits of bfloat16 widened, compiled or not."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from tiny_llm.kernels import compiling

BITS = np.array([[0x3F80, 0xC000, 0x3E20], [0x0000, 0x0DA2, 0xFF62]], np.uint16)
NUMBERS = (BITS.astype(np.uint32) << 16).view(np.float32)


def in_a_kernel(tile, room):
    return numba.njit(lambda tile, room: compiling.as_floats(tile, room))(tile, room)


@pytest.mark.parametrize("as_floats", [compiling.as_floats, in_a_kernel], ids=["plain", "compiled"])
def test_the_bits_of_bfloat16_become_the_numbers_they_stand_for(as_floats):
    room = np.full((5, 3), 7.0, np.float32)
    widened = as_floats(BITS.view(np.int16), room)
    assert widened.dtype == np.float32
    assert np.array_equal(widened, NUMBERS)
    assert np.array_equal(room[2:], np.full((3, 3), 7.0)), "rows behind the tile were written to"


@pytest.mark.parametrize("as_floats", [compiling.as_floats, in_a_kernel], ids=["plain", "compiled"])
def test_a_tile_of_float32_is_used_where_it_lies(as_floats):
    tile, room = NUMBERS.copy(), np.full((5, 3), 7.0, np.float32)
    assert np.shares_memory(as_floats(tile, room), tile)
    assert np.array_equal(room, np.full((5, 3), 7.0))
