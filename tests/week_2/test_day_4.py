"""Day 2.4: the online softmax, the mask of a tile, and attention tile by tile."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from coursekit.check import check, check_raises, check_shape, check_untouched

from .flash_oracle import (
    HIDDEN,
    average,
    causal,
    grouped,
    lives_on,
    random_heads,
    random_mask,
    suspects,
    tile_suspects,
)
from .softmax_oracle import RAMPS, cut, forgetful, random_scores


def folded(
    lab: Any, scores: np.ndarray, values: np.ndarray, tiles: Sequence[Any], dtype: str = "float32"
) -> Any:
    """The learner's state after the keys of each of `tiles`, in that order."""
    rows = lab.array(np.zeros((*scores.shape[:-1], values.shape[-1])), dtype)
    state = lab.flash_attention.OnlineSoftmax.empty(rows)
    for tile in tiles:
        state.fold(lab.array(scores[..., tile]), lab.array(values[..., tile, :], dtype))
    return state


def test_task_1_four_keys_in_two_tiles_as_in_the_chapter(lab):
    scores, values = np.log([[1.0, 2.0, 8.0, 4.0]]), np.array([[10.0], [40.0], [30.0], [20.0]])
    tiles = cut(4, 2)
    state = folded(lab, scores, values, tiles[:1])
    where = "after the first tile"
    check(state.peak, np.log([[2.0]]), name=f"peak {where}", axes="rows 1")
    check(state.total, [[1.5]], name=f"total {where}", axes="rows 1")
    check(state.out, [[45.0]], name=f"out {where}", axes="rows D")
    state = folded(lab, scores, values, tiles)
    where = "after the second tile"
    check(state.peak, np.log([[8.0]]), name=f"peak {where}", axes="rows 1")
    check(state.total, [[1.875]], name=f"total {where}: the first tile counts a quarter", axes="rows 1")
    check(state.out, [[51.25]], name=f"out {where}: the first tile counts a quarter", axes="rows D")
    check(
        state.result(),
        [[82 / 3]],
        name="the result",
        axes="rows D",
        suspects=forgetful(scores, values, tiles),
    )


def test_task_1_a_lower_tile_leaves_the_peak_where_it_is(lab):
    scores, values = np.log([[1.0, 2.0, 8.0, 4.0]]), np.array([[10.0], [40.0], [30.0], [20.0]])
    state = folded(lab, scores, values, [slice(2, 4), slice(0, 2)])
    check(
        state.peak,
        np.log([[8.0]]),
        name="peak after the chapter's second tile, then the first",
        axes="rows 1",
        suspects={"the peak fell: it is the higher of the old one and the tile's own": np.log([[2.0]])},
    )


@pytest.mark.parametrize("edges", [(), (1,), (8,), (4,), (3, 6), (2, 3, 7), range(1, 9)], ids=str)
def test_task_1_any_split_into_tiles_gives_the_softmax_of_all_keys(lab, edges):
    scores, values = random_scores(241)
    tiles = cut(9, *edges)
    check(
        folded(lab, scores, values, tiles).result(),
        average(scores, values),
        name=f"9 keys in {len(tiles)} tiles",
        axes="B heads rows D",
        suspects=forgetful(scores, values, tiles) if len(tiles) > 1 else None,
    )


@pytest.mark.parametrize("seed", range(4))
def test_task_1_the_order_of_the_keys_makes_no_difference(lab, seed):
    scores, values = random_scores(242)
    order = np.random.default_rng(seed).permutation(9)
    tiles = [order[:2], order[2:5], order[5:]]
    check(
        folded(lab, scores, values, tiles).result(),
        average(scores, values),
        name=f"the keys in the order {order.tolist()}, 2, 3 and 4 at a time",
        axes="B heads rows D",
    )


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("ramp", RAMPS)
def test_task_1_large_scores_neither_overflow_nor_vanish(lab, ramp, size):
    scores, values = RAMPS[ramp][None, :], random_scores(243, keys=8)[1][0, 0]
    tiles = cut(8, *range(size, 8, size))
    check(
        folded(lab, scores, values, tiles).result(),
        average(scores, values),
        name=f"scores of ±10,000, {ramp}, {size} at a time",
        axes="rows D",
    )


