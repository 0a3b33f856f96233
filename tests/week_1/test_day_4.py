"""Day 1.4: RMSNorm, SwiGLU, embedding and head."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shared.arguments import check_leaves_alone, float_dtypes
from shared.numbers import as_float32, normal

from coursekit.check import check, check_equal, check_shape, check_untouched

Suspects = dict[str, Callable[[], np.ndarray]]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """Vector by vector: each number over the root of the mean of the squares, times its weight."""
    out = np.zeros_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        vector = x[place]
        mean_square = sum(number * number for number in vector) / len(vector)
        out[place] = vector / np.sqrt(mean_square + eps) * weight
    return out


def norm_suspects(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> Suspects:
    """The results of the usual mistakes in RMSNorm."""
    squares, E = x**2, x.shape[-1]
    mean_square = squares.mean(axis=-1, keepdims=True)
    centered = x - x.mean(axis=-1, keepdims=True)
    return {
        "the weight is left out": lambda: rms_norm(x, np.ones(E), eps),
        "the mean is subtracted: that is LayerNorm": lambda: rms_norm(centered, weight, eps),
        "the variance is taken, for which the mean is subtracted: RMSNorm subtracts nothing": lambda: (
            x / np.sqrt(x.var(axis=-1, keepdims=True) + eps) * weight
        ),
        "the squares are summed, not averaged": lambda: rms_norm(x, weight, eps * E) / np.sqrt(E),
        "the root is missing": lambda: x / (mean_square + eps) * weight,
        "eps is added to the root, not under it": lambda: x / (np.sqrt(mean_square) + eps) * weight,
        "eps is not used": lambda: x / np.sqrt(mean_square) * weight,
        "eps is squared": lambda: rms_norm(x, weight, eps**2),
        "eps is 1e-6 whatever is given": lambda: rms_norm(x, weight),
        "1 is added to the weight": lambda: rms_norm(x, 1 + weight, eps),
        "the result is divided by the weight": lambda: rms_norm(x, 1 / weight, eps),
        "the mean is taken over all vectors, not over each": lambda: (
            x / np.sqrt(squares.mean() + eps) * weight
        ),
    }


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x), by way of tanh, which has no large exponentials."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def swiglu(x: np.ndarray, gate_up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """[..., E] → [..., E]; gate_up [2F, E] with the gate's rows first, down [E, F]."""
    F = down.shape[1]
    gate, up = x @ gate_up[:F].T, x @ gate_up[F:].T
    return (gate * sigmoid(gate) * up) @ down.T


def mlp_suspects(x: np.ndarray, gate_up: np.ndarray, down: np.ndarray) -> Suspects:
    """The results of the usual mistakes in the MLP."""
    F = down.shape[1]
    gate, up = x @ gate_up[:F].T, x @ gate_up[F:].T
    both = x @ gate_up.T
    even, odd = both[..., 0::2], both[..., 1::2]
    return {
        "gate and up are exchanged: silu is for the gate, the first F outputs": lambda: (
            gate * up * sigmoid(up) @ down.T
        ),
        "gate and up are cut as every second number, not as two halves": lambda: (
            even * sigmoid(even) * odd @ down.T
        ),
        "silu is left out": lambda: gate * up @ down.T,
        "silu is applied to the product, not to the gate": lambda: (gate * up * sigmoid(gate * up)) @ down.T,
        "the gate is sigmoid(gate), not silu(gate)": lambda: sigmoid(gate) * up @ down.T,
        "gate and up are added, not multiplied": lambda: (gate * sigmoid(gate) + up) @ down.T,
        "x is added to the result: leave that to the block": lambda: x + swiglu(x, gate_up, down),
    }


