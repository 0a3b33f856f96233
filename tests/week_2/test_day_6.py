"""Day 2.6: RoPE and masks for a batch, the batching cache, a batch through the model, static batching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises, check_shape

from .batches import (
    HKV,
    MAX_POSITIONS,
    ROPE_BASE,
    D,
    H,
    TracingModel,
    V,
    aligned,
    attention_alone,
    mask_of_batch,
    normal,
    rows_of_busy_slots,
    tiny_model,
    turned,
)
from .slots import Rows


def tokens_each(L: int) -> str:
    """A parameter's name in brackets."""
    return "one token" if L == 1 else f"{L} tokens"


# Task 1: RoPE and masks for a batch


def rope(lab: Any, interleaved: bool = False) -> Any:
    return lab.positional_encoding.RoPE(D, MAX_POSITIONS, ROPE_BASE, interleaved, device=lab.device)


ROWS = {
    "a run in each row": ([slice(4, 9), slice(0, 5), slice(31, 36)], [4, 0, 31]),
    "one token in each row": ([slice(6, 7), slice(0, 1), slice(39, 40)], [6, 0, 39]),
    "slices without a start": ([slice(3), slice(7, 10), slice(None, 3)], [0, 7, 0]),
    "all rows at the same place": ([slice(5, 7), slice(5, 7)], [5, 5]),
    "one row": ([slice(9, 12)], [9]),
}


@pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize("case", list(ROWS))
def test_task_1_each_row_is_turned_to_its_own_positions(lab, case, interleaved):
    slices, starts = ROWS[case]
    L = slices[0].stop - (slices[0].start or 0)
    x = normal(1, len(slices), L, H, D)

    def at(firsts):
        return turned(x, [range(first, first + L) for first in firsts], interleaved)

    check(
        rope(lab, interleaved)(lab.array(x), slices),
        at(starts),
        name="the turned heads",
        axes="B L H D",
        rtol=1e-4,
        atol=1e-5,
        suspects={
            "every row stands where the first one does": lambda: at([starts[0]] * len(starts)),
            "every row was counted from 0": lambda: at([0] * len(starts)),
            "every row ends where the longest one ends": lambda: at([max(starts)] * len(starts)),
        },
    )


def test_task_1_the_callers_list_of_slices_is_left_alone(lab):
    slices = [slice(3), slice(7, 10), slice(None, 3)]
    rope(lab).angles(slices)
    check_equal(slices, [slice(3), slice(7, 10), slice(None, 3)], name="the list of slices, afterward")


