"""Day 2.1: a cache that grows without copying its past, and generation with it."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.models import real_model
from week_1 import numpy_model
from week_1.scripted import ScriptedModel

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises

from .full_caches import (
    append,
    cache_of,
    causal,
    isolated,
    places,
    spoil_unused,
    storage_moves,
    tokens,
    whole_sequence,
)
from .scripted import LAYERS, CachingModel

PROMPT = [3, 7, 3, 1, 5]
SCRIPT = [4, 11, 4, 0, 9, 2, 8]
UNUSED = "places of the storage that no token was written to are taken for tokens"


def check_holds(
    actual: Any,
    keys: np.ndarray,
    values: np.ndarray,
    *,
    when: str = "",
    dtype: str = "float32",
    nan: str = UNUSED,
) -> None:
    """Check that the cache returned exactly these keys and values, and nothing of its unused storage."""
    assert isinstance(actual, tuple), f"keys and values are a tuple of two; this is a {type(actual).__name__}"
    for name, part, expected, other in zip(
        ("keys", "values"), actual, (keys, values), (values, keys), strict=True
    ):
        swapped = {f"the {name} are those of the other array: keys and values are mixed up": other}
        check(
            part,
            expected,
            name=f"the {name}{when}",
            axes="B Hkv S D",
            rtol=0,
            atol=0,
            dtype=dtype,
            suspects=swapped,
            nan=nan,
        )


# Task 1: storage that grows


def test_task_1_the_first_tokens_come_back(lab):
    keys, values = tokens(5)
    cache = cache_of(lab)
    fetched = append(lab, cache, keys, values, 0, 5)
    check_equal(cache.length, 5, name="cache.length after 5 tokens")
    check_holds(fetched, keys, values)


def test_task_1_new_tokens_come_after_the_old_ones(lab):
    keys, values = tokens(9)
    cache = cache_of(lab)
    for start, stop in pairwise((0, 4, 5, 6, 9)):
        actual = append(lab, cache, keys, values, start, stop)
        check_equal(cache.length, stop, name=f"cache.length after {stop} tokens")
        swapped = (np.roll(keys[:, :, :stop], stop - start, 2), np.roll(values[:, :, :stop], stop - start, 2))
        for part, expected, wrong, name in zip(
            actual, (keys, values), swapped, ("keys", "values"), strict=True
        ):
            check(
                part,
                expected[:, :, :stop],
                name=f"the {name} after {stop} tokens",
                axes="B Hkv S D",
                rtol=0,
                atol=0,
                nan=UNUSED,
                suspects={
                    "the new tokens stand in front of the old ones": wrong,
                    "the new tokens took the place of the old ones": expected[:, :, start:stop],
                    "the values were written to the keys, or the keys to the values": (
                        values if name == "keys" else keys
                    )[:, :, :stop],
                },
            )


@pytest.mark.parametrize("first", [1, 3, 4, 5])
@pytest.mark.parametrize("then", [1, 3, 4, 5, 12, 20])
def test_task_1_tokens_survive_when_the_storage_grows(lab, first, then):
    keys, values = tokens(first + then)
    cache = cache_of(lab, capacity=4)
    append(lab, cache, keys, values, 0, first)
    fetched = append(lab, cache, keys, values, first, first + then)
    past = tuple(part[:, :, :first] for part in fetched)
    check_holds(past, keys[:, :, :first], values[:, :, :first], when=" from before the storage grew")
    check_holds(fetched, keys, values)


def test_task_1_a_prompt_longer_than_the_first_storage_fits(lab):
    cache = cache_of(lab)
    length = cache.first_capacity + 3
    keys, values = tokens(length + 1)
    check_holds(append(lab, cache, keys, values, 0, length), keys[:, :, :length], values[:, :, :length])
    check_holds(append(lab, cache, keys, values, length, length + 1), keys, values)


def test_task_1_keys_and_values_are_views_of_the_storage(lab):
    keys, values = tokens(5)
    cache = cache_of(lab)
    for start, stop in pairwise((0, 3, 5)):
        actual = cache.append(lab.array(keys[:, :, start:stop]), lab.array(values[:, :, start:stop]))
        for name, part, storage in zip(("keys", "values"), actual, (cache.keys, cache.values), strict=True):
            assert lab.shares_memory(part, storage), f"the {name} returned are a copy of the storage"


def test_task_1_while_tokens_fit_the_storage_stays_where_it_is(lab):
    cache = cache_of(lab)
    moves = storage_moves(lab, cache, cache.first_capacity)
    if moves:
        pytest.fail(
            f"the first storage has room for {cache.first_capacity} tokens, but the past was copied elsewhere with "
            f"token {', '.join(map(str, moves[:4]))}{' …' if len(moves) > 4 else ''}"
        )


def test_task_1_the_past_is_copied_a_few_times_over_a_thousand_tokens(lab):
    moves = storage_moves(lab, cache_of(lab), 1100)
    assert len(moves) <= 5, (
        f"the storage moved {len(moves)} times over 1,100 tokens, at lengths {moves[:6]} …"
    )
    for one, other in pairwise(moves):
        assert other - 1 >= 2 * (one - 1), (
            f"storage made at length {one} was full at length {other}: it isn't twice the size of the storage before"
        )


@pytest.mark.parametrize("capacity", [None, 4])
def test_task_1_there_is_room_to_spare_but_not_without_end(lab, capacity):
    cache = cache_of(lab, capacity)
    keys, values = tokens(1)
    append(lab, cache, keys, values, 0, 1)
    check_equal(cache.keys.shape[2], cache.first_capacity, name="the capacity after the first token")
    keys, values = tokens(cache.first_capacity)
    append(lab, cache, keys, values, 0, cache.first_capacity)
    check_equal(cache.values.shape[2], 2 * cache.first_capacity, name="the capacity after one token too many")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [3, 64, 70])
def test_task_1_the_cache_keeps_nothing_of_the_callers_arrays(lab, length, dtype):
    keys, values = (np.round(part * 8) / 8 for part in tokens(length))
    cache = cache_of(lab)
    given_keys, given_values = lab.array(keys, dtype), lab.array(values, dtype)
    actual = cache.append(given_keys, given_values)
    given_keys[...] = float("nan")
    given_values[...] = float("nan")
    when = ", after the caller has filled its own arrays with NaN,"
    theirs = "the caller's arrays are the storage: copy them into it"
    check_holds(actual, keys, values, when=when, dtype=dtype, nan=theirs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_task_1_the_storage_has_the_dtype_of_the_keys(lab, dtype):
    keys, values = (np.round(part * 8) / 8 for part in tokens(7))
    cache = cache_of(lab, capacity=4)
    for start, stop in pairwise((0, 3, 7)):
        part = slice(start, stop)
        actual = cache.append(lab.array(keys[:, :, part], dtype), lab.array(values[:, :, part], dtype))
        check_holds(actual, keys[:, :, :stop], values[:, :, :stop], dtype=dtype)
        for name, storage in (("keys", cache.keys), ("values", cache.values)):
            found = lab.dtype(storage)
            assert found == dtype, f"the storage of the {name} is {found}, the {name} are {dtype}"


@pytest.mark.parametrize("held", [0, 3, 4])
def test_task_1_no_new_tokens_change_nothing(lab, held):
    keys, values = tokens(4)
    cache = cache_of(lab, capacity=4)
    append(lab, cache, keys, values, 0, held)
    fetched = append(lab, cache, keys, values, held, held)
    check_equal(cache.length, held, name=f"cache.length after {held} tokens, and then none")
    check_holds(fetched, keys[:, :, :held], values[:, :, :held], when=" after a call without new tokens")


def test_task_1_two_caches_do_not_mix(lab):
    one, other = cache_of(lab), cache_of(lab)
    keys, values = tokens(4)
    more_keys, more_values = tokens(3, seed=22)
    append(lab, one, keys, values, 0, 3)
    append(lab, other, more_keys, more_values, 0, 3)
    check_holds(append(lab, one, keys, values, 3, 4), keys, values)


# Task 2: behind the seam


@pytest.mark.parametrize("sizes", [(5,), (5, 3), (1, 4, 2), (6, 1, 1, 2)], ids=str)
def test_task_2_the_mask_lets_each_new_token_see_the_past_and_itself(lab, sizes):
    length = sum(sizes)
    keys, values = tokens(length)
    cache, start = cache_of(lab, capacity=4), 0
    for L in sizes:
        stop = start + L
        spoil_unused(cache)
        new = (lab.array(keys[:, :, start:stop]), lab.array(values[:, :, start:stop]))
        *fetched, mask = cache.update_and_fetch(*new)
        check_holds(tuple(fetched), keys[:, :, :stop], values[:, :, :stop])
        if L > 1:
            assert mask is not None, (
                f"{L} new tokens after {start} came with the mask None, and would see each other's future"
            )
            check(
                mask,
                causal(L, stop),
                name=f"the mask of {L} new tokens after {start}",
                axes="L S",
                suspects={"the new tokens see each other but not the past": isolated(L, stop)},
            )
        start = stop


@pytest.mark.parametrize("past", [0, 1, 6])
def test_task_2_a_single_new_token_needs_no_mask(lab, past):
    keys, values = tokens(past + 1)
    cache = cache_of(lab)
    if past:
        append(lab, cache, keys, values, 0, past)
    *fetched, mask = cache.update_and_fetch(lab.array(keys[:, :, past:]), lab.array(values[:, :, past:]))
    check_holds(tuple(fetched), keys, values)
    assert mask is None, (
        "one new token may see every key: return None as the mask, so that no zeros are added"
    )


def test_task_2_the_mask_has_the_dtype_of_the_keys(lab):
    keys, values = tokens(4)
    new = (lab.array(keys, "bfloat16"), lab.array(values, "bfloat16"))
    mask = cache_of(lab).update_and_fetch(*new)[2]
    check(mask, causal(4, 4), name="the mask", axes="L S", dtype="bfloat16")


@pytest.mark.parametrize("sizes", [(9,), (4, 1, 1, 1, 1, 1), (3, 4, 2), (1,) * 9], ids=str)
def test_task_2_attention_piece_by_piece_equals_attention_to_the_whole(lab, sizes):
    query, keys, values, expected = whole_sequence(9)
    cache, start = cache_of(lab, capacity=4), 0
    for L in sizes:
        part = slice(start, start + L)
        spoil_unused(cache)
        actual = cache.attend(*(lab.array(x[:, :, part]) for x in (query, keys, values)), 0.4)
        name = f"attention of tokens {start} to {start + L - 1}, with NaN in the unused storage"
        check(actual, expected[:, :, part], name=name, axes="B H L D", nan=UNUSED)
        start += L


# Task 3: rewind


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_task_3_rewinding_then_appending_equals_never_having_appended(lab, count):
    keys, values = tokens(6)
    new_keys, new_values = tokens(4, seed=22)
    cache = cache_of(lab, capacity=4)
    append(lab, cache, keys, values, 0, 6)
    cache.rewind(count)
    kept = 6 - count
    check_equal(cache.length, kept, name=f"cache.length after 6 tokens and rewind({count})")
    actual = append(lab, cache, new_keys, new_values, 0, 4)
    expected = [
        np.concatenate([old[:, :, :kept], new], axis=2)
        for old, new in ((keys, new_keys), (values, new_values))
    ]
    check_holds(actual, *expected)


@pytest.mark.parametrize("count", [4, 6])
def test_task_3_rewinding_moves_no_storage(lab, count):
    keys, values = tokens(6)
    cache = cache_of(lab)
    cache.append(lab.array(keys), lab.array(values))
    before = places(cache)
    cache.rewind(count)
    after_rewinding = places(cache)
    cache.append(lab.array(keys[:, :, 2:5]), lab.array(values[:, :, 2:5]))
    for name, old, *new in zip(("keys", "values"), before, after_rewinding, places(cache), strict=True):
        assert new == [old, old], f"the {name} lie elsewhere after rewinding: nothing needs to move"


def test_task_3_rewinding_erases_nothing(lab):
    keys, values = tokens(6)
    cache = cache_of(lab)
    before = append(lab, cache, keys, values, 0, 6)
    cache.rewind(4)
    check_holds(before, keys, values, when=" returned before rewinding")


def test_task_3_attention_after_rewinding_sees_nothing_of_what_was_forgotten(lab):
    query, keys, values, expected = whole_sequence(8)
    wrong_keys, wrong_values = tokens(3, seed=23)
    cache = cache_of(lab)
    append(lab, cache, keys, values, 0, 5)
    append(lab, cache, wrong_keys, wrong_values, 0, 3)
    cache.rewind(3)
    for part in (slice(5, 7), slice(7, 8)):
        actual = cache.attend(*(lab.array(x[:, :, part]) for x in (query, keys, values)), 0.4)
        check(
            actual,
            expected[:, :, part],
            name="attention after three wrong tokens were rewound",
            axes="B H L D",
        )


@pytest.mark.parametrize(("held", "count"), [(5, 6), (5, -1), (0, 1), (5, 100)])
def test_task_3_what_cannot_be_rewound_is_refused_and_nothing_changes(lab, held, count):
    keys, values = tokens(6)
    cache = cache_of(lab)
    if held:
        append(lab, cache, keys, values, 0, held)
    check_raises(ValueError, lambda: cache.rewind(count), name=f"rewind({count}) with {held} tokens held")
    check_equal(cache.length, held, name=f"cache.length after the refused rewind({count})")
    check_holds(append(lab, cache, keys, values, held, 6), keys, values)


def test_task_3_an_empty_cache_can_be_rewound_by_nothing(lab):
    cache = cache_of(lab)
    cache.rewind(0)
    check_equal(cache.length, 0, name="cache.length")


@settings(max_examples=120, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
@given(steps=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=12))
def test_task_3_any_sequence_of_appends_and_rewinds_is_a_list_that_grows_and_shrinks(steps):
    lab = door.active()
    keys, values = tokens(sum(more for more, _ in steps))
    cache, held, start = cache_of(lab, capacity=3), list[int](), 0
    for more, less in steps:
        fetched = append(lab, cache, keys, values, start, start + more)
        held += range(start, start + more)
        start += more
        check_holds(fetched, keys[:, :, held], values[:, :, held])
        less = min(less, len(held))
        cache.rewind(less)
        held = held[: len(held) - less]
        check_equal(cache.length, len(held), name="cache.length")


# Task 4: generate with a cache


def generate(lab: Any, model: Any, prompt: Any, max_tokens: int, *rest: Any, **options: Any) -> Any:
    """The learner's generator on a copy of the prompt, with caches that are plain objects."""
    return lab.generate.generate(model, list(prompt), max_tokens, *rest, **{"make_cache": Opaque, **options})


