"""Day 1.1: softmax, linear, scaled dot-product attention and multi-head attention."""

import numpy as np
import pytest
from shared.arguments import check_leaves_alone, float_dtypes
from shared.numbers import normal

from coursekit.check import check, check_shape

from .softmax_oracle import HIDDEN, weights_of


def rounded_to_bfloat16(lab, x):
    """The numbers that a bfloat16 array of `x` holds."""
    return lab.numpy(lab.array(x, "bfloat16")).astype(np.float64)


def softmax_along(x: np.ndarray, axis: int) -> np.ndarray:
    """Softmax row by row along `axis`."""
    return np.apply_along_axis(weights_of, axis, x)


def attention(query, key, value, scale=None, mask=None, scale_mask=False):
    """Scaled dot-product attention, query by query; the axes before the last two are batch axes."""
    *batch, L, D = query.shape
    S = key.shape[-2]
    scale = 1 / np.sqrt(D) if scale is None else scale
    mask = np.broadcast_to(0.0 if mask is None else mask, (*batch, L, S))
    out = np.zeros((*batch, L, value.shape[-1]))
    for place in np.ndindex(*batch, L):
        row, bias = place[:-1], mask[place]
        products = np.array([query[place] @ k for k in key[row]])
        scores = (products + bias) * scale if scale_mask else products * scale + bias
        out[place] = sum(w * v for w, v in zip(weights_of(scores), value[row], strict=True))
    return out


def read_as_yes_or_no(mask, hides):
    """The mask of a learner who takes each number of it for yes or no: hidden where `hides(mask)`."""
    return np.where(hides(mask), HIDDEN, 0.0)


def spread(query, key, value, scale, mask, along=-1, multiply=False):
    """Attention as one formula, with its usual slips: softmax along another axis, or a mask that is multiplied."""
    products = query @ np.swapaxes(key, -1, -2) * scale
    mask = (1.0 if multiply else 0.0) if mask is None else mask
    with np.errstate(invalid="ignore"):  # 0 · ∞ and ∞ − ∞ are NaN here, as they are for the learner
        weights = softmax_along(products * mask if multiply else products + mask, along)
        return weights @ value


def without_softmax(query, key, value, scale, mask):
    """The values added up by the scores themselves, those that are hidden left out."""
    scores = query @ np.swapaxes(key, -1, -2) * scale + (0.0 if mask is None else mask)
    with np.errstate(invalid="ignore"):  # −∞ · 0 is NaN here, as it is for the learner
        return scores @ value


def random_mask(seed: int, *shape: int) -> np.ndarray:
    """Numbers to add to the scores, a third of them −inf; the first key is seen by every query."""
    rng = np.random.default_rng(seed)
    mask = np.where(rng.random(shape) < 1 / 3, HIDDEN, rng.normal(size=shape))
    mask[..., 0] = -0.5
    return mask.astype(np.float32).astype(np.float64)


def attend(lab, query, key, value, **options):
    """The learner's scaled_dot_product_attention on NumPy arrays."""
    if options.get("mask") is not None:
        options["mask"] = lab.array(options["mask"])
    return lab.attention.scaled_dot_product_attention(
        lab.array(query), lab.array(key), lab.array(value), **options
    )


