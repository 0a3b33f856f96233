"""Functions of registers: what they give in NumPy and compiled, with this machine's instructions and with fewer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import register_cases
from numba.core.codegen import get_host_cpu_features
from numba.core.errors import TypingError

from tiny_llm.fast import instructions, tiles, vectors
from tiny_llm.fast.compiling import exact_kernel

FEWER = {
    "none": "",
    "AVX2": "+avx2,+fma,+f16c",
    "no fused multiplication": "+avx2",
    "AVX-VNNI": "+avx2,+fma,+f16c,+avxvnni",
}


@pytest.mark.parametrize("name", register_cases.CASES)
def test_compiled_they_give_what_they_give_in_numpy(name):
    assert register_cases.difference(name) == ""


def with_instructions(tmp_path: Path, features: str, *command: str) -> Any:
    """What a program prints as JSON where Numba is told what the processor can do."""
    paths = [str(Path(vectors.__file__).parents[2]), *sys.path]
    own = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = subprocess.run(
        [sys.executable, *command], env=os.environ | own, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("features", FEWER.values(), ids=FEWER)
def test_with_fewer_instructions_they_give_the_same(tmp_path, features):
    if "+avxvnni" in features and "+avxvnni" not in get_host_cpu_features().split(","):
        pytest.skip("this machine's processor has no AVX-VNNI")
    found = with_instructions(tmp_path, features, register_cases.__file__)
    assert not found["dot4"]
    assert {name: text for name, text in found["differences"].items() if text} == {}


HAS = "import json; from tiny_llm.fast.instructions import *; print(json.dumps([has(DOT4), has(HALF)]))"


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("", [False, False]),
        ("+avx2,+fma,+f16c", [False, True]),
        ("+avx512f,+avx512vnni", [True, False]),
        ("+avx512vnni,+avx512bf16", [False, False]),
        ("+avx512f,-avx512vnni,+f16c", [False, True]),
        ("+neon,+dotprod", [False, True]),
    ],
)
def test_numba_says_which_instructions_there_are(tmp_path, features, expected):
    assert with_instructions(tmp_path, features, "-c", HAS) == expected


def test_features_count_also_where_no_processor_is_named(monkeypatch):
    monkeypatch.setattr("numba.config.CPU_NAME", None)
    for features, expected in (("+avx512f,+avx512vnni", True), ("+avx512f", False)):
        monkeypatch.setattr("numba.config.CPU_FEATURES", features)
        assert instructions.has.__wrapped__(instructions.DOT4) is expected


# What the definitions say, by numbers worked out by hand


def register(*numbers: float) -> np.ndarray:
    """These numbers, and 0 in the other lanes."""
    return np.array([*numbers, *[0] * (16 - len(numbers))], np.float32)


def test_a_multiplication_with_an_addition_is_rounded_once():
    # (1 + 2⁻¹²)² = 1 + 2⁻¹¹ + 2⁻²⁴: its last bit is half a step of float32.
    a = register(*[1 + 2**-12] * 4)
    c = register(0, 2**-70, -(2**-70), -1)
    expected = register(1 + 2**-11, 1 + 2**-11 + 2**-23, 1 + 2**-11, 2**-11 + 2**-24)
    assert np.array_equal(vectors.fma(a, a, c), expected)


def test_of_two_equally_near_numbers_the_even_one_is_taken():
    assert np.array_equal(vectors.nearest(register(0.5, 1.5, 2.5, -0.5, -1.5)), register(0, 2, 2, 0, -2))
    bits = np.zeros(16, np.uint16)
    vectors.store_floats(bits, 0, np.full(16, 0x3F808000, np.uint32).view(np.float32))
    assert set(bits) == {0x3F80}
    vectors.store_floats(bits, 0, np.full(16, 0x3F818000, np.uint32).view(np.float32))
    assert set(bits) == {0x3F82}


def test_nibbles_are_those_of_each_byte():
    x = np.full(16, 0x7FF01289, np.uint32).view(np.int32)
    assert set(vectors.low_nibbles(x)) == {0x0F000209}
    assert set(vectors.high_nibbles(x)) == {0x070F0108}


def test_lanes_are_added_in_halves():
    x = register(1, *[0] * 7, 2**24, -(2**24))
    x[1] = 2**-3  # 1 + 2²⁴ loses the 1, 2⁻³ − 2²⁴ the 2⁻³
    assert vectors.sum_of_lanes(x) == 0


def test_four_products_are_of_unsigned_and_signed_bytes():
    weights = np.full(16, 0xFF0F0201, np.uint32).view(np.int32)
    x = np.array([0x8003FF02], np.uint32).view(np.int32)  # 2, −1, 3, −128
    totals = tiles.dot4_rows(tiles.zero_ints(1) + np.int32(5), weights, x, 0, 0)
    assert set(totals.reshape(-1)) == {5 + 1 * 2 - 2 * 1 + 15 * 3 - 255 * 128}


def test_halves_lie_at_any_byte():
    stream = np.zeros(33, np.uint8)
    stream[1:3] = 0x00, 0x3C  # 1 in float16
    stream[31:33] = 0x00, 0xC0  # −2
    assert np.array_equal(vectors.load_halves(stream, 1), [1, *[0] * 14, -2])


def test_a_product_per_lane_is_added_to_each_row_and_rounded_once():
    weights, x = vectors.floats(1 + 2**-12), np.array([1 + 2**-12, 0, 2], np.float32)
    totals = tiles.fma_rows(tiles.zero_floats(2) - np.float32(1), weights, x, 0, 2)
    assert set(totals[0]) == {2**-11 + 2**-24}
    assert set(totals[1]) == {1 + 2**-11}


def test_numbers_of_tokens_come_to_lie_side_by_side():
    exact = (np.arange(16 * 40) % 256).astype(np.float32)  # has at most 8 bits, as bfloat16
    bits = (exact.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    begins, target = np.arange(16)[::-1].copy() * 40, np.full(520, 7, np.float32)
    tiles.transpose_bfloats(bits, begins, 3, target, 5)
    for i, j in ((0, 0), (0, 15), (1, 0), (31, 15), (17, 4)):
        assert target[5 + 16 * i + j] == exact[(15 - j) * 40 + 3 + i]
    assert set(target[:5]) == set(target[517:]) == {7}


@pytest.mark.parametrize("at", [0, 39, 40, -1, 10**15])
def test_what_is_fetched_may_lie_outside_the_array(at):
    vectors.fetch(FLOATS, at)
    assert not FLOATS.any()


# What the definitions refuse

FLOATS, WHOLE, INTS = np.zeros(40, np.float32), np.zeros(40, np.int8), np.zeros(40, np.int32)
SIXTEEN, TWO, TWO_WHOLE = vectors.floats(1), tiles.zero_floats(2), tiles.zero_ints(2)
PACKED = np.zeros(16, np.int32)
OUTSIDE = {
    "load_ints": lambda at: vectors.load_ints(INTS, at),
    "load_floats": lambda at: vectors.load_floats(FLOATS, at),
    "load_halves": lambda at: vectors.load_halves(np.zeros(40, np.uint8), at - 16),
    "load_bfloats": lambda at: vectors.load_bfloats(np.zeros(40, np.int16), at),
    "store_floats": lambda at: vectors.store_floats(FLOATS.copy(), at, SIXTEEN),
    "store_bytes": lambda at: vectors.store_bytes(WHOLE.copy(), at, SIXTEEN),
    "load_rows": lambda at: tiles.load_rows(FLOATS, at - 3, 3, 2),
    "store_rows": lambda at: tiles.store_rows(FLOATS.copy(), at - 3, 3, TWO),
    "dot4_rows": lambda at: tiles.dot4_rows(TWO_WHOLE, PACKED, INTS, at + 12, 3),
    "fma_rows": lambda at: tiles.fma_rows(TWO, SIXTEEN, FLOATS, at + 12, 3),
    "transpose_bfloats": lambda at: tiles.transpose_bfloats(
        np.zeros(40, np.int16), np.zeros(16, np.int64), at - 16, np.zeros(512, np.float32), 0
    ),
    "add_scaled_rows": lambda at: tiles.add_scaled_rows(
        TWO, TWO_WHOLE, SIXTEEN, SIXTEEN, FLOATS, FLOATS, at + 12, 3
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside_the_array_is_told_with_the_size_of_the_array(name):
    OUTSIDE[name](24)
    with pytest.raises(IndexError, match=r"^elements? (\d+ to )?40 of an array that has 40"):
        OUTSIDE[name](25)
    with pytest.raises(IndexError, match=r"^elements? -\d+ "):
        OUTSIDE[name](-20)


def test_tokens_need_sixteen_starts_and_room_for_512_numbers():
    bits, begins, target = np.zeros(72, np.int16), np.arange(16), np.zeros(600, np.float32)
    tiles.transpose_bfloats(bits, begins, 25, target, 88)
    with pytest.raises(IndexError, match="elements 41 to 72 of an array that has 72"):
        tiles.transpose_bfloats(bits, begins, 26, target, 88)
    with pytest.raises(IndexError, match="elements 89 to 600 of an array that has 600"):
        tiles.transpose_bfloats(bits, begins, 25, target, 89)
    with pytest.raises(IndexError, match="elements 0 to 15 of an array that has 15"):
        tiles.transpose_bfloats(bits, begins[1:], 0, target, 0)


def test_sixty_four_bytes_are_as_many_elements_as_it_takes():
    codes = np.arange(70, dtype=np.uint8)
    assert np.array_equal(vectors.load_ints(codes, 6).view(np.uint8), codes[6:])
    with pytest.raises(IndexError, match="elements 7 to 70 of an array that has 70"):
        vectors.load_ints(codes, 7)


def test_an_array_that_does_not_lie_in_one_piece_is_refused():
    apart = np.zeros((16, 2), np.float32)[:, 0]
    with pytest.raises(ValueError, match="one piece"):
        vectors.load_floats(apart, 0)
    with pytest.raises(TypingError, match=r"load_floats: `array` must be .* in one piece"):
        exact_kernel(lambda x: vectors.largest_lane(vectors.load_floats(x, 0)))(apart)


@pytest.mark.parametrize("number", [0.5, 128, -129, np.nan, np.inf])
def test_only_whole_numbers_of_8_bits_are_stored_as_bytes(number):
    with pytest.raises(ValueError, match="from −128 to 127"):
        vectors.store_bytes(WHOLE.copy(), 0, register(number))


@pytest.mark.parametrize("exponent", [0.5, 128, -127, np.nan])
def test_powers_are_of_whole_numbers_that_float32_has_room_for(exponent):
    with pytest.raises(ValueError, match="from −126 to 127"):
        vectors.power_of_2(register(exponent))


def test_what_is_loaded_is_a_copy():
    x = np.arange(64, dtype=np.float32)
    loaded, tile, ints = vectors.load_floats(x, 0), tiles.load_rows(x, 0, 16, 2), vectors.load_ints(INTS, 0)
    loaded[:], tile[:], ints[:] = -1, -1, -1
    assert np.array_equal(x, np.arange(64))
    assert not INTS.any()


def test_compiled_what_is_fetched_is_asked_for_ahead():
    kernel = exact_kernel(lambda x: vectors.fetch(x, 1000))
    kernel(FLOATS)
    assert any("prefetch" in code for code in kernel.inspect_llvm().values())


# What the compiler refuses


@pytest.mark.parametrize(
    ("kernel", "given", "message"),
    [
        (
            lambda x: vectors.load_floats(x, 0),
            np.zeros(16),
            r"load_floats: `array` must be an array of float32",
        ),
        (
            lambda x: vectors.load_floats(x, x[0]),
            FLOATS,
            r"load_floats: `at` must be a whole number, not float32",
        ),
        (
            lambda x: vectors.load_floats(x, 0),
            np.zeros(16, np.int16),
            r"load_floats: `array` must be an array of float32",
        ),
        (
            lambda x: vectors.load_halves(x, 0),
            np.zeros(32, np.float16),
            r"load_halves: `array` must be an array of uint8",
        ),
        (lambda x: vectors.magnitude(x), FLOATS, r"magnitude: `x` must be 16 float32, not array"),
        (lambda x: tiles.zero_ints(len(x)), FLOATS, r"zero_ints: `rows` must be a constant number of rows"),
        (
            lambda x: tiles.store_rows(x, 0, 16, vectors.load_floats(x, 0)),
            FLOATS,
            r"store_rows: `tile` must be a tile of float32, not float",
        ),
    ],
)
def test_the_compiler_says_which_argument_does_not_fit(kernel, given, message):
    def nothing_back(x):
        compiled(x)

    compiled = exact_kernel(kernel)
    with pytest.raises(TypingError, match=message):
        exact_kernel(nothing_back)(given)