def test_task_1_the_result_can_be_asked_for_after_every_tile(lab):
    scores, values = random_scores(244)
    rows = lab.array(np.zeros((2, 3, 4, 5)))
    state = lab.flash_attention.OnlineSoftmax.empty(rows)
    for tile in cut(9, 3, 4, 7):
        state.fold(lab.array(scores[..., tile]), lab.array(values[..., tile, :]))
        so_far = average(scores[..., : tile.stop], values[..., : tile.stop, :])
        total = np.exp(scores[..., : tile.stop] - scores[..., : tile.stop].max(axis=-1, keepdims=True)).sum(
            axis=-1
        )
        divided = {"`result` divides `out` in place": so_far / total[..., None]}
        for again in ("", ", asked for again"):
            name = f"the result after {tile.stop} keys{again} (it must leave the state as it is)"
            check(state.result(), so_far, name=name, axes="B heads rows D", suspects=divided)


def test_task_1_before_the_first_key_the_result_is_zeros(lab):
    state = lab.flash_attention.OnlineSoftmax.empty(lab.array(np.ones((2, 4, 5))))
    check(state.result(), np.zeros((2, 4, 5)), name="the result before any key", axes="heads rows D")
    name = "total, when the result was asked for before any key (it must leave the state as it is)"
    check(state.total, np.zeros((2, 4, 1)), name=name, axes="heads rows 1")


@pytest.mark.parametrize("hidden", [slice(0, 3), slice(3, 6), slice(6, 9)], ids=["first", "middle", "last"])
def test_task_1_a_tile_that_a_row_cannot_see_leaves_no_trace(lab, hidden):
    scores, values = random_scores(245)
    scores[:, :, 1, hidden] = HIDDEN
    check(
        folded(lab, scores, values, cut(9, 3, 6)).result(),
        average(scores, values),
        name="three tiles, one of them hidden from row 1",
        axes="B heads rows D",
    )


def test_task_1_each_row_has_a_peak_of_its_own(lab):
    scores = np.array([[0.0, 0.5, -1.0, 1.0, 0.0, -0.5], [-200.0, -199.5, -201.0, -200.5, -199.0, -200.0]])
    values = random_scores(278, keys=6)[1][0, 0]
    expected = average(scores, values)
    check(
        folded(lab, scores, values, cut(6, 2, 4)).result(),
        expected,
        name="two rows at once, one with scores around 0, the other around −200",
        axes="rows D",
        suspects={
            "one peak for all rows: the highest score is wanted in each row (`amax` along the last axis)": (
                expected * [[1.0], [0.0]]
            )
        },
    )


def test_task_1_the_peak_of_a_hidden_row_is_not_zero(lab):
    scores = np.array([[0.0, 0.5, -1.0, 1.0], [HIDDEN, HIDDEN, -200.5, -199.0]])
    values = random_scores(279, keys=4)[1][0, 0]
    expected = average(scores, values)
    check(
        folded(lab, scores, values, cut(4, 2)).result(),
        expected,
        name="two rows; row 1 doesn't see the first tile, and its scores in the second are around −200",
        axes="rows D",
        suspects={
            "0 was remembered as the peak of a row that had seen no key: subtract 0 there, but keep −inf": (
                expected * [[1.0], [0.0]]
            )
        },
    )