def attention_suspects(query, key, value, scale=None, mask=None):
    """The results of the usual mistakes."""
    D = query.shape[-1]
    given = 1 / np.sqrt(D) if scale is None else scale
    wrong = {
        ("the scores are not divided by √D" if scale is None else "the scores are not scaled at all"): (
            lambda: attention(query, key, value, 1.0, mask)
        ),
        "the weights sum to 1 over the queries: softmax goes along the last axis, the keys": lambda: spread(
            query, key, value, given, mask, along=-2
        ),
        "the scores are divided by √S, with S the number of keys, instead of √D": lambda: attention(
            query, key, value, 1 / np.sqrt(key.shape[-2]), mask
        ),
        "the keys are averaged, not the values": lambda: attention(query, key, key, given, mask),
        "the scores are not put through softmax": lambda: without_softmax(query, key, value, given, mask),
    }
    if scale is None:
        wrong["the scores are divided by √L, with L the number of queries, instead of √D"] = lambda: (
            attention(query, key, value, 1 / np.sqrt(query.shape[-2]), mask)
        )
        wrong["the scores are multiplied by √D instead of divided by it"] = lambda: attention(
            query, key, value, np.sqrt(D), mask
        )
        wrong["the scores are divided by D instead of √D"] = lambda: attention(query, key, value, 1 / D, mask)
    else:
        wrong["1/√D is still applied: a given scale takes its place"] = lambda: attention(
            query, key, value, scale / np.sqrt(D), mask
        )
        unused = "the given scale is not used" if scale else "a scale of 0 is a scale: ask whether it is None"
        wrong[unused] = lambda: attention(query, key, value, None, mask)
        if scale:
            wrong["the scores are divided by the given scale: multiply by it"] = lambda: attention(
                query, key, value, 1 / scale, mask
            )
    if mask is not None:
        wrong["the mask is not added"] = lambda: attention(query, key, value, given)
        wrong["the mask is multiplied with the scores: add it"] = lambda: spread(
            query, key, value, given, mask, multiply=True
        )
        wrong["the mask is scaled together with the scores: add it after scaling"] = lambda: attention(
            query, key, value, given, mask, scale_mask=True
        )
        wrong["the mask is read as yes or no: its numbers are added to the scores"] = lambda: attention(
            query, key, value, given, read_as_yes_or_no(mask, lambda m: m != 0)
        )
    return wrong


class Projections:
    """Weights of a multi-head attention in which H·D is not E, and the oracle that uses them."""

    def __init__(self, seed: int, H: int = 3, D: int = 4, E: int = 10) -> None:
        self.H, self.D, self.E = H, D, E
        # A quarter, which float32 holds exactly, keeps the scores small.
        self.query, self.key, self.value = (normal(seed + i, H * D, E) / 4 for i in range(3))
        self.out = normal(seed + 3, E, H * D)

    def learner(self, lab):
        """The learner's layer with these weights."""
        weights = (lab.array(w) for w in (self.query, self.key, self.value, self.out))
        return lab.attention.MultiHeadAttention(self.H, *weights)

    def oracle(self, query, key, value, mask=None, scale=None, owns=None, attend=attention):
        """Head by head, from the rows of the weights that a head owns; [B, L, E]."""
        B, L, S = query.shape[0], query.shape[1], key.shape[1]
        mask = np.broadcast_to(0.0 if mask is None else mask, (B, self.H, L, S))
        owns = owns or (lambda h: slice(h * self.D, (h + 1) * self.D))
        out = np.zeros((B, L, self.E))
        for h in range(self.H):
            rows = owns(h)
            heads = attend(
                query @ self.query[rows].T,
                key @ self.key[rows].T,
                value @ self.value[rows].T,
                scale,
                mask[:, h],
            )
            out += heads @ self.out[:, rows].T
        return out

    def suspects(self, query, key, value, mask=None):
        """The results of the usual mistakes."""
        wrong = {
            "the heads are not scaled by their own size: √D, not √E": lambda: self.oracle(
                query, key, value, mask, scale=1 / np.sqrt(self.E)
            ),
            "head h reads every H-th number instead of D neighbors": lambda: self.oracle(
                query, key, value, mask, owns=lambda h: slice(h, None, self.H)
            ),
            "the values are projected from the keys": lambda: self.oracle(query, key, key, mask),
            "the keys are projected from the queries": lambda: self.oracle(
                query, query if query.shape == key.shape else key, value, mask
            ),
        }
        if mask is not None:
            wrong["the mask is not passed on"] = lambda: self.oracle(query, key, value)
            wrong["the mask went in as the scale, the fourth argument: pass mask=mask"] = lambda: self.oracle(
                query,
                key,
                value,
                mask,
                scale=1.0,
                attend=lambda q, k, v, scale, mask: spread(q, k, v, scale, mask, multiply=True),
            )
        return wrong


# Task 1: softmax