def norm(lab: Any, x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> Any:
    """The learner's RMSNorm on NumPy arrays."""
    return lab.layers.RMSNorm(lab.array(weight), eps)(lab.array(x))


def mlp(lab: Any, gate_up: Any, down: Any) -> Any:
    """The learner's MLP on two weight matrices."""
    layers = lab.layers
    return layers.MLP(layers.Linear(lab.array(gate_up)), layers.Linear(lab.array(down)))


@pytest.mark.parametrize(
    "shape", [(8,), (1, 8), (3, 5, 8), (2, 3, 4, 6)], ids=["E", "1 E", "B L E", "B L H D"]
)
def test_task_1_each_vector_is_scaled_by_its_own_root_mean_square(lab, shape):
    x = normal(141, *shape) * 3
    weight = normal(142, shape[-1])
    check(norm(lab, x, weight), rms_norm(x, weight), name="RMSNorm", suspects=norm_suspects(x, weight))


def test_task_1_a_vector_worked_by_hand(lab):
    # The squares of 1, 7, −5, 5 add up to 100; their mean is 25 and its root 5.
    x, weight = np.array([1.0, 7.0, -5.0, 5.0]), np.array([1.0, 1.0, 2.0, 0.5])
    expected = np.array([0.2, 1.4, -2.0, 0.5])
    check(
        norm(lab, x, weight, eps=0.0),
        expected,
        name="RMSNorm of 1, 7, −5, 5",
        suspects=norm_suspects(x, weight),
    )


def test_task_1_the_mean_is_not_subtracted(lab):
    x, weight = normal(143, 3, 5, 8) + 4, normal(144, 8)
    check(
        norm(lab, x, weight),
        rms_norm(x, weight),
        name="RMSNorm of numbers around 4",
        axes="B L E",
        suspects=norm_suspects(x, weight),
    )


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_task_1_eps_stands_under_the_root(lab, eps):
    size = np.array([1e-4, 1e-3, 1e-2, 1.0, 30.0])[:, None]
    x, weight = as_float32(normal(145, 3, 5, 8) * size), normal(146, 8)
    check(
        norm(lab, x, weight, eps),
        rms_norm(x, weight, eps),
        name=f"RMSNorm with eps={eps:g}",
        axes="B L E",
        atol=0.0,
        suspects=norm_suspects(x, weight, eps),
    )


def test_task_1_a_vector_of_zeros_stays_zeros(lab):
    x, weight = normal(147, 3, 8), normal(148, 8)
    x[1] = 0.0
    check(norm(lab, x, weight), rms_norm(x, weight), name="RMSNorm with a vector of zeros", axes="B E")


def test_task_1_squares_too_large_for_float16_do_no_harm(lab):
    # 65,504 is the largest float16: the square of 256 is beyond it.
    x = lab.array(normal(149, 3, 5, 8) * 200 + 400, "float16")
    weight = lab.array(normal(150, 8), "float16")
    expected = rms_norm(lab.numpy(x).astype(np.float64), lab.numpy(weight).astype(np.float64))
    actual = lab.layers.RMSNorm(weight, 1e-6)(x)
    check(
        actual,
        expected,
        name="RMSNorm of numbers around 400",
        axes="B L E",
        dtype="float16",
        suspects={
            "the squares or their mean overflow in float16: both belong in float32": np.zeros_like(expected)
        },
    )


def test_task_1_squares_too_small_for_float16_do_not_vanish(lab):
    # The smallest float16 is 6·10⁻⁸: the square of 10⁻⁴ rounds to 0, and so does an eps of 10⁻⁸.
    x = lab.array(normal(151, 3, 5, 8) * 1e-4, "float16")
    weight = lab.array(normal(152, 8), "float16")
    expected = rms_norm(lab.numpy(x).astype(np.float64), lab.numpy(weight).astype(np.float64), 1e-8)
    actual = lab.layers.RMSNorm(weight, 1e-8)(x)
    check(
        actual,
        expected,
        name="RMSNorm of numbers around 0.0001",
        axes="B L E",
        dtype="float16",
        suspects={
            "the squares or their mean vanish in float16: both belong in float32": np.sign(expected) * np.inf
        },
    )


def test_task_1_bfloat16_is_rounded_at_the_end_only(lab):
    x = lab.array(normal(153, 40, 96), "bfloat16")
    weight = lab.array(normal(154, 96), "bfloat16")
    expected = rms_norm(lab.numpy(x).astype(np.float64), lab.numpy(weight).astype(np.float64))
    actual = lab.layers.RMSNorm(weight, 1e-6)(x)
    # One rounding to bfloat16 is off by at most 1/256. A second one, before the weight, is what some models
    # were trained with, and is let pass; the roundings of mean, root and quotient add up to more.
    check(
        actual, expected, name="RMSNorm in bfloat16", axes="T E", dtype="bfloat16", rtol=1.05 / 128, atol=1e-6
    )


def test_task_1_the_result_has_the_dtype_of_x_whatever_the_dtype_of_the_weight(lab):
    x, weight = lab.array(normal(155, 3, 5, 8), "bfloat16"), normal(156, 8)
    expected = rms_norm(lab.numpy(x).astype(np.float64), weight)
    actual = lab.layers.RMSNorm(lab.array(weight), 1e-6)(x)
    check(
        actual,
        expected,
        name="RMSNorm of bfloat16 numbers with a float32 weight",
        axes="B L E",
        dtype="bfloat16",
    )


def test_task_1_x_and_the_weight_are_left_as_they_were(lab):
    check_leaves_alone(
        lab,
        lambda x, weight: lab.layers.RMSNorm(weight, 1e-6)(x),
        x=normal(157, 3, 5, 8),
        the_weight=normal(158, 8),
    )
    check_leaves_alone(
        lab,
        lambda x, weight: lab.layers.RMSNorm(weight, 1e-6)(x),
        x=normal(159, 8),
        the_weight=normal(160, 8),
    )


@pytest.mark.parametrize("shape", [(), (7,), (3, 5, 8)], ids=["one number", "L", "B L E"])
def test_task_2_silu_is_x_times_sigmoid(lab, shape):
    # At −0.5 silu, relu and gelu are well apart; at a large number they are not.
    x = normal(161, *shape) * 3 if shape else np.array(-0.5)
    check(
        lab.layers.silu(lab.array(x)),
        np.asarray(x * sigmoid(x)),
        name="silu",
        suspects={
            "this is sigmoid(x): times x is missing": lambda: sigmoid(x),
            "this is relu": lambda: np.maximum(x, 0.0),
            "this is gelu": lambda: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
        },
    )


def test_task_2_silu_survives_large_numbers_of_either_sign(lab):
    x = np.array([-1e30, -1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4, 1e30])
    expected = as_float32(x) * sigmoid(x)
    # x·sigmoid(x) at −20 is −4.12·10⁻⁸; beyond −100 it is smaller than any float32.
    expected[:4] = [0.0, 0.0, 0.0, -20.0 / (1.0 + np.exp(20.0))]
    check(
        lab.layers.silu(lab.array(x)),
        expected,
        name="silu from −1e30 to 1e30",
        atol=1e-12,
        suspects={
            "e^x overflowed: inf/inf is NaN; e^−x only overflows where the sigmoid is 0": np.where(
                x >= 100.0, np.nan, expected
            )
        },
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_2_silu_keeps_the_dtype(lab, dtype):
    x = lab.array(np.concatenate([normal(162, 30) * 3, [-300.0, 300.0]]), dtype)
    wide = lab.numpy(x).astype(np.float64)
    check(lab.layers.silu(x), wide * sigmoid(wide), name=f"silu in {dtype}", dtype=dtype)


def test_task_2_silu_leaves_x_as_it_was(lab):
    check_leaves_alone(lab, lab.layers.silu, x=normal(177, 3, 5))


@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 5, 6)], ids=["E", "L E", "B L E"])
def test_task_2_the_mlp_gates_and_projects_back(lab, shape):
    x, gate_up, down = normal(163, *shape), normal(164, 20, 6), normal(165, 6, 10)
    actual = mlp(lab, gate_up, down)(lab.array(x))
    expected = swiglu(x, gate_up, down)
    check(actual, expected, name="the MLP", suspects=mlp_suspects(x, gate_up, down), rtol=2e-5, atol=1e-5)