def test_task_1_a_row_that_sees_nothing_at_all_yields_zeros(lab):
    scores, values = random_scores(246)
    scores[:, :, 1], scores[1, :, 3] = HIDDEN, HIDDEN
    check(
        folded(lab, scores, values, cut(9, 3, 6)).result(),
        average(scores, values),
        name="rows of which some see no key",
        axes="B heads rows D",
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_1_values_in_a_small_dtype_are_gathered_in_float32(lab, dtype):
    scores, values = random_scores(247)
    rounded = lab.numpy(lab.array(values, dtype)).astype(np.float64)
    state = folded(lab, scores, values, cut(9, 4), dtype)
    name = f"the result for values in {dtype}: widen them to float32, and round neither them nor the weights"
    check(state.result(), average(scores, rounded), name=name, axes="B heads rows D")


def test_task_1_fold_leaves_the_scores_and_the_values_as_they_were(lab):
    before = random_scores(281)
    scores, values = (lab.array(x) for x in before)
    lab.flash_attention.OnlineSoftmax.empty(lab.array(np.zeros((2, 3, 4, 5)))).fold(scores, values)
    for name, array, was in zip(("scores", "values"), (scores, values), before, strict=True):
        check_untouched(array, was, name=f"the {name} given to fold")


def check_tiles(
    lab: Any, whole: np.ndarray, mask: np.ndarray | None, is_causal: bool, tile: tuple[int, int]
) -> None:
    """Compare what the learner adds to each tile with that piece of `whole`."""
    L, S = whole.shape[-2:]
    axes = " ".join(("B", "H", "L", "S")[-whole.ndim :])
    like, given = lab.array(np.zeros(1)), None if mask is None else lab.array(mask)
    for queries in cut(L, *range(tile[0], L, tile[0])):
        for keys in cut(S, *range(tile[1], S, tile[1])):
            name = (
                f"the mask of queries {queries.start} to {queries.stop - 1} of {L} "
                f"and keys {keys.start} to {keys.stop - 1} of {S}"
            )
            added = lab.flash_attention.tile_mask(given, is_causal, queries, keys, L, S, like)
            expected = whole[..., queries, keys]
            if added is None and not expected.any():
                continue  # nothing to add: whether an array of zeros would do is another test's question
            returned = added is not None
            assert returned or mask is None, (
                f"{name}: None, although there is a mask; was the caller's mask lost, because the causal rule "
                "hides nothing here?"
            )
            assert returned, f"{name}: None, although the causal rule hides keys in this tile"
            wrong = tile_suspects(mask, queries, keys, L, S) if is_causal else None
            check(added, expected, name=name, axes=axes, suspects=wrong)
    if mask is not None:
        check_untouched(given, mask, name="the mask")


@pytest.mark.parametrize("tile", [(2, 3), (3, 2), (4, 4), (50, 50), (1, 1)], ids=str)
@pytest.mark.parametrize(("L", "S"), [(3, 6), (7, 7), (4, 9), (1, 6), (6, 4)])
def test_task_2_the_causal_rule_within_a_tile(lab, L, S, tile):
    check_tiles(lab, causal(L, S), None, True, tile)


def test_task_2_what_hides_nothing_needs_no_array(lab):
    like = lab.array(np.zeros(1))
    tiles = {
        "without a mask and without the causal rule": (False, slice(0, 2), slice(4, 7)),
        "below the diagonal": (True, slice(2, 4), slice(0, 4)),
        "just below the diagonal": (True, slice(2, 4), slice(2, 5)),
        "one query that sees all of the tile": (True, slice(4, 5), slice(3, 7)),
    }
    for where, (is_causal, queries, keys) in tiles.items():
        added = lab.flash_attention.tile_mask(None, is_causal, queries, keys, 5, 7, like)
        found = type(added).__name__
        assert found == "NoneType", f"a tile {where} hides nothing: None expected, {found} found"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_task_2_the_causal_piece_is_float32_whatever_like_is(lab, dtype):
    like = lab.array(np.zeros(1), dtype)
    added = lab.flash_attention.tile_mask(None, True, slice(1, 3), slice(3, 6), 4, 6, like)
    name = f"the mask of a tile, for a `like` in {dtype} (the mask is float32)"
    check(added, causal(4, 6)[1:3, 3:6], name=name, axes="L S")


MASKS = {"L S": (5, 7), "B 1 L S": (3, 1, 5, 7), "B H L S": (3, 4, 5, 7)}


@pytest.mark.parametrize("tile", [(2, 3), (5, 7)], ids=str)
@pytest.mark.parametrize("axes", MASKS)
def test_task_2_a_piece_of_an_explicit_mask(lab, axes, tile):
    mask = random_mask(248, *MASKS[axes])
    check_tiles(lab, mask, mask, False, tile)


@pytest.mark.parametrize("tile", [(2, 3), (5, 7)], ids=str)
@pytest.mark.parametrize("axes", MASKS)
def test_task_2_both_together_and_the_given_mask_stays_as_it_is(lab, axes, tile):
    mask = random_mask(249, *MASKS[axes])
    check_tiles(lab, causal(5, 7) + mask, mask, True, tile)


def test_task_2_a_tile_never_needs_the_whole_mask(lab):
    L, S = 64, 80
    queries, keys = slice(16, 24), slice(30, 40)
    arguments = (lab.array(random_mask(250, L, S)), True, queries, keys, L, S, lab.array(np.zeros(1)))
    if lab.backend == "mlx":
        _, used = lab.peak_bytes(lab.flash_attention.tile_mask, *arguments)
        assert used < 4 * L * S // 2, (
            f"a tile of 8 queries and 10 keys needed {used} bytes; the whole mask has {4 * L * S}"
        )
        return
    _, size = lab.largest_array(lab.flash_attention.tile_mask, *arguments)
    assert size <= 2 * 8 * 10, (
        f"a tile of 8 queries and 10 keys needed an array of {size} elements; the whole mask has {L * S}"
    )


