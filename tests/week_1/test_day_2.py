"""Day 1.2: rotary position embeddings.

The oracle takes each pair (a, b) as the complex number a + bi, which a multiplication by e^(iθ) turns by θ.
"""

from collections.abc import Iterable

import numpy as np
import pytest
from shared.arguments import check_leaves_alone, float_dtypes
from shared.numbers import normal

from coursekit.check import check, check_allowed, check_raises, check_shape

HALF_SPLIT, INTERLEAVED = "half-split", "interleaved"


def frequency(pair: int, D: int, base: float) -> float:
    """How many radians pair `pair` turns from one position to the next."""
    return float(base) ** (-2 * pair / D)


def angles_at(positions: Iterable[int], D: int, base: float) -> np.ndarray:
    """Angle by angle, [L, D/2] in float64."""
    return np.array([[float(p) * frequency(i, D, base) for i in range(D // 2)] for p in positions])


def places(pairing: str, D: int) -> list[tuple[int, int]]:
    """Where the two numbers of each pair stand in a head."""
    if pairing == HALF_SPLIT:
        return [(i, i + D // 2) for i in range(D // 2)]
    return [(2 * i, 2 * i + 1) for i in range(D // 2)]


def turned(x: np.ndarray, angles: np.ndarray, pairing: str) -> np.ndarray:
    """`x` [B, L, H, D] with each pair turned by `angles`, which broadcast to [B, L, H, D/2]."""
    D = x.shape[-1]
    angles = np.broadcast_to(angles, (*x.shape[:-1], D // 2))
    out = np.zeros(x.shape)
    for i, (first, second) in enumerate(places(pairing, D)):
        pair = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles[..., i])
        out[..., first], out[..., second] = pair.real, pair.imag
    return out


def rotate(lab, pairing, x, angles, dtype=None):
    """The learner's rotation of NumPy numbers by NumPy angles."""
    name = "rotate_half_split" if pairing == HALF_SPLIT else "rotate_interleaved"
    turn = getattr(lab.positional_encoding, name)
    return turn(lab.array(x, dtype), lab.array(np.cos(angles)), lab.array(np.sin(angles)))


def overwritten(x, angles, pairing):
    """The rotation in which the second number of each pair is computed from the first one already turned."""
    D = x.shape[-1]
    angles = np.broadcast_to(angles, (*x.shape[:-1], D // 2))
    out = turned(x, angles, pairing)
    for i, (first, second) in enumerate(places(pairing, D)):
        out[..., second] = x[..., second] * np.cos(angles[..., i]) + out[..., first] * np.sin(angles[..., i])
    return out


def put_together(x, pairing):
    """`x`, whose pairs stand as in the other pairing, with the pairs put where this one has them."""
    D = x.shape[-1]
    if pairing == HALF_SPLIT:
        return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)
    return np.stack([x[..., : D // 2], x[..., D // 2 :]], axis=-1).reshape(x.shape)


def exchanged(x, pairing):
    """`x` with the two numbers of each pair in each other's place."""
    out = np.zeros(x.shape)
    for first, second in places(pairing, x.shape[-1]):
        out[..., first], out[..., second] = x[..., second], x[..., first]
    return out


def rotation_suspects(x, angles, pairing):
    """The results of the usual mistakes."""
    other = INTERLEAVED if pairing == HALF_SPLIT else HALF_SPLIT
    right, crossed = turned(x, angles, pairing), turned(x, angles, other)
    return {
        f"the pairs are those of the {other} pairing": crossed,
        f"the pairs are those of the {other} pairing (put back in the order of this one)": (
            put_together(crossed, pairing)
        ),
        "the pairs turn the other way: mind the signs": lambda: turned(x, -angles, pairing),
        "the pairs are right, but the result is put together in the order of the other pairing": (
            put_together(right, other)
        ),
        "the second number of a pair is computed from the first one already turned: keep the old one": (
            lambda: overwritten(x, angles, pairing)
        ),
        "the two numbers of each pair have changed places": lambda: exchanged(right, pairing),
        "cos and sin are exchanged": lambda: turned(x, np.pi / 2 - angles, pairing),
    }


def check_rotation(lab, pairing, x, angles):
    """Hold the learner's rotation against the complex numbers."""
    check(
        rotate(lab, pairing, x, angles),
        turned(x, angles, pairing),
        name=f"the {pairing} rotation",
        axes="B L H D",
        suspects=rotation_suspects(x, angles, pairing),
        inputs={"x": x},
    )


def make_rope(lab, head_dim, max_positions, base=10000.0, interleaved=False):
    """The learner's RoPE on the lab's device."""
    return lab.positional_encoding.RoPE(
        head_dim, max_positions, base=base, interleaved=interleaved, device=lab.device
    )


def table_suspects(D, N, base):
    """The results of the usual mistakes in the table of angles."""
    pairs = np.arange(D // 2)

    def table(exponents, first=0, base=base, unit=1.0):
        angles = unit * np.outer(np.arange(first, first + N), float(base) ** (exponents / D))
        return np.cos(angles), np.sin(angles)

    wrong = {
        "the exponent is −i/D; it should be −2i/D": table(-pairs),
        "the exponent is −4i/D; it should be −2i/D": table(-4 * pairs),
        "the exponent lacks its minus sign": table(2 * pairs),
        "cos and sin are exchanged": table(-2 * pairs)[::-1],
        "the positions start at 1 instead of 0": table(-2 * pairs, first=1),
        "the angles are turned from degrees to radians, but they are radians already": table(
            -2 * pairs, unit=np.pi / 180
        ),
        "every pair stands twice: a table has D/2 columns": tuple(
            np.concatenate((half, half), axis=-1) for half in table(-2 * pairs)
        ),
    }
    return (
        wrong
        if base == 10000
        else {**wrong, "the base is 10,000 whatever is given": table(-2 * pairs, base=1e4)}
    )


# Task 1: the table


@pytest.mark.parametrize(("D", "N", "base"), [(6, 5, 10000.0), (8, 13, 500.0), (2, 4, 10000.0), (10, 7, 1e6)])
def test_task_1_cos_and_sin_of_position_times_frequency(lab, D, N, base):
    angles = angles_at(range(N), D, base)
    cos, sin = np.cos(angles), np.sin(angles)
    actual = lab.positional_encoding.rope_tables(D, N, base)
    check(
        actual,
        (cos, sin),
        name=("cos", "sin"),
        axes="position pair",
        framework="numpy",
        suspects=table_suspects(D, N, base),
    )


def test_task_1_the_exponent_is_minus_two_i_over_the_head_size(lab):
    D, N, base = 8, 11, 10000.0
    angles = angles_at(range(N), D, base)
    check(
        lab.positional_encoding.rope_tables(D, N, base),
        (np.cos(angles), np.sin(angles)),
        name=("cos", "sin"),
        axes="position pair",
        framework="numpy",
        suspects=table_suspects(D, N, base),
    )


def test_task_1_position_0_turns_nothing(lab):
    cos, sin = lab.positional_encoding.rope_tables(6, 3, 10000.0)
    check(cos[0], np.ones(3), name="cos at position 0", framework="numpy")
    check(sin[0], np.zeros(3), name="sin at position 0", framework="numpy")


def test_task_1_the_first_pair_turns_one_radian_per_position(lab):
    cos, sin = lab.positional_encoding.rope_tables(4, 9, 777.0)
    check(cos[:, 0], np.cos(np.arange(9.0)), name="cos of pair 0", axes="position", framework="numpy")
    check(sin[:, 0], np.sin(np.arange(9.0)), name="sin of pair 0", axes="position", framework="numpy")


@pytest.mark.parametrize("base", [10000.0, 1e6])
def test_task_1_far_positions_are_as_exact_as_near_ones(lab, base):
    D, far = 12, [29_993, 29_999, 30_000]
    angles = angles_at(far, D, base)
    cos, sin = lab.positional_encoding.rope_tables(D, 30_001, base)
    for table, name, of in ((cos, "cos", np.cos), (sin, "sin", np.sin)):
        found = check_shape(table, (30_001, D // 2), name=name, axes="position pair", framework="numpy")[far]
        # float32 holds 30,000 radians to 0.002; its frequencies, over as many positions, are off by about as much.
        nearly = np.abs(found - of(angles)).max() < 0.02
        check(
            found,
            of(angles),
            name=f"{name} near position 30,000",
            axes="position pair",
            framework="numpy",
            suspects={
                "angles or frequencies in float32: their error grows with the position; use float64": found
            }
            if nearly
            else None,
        )


@pytest.mark.parametrize("as_tuple", [False, True], ids=["array", "tuple"])
def test_task_1_each_frequency_is_divided_by_its_divisor(lab, as_tuple):
    D, N, base = 8, 11, 500.0
    divisors = np.array([1.0, 1.25, 3.0, 8.0])
    frequencies = np.array([frequency(i, D, base) for i in range(D // 2)])

    def table(frequencies):
        angles = np.outer(np.arange(N), frequencies)
        return np.cos(angles), np.sin(angles)

    check(
        lab.positional_encoding.rope_tables(D, N, base, tuple(divisors) if as_tuple else divisors),
        table(frequencies / divisors),
        name=("cos with divisors", "sin with divisors"),
        axes="position pair",
        framework="numpy",
        suspects={
            "the divisors aren't used": table(frequencies),
            "the frequencies are multiplied by the divisors instead of divided": table(
                frequencies * divisors
            ),
            "the divisors stand in the opposite order": table(frequencies / divisors[::-1]),
        },
    )


# Tasks 2 and 3: the two rotations


def test_task_2_the_example_of_the_chapter(lab):
    x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    check_rotation(lab, HALF_SPLIT, x, np.array([np.pi / 2, np.pi]))


def test_task_3_the_example_of_the_chapter(lab):
    x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    check_rotation(lab, INTERLEAVED, x, np.array([np.pi / 2, np.pi]))


SHAPES = pytest.mark.parametrize(
    ("B", "L", "H", "D"), [(2, 5, 3, 8), (1, 7, 2, 6), (3, 1, 4, 10), (1, 4, 5, 2)], ids=str
)


@SHAPES
def test_task_2_each_pair_is_turned_by_its_angle(lab, B, L, H, D):
    check_rotation(lab, HALF_SPLIT, normal(2201, B, L, H, D), normal(2202, 1, L, 1, D // 2) * 3)


@SHAPES
def test_task_3_each_pair_is_turned_by_its_angle(lab, B, L, H, D):
    check_rotation(lab, INTERLEAVED, normal(2301, B, L, H, D), normal(2302, 1, L, 1, D // 2) * 3)


ANGLE_SHAPES = pytest.mark.parametrize(
    "shape",
    [(2, 5, 1, 4), (2, 5, 3, 4), (5, 1, 4), (1, 1, 1, 4)],
    ids=lambda shape: "x".join(map(str, shape)),
)


@ANGLE_SHAPES
def test_task_2_angles_broadcast_over_rows_and_heads(lab, shape):
    check_rotation(lab, HALF_SPLIT, normal(2203, 2, 5, 3, 8), normal(2204, *shape) * 3)


@ANGLE_SHAPES
def test_task_3_angles_broadcast_over_rows_and_heads(lab, shape):
    check_rotation(lab, INTERLEAVED, normal(2303, 2, 5, 3, 8), normal(2304, *shape) * 3)


def check_lengths(lab, pairing, x, angles):
    actual = rotate(lab, pairing, x, angles)
    result = check_shape(actual, x.shape, name=f"the {pairing} rotation", axes="B L H D").astype(np.float64)
    for first, second in places(pairing, x.shape[-1]):
        check(
            lab.array(np.hypot(result[..., first], result[..., second])),
            np.hypot(x[..., first], x[..., second]),
            name=f"the length of the pair ({first}, {second})",
            axes="B L H",
        )


def test_task_2_no_pair_changes_its_length(lab):
    check_lengths(lab, HALF_SPLIT, normal(2205, 2, 5, 3, 8), normal(2206, 1, 5, 1, 4) * 10)


def test_task_3_no_pair_changes_its_length(lab):
    check_lengths(lab, INTERLEAVED, normal(2305, 2, 5, 3, 8), normal(2306, 1, 5, 1, 4) * 10)


def check_dtype(lab, pairing, dtype):
    x, angles = normal(2207, 2, 5, 3, 8), normal(2208, 1, 5, 1, 4) * 3
    x = lab.numpy(lab.array(x, dtype)).astype(np.float64)
    check(
        rotate(lab, pairing, x, angles, dtype),
        turned(x, angles, pairing),
        name=f"the {pairing} rotation of {dtype} numbers",
        axes="B L H D",
        dtype=dtype,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_2_the_dtype_of_x_is_kept(lab, dtype):
    check_dtype(lab, HALF_SPLIT, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_3_the_dtype_of_x_is_kept(lab, dtype):
    check_dtype(lab, INTERLEAVED, dtype)


def check_precision(lab, turn, pairing):
    """The numbers of the widest dtype keep all their digits; float32 can't hold these."""
    x, angles = np.random.default_rng(2211).normal(size=(2, 5, 3, 8)), normal(2212, 1, 5, 1, 4)
    dtype = float_dtypes(lab)[-1]
    near = 1e-12 if dtype == "float64" else 0.01
    check(
        turn(*(lab.array(a, dtype) for a in (x, np.cos(angles), np.sin(angles)))),
        turned(x, angles, pairing),
        name=f"the {pairing} rotation of {dtype} numbers",
        axes="B L H D",
        dtype=dtype,
        rtol=near,
        atol=near,
        suspects={
            "x was converted to float32 on the way": lambda: turned(x.astype(np.float32), angles, pairing),
            "the result was converted to float32 on the way": lambda: turned(x, angles, pairing).astype(
                np.float32
            ),
        },
    )


def test_task_2_float64_numbers_keep_their_precision(lab):
    check_precision(lab, lab.positional_encoding.rotate_half_split, HALF_SPLIT)


def test_task_3_float64_numbers_keep_their_precision(lab):
    check_precision(lab, lab.positional_encoding.rotate_interleaved, INTERLEAVED)


def check_arguments(lab, turn):
    x, angles = normal(2209, 2, 5, 3, 8), normal(2210, 1, 5, 1, 4)
    cos, sin = np.cos(angles), np.sin(angles)
    check_leaves_alone(lab, turn, x=x, cos=cos, sin=sin)
    table = lab.array(cos), lab.array(sin)  # in float32 whatever x is, as in RoPE
    check_leaves_alone(lab, lambda x: turn(x, *table), x=x)


def test_task_2_the_arguments_are_left_as_they_were(lab):
    check_arguments(lab, lab.positional_encoding.rotate_half_split)


def test_task_3_the_arguments_are_left_as_they_were(lab):
    check_arguments(lab, lab.positional_encoding.rotate_interleaved)


def test_task_3_the_two_pairings_differ_only_in_the_order_of_the_numbers(lab):
    x, angles = normal(2307, 2, 5, 3, 8), normal(2308, 1, 5, 1, 4)
    # Even places first, then odd ones: takes interleaved pairs to half-split ones.
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    interleaved = check_shape(
        rotate(lab, INTERLEAVED, x, angles), x.shape, name="the interleaved rotation", axes="B L H D"
    )
    check(
        rotate(lab, HALF_SPLIT, x[..., order], angles),
        interleaved[..., order],
        name="half-split after reordering",
        axes="B L H D",
    )


# Task 4: a run of positions


def look_up(rope, start, stop, size):
    """The learner's angles for a slice that lies in a table of `size` positions."""
    why = "a run may end exactly at max_positions: stop = max_positions is the last that fits"
    if start == stop:
        why = "an empty run (stop = start) is allowed: its arrays have no row"
    name = f"slice({start}, {stop}) of {size} positions"
    return check_allowed(lambda: rope.angles(slice(start, stop)), name=name, why=why)


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (3, 8), (9, 10), (7, 20), (0, 20)])
def test_task_4_the_angles_of_a_run_of_positions(lab, start, stop):
    D, base = 6, 300.0
    angles = angles_at(range(start, stop), D, base)[None, :, None]
    from_zero = angles_at(range(stop - start), D, base)[None, :, None]
    check(
        look_up(make_rope(lab, D, 20, base), start, stop, 20),
        (np.cos(angles), np.sin(angles)),
        name=(f"cos for slice({start}, {stop})", f"sin for slice({start}, {stop})"),
        axes="B L H pair",
        suspects={
            "the positions are counted from 0 instead of the slice's start": (
                np.cos(from_zero),
                np.sin(from_zero),
            ),
            "cos and sin are exchanged": (np.sin(angles), np.cos(angles)),
        },
    )


@pytest.mark.parametrize("start", [0, 5, 12])
def test_task_4_an_empty_run_has_no_angles(lab, start):
    nothing = np.zeros((1, 0, 1, 3))
    check(
        look_up(make_rope(lab, 6, 12), start, start, 12),
        (nothing, nothing),
        name=(f"cos for slice({start}, {start})", f"sin for slice({start}, {start})"),
        axes="B L H pair",
    )


def test_task_4_one_run_after_another_is_looked_up_in_the_same_table(lab):
    rope = make_rope(lab, 6, 12)
    for start, stop in [(8, 12), (0, 3), (5, 12), (0, 12)]:
        angles = angles_at(range(start, stop), 6, 10000.0)[None, :, None]
        name = f"slice({start}, {stop}), looked up after others (does the table change?)"
        check(look_up(rope, start, stop, 12), (np.cos(angles), np.sin(angles)), name=name, axes="B L H pair")


@pytest.mark.parametrize("stop", [1, 4, 12])
def test_task_4_a_slice_without_a_start_begins_at_0(lab, stop):
    D = 8
    angles = angles_at(range(stop), D, 10000.0)[None, :, None]
    check(
        make_rope(lab, D, 12).angles(slice(None, stop)),
        (np.cos(angles), np.sin(angles)),
        name=(f"cos for slice(None, {stop})", f"sin for slice(None, {stop})"),
        axes="B L H pair",
    )


@pytest.mark.parametrize(("start", "stop"), [(0, 13), (11, 13), (12, 13), (13, 13), (20, 25), (None, 13)])
def test_task_4_a_slice_past_the_table_is_refused(lab, start, stop):
    rope = make_rope(lab, 6, 12)
    check_raises(
        ValueError, lambda: rope.angles(slice(start, stop)), name=f"slice({start}, {stop}) of 12 positions"
    )


@pytest.mark.parametrize(("start", "stop"), [(-2, 3), (-3, -1), (-2, -2), (5, 3), (None, -1)])
def test_task_4_a_slice_that_is_no_run_of_positions_is_refused(lab, start, stop):
    rope = make_rope(lab, 6, 12)
    check_raises(ValueError, lambda: rope.angles(slice(start, stop)), name=f"slice({start}, {stop})")


@pytest.mark.parametrize("interleaved", [False, True], ids=[HALF_SPLIT, INTERLEAVED])
def test_task_4_tokens_at_an_offset_are_turned_by_their_own_positions(lab, interleaved):
    D, base, x = 8, 500.0, normal(2401, 2, 5, 3, 8)
    pairing = INTERLEAVED if interleaved else HALF_SPLIT
    rope = make_rope(lab, D, 40, base, interleaved)
    angles = angles_at(range(11, 16), D, base)[None, :, None]
    from_zero = angles_at(range(5), D, base)[None, :, None]
    check(
        rope(lab.array(x), slice(11, 16)),
        turned(x, angles, pairing),
        name="five tokens at positions 11 to 15",
        axes="B L H D",
        suspects={
            "the positions are counted from 0 instead of the slice's start": lambda: turned(
                x, from_zero, pairing
            ),
        },
    )


def test_task_4_a_token_at_position_0_is_not_changed(lab):
    x = normal(2402, 2, 1, 3, 8)
    check(make_rope(lab, 8, 4)(lab.array(x), slice(0, 1)), x, name="a token at position 0", axes="B L H D")


def test_task_4_one_token_after_a_cache_is_turned_as_in_the_whole(lab):
    x, rope = normal(2403, 2, 9, 3, 8), make_rope(lab, 8, 16)
    whole = check_shape(rope(lab.array(x), slice(0, 9)), x.shape, name="nine tokens at once", axes="B L H D")
    for position in range(9):
        check(
            rope(lab.array(x[:, position : position + 1]), slice(position, position + 1)),
            whole[:, position : position + 1],
            name=f"token {position} alone",
            axes="B L H D",
        )


@pytest.mark.parametrize("interleaved", [False, True], ids=[HALF_SPLIT, INTERLEAVED])
@pytest.mark.parametrize("shift", [1, 40, 400])
def test_task_4_only_the_distance_shows_in_the_scores(lab, interleaved, shift):
    query, key = normal(2404, 1, 5, 1, 8), normal(2405, 1, 7, 1, 8)
    rope = make_rope(lab, 8, 500, interleaved=interleaved)

    def scores(at: int) -> np.ndarray:
        turned_query = rope(lab.array(query), slice(at + 2, at + 7))
        turned_key = rope(lab.array(key), slice(at, at + 7))
        rows = check_shape(turned_query, query.shape, name="the turned query", axes="B L H D")
        columns = check_shape(turned_key, key.shape, name="the turned key", axes="B L H D")
        return rows[0, :, 0].astype(np.float64) @ columns[0, :, 0].astype(np.float64).T

    check(
        lab.array(scores(shift)),
        scores(0),
        name=f"the scores, {shift} positions further on",
        axes="L S",
        # Eight products of numbers of a few units, each turned with rounded cos and sin.
        atol=5e-6,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_4_the_dtype_of_the_tokens_is_kept_at_an_offset(lab, dtype):
    x = lab.numpy(lab.array(normal(2406, 2, 5, 3, 8), dtype)).astype(np.float64)
    angles = angles_at(range(300, 305), 8, 10000.0)[None, :, None]
    check(
        make_rope(lab, 8, 400)(lab.array(x, dtype), slice(300, 305)),
        turned(x, angles, HALF_SPLIT),
        name=f"{dtype} tokens at positions 300 to 304",
        axes="B L H D",
        dtype=dtype,
    )