def test_task_2_the_first_half_of_gate_up_is_the_gate(lab):
    # With E = F = 1 all can be done by hand: gate = x, up = 10·x, and silu(2) = 1.7616.
    actual = mlp(lab, [[1.0], [10.0]], [[1.0]])(lab.array([[2.0], [0.0]]))
    gated = 2 / (1 + np.exp(-2.0)) * 20
    swapped = 20 / (1 + np.exp(-20.0)) * 2
    check(
        actual,
        [[gated], [0.0]],
        name="silu(2)·20",
        axes="L E",
        suspects={
            "gate and up are exchanged: silu is for the gate, the first F outputs": np.array(
                [[swapped], [0.0]]
            )
        },
    )


def test_task_2_any_projection_will_do(lab):
    # With biases the projections are not plain matrices any more; the MLP only calls them.
    x, gate_up, down = normal(166, 3, 5, 6), normal(167, 8, 6), normal(168, 6, 4)
    gate_up_bias, down_bias = normal(169, 8), normal(170, 6)
    layers = lab.layers
    learner = layers.MLP(
        layers.Linear(lab.array(gate_up), lab.array(gate_up_bias)),
        layers.Linear(lab.array(down), lab.array(down_bias)),
    )
    gate, up = np.split(x @ gate_up.T + gate_up_bias, 2, axis=-1)
    expected = (gate * sigmoid(gate) * up) @ down.T + down_bias
    check(learner(lab.array(x)), expected, name="an MLP with biases", axes="B L E", rtol=2e-5, atol=1e-5)