class Opaque:
    """A cache that only the model knows how to use."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"make_cache may give any LayerCache, which need not have {name!r}: count the tokens yourself"
        )


def test_task_4_the_prompt_goes_in_once_then_one_token_at_a_time(lab):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    check_equal(list(generate(lab, model, PROMPT, 5)), SCRIPT[:5], name="the tokens generated")
    expected = [PROMPT, *([token] for token in SCRIPT[:4])]
    check_equal(
        model.calls,
        expected,
        name="the ids that the model was run on",
        suspects={
            "the model runs once more than needed: after the last token nothing is chosen any more": [
                *expected,
                [SCRIPT[4]],
            ]
        },
    )


@pytest.mark.parametrize("max_tokens", [0, 1, 6])
def test_task_4_max_tokens_is_kept(lab, max_tokens):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    tokens = list(generate(lab, model, PROMPT, max_tokens))
    check_equal(tokens, SCRIPT[:max_tokens], name="the tokens generated")
    check_equal(len(model.calls), max_tokens, name="how often the model ran")


def test_task_4_only_the_last_row_goes_through_the_head(lab):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    list(generate(lab, model, PROMPT, 3))
    if model.head_rows != [1, 1, 1]:
        pytest.fail(
            f"for 3 tokens, model.logits was given {model.head_rows} rows: only the last row of each call is needed"
        )


def test_task_4_a_token_is_there_before_the_next_is_computed(lab):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    stream = generate(lab, model, PROMPT, 6)
    check_equal(len(model.calls), 0, name="how often the model ran before a token was asked for")
    for n in range(3):
        check_equal(next(stream), SCRIPT[n], name=f"token {n}")
        check_equal(len(model.calls), n + 1, name=f"how often the model ran for {n + 1} tokens")


@pytest.mark.parametrize("end_ids", [(9,), {9, 12}, [12, SCRIPT[0]]], ids=["tuple", "set", "the first token"])
def test_task_4_an_end_token_is_the_last(lab, end_ids):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    ends = [place for place, token in enumerate(SCRIPT) if token in end_ids]
    tokens = list(generate(lab, model, PROMPT, 7, end_ids))
    check_equal(tokens, SCRIPT[: ends[0] + 1], name=f"the tokens, with the end tokens {end_ids}")
    check_equal(len(model.calls), len(tokens), name="how often the model ran")


@pytest.mark.parametrize("room", [1, 3, 7])
def test_task_4_prompt_and_output_fill_the_positions_and_no_more(lab, room):
    model = CachingModel(lab, len(PROMPT), SCRIPT, max_positions=len(PROMPT) + room)
    tokens = list(generate(lab, model, PROMPT, 100))
    check_equal(tokens, SCRIPT[:room], name=f"the tokens, with {room} positions after the prompt's")


@pytest.mark.parametrize("length", [0, 8, 9])
@pytest.mark.parametrize("max_tokens", [0, 2])
def test_task_4_a_prompt_that_leaves_no_room_is_refused(lab, length, max_tokens):
    model = CachingModel(lab, length, SCRIPT, max_positions=8)
    stream = generate(lab, model, [1] * length, max_tokens)
    name = f"a prompt of {length} tokens for a model of 8 positions"
    check_raises(ValueError, lambda: list(stream), name=name)
    check_equal(len(model.calls), 0, name="how often the model ran on a prompt that was refused")


@pytest.mark.parametrize("kind", [list, tuple])
def test_task_4_the_callers_prompt_is_left_alone(lab, kind):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    prompt = kind(PROMPT)
    tokens = lab.generate.generate(model, prompt, 3, make_cache=Opaque)
    check_equal(list(tokens), SCRIPT[:3], name="the tokens generated")
    check_equal(prompt, kind(PROMPT), name="the caller's prompt, afterward (copy it before you append)")


def test_task_4_sample_gets_the_last_rows_logits_and_every_id_so_far(lab):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    chosen, seen = [6, 2, 10], []

    def sample(logits, token_ids):
        seen.append((lab.numpy(logits), list(token_ids)))
        return chosen[len(seen) - 1]

    tokens = list(generate(lab, model, PROMPT, 3, sample=sample))
    check_equal(tokens, chosen, name="the tokens, which sample chooses")
    for n, (scores, ids) in enumerate(seen):
        expected = PROMPT + chosen[:n]
        check_equal(ids, expected, name=f"the ids given to sample for token {n}")
        state = np.array([len(expected), expected[-1], sum(expected)], dtype=np.float64)
        check(scores, model.scores(state), name=f"the logits for token {n}", axes="V", framework="numpy")


def test_task_4_each_layer_gets_a_cache_from_make_cache(lab):
    model, made = CachingModel(lab, len(PROMPT), SCRIPT), list[Any]()

    def make_cache():
        made.append(Opaque())
        return made[-1]

    list(generate(lab, model, PROMPT, 4, make_cache=make_cache))
    check_equal(len(made), LAYERS, name=f"caches made for 4 tokens and {LAYERS} layers")
    assert all(a is b for a, b in zip(model.caches, made, strict=True)), "the model got other caches"


def test_task_4_the_next_request_gets_new_caches(lab):
    model, made = CachingModel(lab, len(PROMPT), SCRIPT), list[Any]()

    def make_cache():
        made.append(Opaque())
        return made[-1]

    for request in (1, 2):
        model.known = []
        list(generate(lab, model, PROMPT, 3, make_cache=make_cache))
        fresh = len(made) == request * LAYERS and all(
            a is b for a, b in zip(model.caches, made[-LAYERS:], strict=True)
        )
        assert fresh, f"request {request} on the same model ran with caches of an earlier one"


def test_task_4_the_caches_are_full_ones_unless_others_are_asked_for(lab):
    model = CachingModel(lab, len(PROMPT), SCRIPT)
    next(lab.generate.generate(model, list(PROMPT), 4))
    for cache in model.caches:
        assert isinstance(cache, lab.kv_cache.FullKvCache), f"a layer got a {type(cache).__name__}"


def test_task_4_two_requests_side_by_side_do_not_mix(lab):
    one, other = CachingModel(lab, 5, SCRIPT), CachingModel(lab, 2, SCRIPT[::-1])
    first, second = generate(lab, one, PROMPT, 4), generate(lab, other, [1, 2], 4)
    pairs = list(zip(first, second, strict=True))
    check_equal([a for a, _ in pairs], SCRIPT[:4], name="the first request's tokens")
    check_equal([b for _, b in pairs], SCRIPT[::-1][:4], name="the second request's tokens")


@settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
@given(
    prompt=st.lists(st.integers(0, 12), min_size=1, max_size=9),
    script=st.lists(st.integers(0, 12), max_size=9),
    max_tokens=st.integers(0, 10),
    end_ids=st.sets(st.integers(0, 12), max_size=2),
    room=st.integers(1, 12),
)
def test_task_4_whatever_is_asked_for_the_tokens_are_those_of_recomputing(
    prompt, script, max_tokens, end_ids, room
):
    lab = door.active()
    cached, plain = (
        Kind(lab, len(prompt), script, len(prompt) + room) for Kind in (CachingModel, ScriptedModel)
    )
    expected = list(lab.generate.generate_recompute(plain, list(prompt), max_tokens, end_ids))
    actual = list(generate(lab, cached, prompt, max_tokens, end_ids))
    check_equal(actual, expected, name=f"the tokens after {prompt}, max_tokens {max_tokens}, ends {end_ids}")


@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_4_with_the_model_of_week_1(lab, family):
    model, tensors = real_model(lab, family), numpy_model.random_tensors(family)
    ids, seen = [30, 4, 17, 8], []

    def sample(logits, token_ids):
        seen.append(lab.numpy(logits))
        return lab.generate.greedy(logits, token_ids)

    actual = list(islice(lab.generate.generate(model, list(ids), 6, sample=sample), 6))
    for n, token in enumerate(actual):
        states = numpy_model.hidden(tensors, np.array([ids]), np.arange(len(ids))[None])
        expected = numpy_model.logits(tensors, states)[0, -1]
        name = f"the logits for token {n}"
        check(seen[n], expected, name=name, axes="V", framework="numpy", rtol=1e-4, atol=1e-4)
        check_equal(token, int(np.argmax(expected)), name=f"token {n}")
        ids.append(token)
    check_equal(len(actual), 6, name="how many tokens were generated")