def attend(lab: Any, query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any) -> Any:
    """The learner's function on NumPy arrays."""
    if options.get("mask") is not None:
        options["mask"] = lab.array(options["mask"])
    return lab.flash_attention.flash_attention(lab.array(query), lab.array(key), lab.array(value), **options)


def check_attention(lab: Any, heads: Any, name: str, **options: Any) -> None:
    """Compare the learner's attention, under `options`, with the oracle's."""
    query, key, value = heads
    scale, mask, is_causal = options.get("scale"), options.get("mask"), options.get("causal", False)
    rule = causal(query.shape[2], key.shape[2]) if is_causal else np.zeros((query.shape[2], key.shape[2]))
    check(
        attend(lab, query, key, value, **options),
        grouped(query, key, value, scale, rule if mask is None else rule + mask),
        name=name,
        axes="B H L D",
        suspects=suspects(query, key, value, scale, mask, is_causal),
    )


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_task_3_each_tile_of_queries_begins_with_nothing(lab, is_causal):
    query, key, value = heads = random_heads(280, L=9, S=11)
    rule = causal(9, 11) if is_causal else np.zeros((9, 11))
    leak = "only the first tile of queries is right: does the state live on from one tile to the next?"
    check(
        attend(lab, *heads, causal=is_causal, query_tile=3, key_tile=4),
        grouped(*heads, mask=rule),
        name="9 queries, 11 keys, tiles of 3 queries and 4 keys" + ", causal" * is_causal,
        axes="B H L D",
        suspects={
            leak: lambda: lives_on(heads, None, rule, tile=3),
            **suspects(query, key, value, is_causal=is_causal),
        },
    )


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("tile", [(1, 1), (3, 3), (4, 2), (2, 5), (100, 100)], ids=str)
@pytest.mark.parametrize(("L", "S"), [(9, 9), (5, 11), (1, 7), (10, 6)])
def test_task_3_queries_and_keys_of_any_number_in_tiles_of_any_size(lab, L, S, tile, is_causal):
    name = f"{L} queries, {S} keys, tiles of {tile[0]} queries and {tile[1]} keys" + ", causal" * is_causal
    sizes = {"query_tile": tile[0], "key_tile": tile[1]}
    check_attention(lab, random_heads(251, L=L, S=S), name, causal=is_causal, **sizes)


@pytest.mark.parametrize("L", [7, 8, 9])
@pytest.mark.parametrize("S", [11, 12, 13])
def test_task_3_one_more_or_one_less_than_whole_tiles(lab, L, S):
    name = f"{L} queries, {S} keys, tiles of 4 and 4"
    check_attention(lab, random_heads(252, L=L, S=S), name, causal=True, query_tile=4, key_tile=4)


def test_task_3_the_tile_sizes_have_defaults(lab):
    heads = random_heads(253, H=2, Hkv=1, L=270, S=540, B=1, D=4)
    check_attention(lab, heads, "270 queries and 540 keys in tiles of the usual size", causal=True)


@pytest.mark.parametrize(("H", "Hkv"), [(8, 2), (9, 3), (4, 4), (5, 1)])
def test_task_3_neighboring_query_heads_share_a_key_value_head(lab, H, Hkv):
    heads = random_heads(254 + H, H=H, Hkv=Hkv)
    check_attention(lab, heads, f"{H} query heads on {Hkv} key-value heads", query_tile=2, key_tile=3)


@pytest.mark.parametrize("scale", [0.25, 1.5, 0.0, -0.5])
def test_task_3_a_given_scale_replaces_the_usual_one(lab, scale):
    options = {"scale": scale, "query_tile": 2, "key_tile": 3}
    check_attention(lab, random_heads(265), f"attention with scale={scale}", **options)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 1, 5, 7), (3, 6, 5, 7)], ids=["L S", "B 1 L S", "B H L S"])