def test_task_1_the_example_of_the_chapter(lab):
    weights = lab.attention.softmax(lab.array([1.0, 0.0, 2.0]))
    check(weights, [0.2447, 0.0900, 0.6652], name="softmax([1, 0, 2])", atol=5e-5)


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2, -3])
def test_task_1_weights_along_any_axis(lab, axis):
    x = normal(1101, 2, 5, 3) * 2
    check(
        lab.attention.softmax(lab.array(x), axis=axis),
        softmax_along(x, axis),
        name=f"softmax(x, axis={axis})",
        suspects={
            f"the weights sum to 1 along axis {other}": (lambda other=other: softmax_along(x, other))
            for other in range(3)
            if other != axis % 3
        }
        | {
            "the sum goes along the last axis, whatever axis is given": lambda: (
                (shifted := np.exp(x - x.max(axis=axis, keepdims=True))) / shifted.sum(axis=-1, keepdims=True)
            )
        },
        inputs={"x": x},
    )


@pytest.mark.parametrize("shift", [1e3, 1e5, -1e3, -1e5])
def test_task_1_large_scores_do_not_overflow(lab, shift):
    x = (normal(1102, 4, 7) * 3 + shift).astype(np.float32).astype(np.float64)
    check(lab.attention.softmax(lab.array(x)), softmax_along(x, -1), name=f"softmax of scores near {shift:g}")


def test_task_1_each_row_has_a_peak_of_its_own(lab):
    # With one peak for the whole array, the second row would underflow to 0/0.
    x = np.array([[900.0, 901.0, 899.0], [-900.0, -899.5, -901.0]])
    expected = softmax_along(x, -1)
    check(
        lab.attention.softmax(lab.array(x)),
        expected,
        name="softmax of rows far apart",
        suspects={
            "one maximum for the whole array: the other rows underflow to 0/0": [expected[0], [np.nan] * 3],
            "one maximum for the whole array: the other rows underflow to 0": [expected[0], [0.0] * 3],
        },
    )


