"""Day 1.3: the causal mask and grouped-query attention."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shared.arguments import check_leaves_alone, float_dtypes
from shared.numbers import as_float32

from coursekit.check import check, check_raises, check_shape

from .softmax_oracle import HIDDEN, weights_of

Heads = tuple[np.ndarray, np.ndarray, np.ndarray]


def visible(L: int, S: int, shift: int = 0) -> np.ndarray:
    """[L, S] mask, cell by cell: query i stands at position S − L + i and sees the keys up to there."""
    mask = np.full((L, S), HIDDEN)
    for i in range(L):
        for j in range(S):
            if j <= S - L + i + shift:
                mask[i, j] = 0.0
    return mask


def grouped(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float | None = None,
    mask: np.ndarray | None = None,
    share: Callable[[int], int] | None = None,
) -> np.ndarray:
    """Attention head by head and query by query; `share` says which key-value head a query head reads."""
    B, H, L, D = query.shape
    Hkv, S = key.shape[1:3]
    scale = 1 / np.sqrt(D) if scale is None else scale
    mask = np.broadcast_to(np.zeros((L, S)) if mask is None else mask, (B, H, L, S))
    share = share or (lambda h: h // (H // Hkv))
    out = np.zeros((B, H, L, D))
    for b in range(B):
        for h in range(H):
            for i in range(L):
                scores = key[b, share(h)] @ query[b, h, i] * scale + mask[b, h, i]
                out[b, h, i] = weights_of(scores) @ value[b, share(h)]
    return out


def random_heads(seed: int, H: int = 8, Hkv: int = 2, L: int = 5, S: int = 7) -> Heads:
    """Query, keys and values for B = 3, D = 6 and the given sizes."""
    rng = np.random.default_rng(seed)
    query, key, value = (rng.normal(size=size) for size in ((3, H, L, 6), (3, Hkv, S, 6), (3, Hkv, S, 6)))
    return as_float32(query), as_float32(key), as_float32(value)


def random_mask(seed: int, *shape: int) -> np.ndarray:
    """Numbers to add to the scores, a third of them −inf; the last key is seen by every query."""
    rng = np.random.default_rng(seed)
    mask = np.where(rng.random(shape) < 1 / 3, HIDDEN, rng.normal(size=shape))
    mask[..., -1] = 0.5
    return as_float32(mask)


def attend(
    lab: Any,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float | None = None,
    mask: np.ndarray | None = None,
) -> Any:
    """The learner's function on NumPy arrays."""
    given = None if mask is None else lab.array(mask)
    return lab.attention.scaled_dot_product_attention_grouped(
        lab.array(query), lab.array(key), lab.array(value), scale=scale, mask=given
    )


def suspects(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float | None = None,
    mask: np.ndarray | None = None,
) -> dict[str, Callable[[], np.ndarray]]:
    """The results of the usual mistakes."""
    Hkv, D = key.shape[1], query.shape[3]
    usual = float(1 / np.sqrt(D))
    unscaled = 1.0 if scale is None else usual
    wrong = {
        "query head h reads key-value head h % Hkv instead of h // (H/Hkv)": lambda: grouped(
            query, key, value, scale, mask, share=lambda h: h % Hkv
        ),
        "all query heads read the first key-value head": lambda: grouped(
            query, key, value, scale, mask, share=lambda h: 0
        ),
        ("the scores are not divided by √D" if scale is None else "the given scale is not used"): (
            lambda: grouped(query, key, value, unscaled, mask)
        ),
    }
    if scale is not None:
        wrong["1/√D is still applied: a given scale takes its place"] = lambda: grouped(
            query, key, value, scale * usual, mask
        )
    if mask is not None:
        wrong["the mask is not added"] = lambda: grouped(query, key, value, scale)
        factor = usual if scale is None else scale
        wrong["the mask is scaled together with the scores: add it after scaling"] = lambda: grouped(
            query, key, value, scale, np.where(mask == HIDDEN, HIDDEN, mask * factor)
        )
        full = np.broadcast_to(mask, (*query.shape[:3], key.shape[2]))
        wrong[
            "the mask meets scores whose heads and tokens are mixed: give them the shape [B, H, L, S] first"
        ] = lambda: grouped(query, key, value, scale, full.transpose(0, 2, 1, 3).reshape(full.shape))
        wrong["the mask of the first head is used for all heads"] = lambda: grouped(
            query, key, value, scale, full[:, :1]
        )
        wrong["the mask is read as yes or no: its numbers are added to the scores"] = lambda: grouped(
            query, key, value, scale, np.where(mask != 0, HIDDEN, 0.0)
        )
    return wrong


def test_task_1_three_new_tokens_after_two_old_ones(lab):
    expected = [
        [0, 0, 0, HIDDEN, HIDDEN],
        [0, 0, 0, 0, HIDDEN],
        [0, 0, 0, 0, 0],
    ]
    check(lab.attention.causal_mask(3, 5), np.array(expected), name="causal_mask(3, 5)", axes="L S")