def test_task_1_angles_have_a_row_for_each_slice(lab):
    cos, sin = rope(lab).angles([slice(2, 5), slice(11, 14), slice(3), slice(0, 3)])
    angles = np.add.outer([2, 11, 0, 0], range(3))[..., None] * ROPE_BASE ** (-np.arange(D // 2) / (D // 2))
    for name, actual, expected in (("cos", cos, np.cos(angles)), ("sin", sin, np.sin(angles))):
        check(actual, expected[:, :, None], name=name, axes="B L 1 D/2", rtol=1e-4, atol=1e-5)


NO_BATCH = {
    "a row that goes past the last position": [slice(0, 3), slice(38, 41)],
    "a single row that goes past the last position": [slice(38, 41)],
    "a row that starts below 0": [slice(-3, 0), slice(0, 3)],
    "rows of 3 and 4 positions": [slice(0, 3), slice(5, 9)],
    "rows of 3 and 1 positions": [slice(0, 3), slice(5, 6)],
    "rows of 3, 2 and 3 positions": [slice(0, 3), slice(5, 7), slice(4, 7)],
}


@pytest.mark.parametrize("mistake", list(NO_BATCH))
def test_task_1_slices_that_make_no_batch_are_refused(lab, mistake):
    check_raises(ValueError, lambda: rope(lab).angles(NO_BATCH[mistake]), name=mistake)


def test_task_1_equal_slices_have_a_row_of_angles_each(lab):
    for name, table in zip(("cos", "sin"), rope(lab).angles([slice(5, 7)] * 3), strict=True):
        check_shape(table, (3, 2, 1, D // 2), name=f"the {name} of three equal slices", axes="B L 1 D/2")


def test_task_1_rows_without_positions_have_no_angles(lab):
    for name, table in zip(("cos", "sin"), rope(lab).angles([slice(5, 5), slice(0, 0)]), strict=True):
        check_shape(table, (2, 0, 1, D // 2), name=f"the {name} of two empty slices", axes="B L 1 D/2")


@pytest.mark.parametrize("second", [slice(5, 9), slice(0, 4)], ids=["different slices", "equal slices"])
def test_task_1_two_slices_for_three_rows_are_refused(lab, second):
    x = lab.array(normal(2, 3, 4, H, D))
    check_raises(ValueError, lambda: rope(lab)(x, [slice(0, 4), second]), name="two slices for three rows")


MASKS = {
    "one new token, all lengths different": (1, [3, 7, 1, 5], None),
    "a chunk, all lengths different": (3, [7, 3, 5, 4], None),
    "rows of length 0": (2, [0, 5, 0, 3], None),
    "all rows of length 0": (2, [0, 0, 0], 2),
    "more columns than any row has tokens": (2, [4, 2, 6], 9),
    "rows with fewer tokens than queries": (4, [2, 6, 1, 5], None),
    "all rows with fewer tokens than queries": (4, [2, 1, 3], None),
    "fewer tokens than queries, and more columns": (3, [2, 0, 1], 5),
    "rows of equal length": (3, [5, 5], None),
    "one new token, rows of equal length": (1, [5, 5], None),
    "one row": (2, [4], None),
}


@pytest.mark.parametrize("case", list(MASKS))
def test_task_1_each_row_sees_its_own_tokens_causally(lab, case):
    L, lengths, S = MASKS[case]
    columns = max(lengths) if S is None else S
    expected = mask_of_batch(L, lengths, columns)
    B = len(lengths)

    def causal_only():
        return np.broadcast_to(mask_of_batch(L, [columns], columns), (B, 1, L, columns))

    def left_aligned():
        rows = [
            np.roll(row, length - columns, axis=-1) for row, length in zip(expected, lengths, strict=True)
        ]
        return np.stack(rows)

    def padding_only():
        own = np.arange(columns) >= columns - np.array(lengths)[:, None]
        return np.where(np.broadcast_to(own[:, None, None], (B, 1, L, columns)), 0.0, -np.inf)

    def padding_of(more):
        """What comes out where a row's padding is taken to be `more` columns wider."""
        first = columns - np.array(lengths) + more
        hidden = np.arange(columns) < first[:, None]
        return np.where(hidden[:, None, None], -np.inf, causal_only())

    suspects = {
        "the padding is not hidden": causal_only,
        "the rows are aligned on the left": left_aligned,
        "the future is not hidden": padding_only,
        "one column too many is taken for padding: a row's first token is hidden, too": lambda: padding_of(1),
        "one column too few is taken for padding": lambda: padding_of(-1),
    }
    if S is not None:
        suspects["the argument S was ignored"] = lambda: mask_of_batch(L, lengths, max(lengths))
    elif max(lengths) < L:
        suspects["without S there are as many columns as the longest row has tokens, not L"] = lambda: (
            mask_of_batch(L, lengths, L)
        )
    mask = lab.attention.batched_causal_mask(L, list(lengths), S)
    assert mask is not None or not (expected == 0).all(), (
        "no mask came back: where nothing is hidden, it is zeros"
    )
    check(mask, expected, name="the mask", axes="B 1 L S", suspects=suspects)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_task_1_the_mask_takes_the_dtype_of_like(lab, dtype):
    mask = lab.attention.batched_causal_mask(2, [3, 0, 5], 6, like=lab.array([1.0], dtype))
    check(mask, mask_of_batch(2, [3, 0, 5], 6), name="the mask", axes="B 1 L S", dtype=dtype)


def test_task_1_lengths_may_be_a_tuple_and_are_left_alone(lab):
    lengths = [2, 4, 3]
    lab.attention.batched_causal_mask(1, lengths)
    check_equal(lengths, [2, 4, 3], name="the list of lengths, afterward")
    mask = lab.attention.batched_causal_mask(1, (2, 4))
    check(mask, mask_of_batch(1, [2, 4], 4), name="the mask for a tuple of lengths", axes="B 1 L S")


@pytest.mark.parametrize("attention", ["grouped", "flash"])
@pytest.mark.parametrize(
    ("L", "lengths"), [(1, [5, 2, 0, 7]), (3, [3, 6, 0, 4])], ids=["one new token", "three new tokens"]
)
def test_task_1_under_the_mask_each_row_attends_as_if_alone(lab, attention, L, lengths):
    S = max(lengths) + 1
    query = normal(3, len(lengths), H, L, D)
    keys = [normal(10 + b, HKV, length, D) for b, length in enumerate(lengths)]
    values = [normal(20 + b, HKV, length, D) for b, length in enumerate(lengths)]
    # Anything finite may lie in the padding: a hidden key has no weight.
    arrays = [lab.array(query), lab.array(aligned(keys, S, 9.0)), lab.array(aligned(values, S, 1e4))]
    mask = lab.attention.batched_causal_mask(L, lengths, S, like=arrays[0])
    if attention == "grouped":
        actual = lab.attention.scaled_dot_product_attention_grouped(*arrays, 0.4, mask)
    else:
        actual = lab.flash_attention.flash_attention(*arrays, 0.4, mask, query_tile=2, key_tile=3)
    alone = [attention_alone(query[b], keys[b], values[b], 0.4) for b in range(len(lengths))]
    check(actual, np.stack(alone), name="attention over the batch", axes="B H L D")


# Task 2: BatchingKvCache


@pytest.mark.parametrize("L", [1, 3], ids=tokens_each)
def test_task_2_rows_are_aligned_on_the_right(lab, L):
    rows = Rows(lab, 4)
    for slot, length in enumerate([5, 2, 7, 1]):
        rows.add(slot, length)
    for _ in range(3):
        rows.check_update(L)


@pytest.mark.parametrize("L", [1, 4], ids=tokens_each)
def test_task_2_rows_of_idle_slots_are_ignored(lab, L):
    rows = Rows(lab, 5)
    rows.add(1, 6)
    rows.add(3, 2)
    for _ in range(2):
        rows.check_update(L)


def test_task_2_the_longest_request_need_not_be_in_the_first_slot(lab):
    rows = Rows(lab, 3)
    rows.add(2, 9)
    rows.add(0, 1)
    rows.check_update(1)


@pytest.mark.parametrize("L", [1, 3], ids=tokens_each)
def test_task_2_with_all_slots_idle_every_row_gets_zeros(lab, L):
    rows = Rows(lab, 3)
    rows.check_update(L)
    rows.check_attend(L)


def test_task_2_an_empty_cache_may_be_added(lab):
    rows = Rows(lab, 3)
    rows.add(1, 0)
    rows.check_update(2)
    rows.add(0, 4)
    rows.check_update(2)


def test_task_2_one_slot_is_a_batch_too(lab):
    rows = Rows(lab, 1)
    rows.add(0, 3)
    rows.check_update(1)
    rows.check_attend(2)


def test_task_2_the_batch_keeps_the_dtype(lab):
    rows = Rows(lab, 3)
    for slot, length in ((0, 3), (2, 5)):
        cache = lab.kv_cache.FullKvCache()
        held = rows.random(HKV, length, D), rows.random(HKV, length, D)
        cache.append(*(lab.array(x[None], "bfloat16") for x in held))
        rows.cache.add(slot, cache)
        rows.slots[slot] = held
    rows.check_update(1, "bfloat16")


def test_task_2_a_batch_stays_as_it_is_when_the_next_one_is_built(lab):
    rows = Rows(lab, 2)
    for slot, length in ((0, 6), (1, 2)):
        rows.add(slot, length)
    first = rows.cache.update_and_fetch(*(lab.array(x) for x in rows.new_tokens(1)))
    before = [lab.numpy(part).copy() for part in first]
    rows.cache.update_and_fetch(*(lab.array(x) for x in rows.new_tokens(1)))
    for name, part, was in zip(("keys", "values", "mask"), first, before, strict=True):
        kept = np.array_equal(lab.numpy(part), was)
        assert kept, (
            f"the {name} of the first batch have changed with the second call: the batch is built anew at each call"
        )


@pytest.mark.parametrize("L", [1, 3], ids=tokens_each)
def test_task_2_each_request_attends_as_if_alone(lab, L):
    rows = Rows(lab, 4)
    for slot, length in ((0, 6), (1, 1), (3, 4)):
        rows.add(slot, length)
    for _ in range(2):
        rows.check_attend(L)


def test_task_2_a_slot_can_be_used_again_and_in_any_order(lab):
    rows = Rows(lab, 3)
    for slot, length in ((0, 4), (1, 8), (2, 2)):
        rows.add(slot, length)
    rows.check_update(1)
    rows.remove(1)
    rows.check_update(1)
    rows.remove(0)
    rows.add(1, 3)
    rows.check_update(2)
    rows.remove(2)
    rows.add(2, 5)
    rows.add(0, 1)
    rows.check_update(1)


def test_task_2_a_removed_cache_keeps_its_tokens_and_goes_on_alone(lab):
    rows = Rows(lab, 3)
    given_cache = rows.add(1, 4)
    rows.add(0, 7)
    rows.check_update(1)
    rows.check_update(2)
    held = rows.slots[1]
    assert held is not None
    cache = rows.remove(1)
    assert cache is given_cache, "remove should return the cache that was added, not another one"
    check_equal(cache.length, 7, name="tokens in the removed cache, which came with 4 and got 3 more")
    rows.check_update(1)  # of no concern to the removed cache
    key, value = rows.random(HKV, 1, D), rows.random(HKV, 1, D)
    keys, values, _ = cache.update_and_fetch(lab.array(key[None]), lab.array(value[None]))
    check(keys, np.concatenate([held[0], key], axis=1)[None], name="its keys", axes="B Hkv S D")
    check(values, np.concatenate([held[1], value], axis=1)[None], name="its values", axes="B Hkv S D")


def test_task_2_slots_that_are_taken_idle_or_not_there_are_refused(lab):
    rows = Rows(lab, 3)
    rows.add(1, 2)
    new = lab.kv_cache.FullKvCache()
    check_raises(ValueError, lambda: rows.cache.add(1, new), name="adding to a taken slot", match="1")
    check_raises(ValueError, lambda: rows.cache.remove(0), name="removing from an idle slot", match="0")
    rows.check_update(1)  # nothing has changed


def test_task_2_a_slot_with_an_empty_cache_is_taken(lab):
    rows = Rows(lab, 2)
    first, new = rows.add(1, 0), lab.kv_cache.FullKvCache()
    check_raises(ValueError, lambda: rows.cache.add(1, new), name="adding where an empty cache is", match="1")
    assert rows.remove(1) is first, "remove should return the empty cache that was added"


@pytest.mark.parametrize("slot", [-1, 3], ids="slot {}".format)
def test_task_2_there_is_no_slot_outside_0_to_the_number_of_slots(lab, slot):
    rows = Rows(lab, 3)
    rows.add(2, 2)
    new = lab.kv_cache.FullKvCache()
    for what, call in (
        ("adding to", lambda: rows.cache.add(slot, new)),
        ("removing from", lambda: rows.cache.remove(slot)),
    ):
        check_raises(ValueError, call, name=f"{what} slot {slot} of 3", match=str(slot))
    rows.check_update(1)  # nothing has changed


@pytest.mark.parametrize("given_rows", [1, 2, 4], ids="rows: {}".format)
def test_task_2_rows_for_another_number_of_slots_are_refused(lab, given_rows):
    rows = Rows(lab, 3)
    caches = [rows.add(slot, slot + 1) for slot in range(3)]
    key = lab.array(normal(5, given_rows, HKV, 1, D))
    name = f"{given_rows} rows for 3 slots"
    check_raises(ValueError, lambda: rows.cache.update_and_fetch(key, key), name=name)
    check_equal([cache.length for cache in caches], [1, 2, 3], name="tokens in the caches after a refusal")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_2_the_bytes_of_every_batch_are_counted(lab, dtype):
    size = 4 if dtype == "float32" else 2
    cache = lab.kv_cache.BatchingKvCache(4)
    check_equal(cache.bytes_copied, 0, name="bytes copied before the first batch")
    expected = 0
    for slot, length in ((2, 5), (0, 3)):
        request = lab.kv_cache.FullKvCache()
        held = lab.array(normal(6, 1, HKV, length, D), dtype)
        request.append(held, held)
        cache.add(slot, request)
    for S in (6, 7):
        new = lab.array(normal(7, 4, HKV, 1, D), dtype)
        cache.update_and_fetch(new, new)
        expected += 2 * 4 * HKV * S * D * size  # keys and values, four rows, padding and idle rows included
        name = f"bytes copied, after a batch of S = {S}; padding and idle rows count"
        check_equal(cache.bytes_copied, expected, name=name)


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "decode", "chunk"]), st.integers(0, 2), st.integers(0, 9)),
    max_size=14,
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
@given(steps=STEPS)
def test_task_2_whoever_comes_and_goes_each_request_attends_as_if_alone(steps):
    rows = Rows(door.active(), 3)
    for what, slot, number in steps:
        if what == "add" and rows.slots[slot] is None:
            rows.add(slot, number)
        elif what == "remove" and rows.slots[slot] is not None:
            rows.remove(slot)
        elif what in ("decode", "chunk"):
            rows.check_attend(1 if what == "decode" else 1 + number % 4)


# Task 3: a batch through the model


def prefilled(lab: Any, model: Any, ids: list[int]) -> list[Any]:
    """The caches of a request whose `ids` have been through the model."""
    caches = [lab.kv_cache.FullKvCache() for _ in range(model.config.num_layers)]
    model.hidden(lab.array([ids]), slice(0, len(ids)), caches)
    return caches


def traced_batch(lab: Any, requests: dict[int, list[int]], num_slots: int) -> tuple[Any, Any]:
    """A batch over a TracingModel with these requests prefilled, by slot."""
    model = TracingModel(lab)
    batch = lab.static_batch.Batch(model, num_slots)
    for slot, ids in requests.items():
        batch.add(slot, prefilled(lab, model, ids))
    model.head_rows.clear()
    return model, batch


def pairs(ids: list[int]) -> list[tuple[int, int]]:
    """The (token, position) pairs of a request."""
    return [(token, position) for position, token in enumerate(ids)]


def test_task_3_every_request_goes_on_at_its_own_position(lab):
    requests = {0: [5, 6, 7], 1: [8, 9, 10, 11, 12], 3: [13]}
    model, batch = traced_batch(lab, requests, 4)
    for step in range(3):
        newest = {slot: 20 + slot + step for slot in requests}
        tokens = [newest.get(slot) for slot in range(4)]
        positions = [len(requests.get(slot, [])) for slot in range(4)]
        batch.decode(tokens, positions)
        last = max(len(ids) for ids in requests.values())  # the column of the new tokens
        for slot, ids in requests.items():
            before = pairs(ids)
            ids.append(newest[slot])
            check_equal(
                model.calls[-1].seen[slot],
                pairs(ids),
                name=f"(token, position) pairs seen in slot {slot}, step {step}",
                suspects={
                    "the column of the batch was taken for the position": [*before, (newest[slot], last)],
                    "the new token stands one position too early": [*before, (newest[slot], len(before) - 1)],
                    "the new token stands one position too late": [*before, (newest[slot], len(before) + 1)],
                },
            )


def test_task_3_idle_slots_take_part_with_token_0_at_position_0(lab):
    model, batch = traced_batch(lab, {1: [5, 6, 7]}, 4)
    batch.decode([None, 9, None, None], [0, 3, 39, 17])
    call = model.decodes[-1]
    check_equal(call.ids, [[0], [9], [0], [0]], name="the tokens of the rows")
    check_equal(call.places, [[0], [3], [0], [0]], name="the positions of the rows")
    check_equal([len(row) for row in call.seen], [0, 4, 0, 0], name="how many tokens each row sees")


def test_task_3_logits_come_for_busy_slots_in_the_order_of_the_slots(lab):
    model, batch = traced_batch(lab, {3: [5, 6, 7], 0: [8, 9], 2: [10, 11, 12, 13]}, 5)
    actual = batch.decode([20, None, 21, 22, None], [2, 0, 4, 3, 0])
    states = np.array([[8, 3], [10, 5], [5, 4]], dtype=np.float64)
    expected = np.stack([model._scores(state) for state in states])
    check(actual, expected, name="the logits", axes="busy V")
    assert model.head_rows == [3], (
        f"model.logits was given {model.head_rows} rows: the three rows of busy slots should go through it, "
        "in one call, without the rows of idle slots"
    )


def test_task_3_token_0_is_a_token_like_any_other(lab):
    model, batch = traced_batch(lab, {0: [5, 6], 1: [7]}, 2)
    logits = batch.decode([0, 0], [2, 1])
    idle = logits is not None and len(logits) == 0
    assert not idle, "token 0 was taken for an idle slot: only None means idle"
    check_shape(logits, (2, V), name="the logits, both slots being busy", axes="busy V")
    moved = model.decodes[-1].places == [[0], [0]]
    assert not moved, "token 0 was taken for an idle slot: its position became 0"
    check_equal(model.decodes[-1].seen, [pairs([5, 6, 0]), pairs([7, 0])], name="what the rows see")


def test_task_3_the_lists_given_to_decode_are_left_alone(lab):
    _, batch = traced_batch(lab, {1: [5, 6, 7]}, 3)
    tokens, positions = [None, 9, None], [0, 3, 39]
    batch.decode(tokens, positions)
    name = "the tokens and positions given to decode, afterward"
    check_equal((tokens, positions), ([None, 9, None], [0, 3, 39]), name=name)


@pytest.mark.parametrize("count", [1, 3])
def test_task_3_a_request_without_a_cache_for_each_layer_is_refused(lab, count):
    _, batch = traced_batch(lab, {}, 2)
    caches = [lab.kv_cache.FullKvCache() for _ in range(count)]
    check_raises(ValueError, lambda: batch.add(0, caches), name=f"{count} caches for 2 layers")


def test_task_3_with_all_slots_idle_there_are_no_logits(lab):
    model = tiny_model(lab)
    batch = lab.static_batch.Batch(model, 2)
    check(batch.decode([None, None], [0, 0]), np.zeros((0, V)), name="the logits", axes="busy V")


def test_task_3_a_taken_or_an_idle_slot_is_refused(lab):
    model, batch = traced_batch(lab, {0: [5, 6], 2: [7]}, 3)
    caches = prefilled(lab, model, [8, 9])
    check_raises(ValueError, lambda: batch.add(2, caches), name="adding to a taken slot")
    check_raises(ValueError, lambda: batch.remove(1), name="removing from an idle slot")
    batch.decode([10, None, 11], [2, 0, 1])
    check_equal(model.decodes[-1].seen, [pairs([5, 6, 10]), [], pairs([7, 11])], name="what the rows see")


def test_task_3_a_slot_that_was_left_is_used_again(lab):
    model, batch = traced_batch(lab, {0: [5, 6, 7, 8], 1: [9]}, 2)
    batch.decode([20, 21], [4, 1])
    batch.remove(0)
    batch.decode([None, 22], [5, 2])
    check_equal(model.decodes[-1].seen, [[], pairs([9, 21, 22])], name="what the rows see")
    batch.add(0, prefilled(lab, model, [10, 11]))
    batch.remove(1)
    batch.decode([23, None], [2, 0])
    check_equal(model.decodes[-1].seen, [pairs([10, 11, 23]), []], name="what the rows see")


def test_task_3_a_batch_gives_the_logits_of_each_request_alone(lab):
    """Requests come and go; each one's logits are those of its whole text through the model by itself."""
    model, rng = tiny_model(lab), np.random.default_rng(60)
    batch = lab.static_batch.Batch(model, 4)
    texts: dict[int, list[int]] = {}
    comings = {0: [(2, 9), (0, 1)], 2: [(1, 5)], 5: [(2, 3)]}
    for step in range(8):
        if step == 4:
            batch.remove(2)
            del texts[2]
        for slot, length in comings.get(step, []):
            texts[slot] = rng.integers(0, V, size=length).tolist()
            batch.add(slot, prefilled(lab, model, texts[slot]))
        tokens: list[int | None] = [None] * 4
        for slot, text in texts.items():
            text.append(int(rng.integers(0, V)))
            tokens[slot] = text[-1]
        positions = [len(texts.get(slot, [0])) - 1 for slot in range(4)]
        actual = batch.decode(tokens, positions)
        alone = [
            lab.numpy(model(lab.array([texts[s]]), slice(0, len(texts[s]))))[0, -1] for s in sorted(texts)
        ]
        name = f"the logits of step {step}, with slots {sorted(texts)} busy"
        check(actual, np.stack(alone), name=name, axes="busy V", rtol=1e-4, atol=1e-4)


# Task 4: static batching

SCRIPTS = {
    5: (3, [20, 21, 22, 23, 24, 25]),
    8: (1, [30, 9, 31, 32]),
    12: (6, [9, 30]),
    14: (2, [0, 3, 0, 9, 1, 2]),
}
PROMPTS = [[5, 6, 7], [8], [12, 9, 9, 1, 2, 3], [14, 15]]


def generate_static(lab: Any, model: Any, prompts: Any, *rest: Any) -> Any:
    """The learner's function; of an index that the logits don't have, the usual cause is named."""
    with rows_of_busy_slots(lambda: model.head_rows[-1]):
        return lab.static_batch.generate_static(model, prompts, *rest)


def test_task_4_a_prompt_is_run_whole_and_alone_and_put_into_its_slot(lab):
    model = TracingModel(lab, SCRIPTS)
    batch = lab.static_batch.Batch(model, 3)
    check_equal(lab.static_batch.prefill_slot(batch, 1, (5, 6, 7)), 20, name="the first token")
    check_equal(len(model.calls), 1, name="how often the model ran for one prompt")
    check_equal(model.calls[0].ids, [[5, 6, 7]], name="the tokens that the model was run on")
    check_equal(model.calls[0].seen, [pairs([5, 6, 7])], name="what the last row of the prompt sees")
    check_equal(model.head_rows, [1], name="rows given to model.logits")
    batch.decode([None, 20, None], [0, 3, 0])
    check_equal(model.decodes[0].seen, [[], pairs([5, 6, 7, 20]), []], name="what the slots see afterward")


def test_task_4_a_prompt_for_a_taken_slot_is_refused(lab):
    batch = lab.static_batch.Batch(TracingModel(lab, SCRIPTS), 2)
    lab.static_batch.prefill_slot(batch, 0, [8])
    check_raises(ValueError, lambda: lab.static_batch.prefill_slot(batch, 0, [14, 15]), name="a taken slot")


def test_task_4_each_request_gets_its_own_tokens_until_it_ends(lab):
    model = TracingModel(lab, SCRIPTS)
    actual = generate_static(lab, model, [list(prompt) for prompt in PROMPTS], 6, {9})
    expected = [[20, 21, 22, 23, 24, 25], [30, 9], [9], [0, 3, 0, 9]]
    of_row_0 = [[20, 21, 22, 23, 24, 25], [30, 21, 22, 23, 24, 25], [9], [0, 21, 22, 23, 24, 25]]
    assert actual != of_row_0, (
        "every request got the token of row 0: each request has its own row of the logits"
    )
    longer = [[*expected[0], V - 1], *expected[1:]]
    check_equal(
        actual,
        expected,
        name="the new tokens of the prompts, 6 at most, 9 being the end",
        suspects={"a request gets one token more than `max_tokens`: prefill brings the first": longer},
    )


def test_task_4_all_decode_together_until_the_last_has_ended(lab):
    model = TracingModel(lab, SCRIPTS)
    generate_static(lab, model, [list(prompt) for prompt in PROMPTS], 6, {9})
    check_equal(len(model.calls) - len(model.decodes), 4, name="runs of the model for the four prompts")
    needless = [step for step, call in enumerate(model.decodes, 1) if not any(call.seen)]
    assert not needless, (
        f"decode step {needless[0]} ran for idle slots alone: before each decode, return if no request is left"
    )
    check_equal(len(model.decodes), 5, name="decode steps for at most 6 tokens per request")
    # A slot is busy while its request needs a token, and idle from then on: no other request gets it.
    busy = [[slot for slot, row in enumerate(call.seen) if row] for call in model.decodes]
    assert 2 not in busy[0], (
        "slot 2 ended with its first token and was still decoded: it had not left the batch"
    )
    assert 1 not in busy[1], "slot 1 ended with its second token and was still decoded"
    check_equal(busy, [[0, 1, 3], [0, 3], [0, 3], [0], [0]], name="the busy slots of each decode step")
    check_equal(model.head_rows[4:], [3, 2, 2, 1, 1], name="rows given to model.logits in each decode step")
    check_equal(
        model.decodes[1].seen[3], pairs([14, 15, 0, 3]), name="what slot 3 sees in the second decode step"
    )


@pytest.mark.parametrize("max_tokens", [1, 2, 5], ids=tokens_each)
def test_task_4_max_tokens_is_kept(lab, max_tokens):
    model = TracingModel(lab, SCRIPTS)
    prompts = [PROMPTS[0], PROMPTS[3]]
    actual = generate_static(lab, model, prompts, max_tokens)
    expected = [SCRIPTS[5][1][:max_tokens], SCRIPTS[14][1][:max_tokens]]
    check_equal(actual, expected, name=f"the new tokens, {max_tokens} each")
    check_equal(len(model.decodes), max_tokens - 1, name="decode steps")


def test_task_4_a_first_token_that_is_an_end_leaves_nothing_to_decode(lab):
    model = TracingModel(lab, SCRIPTS)
    actual = generate_static(lab, model, [PROMPTS[2], PROMPTS[2]], 6, (9,))
    check_equal(actual, [[9], [9]], name="the new tokens, 9 being the end")
    check_equal(len(model.decodes), 0, name="decode steps when all end with their first token")


def test_task_4_without_prompts_there_is_nothing_to_do(lab):
    model = TracingModel(lab, SCRIPTS)
    check_equal(generate_static(lab, model, [], 6, {9}), [], name="the new tokens of no prompts")
    check_equal(len(model.calls), 0, name="runs of the model for no prompts")


def test_task_4_equal_prompts_are_two_requests(lab):
    model = TracingModel(lab, SCRIPTS)
    actual = generate_static(lab, model, [PROMPTS[3], PROMPTS[3]], 3)
    check_equal(actual, [[0, 3, 0], [0, 3, 0]], name="the new tokens of a prompt that is given twice")


def test_task_4_one_prompt_is_a_batch_too(lab):
    model = TracingModel(lab, SCRIPTS)
    actual = generate_static(lab, model, [PROMPTS[1]], 3)
    check_equal(actual, [[30, 9, 31]], name="the new tokens of a single prompt, without end tokens")


def test_task_4_the_callers_prompts_are_left_alone(lab):
    model = TracingModel(lab, SCRIPTS)
    prompts = [list(prompt) for prompt in PROMPTS]
    generate_static(lab, model, prompts, 3)
    check_equal(prompts, PROMPTS, name="the prompts, afterward")


@pytest.mark.parametrize("end_ids", [(), (1, 3, 4, 11, 20)], ids=["no end tokens", "end tokens"])
def test_task_4_the_tokens_are_those_of_each_prompt_alone(lab, end_ids):
    model = tiny_model(lab)
    for seed in range(61, 91):
        rng = np.random.default_rng(seed)
        prompts = [rng.integers(0, V, size=length).tolist() for length in (7, 1, 12, 4, 2)]
        alone = [list(lab.generate.generate(model, prompt, 15, end_ids)) for prompt in prompts]
        if not end_ids or len({len(tokens) for tokens in alone}) > 2:  # they end at different times
            break
    actual = lab.static_batch.generate_static(model, prompts, 15, end_ids)
    check_equal(actual, alone, name="the new tokens of the prompts")