def overflowed(x: np.ndarray) -> np.ndarray:
    """Softmax where exp of each row's largest score, less its smallest, is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponentials = np.exp((x - x.min(axis=-1, keepdims=True)).astype(np.float32))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


def test_task_1_scores_far_apart_within_a_row_do_not_overflow(lab):
    x = np.array([[200.0, -200.0, 199.0], [-300.0, 0.5, 0.0]])
    check(
        lab.attention.softmax(lab.array(x)),
        softmax_along(x, -1),
        name="softmax of scores from −300 to 200",
        suspects={"another number than the row's maximum is subtracted, so exp overflows": overflowed(x)},
    )


def test_task_1_a_score_of_minus_infinity_gets_no_weight(lab):
    x = normal(1103, 3, 6)
    x[0, 1] = x[1, :5] = x[2, 5] = HIDDEN
    check(lab.attention.softmax(lab.array(x)), softmax_along(x, -1), name="softmax with hidden scores")


@pytest.mark.parametrize("axis", [-1, 0])
def test_task_1_a_row_that_is_all_minus_infinity_gets_zeros(lab, axis):
    x = normal(1104, 3, 4)
    x[2 if axis else slice(None), slice(None) if axis else 2] = HIDDEN
    check(
        lab.attention.softmax(lab.array(x), axis=axis),
        softmax_along(x, axis),
        name=f"softmax(x, axis={axis}) with a row of −inf",
        suspects={
            "a row of −inf gets equal weights: it must get zeros": lambda: np.where(
                np.isneginf(x).all(axis=axis, keepdims=True), 1 / x.shape[axis], softmax_along(x, axis)
            )
        },
    )


def test_task_1_bfloat16_scores_are_rounded_once(lab):
    x = rounded_to_bfloat16(lab, normal(1105, 4, 9) * 4)
    weights = lab.attention.softmax(lab.array(x, "bfloat16"))

    def rounded_at_each_step() -> np.ndarray:
        peak = rounded_to_bfloat16(lab, x - x.max(axis=-1, keepdims=True))
        exponentials = rounded_to_bfloat16(lab, np.exp(peak))
        total = rounded_to_bfloat16(lab, exponentials.sum(axis=-1, keepdims=True))
        return rounded_to_bfloat16(lab, exponentials / total)

    check(
        weights,
        softmax_along(x, -1),
        name="softmax in bfloat16",
        dtype="bfloat16",
        # Twice what rounding once to bfloat16 can change.
        rtol=2**-8,
        atol=0.0,
        suspects={"each step is rounded to bfloat16: convert to float32 first": rounded_at_each_step},
    )


def test_task_1_a_long_row_in_float16(lab):
    # The exponentials sum to 70,000: more than float16 can hold.
    x = np.full((2, 70_000), 3.0)
    weights = lab.attention.softmax(lab.array(x, "float16"))
    # The spacing of numbers this small is 2⁻²⁴ in float16.
    check(
        weights,
        softmax_along(x, -1),
        name="softmax in float16",
        dtype="float16",
        rtol=0.0,
        atol=2**-24,
        suspects={"the sum overflows in float16: convert to float32 first": np.zeros_like(x)},
    )


def test_task_1_float64_scores_keep_their_precision(lab):
    wide = "float64" in float_dtypes(lab)
    x = np.random.default_rng(1107).normal(size=(4, 7)) * 3
    x = x if wide else x.astype(np.float32).astype(np.float64)
    dtype, near = ("float64", 1e-12) if wide else ("float32", 1e-5)
    check(
        lab.attention.softmax(lab.array(x, dtype)),
        softmax_along(x, -1),
        name=f"softmax in {dtype}",
        dtype=dtype,
        rtol=near,
        atol=0.0,
        suspects={
            "the scores were rounded to float32: only 16-bit ones are converted to it": lambda: softmax_along(
                x.astype(np.float32), -1
            ),
            "a small number is added to the sum: it is never 0 where a score is not −∞": lambda: (
                softmax_along(x, -1)
                / (1 + 1e-9 / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
            ),
        },
    )


def test_task_1_the_scores_are_left_as_they_were(lab):
    check_leaves_alone(lab, lab.attention.softmax, the_scores=normal(1106, 3, 5))


# Task 2: linear


@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize(
    "leading", [(), (4,), (2, 5), (2, 3, 4)], ids=lambda shape: f"{len(shape)}-leading-axes"
)
def test_task_2_one_output_for_each_row_of_the_weight(lab, leading, bias):
    x, weight, b = normal(1201, *leading, 6), normal(1202, 3, 6), normal(1203, 3)
    expected = np.zeros((*leading, 3))
    for place in np.ndindex(*leading, 3):
        expected[place] = x[place[:-1]] @ weight[place[-1]] + (b[place[-1]] if bias else 0.0)
    actual = lab.attention.linear(lab.array(x), lab.array(weight), *([lab.array(b)] if bias else []))
    suspects = {
        "the weight is reshaped: that mixes its rows; transpose it": lambda: (
            x @ weight.reshape(6, 3) + (b if bias else 0.0)
        )
    }
    if bias:
        suspects["the bias is not added"] = lambda: x @ weight.T
        suspects["the bias is subtracted"] = lambda: x @ weight.T - b
    check(actual, expected, name="x·Wᵀ + b" if bias else "x·Wᵀ", suspects=suspects)


def test_task_2_a_square_weight_is_transposed_too(lab):
    x, weight = normal(1204, 3, 5), normal(1205, 5, 5)
    check(
        lab.attention.linear(lab.array(x), lab.array(weight)),
        x @ weight.T,
        name="x·Wᵀ",
        suspects={"the weight is not transposed: a row of it holds one output": lambda: x @ weight},
    )


def test_task_2_the_result_has_the_dtype_of_x(lab):
    x, weight, b = (
        rounded_to_bfloat16(lab, normal(1206 + i, *s)) for i, s in enumerate([(2, 5), (3, 5), (3,)])
    )
    actual = lab.attention.linear(*(lab.array(a, "bfloat16") for a in (x, weight, b)))
    # Two roundings to bfloat16 (the product, the sum) of numbers of a few units.
    check(actual, x @ weight.T + b, name="x·Wᵀ + b in bfloat16", dtype="bfloat16", rtol=2**-7, atol=2**-6)


@pytest.mark.parametrize("leading", [(), (2, 5)], ids=["in", "B L in"])
def test_task_2_the_arguments_are_left_as_they_were(lab, leading):
    x, weight, b = normal(1209, *leading, 6), normal(1210, 3, 6), normal(1211, 3)
    check_leaves_alone(lab, lab.attention.linear, x=x, the_weight=weight, the_bias=b)


# Task 3: scaled dot-product attention


def test_task_3_the_example_of_the_chapter(lab):
    query = np.array([[2.0, 0.0, 2.0, 0.0]])
    key = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]])
    value = np.array([[10.0, 0.0, 0.0, 1.0], [0.0, 10.0, 0.0, 1.0], [0.0, 0.0, 10.0, 1.0]])
    check(
        attend(lab, query, key, value),
        [[2.447, 0.900, 6.652, 1.0]],
        name="the output",
        axes="L D",
        atol=5e-4,
        suspects=attention_suspects(query, key, value),
    )


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 3)], ids=lambda shape: f"{len(shape)}-batch-axes")
def test_task_3_averages_of_values_under_any_batch_axes(lab, batch):
    query, key, value = normal(1301, *batch, 5, 8), normal(1302, *batch, 7, 8), normal(1303, *batch, 7, 8)
    check(
        attend(lab, query, key, value),
        attention(query, key, value),
        name="the attention output",
        suspects=attention_suspects(query, key, value),
        inputs={"query": query},
    )


@pytest.mark.parametrize(("L", "S"), [(1, 6), (6, 1), (4, 4)])
def test_task_3_few_queries_or_few_keys(lab, L, S):
    query, key, value = normal(1304, 2, L, 6), normal(1305, 2, S, 6), normal(1306, 2, S, 6)
    check(
        attend(lab, query, key, value),
        attention(query, key, value),
        name="the attention output",
        axes="B L D",
        suspects=attention_suspects(query, key, value),
    )


@pytest.mark.parametrize("scale", [2.5, 0.125, 1.0, 0.0])
def test_task_3_a_scale_that_is_given_takes_the_place_of_the_usual_one(lab, scale):
    query, key, value = normal(1307, 2, 3, 5, 6), normal(1308, 2, 3, 7, 6), normal(1309, 2, 3, 7, 6)
    wrong = attention_suspects(query, key, value, scale)
    check(
        attend(lab, query, key, value, scale=scale),
        attention(query, key, value, scale),
        name=f"the attention output with scale={scale}",
        axes="B H L D",
        suspects=wrong,
    )


@pytest.mark.parametrize(
    "shape",
    [(5, 7), (7,), (2, 1, 5, 7), (1, 3, 1, 7), (2, 3, 5, 7)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_task_3_a_mask_is_added_after_scaling(lab, shape):
    query, key, value = normal(1310, 2, 3, 5, 6), normal(1311, 2, 3, 7, 6), normal(1312, 2, 3, 7, 6)
    mask = random_mask(1313, *shape)
    check(
        attend(lab, query, key, value, mask=mask),
        attention(query, key, value, mask=mask),
        name="the attention output under a mask",
        axes="B H L D",
        suspects=attention_suspects(query, key, value, mask=mask),
    )


def test_task_3_scale_and_mask_together(lab):
    query, key, value = normal(1314, 2, 5, 6), normal(1315, 2, 7, 6), normal(1316, 2, 7, 6)
    mask = random_mask(1317, 5, 7)
    check(
        attend(lab, query, key, value, scale=0.7, mask=mask),
        attention(query, key, value, 0.7, mask),
        name="the attention output with a scale and a mask",
        axes="B L D",
        suspects=attention_suspects(query, key, value, 0.7, mask),
    )


def test_task_3_a_hidden_key_changes_nothing(lab):
    query, key, value = normal(1318, 2, 5, 6), normal(1319, 2, 7, 6), normal(1320, 2, 7, 6)
    mask = np.zeros((5, 7))
    mask[:, 4:] = HIDDEN
    check(
        attend(lab, query, key, value, mask=mask),
        attention(query, key[:, :4], value[:, :4]),
        name="the output with the last three keys hidden",
        axes="B L D",
    )


def test_task_3_a_query_that_may_see_no_key_yields_zeros(lab):
    query, key, value = normal(1321, 2, 5, 6), normal(1322, 2, 7, 6), normal(1323, 2, 7, 6)
    mask = np.zeros((5, 7))
    mask[1] = mask[4] = HIDDEN
    check(
        attend(lab, query, key, value, mask=mask),
        attention(query, key, value, mask=mask),
        name="the output where queries 1 and 4 see no key",
        axes="B L D",
    )


def test_task_3_the_order_of_the_keys_does_not_matter(lab):
    query, key, value = normal(1324, 2, 5, 6), normal(1325, 2, 7, 6), normal(1326, 2, 7, 6)
    order = [3, 6, 0, 5, 1, 4, 2]
    check(
        attend(lab, query, key[:, order], value[:, order]),
        attention(query, key, value),
        name="the output with keys and values shuffled alike",
        axes="B L D",
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_3_the_output_has_the_dtype_of_the_query(lab, dtype):
    query, key, value = normal(1327, 2, 5, 6), normal(1328, 2, 7, 6), normal(1329, 2, 7, 6)
    mask = np.where(random_mask(1330, 5, 7) == HIDDEN, HIDDEN, 0.0)
    actual = lab.attention.scaled_dot_product_attention(
        *(lab.array(a, dtype) for a in (query, key, value)), mask=lab.array(mask, dtype)
    )
    # Inputs, scores and weights are all rounded to the 8 bits of bfloat16 (11 of float16).
    check(
        actual,
        attention(query, key, value, mask=mask),
        name=f"the attention output in {dtype}",
        axes="B L D",
        dtype=dtype,
        rtol=0.0,
        atol=0.05 if dtype == "bfloat16" else 0.01,
    )


def test_task_3_float64_stays_float64(lab):
    query, key, value = normal(1331, 2, 5, 6), normal(1332, 2, 7, 6), normal(1333, 2, 7, 6)
    dtype = float_dtypes(lab)[-1]
    near = 1e-12 if dtype == "float64" else 0.01
    check(
        lab.attention.scaled_dot_product_attention(*(lab.array(a, dtype) for a in (query, key, value))),
        attention(query, key, value),
        name=f"the attention output in {dtype}",
        axes="B L D",
        dtype=dtype,
        rtol=near,
        atol=near,
    )


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7)], ids=["L S", "B L S"])
def test_task_3_the_arguments_are_left_as_they_were(lab, shape):
    def attend(query, key, value, mask):
        lab.attention.scaled_dot_product_attention(query, key, value, scale=0.5, mask=mask)

    query, key, value = normal(1334, 2, 5, 6), normal(1335, 2, 7, 6), normal(1336, 2, 7, 6)
    check_leaves_alone(lab, attend, query=query, key=key, value=value, mask=random_mask(1337, *shape))


# Task 4: multi-head attention


def test_task_4_a_head_takes_neighboring_numbers_of_each_token(lab):
    B, L, H, D = 2, 5, 3, 4
    x = np.arange(B * L * H * D, dtype=np.float64).reshape(B, L, H * D)
    expected = np.zeros((B, H, L, D))
    for b, h, t, d in np.ndindex(B, H, L, D):
        expected[b, h, t, d] = x[b, t, h * D + d]
    check(
        lab.attention.split_heads(lab.array(x), H),
        expected,
        name="split_heads",
        axes="B H L D",
        suspects={
            "the numbers were reshaped to [B, H, L, D] in one go, which mixes the tokens": lambda: x.reshape(
                B, H, L, D
            ),
            "a head takes every H-th number instead of D neighbors": lambda: x.reshape(B, L, D, H).transpose(
                0, 3, 1, 2
            ),
        },
    )


def test_task_4_merging_puts_the_heads_side_by_side(lab):
    B, H, L, D = 2, 3, 5, 4
    x = np.arange(B * H * L * D, dtype=np.float64).reshape(B, H, L, D)
    expected = np.zeros((B, L, H * D))
    for b, h, t, d in np.ndindex(B, H, L, D):
        expected[b, t, h * D + d] = x[b, h, t, d]
    check(
        lab.attention.merge_heads(lab.array(x)),
        expected,
        name="merge_heads",
        axes="B L H·D",
        suspects={
            "the numbers were reshaped in one go, which mixes the tokens": lambda: x.reshape(B, L, H * D),
            "the axes of L and D were swapped: bring the tokens in front of the heads": lambda: x.transpose(
                0, 1, 3, 2
            ).reshape(B, L, H * D),
        },
    )


@pytest.mark.parametrize("H", [1, 2, 3, 6])
def test_task_4_merging_undoes_splitting(lab, H):
    x = normal(1401, 2, 5, 6)
    check(
        lab.attention.merge_heads(lab.attention.split_heads(lab.array(x), H)),
        x,
        name=f"split into {H} heads, then merged",
        axes="B L H·D",
    )


@pytest.mark.parametrize(("L", "S"), [(5, 7), (7, 5), (1, 6), (4, 4)])
def test_task_4_every_head_attends_on_its_own(lab, L, S):
    layer = Projections(1402)
    query, key, value = normal(1406, 2, L, 10), normal(1407, 2, S, 10), normal(1408, 2, S, 10)
    check(
        layer.learner(lab)(lab.array(query), lab.array(key), lab.array(value)),
        layer.oracle(query, key, value),
        name="the layer's output",
        axes="B L E",
        # Two matrix products of ten and twelve terms around the attention: a few roundings more than usual.
        atol=5e-6,
        suspects=layer.suspects(query, key, value),
    )


@pytest.mark.parametrize(
    "shape", [(5, 7), (2, 1, 5, 7), (3, 1, 7), (2, 3, 5, 7)], ids=lambda shape: "x".join(map(str, shape))
)
def test_task_4_a_mask_reaches_the_heads(lab, shape):
    layer = Projections(1410)
    query, key, value = normal(1414, 2, 5, 10), normal(1415, 2, 7, 10), normal(1416, 2, 7, 10)
    mask = random_mask(1417, *shape)
    check(
        layer.learner(lab)(lab.array(query), lab.array(key), lab.array(value), mask=lab.array(mask)),
        layer.oracle(query, key, value, mask),
        name="the layer's output under a mask",
        axes="B L E",
        atol=5e-6,
        suspects=layer.suspects(query, key, value, mask),
    )


def test_task_4_the_rows_of_a_batch_do_not_meet(lab):
    layer = Projections(1420)
    query, key, value = normal(1424, 3, 5, 10), normal(1425, 3, 7, 10), normal(1426, 3, 7, 10)
    attend_all = layer.learner(lab)
    alone = [
        check_shape(
            attend_all(*(lab.array(x[b : b + 1]) for x in (query, key, value))),
            (1, 5, 10),
            name=f"the layer's output for row {b}",
            axes="B L E",
        )[0]
        for b in range(3)
    ]
    check(
        attend_all(lab.array(query), lab.array(key), lab.array(value)),
        np.stack(alone),
        name="the batch, against each row alone",
        axes="B L E",
        atol=5e-6,
    )


def test_task_4_the_arguments_and_the_weights_are_left_as_they_were(lab):
    def attend(query, key, value, mask, *weights):
        lab.attention.MultiHeadAttention(layer.H, *weights)(query, key, value, mask=mask)

    layer = Projections(1430)
    weights = {f"{name}_weight": getattr(layer, name) for name in ("query", "key", "value", "out")}
    query, key, value = normal(1434, 2, 5, 10), normal(1435, 2, 7, 10), normal(1436, 2, 7, 10)
    check_leaves_alone(
        lab, attend, query=query, key=key, value=value, mask=random_mask(1437, 2, 3, 5, 7), **weights
    )


def test_task_4_splitting_and_merging_leave_their_argument_as_it_was(lab):
    check_leaves_alone(lab, lambda x: lab.attention.split_heads(x, 3), x=normal(1438, 2, 5, 6))
    check_leaves_alone(lab, lab.attention.merge_heads, x=normal(1439, 2, 3, 5, 4))