def test_task_3_explicit_masks_of_two_or_four_axes_are_added(lab, shape, is_causal):
    options = {"mask": random_mask(266, *shape), "causal": is_causal, "query_tile": 2, "key_tile": 3}
    name = f"attention with a mask of shape {list(shape)}" + " and causal" * is_causal
    check_attention(lab, random_heads(267), name, **options)


@pytest.mark.parametrize("tile", [1, 3, 8])
@pytest.mark.parametrize("ramp", RAMPS)
def test_task_3_large_scores_in_any_order_of_the_keys(lab, ramp, tile):
    query, key, value = random_heads(268, L=3, S=8)
    query[..., 0], query[..., 1:] = 1.0, 0.0  # so that a query's scores are the first numbers of the keys
    key[..., 0] = RAMPS[ramp]
    name = f"scores of ±10,000, {ramp}, {tile} keys at a time"
    check_attention(lab, (query, key, value), name, scale=1.0, causal=True, query_tile=2, key_tile=tile)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_3_small_floats_are_computed_in_float32_and_rounded_once(lab, dtype):
    arrays = [lab.array(4 * x, dtype) for x in random_heads(269)]
    query, key, value = (lab.numpy(x).astype(np.float64) for x in arrays)
    actual = lab.flash_attention.flash_attention(*arrays, scale=0.3, causal=True, query_tile=2, key_tile=3)
    # Half of the last place of a result: bfloat16 has 8 binary places, float16 11.
    near = {"bfloat16": 2**-8, "float16": 2**-11}[dtype] * 1.05
    expected = grouped(query, key, value, scale=0.3, mask=causal(5, 7))
    name = f"attention of {dtype} inputs: scores, weights and sums in float32, rounded to {dtype} once, at the end"
    check(actual, expected, name=name, axes="B H L D", dtype=dtype, rtol=near, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_3_the_result_has_the_dtype_of_the_query(lab, dtype):
    heads = random_heads(282)
    query, key, value = lab.array(heads[0]), lab.array(heads[1], dtype), lab.array(heads[2], dtype)
    expected = grouped(heads[0], *(lab.numpy(x).astype(np.float64) for x in (key, value)))
    actual = lab.flash_attention.flash_attention(query, key, value, query_tile=2, key_tile=3)
    check(actual, expected, name=f"attention of a float32 query over {dtype} keys", axes="B H L D")


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("L", "S"), [(3, 0), (0, 5), (0, 0)])
def test_task_3_without_keys_there_are_zeros_and_without_queries_nothing(lab, L, S, is_causal):
    actual = attend(lab, *random_heads(283, L=L, S=S), causal=is_causal)
    check(actual, np.zeros((3, 6, L, 8)), name=f"attention of {L} queries over {S} keys", axes="B H L D")


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_task_3_hidden_tiles_are_not_computed(lab, masked):
    query, key, value = random_heads(270, L=12, S=20)
    expected = grouped(query, key, value, mask=causal(12, 20))[:, :, :8]
    key[:, :, 16:], value[:, :, 16:] = np.nan, np.nan
    mask = np.zeros((12, 20)) if masked else None
    actual = attend(lab, query, key, value, mask=mask, causal=True, query_tile=4, key_tile=4)
    name = "the first two of three tiles of queries, which don't see the last tile of keys"
    seen = check_shape(actual, query.shape, name="the result", axes="B H L D")[:, :, :8]
    clean = not np.isnan(seen).any()
    assert clean, (
        f"{name}: NaN found. That tile's keys and values are NaN here: it was computed for queries from which the "
        "causal rule hides it whole. Where must the inner loop stop?"
    )
    check(actual[:, :, :8], expected, name=name, axes="B H L D")


def test_task_3_queries_before_the_first_key_are_not_computed(lab):
    query, key, value = random_heads(271, L=14, S=5)
    query[:, :, :8] = np.nan
    expected = grouped(np.nan_to_num(query), key, value, mask=causal(14, 5))
    actual = attend(lab, query, key, value, causal=True, query_tile=4, key_tile=2)
    name = "14 causal queries on 5 keys; the first two tiles of queries see none"
    clean = not np.isnan(check_shape(actual, query.shape, name=name, axes="B H L D")).any()
    assert clean, (
        f"{name}: NaN found. The queries that see no key are NaN here: a tile of keys was computed for them"
    )
    check(actual, expected, name=name, axes="B H L D")