def test_task_2_one_call_computes_gate_and_up(lab):
    x, gate_up, down = normal(174, 3, 5, 6), normal(175, 20, 6), normal(176, 6, 10)
    project, calls = lab.layers.Linear(lab.array(gate_up)), []

    def counted(given: Any) -> Any:
        calls.append(given)
        return project(given)

    actual = lab.layers.MLP(counted, lab.layers.Linear(lab.array(down)))(lab.array(x))
    check(actual, swiglu(x, gate_up, down), name="the MLP", axes="B L E", rtol=2e-5, atol=1e-5)
    check_equal(len(calls), 1, name="how often gate_up was called")


def test_task_2_the_mlp_leaves_x_and_what_a_projection_hands_out_as_they_were(lab):
    """Both projections return an array that belongs to somebody else: x itself, and one that is handed out again."""
    x, gate_up = normal(178, 3, 5, 8), normal(179, 3, 5, 16)
    given, handed_out = lab.array(x), lab.array(gate_up)
    lab.layers.MLP(lambda y: handed_out, lambda y: y)(given)
    check_untouched(handed_out, gate_up, name="what gate_up returned", axes="B L 2F")
    lab.layers.MLP(lambda y: y, lambda y: y)(given)
    check_untouched(given, x, name="x", axes="B L E")


def test_task_2_the_mlp_keeps_bfloat16(lab):
    x, gate_up, down = normal(171, 3, 5, 6), normal(172, 20, 6) / 4, normal(173, 6, 10) / 4
    arrays = [lab.array(part, "bfloat16") for part in (x, gate_up, down)]
    exact = [lab.numpy(array).astype(np.float64) for array in arrays]
    layers = lab.layers
    actual = layers.MLP(layers.Linear(arrays[1]), layers.Linear(arrays[2]))(arrays[0])
    check(
        actual,
        swiglu(*exact),
        name="the MLP in bfloat16",
        axes="B L E",
        dtype="bfloat16",
        rtol=4e-2,
        atol=2e-2,
    )