@pytest.mark.parametrize("size", [1, 2, 6])
def test_task_1_a_whole_sequence_sees_a_triangle(lab, size):
    check(
        lab.attention.causal_mask(size, size),
        visible(size, size),
        name=f"causal_mask({size}, {size})",
        axes="L S",
    )


@pytest.mark.parametrize(("L", "S"), [(2, 9), (4, 5), (6, 11), (11, 13)])
def test_task_1_new_tokens_see_the_past_and_one_another_causally(lab, L, S):
    check(lab.attention.causal_mask(L, S), visible(L, S), name=f"causal_mask({L}, {S})", axes="L S")


@pytest.mark.parametrize("S", [1, 2, 7])
def test_task_1_a_single_new_token_sees_everything(lab, S):
    check(lab.attention.causal_mask(1, S), np.zeros((1, S)), name=f"causal_mask(1, {S})", axes="L S")


@pytest.mark.parametrize(("L", "S"), [(4, 2), (7, 1), (5, 4)])
def test_task_1_more_queries_than_keys_leave_the_first_without_a_key(lab, L, S):
    check(lab.attention.causal_mask(L, S), visible(L, S), name=f"causal_mask({L}, {S})", axes="L S")


def test_task_1_a_chunk_has_the_last_rows_of_the_whole_mask(lab):
    whole = check_shape(lab.attention.causal_mask(9, 9), (9, 9), name="causal_mask(9, 9)", axes="L S")
    for L in range(1, 10):
        check(lab.attention.causal_mask(L, 9), whole[9 - L :], name=f"causal_mask({L}, 9)", axes="L S")


def test_task_1_softmax_turns_rows_that_see_no_key_into_zeros(lab):
    weights = lab.attention.softmax(lab.attention.causal_mask(4, 2))
    check(weights, [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.5, 0.5]], name="the weights", axes="L S")


def test_task_1_the_mask_takes_the_dtype_of_like(lab):
    for dtype in float_dtypes(lab):
        mask = lab.attention.causal_mask(3, 5, like=lab.array(np.zeros(1), dtype))
        check(mask, visible(3, 5), name=f"causal_mask(3, 5, like={dtype})", axes="L S", dtype=dtype)


def test_task_1_like_is_left_as_it_was(lab):
    def mask(like):
        lab.attention.causal_mask(3, 5, like=like)

    check_leaves_alone(lab, mask, like=np.random.default_rng(130).normal(size=(3, 5)))


def test_task_1_the_mask_can_be_added_where_like_lies(lab):
    scores = np.random.default_rng(131).normal(size=(2, 3, 5))
    like = lab.array(scores)
    mask = lab.attention.causal_mask(3, 5, like=like)
    check_shape(mask, (3, 5), name="causal_mask(3, 5, like=scores)", axes="L S")
    total = like + mask
    check(total, scores + visible(3, 5), name="scores + mask", axes="B L S")


def test_task_2_neighboring_query_heads_share_a_key_value_head(lab):
    # All values of key-value head j are j, so a query head's output names the head that it read.
    query, key, _ = random_heads(132)
    value = np.broadcast_to(np.arange(2.0)[None, :, None, None], key.shape)
    heads = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    expected = np.broadcast_to(heads[None, :, None, None], query.shape).astype(np.float64)
    check(
        attend(lab, query, key, value),
        expected,
        name="the number of the key-value head that each query head read",
        axes="B H L D",
        suspects=suspects(query, key, value),
    )


@pytest.mark.parametrize(("H", "Hkv"), [(8, 2), (9, 3), (4, 4), (5, 1)])
def test_task_2_each_query_head_attends_on_its_own(lab, H, Hkv):
    heads = random_heads(133 + H, H=H, Hkv=Hkv)
    check(
        attend(lab, *heads),
        grouped(*heads),
        name=f"{H} query heads on {Hkv} key-value heads",
        axes="B H L D",
        suspects=suspects(*heads),
    )


@pytest.mark.parametrize("scale", [0.25, 1.5, 0.0])
def test_task_2_a_given_scale_replaces_the_usual_one(lab, scale):
    heads = random_heads(150)
    check(
        attend(lab, *heads, scale=scale),
        grouped(*heads, scale=scale),
        name=f"attention with scale={scale}",
        axes="B H L D",
        suspects=suspects(*heads, scale=scale),
    )


@pytest.mark.parametrize("shape", [(5, 7), (3, 1, 5, 7), (3, 8, 5, 7)], ids=["L S", "B 1 L S", "B H L S"])
def test_task_2_masks_of_two_or_four_axes_are_added(lab, shape):
    heads = random_heads(151)
    mask = random_mask(152, *shape)
    check(
        attend(lab, *heads, mask=mask),
        grouped(*heads, mask=mask),
        name=f"attention with a mask of shape {list(shape)}",
        axes="B H L D",
        suspects=suspects(*heads, mask=mask),
    )