def test_task_3_storage_with_room_to_spare_and_heads_straight_from_the_projection(lab):
    heads = random_heads(272)
    query, key, value = (np.concatenate([x, np.full_like(x, np.nan)], axis=2).swapaxes(1, 2) for x in heads)
    views = [lab.array(x).swapaxes(1, 2)[:, :, : x.shape[1] // 2] for x in (query, key, value)]
    actual = lab.flash_attention.flash_attention(*views, causal=True, query_tile=2, key_tile=3)
    name = "attention on views whose axes are swapped and that end before their storage does"
    check(actual, grouped(*heads, mask=causal(5, 7)), name=name, axes="B H L D")


@pytest.mark.parametrize("Hkv", [3, 5, 16])
def test_task_3_heads_that_cannot_be_shared_evenly_are_refused(lab, Hkv):
    heads = random_heads(273, H=8, Hkv=Hkv)
    name = f"8 query heads on {Hkv} key-value heads"
    check_raises(ValueError, lambda: attend(lab, *heads), name=name, match=("8", str(Hkv)))


def test_task_3_the_inputs_are_left_as_they_were(lab):
    before = (*random_heads(274), random_mask(275, 3, 6, 5, 7))
    query, key, value, mask = arrays = [lab.array(x) for x in before]
    lab.flash_attention.flash_attention(query, key, value, mask=mask, causal=True, query_tile=2, key_tile=3)
    for name, array, was in zip(("query", "key", "value", "mask"), arrays, before, strict=True):
        check_untouched(array, was, name=name)


def check_peak(lab: Any, arrays: list[Any], options: dict[str, Any], query: int, tile: int) -> None:
    """Check the bytes that MLX needed: a few times the query, and a few tiles of scores and what becomes of them.

    Its threads give memory back a little later on one run than on the next: the least of some runs counts.
    """
    runs = (lab.peak_bytes(lab.flash_attention.flash_attention, *arrays, **options) for _ in range(3))
    used = min(size for _, size in runs)
    allowed = 4 * (6 * query + 12 * tile) + 2**16
    assert used <= allowed, (
        f"{used} bytes were in use at the peak; the query has {4 * query} bytes, the scores of a tile {4 * tile}: "
        f"{allowed} would do. Either an array is larger than a tile, or the tiles of all queries are computed only "
        "at the end (mx.eval computes one)"
    )


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize(
    ("L", "S", "D", "query_tile", "key_tile"),
    [(1024, 1536, 32, 128, 128), (64, 96, 8, 12, 16), (1024, 8, 2, 8, 512)],
)
def test_task_3_nothing_larger_than_the_query_or_a_tile_is_ever_made(
    lab, L, S, D, query_tile, key_tile, masked, is_causal
):
    H, Hkv = 4, 2
    arrays = [lab.array(x) for x in random_heads(276, H=H, Hkv=Hkv, L=L, S=S, B=1, D=D)]
    mask = lab.array(random_mask(277, 1, 1, L, S)) if masked else None
    options = {"mask": mask, "causal": is_causal, "query_tile": query_tile, "key_tile": key_tile}
    if lab.backend == "mlx":
        check_peak(lab, arrays, options, H * L * D, H * query_tile * min(S, key_tile))
        return
    _, size = lab.largest_array(lab.flash_attention.flash_attention, *arrays, **options)
    # The query is the largest array that is needed here, and a little more is granted for padding.
    allowed = H * L * D * 5 // 4
    found = {
        H * L * S: "the scores of all heads",
        L * S: "an array with a place for each query and key",
        H * query_tile * S: "the scores of a tile of queries for all keys",
        H * L * key_tile: "the scores of all queries for a tile of keys",
        H * S * D: "the keys, or the values, copied for each query head",
        H
        * min(L, key_tile)
        * min(S, query_tile): "the scores of a tile with query_tile and key_tile exchanged",
    }
    assert size <= allowed, (
        f"an array of {size} elements was made ({found.get(size, 'larger than need be')}); "
        f"the query has {H * L * D}, the scores of a tile {H * query_tile * min(S, key_tile)}: no more is needed"
    )