@pytest.mark.parametrize(
    "shape", [(), (1,), (4,), (0,), (3, 5), (2, 3, 4)], ids=["one id", "1", "L", "no id", "B L", "three axes"]
)
def test_task_3_ids_of_any_shape_become_vectors(lab, shape):
    table = normal(181, 11, 6)
    ids = np.asarray(np.random.default_rng(182).integers(0, 11, size=shape))
    actual = lab.layers.Embedding(lab.array(table))(lab.array(ids))
    check(
        actual,
        table[ids],
        name=f"the vectors of ids {list(shape)}",
        rtol=0,
        atol=0,
        suspects={
            "the vectors are multiplied by √E": lambda: table[ids] * np.sqrt(6),
            "ids are taken to start at 1": lambda: table[ids - 1],
            "the vectors are scaled to length 1": lambda: (
                table[ids] / np.linalg.norm(table[ids], axis=-1, keepdims=True)
            ),
        },
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_task_3_first_last_and_repeated_ids(lab, dtype):
    table = normal(183, 11, 6)
    ids = np.array([[0, 10, 0], [10, 10, 5]])
    actual = lab.layers.Embedding(lab.array(table))(lab.array(ids, dtype))
    check(actual, table[ids], name=f"the vectors of {dtype} ids", axes="B L E", rtol=0, atol=0)


def test_task_3_vectors_have_the_dtype_of_the_table(lab):
    table = lab.array(normal(184, 11, 6), "bfloat16")
    ids = np.array([3, 0, 7])
    actual = lab.layers.Embedding(table)(lab.array(ids))
    check(
        actual, lab.numpy(table)[ids], name="bfloat16 vectors", axes="L E", dtype="bfloat16", rtol=0, atol=0
    )


@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 5, 6)], ids=["E", "L E", "B L E"])
def test_task_3_the_head_scores_every_token(lab, shape):
    table, x = normal(185, 11, 6), normal(186, *shape)
    expected = np.einsum("...e,ve->...v", x, table)
    unit = table / np.linalg.norm(table, axis=-1, keepdims=True)
    check(
        lab.layers.Embedding(lab.array(table)).as_linear(lab.array(x)),
        expected,
        name="the scores",
        rtol=1e-5,
        atol=1e-5,
        suspects={
            "the scores are divided by √E": lambda: expected / np.sqrt(6),
            "the scores have gone through softmax": lambda: (
                np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
            ),
            "the table's vectors are normalized first": lambda: np.einsum("...e,ve->...v", x, unit),
        },
    )


def test_task_3_ids_table_and_vectors_are_left_as_they_were(lab):
    ids, numbers = lab.array(np.array([[3, 0], [7, 3]])), np.array([[3, 0], [7, 3]])
    check_leaves_alone(lab, lambda table: lab.layers.Embedding(table)(ids), the_table=normal(188, 11, 6))
    check_equal(lab.numpy(ids).tolist(), numbers.tolist(), name="the ids, afterwards")
    check_leaves_alone(
        lab,
        lambda table, x: lab.layers.Embedding(table).as_linear(x),
        the_table=normal(189, 11, 6),
        x=normal(190, 3, 6),
    )


def test_task_3_scores_have_the_dtype_of_the_vectors(lab):
    for dtype in float_dtypes(lab):
        table, x = lab.array(normal(191, 11, 6), dtype), lab.array(normal(192, 3, 6), dtype)
        check(
            lab.layers.Embedding(table).as_linear(x),
            lab.numpy(x).astype(np.float64) @ lab.numpy(table).astype(np.float64).T,
            name=f"the scores in {dtype}",
            axes="L V",
            dtype=dtype,
            atol=1e-5 if dtype in ("float32", "float64") else 0.05,
        )


def test_task_3_a_token_looked_up_scores_highest_for_itself(lab):
    # Among vectors of length 1 each has its largest inner product with itself.
    table = normal(187, 11, 6)
    table = as_float32(table / np.linalg.norm(table, axis=-1, keepdims=True))
    embedding = lab.layers.Embedding(lab.array(table))
    scores = check_shape(
        embedding.as_linear(embedding(lab.array(np.arange(11)))), (11, 11), name="the scores", axes="L V"
    )
    best = scores.argmax(axis=-1).tolist()
    assert best == list(range(11)), (
        f"each of 11 tokens should score highest for itself; the highest are {best}"
    )
