"""Day 2.7: requests, prefill in chunks, one step, continuous batching."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.pending import check_not_growing

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises

from .batches import rows_of_busy_slots, tiny_model
from .continuous import (
    Watch,
    begun,
    generate,
    lets_through,
    new_request,
    prefilled,
    prompt_of,
    seated,
    step_of,
)
from .reading_model import LAYERS, ReadingModel, alone, best, fingerprints, scores_after

LIMIT = 64  # the positions of a ReadingModel, unless a test says otherwise


# Task 1: a request


@pytest.mark.parametrize("empty", [[], ()], ids=["list", "tuple"])
def test_task_1_an_empty_prompt_is_refused(lab, empty):
    reason = new_request(lab, empty, 3).refusal(LIMIT)
    assert isinstance(reason, str), f"an empty prompt needs a reason why it can't run; this is {reason!r}"
    assert "empty" in reason, f"the reason should say that the prompt is empty; it says {reason!r}"


@pytest.mark.parametrize("max_tokens", [0, 3])
@pytest.mark.parametrize("length", [12, 13, 40])
def test_task_1_a_prompt_that_leaves_no_position_free_is_refused(lab, length, max_tokens):
    reason = new_request(lab, prompt_of(length), max_tokens).refusal(12)
    assert isinstance(reason, str), (
        f"{length} tokens of 12 positions leave no room, but refusal says {reason!r}"
    )
    assert str(length) in reason, f"the reason should name the {length} tokens; it says {reason!r}"
    assert "11" in reason, f"the reason should say that 11 tokens would fit; it says {reason!r}"


@pytest.mark.parametrize("length", [1, 10, 11])
@pytest.mark.parametrize("max_tokens", [0, 1, 100])
def test_task_1_a_prompt_that_leaves_one_position_free_may_run(lab, length, max_tokens):
    reason = new_request(lab, prompt_of(length), max_tokens).refusal(12)
    check_equal(reason, None, name=f"why a prompt of {length} tokens can't run on 12 positions")


def test_task_1_a_refusal_is_about_the_prompt_alone(lab):
    full = new_request(lab, prompt_of(9), 100, output=[3, 4, 5])
    name = "why a request can't run that has a prompt of 9 tokens, and 3 of output, on 12 positions"
    check_equal(full.refusal(12), None, name=name)


@pytest.mark.parametrize(
    ("output", "finished"),
    [([], False), ([3], False), ([3, 4], False), ([3, 4, 5], True), ([3, 4, 5, 6], True)],
)
def test_task_1_max_tokens_end_a_request(lab, output, finished):
    request = new_request(lab, prompt_of(5), 3, output=output)
    check(request.finished(LIMIT), finished, name=f"finished, with {len(output)} of 3 tokens")
    check_equal(request.token_ids, prompt_of(5) + output, name="its tokens, afterwards")


def test_task_1_a_request_for_no_tokens_is_finished_from_the_start(lab):
    check(new_request(lab, prompt_of(5), 0).finished(LIMIT), True, name="finished, for max_tokens 0")


@pytest.mark.parametrize(("output", "finished"), [(0, False), (6, False), (7, True)])
def test_task_1_prompt_and_output_may_use_every_position(lab, output, finished):
    request = new_request(lab, prompt_of(5), 100, output=prompt_of(output))
    name = f"finished, with {5 + output} of 12 positions used"
    check(request.finished(12), finished, name=name)


@pytest.mark.parametrize(("output", "finished"), [([], False), ([3], True)])
def test_task_1_the_longest_prompt_has_room_for_one_token(lab, output, finished):
    request = new_request(lab, prompt_of(11), 100, output=output)
    name = f"finished, with a prompt of 11 tokens on 12 positions, and {len(output)} of output"
    check(request.finished(12), finished, name=name)


@pytest.mark.parametrize("end_ids", [(9, 0), {0, 9}, [0, 9]], ids=["tuple", "set", "list"])
@pytest.mark.parametrize(
    ("output", "finished"), [([4], False), ([4, 9], True), ([9], True), ([0], True), ([4, 7], False)]
)
def test_task_1_an_end_token_ends_a_request(lab, end_ids, output, finished):
    request = new_request(lab, prompt_of(5), 20, end_ids, output=output)
    check(request.finished(LIMIT), finished, name=f"finished, with the output {output} and end ids {end_ids}")


def test_task_1_an_end_token_in_the_prompt_ends_nothing(lab):
    check(new_request(lab, [4, 9], 20, (9,)).finished(LIMIT), False, name="finished, with no output yet")
    later = new_request(lab, [4, 9], 20, (9,), output=[5])
    check(later.finished(LIMIT), False, name="finished, with a token behind the end token of the prompt")


@pytest.mark.parametrize("kind", [list, tuple])
def test_task_1_accept_appends_what_the_requests_own_sample_chooses(lab, kind):
    given_to = []

    def sample(logits, token_ids):
        given_to.append((lab.numpy(logits), list(token_ids)))
        return 11

    request = new_request(lab, kind([5, 2, 8]), 20, output=[7], sample=sample)
    scores = np.random.default_rng(27).normal(size=13)
    request.accept(lab.array(scores))
    check_equal(request.token_ids, [5, 2, 8, 7, 11], name="all the tokens")
    check_equal(request.output, [7, 11], name="the output")
    check_equal(request.num_generated, 2, name="num_generated")
    check_equal(request.prompt_ids, [5, 2, 8], name="the prompt, afterwards")
    check_equal(len(given_to), 1, name="calls of sample")
    check(given_to[0][0], scores, name="the logits given to sample", axes="V", framework="numpy")
    check_equal(given_to[0][1], [5, 2, 8, 7], name="the ids given to sample: prompt, then output")


def test_task_1_accept_is_greedy_when_nothing_else_is_asked_for(lab):
    request = new_request(lab, [5, 2], 20)
    for scores in ([0.0, 3.0, 1.0], [9.0, 3.0, 9.0], [-3.0, -2.0, -1.0]):
        request.accept(lab.array(scores))
    check_equal(request.output, [1, 0, 2], name="the output")


@pytest.mark.parametrize("error", [ValueError("no such token"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_task_1_a_sampler_that_fails_leaves_the_tokens_as_they_were(lab, error):
    def sample(logits, token_ids):
        raise error

    request = new_request(lab, [5, 2], 20, output=[7], sample=sample)
    through = lets_through(error, lambda: request.accept(lab.array([0.0, 3.0, 1.0])))
    assert through, f"the sampler raised {type(error).__name__}: accept should let it through"
    check_equal(request.token_ids, [5, 2, 7], name="the tokens after the sampler has failed")


def test_task_1_a_request_shares_no_list_with_its_caller(lab):
    prompt, end_ids = [5, 2, 8], {9}
    request = new_request(lab, prompt, 20, end_ids)
    request.accept(lab.array([0.0, 3.0, 1.0]))
    check_equal(prompt, [5, 2, 8], name="the caller's prompt, after the request has accepted a token")
    prompt.append(3)
    end_ids.add(1)
    request.output.append(4)
    request.prompt_ids.append(4)
    name = "the tokens, after the caller has changed its prompt, and what output and prompt_ids gave"
    check_equal(request.token_ids, [5, 2, 8, 1], name=name)
    name = "finished, with an output of 1, which was put among the caller's end ids later"
    check(request.finished(LIMIT), False, name=name)


def test_task_1_two_requests_are_two_even_where_their_tokens_are_equal(lab):
    first, second = new_request(lab, [5, 2], 20), new_request(lab, [5, 2], 20)
    names = {first: "first", second: "second"}
    for request in (first, second):
        request.accept(lab.array([0.0, 3.0, 1.0]))
    check_equal(first == second, False, name="first == second, two requests with equal tokens")
    check_equal([names[first], names[second]], ["first", "second"], name="what a dict holds under them")


# Task 2: prefill, whole and in chunks


@pytest.mark.parametrize(
    ("length", "computed", "chunk_size", "expected"),
    [
        (400, 0, 128, (0, 128)),
        (400, 256, 128, (256, 384)),
        (400, 384, 128, (384, 400)),
        (400, 0, None, (0, 400)),
        (5, 3, None, (3, 5)),
        (1, 0, 128, (0, 1)),
        (9, 3, 1, (3, 4)),
    ],
)
def test_task_2_a_chunk_begins_where_the_last_one_ended(lab, length, computed, chunk_size, expected):
    prefill = begun(lab, new_request(lab, [1] * length, 3), computed)
    chunk = prefill.next_chunk(chunk_size)
    name = f"the next chunk of at most {chunk_size}, with {computed} of {length} tokens computed"
    check_equal((chunk.start, chunk.stop), expected, name=name)
    check_equal(prefill.computed, computed, name="tokens computed, after next_chunk: it only says what comes")


@pytest.mark.parametrize("length", [1, 2, 7, 400])
def test_task_2_a_whole_prompt_goes_in_at_once(lab, length):
    request = new_request(lab, prompt_of(length), 5)
    prefill, done = prefilled(lab, request, None)
    check_equal(prefill.model.chunks, [(0, length)], name="the positions that the model was run on")
    check_equal(done, [True], name="what try_prefill returned")
    check_equal(request.output, alone(prompt_of(length), 1), name="the first token")


@pytest.mark.parametrize(
    ("length", "chunk_size", "expected"),
    [
        (400, 128, [(0, 128), (128, 256), (256, 384), (384, 400)]),
        (1, 4, [(0, 1)]),
        (3, 4, [(0, 3)]),
        (4, 4, [(0, 4)]),
        (5, 4, [(0, 4), (4, 5)]),
        (8, 4, [(0, 4), (4, 8)]),
        (3, 1, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_task_2_a_prompt_goes_in_chunk_by_chunk(lab, length, chunk_size, expected):
    request = new_request(lab, prompt_of(length), 5)
    prefill, done = prefilled(lab, request, chunk_size)
    chunks = prefill.model.chunks
    check_equal(chunks, expected, name=f"the chunks of {length} tokens, at most {chunk_size} at once")
    check_equal(done, [False] * (len(expected) - 1) + [True], name="what each call of try_prefill returned")
    check_equal(prefill.computed, length, name="tokens computed, after the last chunk")
    check_equal(request.output, alone(prompt_of(length), 1), name="the first token")
    check_equal(request.prompt_ids, prompt_of(length), name="the prompt, afterwards")


@pytest.mark.parametrize("chunk_size", [2, 3, 4, None])
def test_task_2_a_request_with_an_output_goes_on_behind_it(lab, chunk_size):
    prompt = prompt_of(5)
    expected = alone(prompt, 3)
    request = new_request(lab, prompt, 9, output=expected[:2])
    prefill, done = prefilled(lab, request, chunk_size)
    size = chunk_size or 7
    chunks = [(start, min(start + size, 7)) for start in range(0, 7, size)]
    check_equal(prefill.model.chunks, chunks, name="the chunks, with 5 tokens of prompt and 2 of output")
    check_equal(done, [False] * (len(chunks) - 1) + [True], name="what each call of try_prefill returned")
    check_equal(request.output, expected, name="the output, with a third token")


@pytest.mark.parametrize("chunk_size", [2, 3, None])
def test_task_2_the_head_runs_once_on_one_row(lab, chunk_size):
    prefill, _ = prefilled(lab, new_request(lab, prompt_of(7), 5), chunk_size)
    check_equal(prefill.model.head_rows, [1], name="rows of each call of model.logits, for a prompt of 7")


def test_task_2_an_unfinished_prompt_has_no_output(lab):
    request = new_request(lab, prompt_of(7), 5)
    prefill = begun(lab, request)
    for stop in (3, 6):
        check_equal(prefill.try_prefill(3), False, name=f"try_prefill after {stop} of 7 tokens")
        check_equal((prefill.computed, request.output), (stop, []), name="tokens computed, and the output")
    check_equal(prefill.model.head_rows, [], name="calls of model.logits before the last chunk")


@pytest.mark.parametrize("chunk_size", [3, None])
def test_task_2_there_is_one_cache_per_layer_from_chunk_to_chunk(lab, chunk_size):
    prefill = begun(lab, new_request(lab, prompt_of(7), 5))
    caches = list(prefill.caches)
    while not prefill.try_prefill(chunk_size):
        assert prefill.computed < 7, "all 7 tokens are computed; try_prefill should say so"
    check_equal([cache.length for cache in caches], [7] * LAYERS, name="tokens in the cache of each layer")
    same = all(a is b for a, b in zip(prefill.caches, caches, strict=True))
    assert same, "these are other caches than those that the prefill began with"


def test_task_2_the_first_token_is_sampled_from_the_last_row_by_the_request_itself(lab):
    rows = []

    def sample(logits, token_ids):
        rows.append((lab.numpy(logits), list(token_ids)))
        return 0

    request = new_request(lab, prompt_of(7), 5, sample=sample)
    prefilled(lab, request, 3)
    check_equal(request.output, [0], name="the first token, which sample chooses")
    check_equal([ids for _, ids in rows], [prompt_of(7)], name="the ids given to sample")
    expected = scores_after(fingerprints(prompt_of(7))[-1])
    check(rows[0][0], expected, name="the logits of the first token", axes="V", framework="numpy")


@pytest.mark.parametrize("error", [ValueError("no such token"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_task_2_a_sampler_that_fails_is_heard_and_leaves_the_prompt(lab, error):
    def sample(logits, token_ids):
        raise error

    request = new_request(lab, prompt_of(4), 5, sample=sample)
    through = lets_through(error, lambda: prefilled(lab, request, 3))
    assert through, f"the sampler raised {type(error).__name__}: try_prefill should let it through"
    check_equal(request.token_ids, prompt_of(4), name="the tokens after the sampler has failed")


@pytest.mark.parametrize("error", [ValueError("out of memory"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_task_2_a_model_that_fails_is_heard_and_leaves_the_prompt(lab, error):
    def hidden(*arguments):
        raise error

    request = new_request(lab, prompt_of(4), 5)
    prefill = begun(lab, request)
    prefill.model.hidden = hidden
    through = lets_through(error, lambda: prefill.try_prefill(3))
    assert through, f"the model raised {type(error).__name__}: try_prefill should let it through"
    check_equal(request.token_ids, prompt_of(4), name="the tokens after the model has failed")


def test_task_2_chunks_of_any_size_give_the_logits_of_the_whole_prompt(lab):
    model, prompt, rows = tiny_model(lab), [3, 30, 12, 5, 9, 21, 7, 16, 2, 28, 4], []

    def sample(logits, token_ids):
        rows.append(lab.numpy(logits))
        return 0

    for chunk_size in (None, 1, 4, 10, 11, 12):
        prefill = lab.batch.Prefill(new_request(lab, tuple(prompt), 5, sample=sample), model)
        while not prefill.try_prefill(chunk_size):
            assert prefill.computed < len(prompt), "the whole prompt is computed; try_prefill should say so"
        check(
            rows[-1],
            rows[0].astype(np.float64),
            name=f"the logits after chunks of {chunk_size}",
            axes="V",
            rtol=1e-4,
            atol=1e-4,  # the layers' float32 rounding, which differs with the number of rows
            framework="numpy",
        )


def test_task_2_no_chunk_is_put_off_until_the_last_one(lab):
    """With MLX, which computes when a number is asked for; torch never has anything to put off."""
    prefill = lab.batch.Prefill(new_request(lab, (3, 30, 12, 5, 9, 21, 7, 16), 5), tiny_model(lab))
    put_off = []
    while not prefill.try_prefill(2):
        put_off.append(lab.pending_operations(prefill.caches[-1].keys))
    check_not_growing(put_off, "the last layer's keys", "chunk of a prompt")


# Task 3: one step


def decode_slots(lab: Any, batch: Any, slots: list[Any]) -> None:
    """The learner's function; of an index that the logits don't have, the usual cause is named."""
    with rows_of_busy_slots(lambda: batch.model.head_rows[-1]):
        lab.batch.decode_slots(batch, slots)


def test_task_3_a_request_with_prompt_left_needs_another_step(lab):
    model = ReadingModel(lab)
    prefill = lab.batch.Prefill(new_request(lab, prompt_of(7), 5), model)
    batch, slots = lab.static_batch.Batch(model, 2), [None, None]
    for stop in (3, 6):
        still = lab.batch.prefill_step(batch, slots, prefill, 3)
        assert still is prefill, (
            f"prefill_step returned {still!r} with {stop} of 7 tokens computed, not the prefill"
        )
        check_equal(model.chunks[-1], (stop - 3, stop), name="the chunk of this step")
        check_equal(slots, [None, None], name="the slots, while the prompt isn't done")


@pytest.mark.parametrize("taken", [(), (0,), (1,), (0, 2)])
def test_task_3_a_request_takes_an_idle_slot_with_its_last_chunk(lab, taken):
    model = ReadingModel(lab)
    batch, slots, others = seated(lab, model, 3, taken)
    request = new_request(lab, prompt_of(4), 5)
    check_equal(step_of(lab, batch, slots, request), None, name="what prefill_step returned")
    assert slots.count(request) == 1, (
        "the prompt is computed and there is an idle slot: the request should be in it"
    )
    for slot, other in others.items():
        assert slots[slot] is other, f"slot {slot} was taken already, and now another request is in it"
    decode_slots(lab, batch, slots)
    check_equal(request.output, alone(prompt_of(4), 2), name="its output, a step later")


@pytest.mark.parametrize(("chunk_size", "ahead"), [(None, []), (4, []), (3, [(0, 3)]), (2, [(0, 2)])])
def test_task_3_the_last_chunk_waits_while_all_slots_are_taken(lab, chunk_size, ahead):
    model = ReadingModel(lab)
    batch, slots, others = seated(lab, model, 2, (0, 1))
    request = new_request(lab, prompt_of(4), 5)
    prefill = lab.batch.Prefill(request, model)
    model.runs.clear()
    for _ in range(4):
        still = lab.batch.prefill_step(batch, slots, prefill, chunk_size)
        assert still is prefill, f"prefill_step returned {still!r}, not the prefill, but no slot was idle"
        check_equal(slots, [others[0], others[1]], name="the slots, which were taken")
    check_equal(
        request.output, [], name="its output (a first token now, and the second would be long in coming)"
    )
    check_equal(model.chunks, ahead, name=f"what was computed ahead, of 4 tokens in chunks of {chunk_size}")
    batch.remove(1)
    slots[1] = None
    returned = lab.batch.prefill_step(batch, slots, prefill, chunk_size)
    check_equal(returned, None, name="what prefill_step returned, with slot 1 idle")
    assert slots[1] is request, "slot 1 became idle: the request that waits should take it"
    decode_slots(lab, batch, slots)
    check_equal(
        request.output, alone(prompt_of(4), 2), name="its output, in the step in which it takes a slot"
    )


@pytest.mark.parametrize("chunk_size", [3, 4, 5])
def test_task_3_the_last_chunk_of_a_request_with_an_output_waits_too(lab, chunk_size):
    model = ReadingModel(lab)
    batch, slots, _ = seated(lab, model, 1, (0,))
    expected = alone(prompt_of(4), 4)
    request = new_request(lab, prompt_of(4), 9, output=expected[:1])
    prefill = lab.batch.Prefill(request, model)
    model.runs.clear()
    for _ in range(3):
        still = lab.batch.prefill_step(batch, slots, prefill, chunk_size)
        assert still is prefill, f"prefill_step returned {still!r}, not the prefill, but no slot was idle"
    ahead = [] if chunk_size == 5 else [(0, chunk_size)]
    check_equal(model.chunks, ahead, name="what was computed ahead, of 4 tokens of prompt and 1 of output")
    batch.remove(0)
    slots[0] = None
    lab.batch.prefill_step(batch, slots, prefill, chunk_size)
    assert slots == [request], "slot 0 became idle: the request that waits should take it"
    decode_slots(lab, batch, slots)
    decode_slots(lab, batch, slots)
    check_equal(request.output, expected, name="its output, after two decodes")


def test_task_3_a_request_that_wants_one_token_waits_too(lab):
    model = ReadingModel(lab)
    batch, slots, others = seated(lab, model, 1, (0,))
    request = new_request(lab, prompt_of(4), 1)
    prefill = lab.batch.Prefill(request, model)
    still = lab.batch.prefill_step(batch, slots, prefill, None)
    assert still is prefill, (
        f"no slot was idle, and prefill_step returned {still!r}, not the prefill: the last chunk waits, also that of "
        "a request that will finish with it"
    )
    check_equal((slots, request.output), ([others[0]], []), name="the slots and the output, while it waits")


@pytest.mark.parametrize("ending", ["end token", "max_tokens", "positions"])
@pytest.mark.parametrize("taken", [(), (1,)], ids=["slots idle", "one slot taken"])
def test_task_3_a_request_that_finishes_with_its_first_token_never_takes_a_slot(lab, ending, taken):
    model = ReadingModel(lab)
    batch, slots, _ = seated(lab, model, 2, taken)
    before = list(slots)
    length = LIMIT - 1 if ending == "positions" else 5
    end_ids = alone(prompt_of(length), 1) if ending == "end token" else ()
    request = new_request(lab, prompt_of(length), 1 if ending == "max_tokens" else 9, end_ids)
    prefill = lab.batch.Prefill(request, model)
    returned = lab.batch.prefill_step(batch, slots, prefill, None)
    check_equal(returned, None, name="prefill_step, for a request whose first token is its last")
    check_equal(slots, before, name="the slots")
    check_equal(request.output, alone(prompt_of(length), 1), name="its output")
    check_equal(prefill.caches, [], name="the caches of a prefill whose request has finished")


def test_task_3_a_request_that_leaves_its_slot_leaves_no_caches_behind(lab):
    model = ReadingModel(lab)
    batch, slots, _ = seated(lab, model, 2, (0,))
    prefill = lab.batch.Prefill(new_request(lab, prompt_of(4), 2), model)
    lab.batch.prefill_step(batch, slots, prefill, None)
    check_equal(prefill.caches, [], name="the caches that a prefill keeps when its request has taken a slot")
    both = 2 * LAYERS
    check_equal(model.caches_alive(both), both, name="caches that exist, with 2 requests in slots")
    decode_slots(lab, batch, slots)
    held = [[slot for slot, cache in enumerate(layer.slots) if cache is not None] for layer in batch.caches]
    name = "slots that hold caches in each layer of the batch, when the request in slot 1 has finished"
    check_equal(held, [[0]] * LAYERS, name=name)
    check_equal(model.caches_alive(LAYERS), LAYERS, name="caches that exist, with 1 request in a slot")


@pytest.mark.parametrize("taken", [(0,), (1,), (0, 2), (1, 2, 3), (0, 1, 2, 3)])
def test_task_3_every_request_gets_its_own_token(lab, taken):
    model = ReadingModel(lab)
    batch, slots, others = seated(lab, model, 4, taken)
    model.head_rows.clear()
    for step in range(3):
        decode_slots(lab, batch, slots)
        for slot, request in others.items():
            expected = alone(request.prompt_ids, step + 2)
            name = f"the output of slot {slot} (slots {taken} of 4 are busy; logits come for these only)"
            check_equal(request.output, expected, name=name)
    check_equal(model.decodes, [list(taken)] * 3, name="the busy slots of each run of the model")
    check_equal(model.head_rows, [len(taken)] * 3, name="rows of each call of model.logits")


def test_task_3_a_request_that_finishes_leaves_and_the_others_stay(lab):
    model = ReadingModel(lab)
    batch, slots, others = seated(lab, model, 4, (0, 1, 3), max_tokens=9)
    others[1].max_tokens = 2
    others[3].end_ids = frozenset(alone(others[3].prompt_ids, 2)[1:])
    decode_slots(lab, batch, slots)
    assert [request.num_generated for request in others.values()] != [2, 2, 1], (
        "slots 0, 1 and 3 were decoded, and the requests of slots 1 and 3 end with this token; but the request of "
        "slot 3 got none. Is something taken out of a list that is looped over? The loop then skips the next one"
    )
    check_equal(slots, [others[0], None, None, None], name="the slots after two have finished")
    newcomer = new_request(lab, prompt_of(6, seed=77), 9)
    check_equal(step_of(lab, batch, slots, newcomer), None, name="prefill_step, with three idle slots")
    decode_slots(lab, batch, slots)
    for request, count in ((others[0], 3), (others[1], 2), (others[3], 2), (newcomer, 2)):
        check_equal(request.output, alone(request.prompt_ids, count), name="the outputs, a step later")


def test_task_3_a_request_leaves_with_the_last_position(lab):
    model = ReadingModel(lab, max_positions=7)
    batch, slots, others = seated(lab, model, 2, (0, 1), max_tokens=99)
    decode_slots(lab, batch, slots)
    check_equal(slots, [others[0], None], name="the slots, where slot 1 has used all of 7 positions")


def test_task_3_end_tokens_belong_to_one_request(lab):
    model = ReadingModel(lab)
    # Two prompts such that the second token of one isn't among the first two of the other.
    seed = next(
        each
        for each in range(0, 1000, 10)
        if alone(prompt_of(5, seed=each + 1), 2)[1] not in alone(prompt_of(3, seed=each), 2)
    )
    batch, slots, others = seated(lab, model, 2, (0, 1), seed=seed)
    others[0].end_ids = frozenset(alone(others[1].prompt_ids, 2)[1:])
    own = alone(others[0].prompt_ids, 2)
    assert others[0].end_ids.isdisjoint(own)
    decode_slots(lab, batch, slots)
    check_equal(slots, [others[0], others[1]], name="the slots: neither produced an end token of its own")


def test_task_3_each_request_samples_for_itself(lab):
    model = ReadingModel(lab)
    batch, slots, others = seated(lab, model, 3, (0, 2))
    given_to = []

    def sample(logits, token_ids):
        given_to.append((lab.numpy(logits), list(token_ids)))
        return 4

    others[2].sample = sample
    decode_slots(lab, batch, slots)
    first = alone(others[2].prompt_ids, 1)
    check_equal(others[2].output, [*first, 4], name="the output of the request that has a sampler")
    check_equal(others[0].output, alone(others[0].prompt_ids, 2), name="the output of the one that is greedy")
    sequence = [*others[2].prompt_ids, *first]
    check_equal([ids for _, ids in given_to], [sequence], name="the ids given to its sampler")
    scores = scores_after(fingerprints(sequence)[-1])
    check(given_to[0][0], scores, name="the logits given to its sampler", axes="V", framework="numpy")


# Task 4: continuous batching

LENGTHS = (3, 17, 1, 4, 5, 30, 2, 8, 6)
COUNTS = (9, 2, 20, 1, 5, 6, 13, 0, 3)


def many(lab: Any) -> list[Any]:
    """Nine requests of very different lengths; the eighth asks for nothing."""
    return [
        new_request(lab, prompt_of(length, seed=i), count)
        for i, (length, count) in enumerate(zip(LENGTHS, COUNTS, strict=True))
    ]


@pytest.mark.parametrize("kind", [list, tuple])
def test_task_4_the_requests_may_be_a_list_or_a_tuple(lab, kind):
    requests = [new_request(lab, prompt_of(n), 2) for n in (3, 5, 2)]
    outputs = generate(lab, ReadingModel(lab), kind(requests), 2, 4)
    expected = [alone(request.prompt_ids, 2) for request in requests]
    check_equal(outputs, expected, name=f"the outputs of three requests in a {kind.__name__}")


@pytest.mark.parametrize("chunk_size", [1, 4, 128, None])
@pytest.mark.parametrize("max_slots", [1, 2, 5, 12])
def test_task_4_every_request_gets_what_it_gets_alone_in_the_order_given(lab, max_slots, chunk_size):
    requests, model = many(lab), ReadingModel(lab)
    given = list(requests)
    outputs = generate(lab, model, given, max_slots, chunk_size)
    check_equal(given == requests, True, name="whether the caller's list of requests is as it was")
    expected = [alone(request.prompt_ids, request.max_tokens) for request in requests]
    for number, (request, wanted) in enumerate(zip(requests, expected, strict=True)):
        got = request.output
        assert got == wanted or got != wanted[: len(got)], (
            f"request {number} of 9 got {len(got)} of its {len(wanted)} tokens: the loop ended too early, or the "
            "request was lost on its way from the queue to a slot"
        )
        name = f"the output of request {number}, with {max_slots} slots and chunks of {chunk_size}"
        check_equal(got, wanted, name=name)
    check_equal(outputs, expected, name="what was returned, the outputs in the order of the requests")


def test_task_4_requests_come_in_in_the_order_given(lab):
    requests, model = [new_request(lab, prompt_of(9 - i), 3) for i in range(6)], ReadingModel(lab)
    watch = Watch(model, requests)
    generate(lab, model, requests, 2, 4, observe=watch)
    check_equal(
        [requests.index(request) for request in watch.ever_seated],
        list(range(6)),
        name="the requests in the order in which they took a slot",
    )


def test_task_4_one_prompt_is_computed_ahead_up_to_its_last_chunk(lab):
    requests, ahead = [new_request(lab, prompt_of(n), count) for n, count in ((2, 6), (9, 3), (3, 2))], []
    model = ReadingModel(lab)
    watch = Watch(model, requests)

    def observe(slots: Any, prefill: Any) -> None:
        watch(slots, prefill)
        ahead.append((watch.computed[requests[1]], watch.computed[requests[2]]))

    generate(lab, model, requests, 1, 4, observe=observe)
    expected = [(0, 0), (4, 0), (8, 0), (8, 0), (8, 0), (9, 0), (9, 0), (9, 3)]
    check_equal(ahead, expected, name="prompt tokens of the 2nd and 3rd request, step by step, with one slot")


def test_task_4_a_request_is_decoded_in_the_step_in_which_it_takes_its_slot(lab):
    request, lengths = new_request(lab, prompt_of(3), 4), []

    def observe(slots: Any, prefill: Any) -> None:
        lengths.append(request.num_generated)

    generate(lab, ReadingModel(lab), [request], 2, 4, observe=observe)
    check_equal(lengths, [2, 3, 4], name="tokens of a single request after each step")


def test_task_4_the_observer_sees_every_step(lab):
    requests = [new_request(lab, prompt_of(n), count) for n, count in ((6, 3), (4, 1), (2, 3))]
    names = {None: None, **dict(zip(requests, "abc", strict=True))}
    model = ReadingModel(lab)
    watch = Watch(model, requests)
    generate(lab, model, requests, 1, 4, observe=watch)
    seen = [([names[request] for request in slots], names[turn]) for slots, turn in watch.steps]
    expected = [([None], "a"), (["a"], "a"), (["a"], "b"), ([None], "b"), (["c"], "c"), (["c"], None)]
    check_equal(seen, expected, name="the slots and the prefill that each step was observed with")


def test_task_4_the_observer_gets_a_list_of_its_own(lab):
    # The longest prompt comes first: its chunks are steps in which every slot is idle.
    requests, model, seen = sorted(many(lab), key=lambda request: -request.prompt_len), ReadingModel(lab), []

    def observe(slots: Any, prefill: Any) -> None:
        seen.append(slots)
        slots[:] = [None] * len(slots)

    outputs = generate(lab, model, requests, 3, 4, observe=observe)
    expected = [alone(request.prompt_ids, request.max_tokens) for request in requests]
    check_equal(outputs, expected, name="the outputs, with an observer that empties the list it is given")
    check_equal(len(set(map(id, seen))), len(seen), name="different lists, one per step")


def test_task_4_the_slots_and_chunks_are_5_and_128_unless_told(lab):
    requests = [new_request(lab, prompt_of(129 if i == 1 else 3, seed=i), 12) for i in range(8)]
    model = ReadingModel(lab, max_positions=300)
    lab.batch.batch_generate(model, requests)
    check_equal(max(stop - start for start, stop in model.chunks), 128, name="the longest chunk")
    most = max(len(busy) for busy in model.decodes)
    check_equal(most, 5, name="the most requests decoded together, of 8 that want 12 tokens each")


def test_task_4_nothing_to_do(lab):
    model = ReadingModel(lab)
    check_equal(lab.batch.batch_generate(model, []), [], name="the outputs of no requests")
    nothing = new_request(lab, [1], 0)
    check_equal(generate(lab, model, [nothing]), [[]], name="the output for max_tokens 0")
    check_equal(
        nothing.error, None, name="the error of a request for no tokens, which is finished, not refused"
    )
    check_equal(model.runs, [], name="runs of the model, with no token to produce")


@pytest.mark.parametrize(("max_slots", "chunk_size"), [(0, 4), (-1, 4), (2, 0), (2, -3)])
def test_task_4_slots_and_chunks_below_1_are_refused(lab, max_slots, chunk_size):
    model, requests = ReadingModel(lab, max_positions=12), many(lab)
    for request in requests:
        request.error = "an error of another call, from before"
    check_raises(
        ValueError,
        lambda: generate(lab, model, requests, max_slots, chunk_size),
        name=f"{max_slots} slots and chunks of {chunk_size}",
    )
    check_equal(model.runs, [], name="runs of the model before the refusal")
    errors = {request.error for request in requests}
    name = "the errors of the requests after the refusal, which changes no request"
    check_equal(errors, {"an error of another call, from before"}, name=name)
    name = f"{max_slots} slots and chunks of {chunk_size}, for no requests"
    check_raises(ValueError, lambda: generate(lab, model, [], max_slots, chunk_size), name=name)
    check_equal([request.num_generated for request in requests], [0] * 9, name="tokens generated")


def test_task_4_a_request_given_twice_is_refused(lab):
    model = ReadingModel(lab, max_positions=12)
    twice, long = new_request(lab, prompt_of(3), 4), new_request(lab, prompt_of(20), 4)
    name = "the same request given twice"
    given, options = [twice, long, twice], {"observe": lambda *_: None}
    check_raises(ValueError, lambda: generate(lab, model, given, 2, 4, **options), name=name)
    check_equal((model.runs, twice.output), ([], []), name="runs of the model, and the output")
    check_equal(long.error, None, name="the error of another request, which can't run")
    for request, kind in ((long, "that can't run"), (new_request(lab, [1], 0), "that is finished already")):
        given = [request, twice, request]
        name = f"a request {kind}, given twice"
        check_raises(ValueError, partial(generate, lab, model, given, 2, 4, **options), name=name)
        check_equal(request.error, None, name=f"the error of {name}")
    equal = [new_request(lab, prompt_of(3), 4) for _ in range(2)]
    outputs = generate(lab, model, equal, 2, 4)
    check_equal(outputs, [alone(prompt_of(3), 4)] * 2, name="the outputs of two requests with equal tokens")


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("length", [0, 12, 40])
def test_task_4_a_request_that_can_never_run_is_refused_and_the_others_go_on(lab, length, place):
    model = ReadingModel(lab, max_positions=12)
    requests = [new_request(lab, prompt_of(n), 4) for n in (5, 11, 1, 3)]
    requests.insert(place, new_request(lab, prompt_of(length), 4))
    for request in requests:
        request.error = "an error of another model, from before"
    outputs = generate(lab, model, requests, 2, 4)
    expected = [alone(r.prompt_ids, 4, max_positions=12) for r in requests]
    expected[place] = []
    check_equal(outputs, expected, name="the outputs, [] for the request that was refused")
    reason = requests[place].refusal(12)
    check_equal(requests[place].error, reason, name=f"the error of a prompt of {length} on 12 positions")
    errors = [request.error for i, request in enumerate(requests) if i != place]
    check_equal(errors, [None] * 4, name="the errors of the others")
    check_equal(sum(stop - start for start, stop in model.chunks), 20, name="prompt tokens computed")


def test_task_4_refused_before_anything_runs(lab):
    model = ReadingModel(lab, max_positions=12)
    requests, errors = [new_request(lab, prompt_of(n), 4) for n in (3, 40)], []
    generate(lab, model, requests, observe=lambda *_: errors.append(requests[1].error))
    assert errors[0] is not None, (
        "after the first step, a request that can't run has no error yet: refuse it before any request runs"
    )


@pytest.mark.parametrize("room", [1, 2, 5])
def test_task_4_prompt_and_output_may_use_every_position(lab, room):
    model = ReadingModel(lab, max_positions=16)
    requests = [new_request(lab, prompt_of(16 - n), 100) for n in (room, 7)]
    outputs = generate(lab, model, requests, 2, 4)
    check_equal([len(output) for output in outputs], [room, 7], name="tokens produced, of 16 positions")


def test_task_4_limits_end_tokens_and_samplers_belong_to_one_request(lab):
    model, prompts = ReadingModel(lab), [prompt_of(n) for n in (5, 9, 2, 7)]
    end = alone(prompts[0], 6)[3:4]
    seeds = [None, None, 3, 4]

    def sampler(seed):
        return lab.sampler.Sampler(lab.sampler.SamplingParams(temperature=3.0, seed=seed))

    def draws(draw):
        return lambda scores, ids: draw(lab.array(scores), ids)

    requests = [
        new_request(lab, prompt, count, end_ids, **({} if seed is None else {"sample": sampler(seed)}))
        for prompt, count, end_ids, seed in zip(
            prompts, (20, 6, 8, 11), (end, (), (), ()), seeds, strict=True
        )
    ]
    expected = []
    for request, seed in zip(requests, seeds, strict=True):
        choose = best if seed is None else draws(sampler(seed))
        expected.append(alone(request.prompt_ids, request.max_tokens, request.end_ids, choose=choose))
    check_equal(generate(lab, model, requests, 3, 4), expected, name="the outputs")


def test_task_4_a_request_that_ends_with_its_first_token_never_takes_a_slot(lab):
    requests = many(lab)
    for i in (0, 5, 8):
        requests[i].end_ids = frozenset(alone(requests[i].prompt_ids, 1))
    model = ReadingModel(lab)
    watch = Watch(model, requests)
    outputs = generate(lab, model, requests, 2, 4, observe=watch)
    check_equal([len(output) for output in outputs], [1, 2, 20, 1, 5, 1, 13, 0, 1], name="tokens produced")
    seated_ones = [requests.index(request) for request in watch.ever_seated]
    check_equal(sorted(seated_ones), [1, 2, 4, 6], name="the requests that were ever in a slot")


def test_task_4_all_may_end_with_their_first_token(lab):
    requests = [new_request(lab, prompt_of(n), 1) for n in (5, 1, 3)]
    model = ReadingModel(lab)
    watch = Watch(model, requests)
    outputs = generate(lab, model, requests, 2, 4, observe=watch)
    check_equal([len(output) for output in outputs], [1, 1, 1], name="tokens produced")
    check_equal(
        (watch.ever_seated, model.decodes),
        ([], []),
        name="requests in a slot, and the busy slots of each decode",
        suspects={
            "a batch of idle slots is decoded: decode only if a slot is busy": ([], [[]] * len(watch.steps))
        },
    )


def test_task_4_all_may_finish_in_the_same_step(lab):
    # One comes in at each of the first three steps, and the third step decodes the last token of all.
    requests = [new_request(lab, prompt_of(4, seed=i), 4 - i) for i in range(3)]
    requests.append(new_request(lab, prompt_of(6), 3))
    model = ReadingModel(lab)
    outputs = generate(lab, model, requests, 3, 8)
    check_equal(outputs, [alone(r.prompt_ids, r.max_tokens) for r in requests], name="the outputs")
    busy = [len(slots) for slots in model.decodes]
    check_equal(busy, [1, 2, 3, 1, 1], name="busy slots of each decode")


def test_task_4_the_last_request_is_not_lost_while_its_prompt_is_computed(lab):
    requests = [new_request(lab, prompt_of(2), 2), new_request(lab, prompt_of(33), 3)]
    model = ReadingModel(lab)
    outputs = generate(lab, model, requests, 2, 4)
    check_equal(outputs, [alone(r.prompt_ids, r.max_tokens) for r in requests], name="the outputs")
    check_equal(model.runs[-1], ("decode", model.decodes[-1]), name="the last run of the model")


@pytest.mark.parametrize("chunk_size", [1, 4, 7, None])
def test_task_4_no_decode_waits_for_more_than_one_chunk(lab, chunk_size):
    requests, model = many(lab), ReadingModel(lab)
    runs_before: dict[Any, list[tuple[int, int]]] = {
        request: [] for request in requests
    }  # each of its tokens

    def noting(request):
        def sample(logits, token_ids):
            runs_before[request].append((len(model.chunks), len(model.decodes)))
            return int(np.argmax(lab.numpy(logits)))

        return sample

    for request in requests:
        request.sample = noting(request)
    generate(lab, model, requests, 3, chunk_size)
    gaps = [np.subtract(b, a) for counts in runs_before.values() for a, b in pairwise(counts)]
    most = np.max(gaps, axis=0).tolist()
    check_equal(most[0], 1, name="the most chunks of prefill between two tokens of a request")
    check_equal(most[1], 1, name="the most decodes from one token of a request to its next")
    longest = max(stop - start for start, stop in model.chunks)
    check_equal(longest, chunk_size or max(LENGTHS), name="the longest chunk")


def test_task_4_a_request_that_finishes_makes_room_at_once(lab):
    requests = [new_request(lab, prompt_of(3, seed=i), 4 if i else 20) for i in range(6)]
    model = ReadingModel(lab)
    generate(lab, model, requests, 2, 4)
    busy = [len(slots) for slots in model.decodes]
    check_equal(
        busy, [1] + [2] * 15 + [1] * 3, name="busy slots of each decode: one long request, five short"
    )


def test_task_4_the_head_runs_only_on_rows_that_are_sampled(lab):
    requests, model = many(lab), ReadingModel(lab)
    outputs = generate(lab, model, requests, 3, 4)
    check_equal(
        sum(model.head_rows), sum(map(len, outputs)), name="rows sent through the head, for all tokens"
    )


@pytest.mark.parametrize("chunk_size", [1, 4, None])
@pytest.mark.parametrize("max_slots", [1, 2, 5])
def test_task_4_requests_that_have_an_output_go_on_behind_it(lab, max_slots, chunk_size):
    wanted = [(5, 0, 4), (4, 3, 6), (8, 1, 2), (1, 6, 7), (3, 2, 2), (6, 5, 9)]
    expected = [alone(prompt_of(length, seed=i), count) for i, (length, _, count) in enumerate(wanted)]
    requests = [
        new_request(lab, prompt_of(length, seed=i), count, output=expected[i][:had])
        for i, (length, had, count) in enumerate(wanted)
    ]
    model = ReadingModel(lab)
    outputs = generate(lab, model, requests, max_slots, chunk_size)
    name = "the outputs, old tokens and new, of requests that had (0, 3, 1, 6, 2, 5) of (4, 6, 2, 7, 2, 9)"
    check_equal(outputs, expected, name=name)
    computed = sum(stop - start for start, stop in model.chunks)
    name = "tokens prefilled: prompts and outputs, but not of the one that was finished"
    check_equal(computed, sum(length + had for length, had, count in wanted if had < count), name=name)


@pytest.mark.parametrize("chunk_size", [2, None])
def test_task_4_no_cache_is_left_behind(lab, chunk_size):
    # The same is checked after each step, by the observer of `generate`.
    requests, model = many(lab), ReadingModel(lab)
    outputs = generate(lab, model, requests, 3, chunk_size)
    name = "caches that still exist when all requests have finished: does something hold them?"
    check_equal(model.caches_alive(), 0, name=name)
    outputs[0].append(7)
    expected = alone(requests[0].prompt_ids, requests[0].max_tokens)
    check_equal(requests[0].output, expected, name="an output, after the caller has changed the list it got")


class Broken(Exception):
    """What a test raises."""


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt], ids=["error", "Ctrl-C"])
@pytest.mark.parametrize("after", [0, 1, 5, 11])
@pytest.mark.parametrize("where", ["sampler", "observer", "model"])
def test_task_4_after_an_error_no_cache_is_left_and_the_requests_can_go_on(lab, where, after, error):
    requests, model, raised, calls = many(lab), ReadingModel(lab), error("on purpose"), []

    def fail_at(place: str) -> None:
        calls.append(place)
        if calls.count(place) == after + 1 and place == where:
            raise raised

    chosen: dict[Any, list[int]] = {request: [] for request in requests}

    def noting(request: Any) -> Any:
        def sample(logits: Any, token_ids: Any) -> int:
            fail_at("sampler")
            chosen[request].append(int(np.argmax(lab.numpy(logits))))
            return chosen[request][-1]

        return sample

    def hidden(*arguments: Any) -> Any:
        fail_at("model")
        return model.hidden(*arguments)

    for request in requests:
        request.sample = noting(request)
    fragile = SimpleNamespace(
        config=model.config, embedding=model.embedding, hidden=hidden, logits=model.logits
    )
    through = lets_through(
        raised, lambda: generate(lab, fragile, requests, 3, 4, observe=lambda *_: fail_at("observer"))
    )
    assert through, f"a {error.__name__} raised in the {where} should come out of batch_generate"
    name = f"caches that still exist after a {error.__name__} in the {where}"
    check_equal(model.caches_alive(), 0, name=name)
    expected = [alone(request.prompt_ids, request.max_tokens) for request in requests]
    got = [request.output for request in requests]
    begun_well = [wanted[: len(output)] for output, wanted in zip(got, expected, strict=True)]
    check_equal(got, begun_well, name="the outputs after the error, against their beginnings without one")
    name = "the outputs after the error, against the tokens that were chosen before it: they are kept"
    check_equal(got, list(chosen.values()), name=name)
    check_equal(generate(lab, model, requests, 3, 4), expected, name="the outputs of a second call")


STOPS = st.lists(st.integers(0, 28), max_size=6)
# The length of the prompt, how many tokens at most, end ids, and how many tokens it has before it begins.
REQUESTS = st.lists(
    st.tuples(st.integers(0, 14), st.integers(0, 9), STOPS, st.sampled_from((0, 0, 0, 1, 4))), max_size=8
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
@given(wanted=REQUESTS, max_slots=st.integers(1, 4), chunk_size=st.none() | st.integers(1, 6))
def test_task_4_in_any_order_of_coming_and_going_each_is_as_if_alone(wanted, max_slots, chunk_size):
    lab, limit = door.active(), 13
    model = ReadingModel(lab, max_positions=limit)
    requests, expected, due = [], [], []
    for i, (length, count, ends, had) in enumerate(wanted):
        prompt, fits = prompt_of(length, seed=i), 0 < length < limit
        expected.append(alone(prompt, count, ends, limit) if fits else [])
        requests.append(new_request(lab, prompt, count, ends, output=expected[-1][:had]))
        due.append(length + min(had, len(expected[-1])) if len(expected[-1]) > had else 0)
    outputs = generate(lab, model, requests, max_slots, chunk_size)
    for request, output, right in zip(requests, outputs, expected, strict=True):
        length = request.prompt_len
        fits = 0 < length < limit
        check_equal(request.error is None, fits, name=f"whether a prompt of {length} is accepted")
        name = f"the output of the request with a prompt of {length} on {limit} positions"
        check_equal(output, right, name=name)
    tokens = sum(stop - start for start, stop in model.chunks)
    check_equal(tokens, sum(due), name="tokens prefilled, each once, of requests that could go on")
    check_equal(model.caches_alive(), 0, name="caches that still exist when all have finished")


@pytest.mark.parametrize(("max_slots", "chunk_size"), [(1, 4), (3, 4), (5, None)])
def test_task_4_a_real_transformer_gives_the_tokens_of_day_1(lab, max_slots, chunk_size):
    model = tiny_model(lab)
    requests = [
        new_request(lab, prompt_of(n, seed=40 + n), count) for n, count in ((5, 9), (1, 3), (12, 14), (4, 6))
    ]
    expected = [list(lab.generate.generate(model, r.prompt_ids, r.max_tokens)) for r in requests]
    rows = []

    def hidden(*arguments):
        states = model.hidden(*arguments)
        rows.append(lab.numpy(states))
        return states

    watched = SimpleNamespace(
        config=model.config,
        embedding=model.embedding,
        blocks=model.blocks,
        hidden=hidden,
        logits=model.logits,
    )
    outputs = generate(lab, watched, requests, max_slots, chunk_size, observe=lambda *_: None)
    assert all(np.isfinite(states).all() for states in rows), (
        "NaN or infinity came out of the model: an idle slot?"
    )
    check_equal(outputs, expected, name="the outputs, against Day 2.1's generate")