@pytest.mark.parametrize("L", [1, 3, 7])
def test_task_2_new_tokens_attend_causally(lab, L):
    query, key, value = random_heads(153, L=L)
    mask = lab.attention.causal_mask(L, 7)
    actual = lab.attention.scaled_dot_product_attention_grouped(
        lab.array(query), lab.array(key), lab.array(value), mask=mask
    )
    check(
        actual,
        grouped(query, key, value, mask=visible(L, 7)),
        name=f"{L} new tokens of 7",
        axes="B H L D",
        suspects={
            "the mask is aligned at the top left": lambda: grouped(
                query, key, value, mask=visible(L, 7, shift=L - 7)
            ),
            **suspects(query, key, value, mask=visible(L, 7)),
        },
    )


def test_task_2_a_hidden_key_leaves_no_trace(lab):
    query, key, value = random_heads(154)
    mask = visible(5, 7)
    mask[:, 4] = HIDDEN
    expected = grouped(query, key, value, mask=mask)
    key[:, :, 4], value[:, :, 4] = 1e15, -1e15
    check(
        attend(lab, query, key, value, mask=mask),
        expected,
        name="attention past a hidden key with numbers of 1e15",
        axes="B H L D",
    )


def test_task_2_a_query_that_sees_no_key_yields_zeros(lab):
    query, key, value = random_heads(155, L=5, S=3)
    mask = visible(5, 3)
    actual = attend(lab, query, key, value, mask=mask)
    check(actual, grouped(query, key, value, mask=mask), name="5 queries on 3 keys", axes="B H L D")


@pytest.mark.parametrize("Hkv", [3, 5, 16])
def test_task_2_heads_that_cannot_be_shared_evenly_are_refused(lab, Hkv):
    heads = random_heads(156, H=8, Hkv=Hkv)
    check_raises(
        ValueError,
        lambda: attend(lab, *heads),
        name=f"8 query heads on {Hkv} key-value heads",
        match=("8", str(Hkv)),
    )


def test_task_2_heads_straight_from_split_heads_are_accepted(lab):
    rng = np.random.default_rng(157)
    vectors = [rng.normal(size=(3, length, width)) for length, width in ((5, 48), (7, 12), (7, 12))]
    query, key, value = (x.reshape(3, x.shape[1], -1, 6).transpose(0, 2, 1, 3) for x in vectors)
    split = [lab.attention.split_heads(lab.array(x), x.shape[2] // 6) for x in vectors]
    check(
        lab.attention.scaled_dot_product_attention_grouped(*split),
        grouped(query, key, value),
        name="attention on heads from split_heads",
        axes="B H L D",
        suspects=suspects(query, key, value),
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_2_small_floats_stay_small_floats(lab, dtype):
    arrays = [lab.array(x, dtype) for x in random_heads(158)]
    mask = lab.attention.causal_mask(5, 7, like=arrays[0])
    query, key, value = (lab.numpy(x).astype(np.float64) for x in arrays)
    expected = grouped(query, key, value, mask=visible(5, 7))
    actual = lab.attention.scaled_dot_product_attention_grouped(*arrays, mask=mask)
    # Scores may be rounded to the small dtype before exp(): at 4 and above by 1/64 in bfloat16, 1/512 in float16.
    near = {"bfloat16": 4e-2, "float16": 5e-3}[dtype]
    check(actual, expected, name=f"attention in {dtype}", axes="B H L D", dtype=dtype, rtol=near, atol=near)


@pytest.mark.parametrize("shape", [(5, 7), (3, 8, 5, 7)], ids=["L S", "B H L S"])
def test_task_2_the_inputs_are_left_as_they_were(lab, shape):
    def attend(query, key, value, mask):
        lab.attention.scaled_dot_product_attention_grouped(query, key, value, mask=mask)

    query, key, value = random_heads(159)
    check_leaves_alone(lab, attend, query=query, key=key, value=value, mask=random_mask(160, *shape))


@pytest.mark.parametrize("B", [1, 3])
def test_task_2_neither_keys_nor_values_are_copied(lab, B):
    if lab.backend != "torch":
        pytest.skip("MLX does not tell which arrays it makes, so copies can't be seen")
    H, Hkv, S, D = 8, 2, 200, 16
    rng = np.random.default_rng(162)
    shapes = (B, H, 1, D), (B, Hkv, S, D), (B, Hkv, S, D)
    arrays = [lab.array(rng.normal(size=shape)) for shape in shapes]
    _, largest = lab.largest_array(lab.attention.scaled_dot_product_attention_grouped, *arrays)
    keys = B * Hkv * S * D
    assert largest < keys, (
        f"for {keys} numbers of keys and {B * H * S} scores, an array of {largest} numbers was made: keys or values "
        "are copied, by repeating them or by broadcasting them in a product"
    )


def test_task_2_float64_heads_keep_their_precision(lab):
    heads = random_heads(161)
    dtype = float_dtypes(lab)[-1]
    near = 1e-12 if dtype == "float64" else 0.01
    check(
        lab.attention.scaled_dot_product_attention_grouped(*(lab.array(x, dtype) for x in heads)),
        grouped(*heads),
        name=f"attention in {dtype}",
        axes="B H L D",
        dtype=dtype,
        rtol=near,
        atol=near,
    )
