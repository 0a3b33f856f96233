"""Day 3.5: the pages of a batch in tables, a step made from them, and one run of the model."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_1 import numpy_model
from week_1.numpy_model import D, H
from week_2.continuous import prompt_of
from week_2.reading_model import fingerprints

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises
from coursekit.checking.comparison import CheckFailed

from .broken_tables import BROKEN, HELD, SOUND, check_accepted, sound
from .decode_states import (
    Account,
    SlotModel,
    check_free,
    check_plain,
    check_says,
    check_unchanged,
    fill,
    model_state,
    pages_of,
    refused,
    state_of,
    tables,
)
from .inserting import Listening, check_pool, heads_of, new_rows, state_for
from .pages import PAGE_SIZES, UNUSED, pages_needed, normal, spoil
from .ragged import CASES, RaggedStep
from .random_model import real_model
from .step_oracle import TENSORS, Counted, check_on_meta, placed, without_numbers

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"pages of {P}")


# Task 1: pages for a step


@sizes_of_pages
def test_task_1_a_slot_takes_a_page_only_when_its_pages_are_full(lab, P):
    account = Account(lab, num_pages=40, P=P, slots=3, most=9)
    for new in (1, P - 1, 1, 2 * P - 1, 2 * P + 1, P, 1, 1):
        q_lens = [0, new, 0]
        assert account.allocate(q_lens), f"allocate({q_lens}) with 40 pages"
        account.advance(q_lens)


def test_task_1_all_slots_get_what_they_lack_at_once(lab):
    """Past and new tokens of 3 a page: 4 + 2 fill two pages, 3 + 1 need a second, 0 + 7 need three."""
    account = Account(lab, num_pages=12, P=3, slots=4, most=5)
    account.allocate([4, 3, 0, 5])
    account.advance([4, 3, 0, 5])
    account.allocate([2, 1, 7, 0])
    check_equal([len(pages) for pages in account.held], [2, 2, 3, 2], name="how many pages each slot holds")
    check_equal(account.state.held, [2, 2, 3, 2], name="`held`")


def test_task_1_too_few_pages_are_refused_and_nobody_gets_any(lab):
    state = state_of(lab, num_pages=11, held={0: ([4, 7], 6), 2: ([8, 3, 6], 9)})  # 5 of 10 are free
    name = "allocate([1, 6, 4, 2]) with 5 pages free, where 1 + 2 + 2 + 1 are lacking"
    kind = lab.paged.allocator.OutOfPages
    error = refused(state, kind, lambda: state.allocate([1, 6, 4, 2]), name=name)
    for number, what in ((6, "pages are lacking"), (5, "pages are free")):
        check_says(error, number, f"that {number} {what}")
    state.allocate([1, 6, 4, 0])
    check_free(state, [], when="after allocate([1, 6, 4, 0]), which takes the last five")


def test_task_1_pages_that_a_slot_holds_already_are_not_lacking(lab):
    """A step has failed: the pages stay with their slots. With a shorter chunk slot 1 holds more than it needs."""
    account = Account(lab, num_pages=6, P=3, slots=3, most=5)
    for q_lens in (
        [1, 10, 0],
        [1, 10, 0],
        [1, 3, 0],
        [4, 2, 0],
    ):  # 1 + 4 of 5; then the same, less, and too many
        account.allocate(q_lens)
    account.advance([1, 2, 0])
    account.allocate([0, 10, 0])
    check_equal([len(pages) for pages in account.held], [1, 4, 0], name="how many pages each slot holds")


@pytest.mark.parametrize("others", [{}, {2: ([1, 2, 3], 9), 3: ([4, 5], 6)}], ids=["6 are free", "1 is free"])
def test_task_1_more_pages_than_a_slot_may_hold_can_never_be(lab, others):
    """Three pages of 3 at most: whatever is free, this step will never have its pages."""
    state = state_of(lab, num_pages=8, most=3, held={1: ([7], 2)} | others)
    name = "allocate([0, 8, 0, 0]): 8 tokens to 2 others, where a slot may hold 3 pages of 3"
    refused(state, ValueError, lambda: state.allocate([0, 8, 0, 0]), name=name)


def test_task_1_a_slot_may_hold_as_many_pages_as_there_are_places(lab):
    state = state_of(lab, most=3, held={1: ([7], 2)})
    state.allocate([0, 7, 0, 0])
    check_equal(state.held, [0, 3, 0, 0], name="the pages held, where 3 of 3 tokens are the most")


@pytest.mark.parametrize(
    "q_lens", [[], [1], [1, 2, 3], [1, 2, 3, 0, 0], [1, -1, 2, 1], [0, 0, 0, -1]], ids=str
)
def test_task_1_anything_but_a_number_for_each_slot_is_refused(lab, q_lens):
    state = state_of(lab, held={0: ([4, 7], 4), 3: ([2], 3)})
    refused(
        state, ValueError, lambda: state.allocate(q_lens), name=f"allocate({q_lens}) in a batch of 4 slots"
    )


def test_task_1_every_page_but_the_null_page_is_handed_out_once(lab):
    account = Account(lab, num_pages=9, P=3, slots=4, most=5)
    account.allocate([6, 3, 8, 5])
    check_equal(account.free, [], name="the pages left of 8, when 2 + 1 + 3 + 2 are held")


def test_task_1_new_pages_go_out_slot_by_slot(lab):
    """The stack's next pages are 1, 2, 3, …"""
    state = state_of(lab)
    state.allocate([4, 0, 1, 7])
    check_equal(pages_of(state), [[1, 2], [], [3], [4, 5, 6]], name="the pages of each slot, in order")


def test_task_1_pages_go_back_slot_by_slot_in_the_order_of_the_rows(lab):
    state = state_of(lab, num_pages=12, held=HELD)
    before = list(state.available_page_indices)
    mask = [True, False, True, False]
    state.release(mask)
    when = f"after release({mask}), with [4, 7] in slot 0 and [8, 3, 6] in slot 2"
    check_plain(state, when)
    wanted = [*before, 4, 7, 8, 3, 6]
    check_equal(state.available_page_indices, wanted, name=f"available_page_indices {when}")


def test_task_1_the_page_that_was_freed_last_goes_out_first(lab):
    state = state_of(lab, held={0: ([4], 2), 1: ([7], 3), 3: ([2], 1)})
    for slot in (1, 3, 0):
        state.release([slot == other for other in range(4)])
        check_plain(state, f"after slot {slot} was released")
    state.allocate([0, 0, 9, 0])
    check_equal(
        pages_of(state)[2], [4, 2, 7], name="the pages of slot 2, after 7, 2 and 4 were freed one by one"
    )


@pytest.mark.parametrize(
    "mask", [(1, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 0), (1, 1, 1, 1), (0, 0, 0, 0)], ids=str
)
def test_task_1_released_slots_are_empty_and_the_others_as_before(lab, mask):
    """Slot 1 is empty already; slot 3 has a page and no token: its step failed."""
    state = state_of(lab, num_pages=12, held=HELD)
    state.release([bool(marked) for marked in mask])
    kept = {slot: each for slot, each in HELD.items() if not mask[slot]}
    wanted = tables(state_of(lab, num_pages=12, held=kept))
    found = tables(state)
    for name in ("page_indices", "lengths"):
        check_equal(found[name], wanted[name], name=f"{name} after release({list(mask)})")
    check_free(state, sorted(wanted["available_page_indices"]), when=f"after release({list(mask)})")


@pytest.mark.parametrize("mask", [[], [True], [True] * 5], ids=str)
def test_task_1_anything_but_a_mark_for_each_slot_is_refused(lab, mask):
    state = state_of(lab, held={0: ([4, 7], 4)})
    refused(state, ValueError, lambda: state.release(mask), name=f"release({mask}) in a batch of 4 slots")


@st.composite
def works(draw: Any) -> dict[str, Any]:
    """A small state, and what happens to it: steps that succeed or fail, and releases."""
    slots, P = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 5]))
    counts = st.lists(st.sampled_from([0, 0, 1, 1, 2, P, P + 1, 3 * P]), min_size=slots, max_size=slots)
    masks = st.lists(st.booleans(), min_size=slots, max_size=slots)
    events = st.one_of(
        st.tuples(st.just("step"), counts),
        st.tuples(st.just("fail"), counts),
        st.tuples(st.just("release"), masks),
    )
    return {
        "slots": slots,
        "P": P,
        "num_pages": draw(st.integers(2, 12)),
        "most": draw(st.integers(1, 5)),
        "events": draw(st.lists(events, max_size=12)),
    }


def worked(work: dict[str, Any], after: Any = lambda state: None) -> Account:
    """An account of all that happens; `after` is called with the state each time."""
    account = Account(door.active(), work["num_pages"], work["P"], work["slots"], work["most"])
    for what, arguments in work["events"]:
        if what == "release":
            account.release(arguments)
        elif account.allocate(arguments) and what == "step":
            account.advance(arguments)
        after(account.state)
    return account


@QUICK
@given(work=works())
def test_task_1_whatever_happens_pages_are_neither_lost_nor_given_twice(work):
    account = worked(work)
    account.release([True] * work["slots"])
    check_free(account.state, range(1, work["num_pages"]), when="after all slots were released")


# Task 2: the books


@pytest.mark.parametrize("what", SOUND)
def test_task_2_tables_that_are_right_are_left_alone(lab, what):
    check_accepted(state_of(lab, num_pages=12, held=SOUND[what]), what)


@pytest.mark.parametrize("how", BROKEN)
def test_task_2_what_is_wrong_in_the_tables_is_found(lab, how):
    state = sound(lab)
    check_accepted(state, "slots in the middle of their work, one with a spare page")
    number = BROKEN[how](state)
    before = tables(state)
    error = check_raises(RuntimeError, state.check, name=f"check(), with {how}")
    check_unchanged(state, before, "after check(), which only reads the tables")
    if number is not None:
        check_says(error, number, f"that something is wrong with {number} ({how})")


@QUICK
@given(work=works())
def test_task_2_the_books_balance_whatever_happens(work):
    worked(work, after=lambda state: check_accepted(state, "pages taken and given back"))


# Task 3: a step from tables


def chapter_state(lab: Any) -> Any:
    """A with 5 tokens, B with 8, C with 3, and D with none, but with pages of a step that failed."""
    held = {0: ([1, 2], 5), 1: ([3, 4, 8], 8), 2: ([5, 9], 3), 3: ([7, 6], 0)}
    return state_of(lab, num_pages=11, P=4, most=4, held=held)


def check_metadata(lab: Any, state: Any, q_lens: list[int]) -> Any:
    """Compare all of a step's metadata with an account by counting, and see that the tables are as before."""
    __tracebackhide__ = True
    before = tables(state)
    try:
        meta = state.metadata(q_lens, lab.device)
    except IndexError as error:
        raise CheckFailed(
            f"metadata({q_lens}) looks up an entry that a table doesn't have ({error})\n  likely cause: positions "
            "that don't subtract `begin`, or slots in the place of owners (or the other way round)"
        ) from error
    check_unchanged(state, before, f"after metadata({q_lens}), which only reads the tables")
    held, lengths = pages_of(state), state.lengths.tolist()
    steps = [(held[slot], lengths[slot], new) for slot, new in enumerate(q_lens) if new]
    Counted(state.page_size, steps).compare(meta, trapped(before, state.page_size, q_lens))
    return meta


def trapped(before: dict[str, Any], P: int, q_lens: list[int]) -> dict[str, dict[str, Any]]:
    """For each field, mistake -> what it gives; the tables as lists."""
    slots = [slot for slot, new in enumerate(q_lens) if new]
    owners = [owner for owner, slot in enumerate(slots) for _ in range(q_lens[slot])]
    past = np.array([before["lengths"][slot] for slot in slots])[owners]
    offsets = np.concatenate([np.arange(q_lens[slot]) for slot in slots])
    right = past + offsets
    pages = np.array(before["page_indices"])
    others = "`lengths` is indexed with owners, or with the first slots: take those that take part"
    return {
        "positions": {
            "`begin` was not subtracted: a token's row counts from 0 in the whole step": past
            + np.arange(len(owners)),
            others: np.array(before["lengths"])[owners] + offsets,
        },
        "slot_mapping": {
            "`page_indices` is indexed with owners, which are rows of the step's table and not slots": pages[
                owners, right // P
            ]
            * P
            + right % P,
        },
    }


def test_task_3_the_step_of_the_chapter(lab):
    meta = check_metadata(lab, chapter_state(lab), [0, 1, 2, 3])
    check_equal(meta.slot_mapping.tolist(), [32, 23, 36, 28, 29, 30], name="the slots of the pool")
    check_equal(meta.block_table.tolist(), [[3, 4, 8], [5, 9, 0], [7, 0, 0]], name="the table")


@pytest.mark.parametrize(
    "q_lens", [[0, 0, 2, 0], [3, 0, 0, 0], [0, 0, 0, 7], [1, 0, 0, 8], [3, 4, 5, 8]], ids=str
)
def test_task_3_slots_that_bring_nothing_have_no_row(lab, q_lens):
    check_metadata(lab, chapter_state(lab), q_lens)


@sizes_of_pages
def test_task_3_steps_up_to_the_edges_of_pages(lab, P):
    pages = [7, 2, 9, 4, 11, 3, 1, 8, 5]
    for past, new in ((0, 1), (0, P), (P, 1), (P - 1, 2), (2 * P - 1, 1), (P + 1, 2 * P), (P, P)):
        mine = pages[: pages_needed(past + new, P)]
        state = state_of(lab, num_pages=13, P=P, slots=3, most=9, held={1: (mine, past), 2: ([6, 10], 1)})
        check_metadata(lab, state, [0, new, 1])
        check_metadata(lab, state, [0, new, 0])


def test_task_3_pages_that_a_slot_holds_for_later_are_not_in_the_table(lab):
    """A longer chunk has failed, or the step before was longer: the table shows what this step needs."""
    state = state_of(lab, num_pages=12, held={0: ([5, 1, 8, 9, 2], 4), 3: ([3, 7, 4, 6], 0)})
    for q_lens in ([1, 0, 0, 2], [2, 0, 0, 3], [2, 0, 0, 4], [3, 0, 0, 1], [0, 0, 0, 3]):
        check_metadata(lab, state, q_lens)


def test_task_3_metadata_stay_as_they_are_when_the_tables_change(lab):
    """A step is described once. Afterwards slots advance, take pages and lose them."""
    state = state_of(lab, slots=2, most=2, held={0: ([5, 1], 4), 1: ([3, 7], 5)})
    meta = state.metadata([2, 1], lab.device)
    before = {name: getattr(meta, name).tolist() for name in TENSORS}
    state.page_indices[...] = 0
    state.lengths[...] = 0
    for name, numbers in before.items():
        check_equal(getattr(meta, name).tolist(), numbers, name=f"{name}, after the tables have changed")


@st.composite
def filled_states(draw: Any) -> tuple[int, dict[int, tuple[list[int], int]], list[int]]:
    """Tokens a page, what each of some slots holds, and how many tokens each brings; pages in any order."""
    P = draw(st.sampled_from([1, 2, 3, 16]))
    each = st.tuples(st.integers(0, 30), st.sampled_from([0, 1, 1, 2, 5, P, 20]), st.integers(0, 2))
    slots = draw(st.lists(each, min_size=1, max_size=5).filter(lambda slots: any(new for _, new, _ in slots)))
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(np.arange(1, 270)).tolist()
    free = iter(order)
    held = {
        slot: ([next(free) for _ in range(pages_needed(past + new, P) + later)], past)
        for slot, (past, new, later) in enumerate(slots)
    }
    return P, held, [new for _, new, _ in slots]


@QUICK
@given(filled=filled_states())
def test_task_3_any_step_is_what_day_2_makes_of_the_same_pages(filled):
    lab, (P, held, q_lens) = door.active(), filled
    state = state_of(lab, num_pages=270, P=P, slots=len(q_lens), most=53, held=held)
    meta = check_metadata(lab, state, q_lens)
    busy = [slot for slot, new in enumerate(q_lens) if new]
    sequences = [placed(lab, P, *held[slot]) for slot in busy]
    same = lab.paged.metadata.ForwardMeta.build(sequences, [q_lens[slot] for slot in busy], lab.device)
    for name in TENSORS:
        mine, other = getattr(meta, name), getattr(same, name)
        check(mine, lab.numpy(other), name=f"{name}, against ForwardMeta.build", dtype=lab.dtype(other))
    check_equal((meta.starts, meta.kv_lens), (same.starts, same.kv_lens), name="the lists, against build")


def test_task_3_the_tensors_go_where_they_were_asked_to(lab):
    """On torch's device "meta" tensors have shapes, and no numbers. The tables are on the host."""
    state = chapter_state(lab)
    meta = without_numbers(
        lambda: state.metadata([0, 1, 2, 3], "meta"),
        "`metadata` asks a tensor on `device` for its numbers: reckon on the host, the tensors go there last",
    )
    where = 'metadata(…, device="meta") should put all six tensors there'
    check_on_meta({name: getattr(meta, name) for name in TENSORS}, where)
    check_equal(
        (meta.starts, meta.kv_lens), ([0, 1, 3, 6], [9, 5, 3]), name="the lists, which are on no device"
    )


# Task 4: insert and attend

MIXED = "a decode, a first chunk, a later chunk, a whole prompt"


@sizes_of_pages
def test_task_4_new_keys_and_values_go_to_their_places_in_one_layer(lab, P):
    step = RaggedStep.random(77, CASES[MIXED](P), P)
    state = state_for(lab, step)
    before = tables(state)
    _, keys, values = new_rows(step)
    state.insert(1, step.meta(lab), lab.array(keys), lab.array(values))
    check_pool(state, step, 1)
    check_unchanged(state, before, "after `insert`: all layers have to find the tables as they were")


@sizes_of_pages
def test_task_4_new_tokens_are_in_the_pages_before_anyone_attends(lab, P):
    step = RaggedStep.random(78, CASES[MIXED](P), P)
    _, keys, values = new_rows(step)
    answer, meta = normal(79, len(keys), H, D), step.meta(lab)
    attention = Listening(lab, answer)
    state = state_for(lab, step, attention=attention)
    attention.pages = state.pages
    before = tables(state)
    arrays = [lab.array(x) for x in (step.query, keys, values)]
    out = state.update_decode_state_and_compute_attn(2, meta, *arrays, 0.3)
    attention.check(step, 2, meta, 0.3)
    check(out, answer, name="what `update_decode_state_and_compute_attn` returns", axes="T H D")
    check_pool(state, step, 2)
    check_unchanged(state, before, "afterwards: all layers have to find the tables as they were")


@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
def test_task_4_each_slot_attends_to_its_past_and_its_new_tokens(lab, case, P):
    step = RaggedStep.random(87, CASES[case](P), P)
    _, keys, values = new_rows(step)
    state = state_for(lab, step, layer=1)
    arrays = [lab.array(x) for x in (step.query, keys, values)]
    out = state.update_decode_state_and_compute_attn(1, step.meta(lab), *arrays, step.scale)
    check(out, step.expected()[0], name="what each token attends to", axes="T H D", nan=UNUSED)


@sizes_of_pages
def test_task_4_the_cache_turns_the_models_axes_and_turns_them_back(lab, P):
    step = RaggedStep.random(97, CASES[MIXED](P), P)
    _, keys, values = new_rows(step)
    answer, meta = normal(98, len(keys), H, D), step.meta(lab)
    attention = Listening(lab, answer)
    state = state_for(lab, step, attention=attention)
    attention.pages = state.pages
    before = tables(state)
    cache = lab.ragged.forward.RaggedCache(state, 3, meta)
    out = cache.attend(*(heads_of(lab, x) for x in (step.query, keys, values)), 0.3)
    attention.check(step, 3, meta, 0.3)
    check(out, answer.swapaxes(0, 1)[None], name="what `attend` returns", axes="1 H T D")
    check_pool(state, step, 3)
    check_unchanged(state, before, "after `attend`: all layers have to find the tables as they were")


# Task 5: one run


@pytest.mark.parametrize("q_lens", [[1, 0, 2, 1], [0, 0, 0, 0], [0, 4, 0, 0]], ids=str)
def test_task_5_lengths_advance_by_what_each_slot_brought(lab, q_lens):
    state = state_of(lab, num_pages=12, held={0: ([4, 7], 4), 1: ([1, 2], 0), 2: ([8, 3, 6], 7), 3: ([5], 2)})
    wanted = tables(state)
    for _ in range(2):
        state.advance(q_lens)
        wanted["lengths"] = [length + new for length, new in zip(wanted["lengths"], q_lens, strict=True)]
        check_unchanged(state, wanted, f"after advance({q_lens})")
    found = lab.dtype(state.lengths)
    if found != "int32":
        raise CheckFailed(f"`lengths` should still be int32 after `advance`; it is {found}")


STEPS = [
    [5, 0, 3, 0],
    [0, 4, 1, 0],
    [1, 3, 1, 0],
    [0, 1, 0, 6],
    [1, 1, 2, 0],
]  # how many tokens each slot brings, step by step


def run_of(
    lab: Any, model: Any, state: Any, ids: list[list[int]], lengths: list[int], q_lens: list[int]
) -> Any:
    tokens = [token for slot, new in enumerate(q_lens) for token in ids[slot][lengths[slot] :][:new]]
    return lab.ragged.forward.forward(model, state, tokens, q_lens)


def plus(lengths: list[int], q_lens: list[int]) -> list[int]:
    return [length + new for length, new in zip(lengths, q_lens, strict=True)]


@sizes_of_pages
def test_task_5_decodes_chunks_and_prompts_share_a_run(lab, P):
    model = SlotModel(lab)
    state = model_state(lab, model, P=P)
    ids, lengths = [prompt_of(9, seed=n) for n in range(4)], [0] * 4
    watched: list[tuple[list[int], list[int]]] = []

    def attention(*arguments: Any) -> Any:
        watched.append((state.lengths.tolist(), state.held))
        return model.read(*arguments)

    state.attention = attention
    for number, q_lens in enumerate(STEPS):
        watched.clear()
        rows = run_of(lab, model, state, ids, lengths, q_lens)
        before, lengths = lengths, plus(lengths, q_lens)
        held = [pages_needed(length, P) for length in lengths]
        where = f"while each layer of step {number} runs"
        check_equal(
            [seen for seen, _ in watched], [before] * 2, name=f"the lengths {where}: advance comes last"
        )
        check_equal(
            [seen for _, seen in watched], [held] * 2, name=f"the pages held {where}: allocate comes first"
        )
        expected = [[fingerprints(ids[n][: lengths[n]])[-1], lengths[n]] for n in range(4) if q_lens[n]]
        name = f"the last rows of step {number}, of those that take part"
        check(rows, np.array(expected, float), name=name, axes="B E", rtol=0)
        check_equal(state.lengths.tolist(), lengths, name=f"the lengths after step {number}")
    check_equal(len(model.runs), len(STEPS), name="how often the model ran, for so many steps")
    held = [pages_needed(length, P) for length in lengths]
    check_equal(state.held, held, name="the pages held at the end: no more than the tokens need")


def test_task_5_a_run_that_fails_counts_no_token_and_keeps_its_pages(lab):
    """Afterwards less is issued than the pages have room for."""
    model = SlotModel(lab)
    state = model_state(lab, model)
    ids, lengths = [prompt_of(20, seed=n) for n in range(4)], [3, 0, 1, 0]
    run_of(lab, model, state, ids, [0] * 4, lengths)
    model.fails_at = 1
    failing = partial(run_of, lab, model, state, ids, lengths, [1, 8, 0, 0])
    check_raises(KeyError, failing, name="a step whose model fails")
    check_equal(state.lengths.tolist(), lengths, name="the lengths after the step that failed")
    check_equal(state.held, [2, 3, 1, 0], name="the pages held after the step that failed")
    for q_lens in ([0, 2, 1, 0], [1, 1, 1, 4], [1, 6, 0, 1]):
        rows = run_of(lab, model, state, ids, lengths, q_lens)
        lengths = plus(lengths, q_lens)
        expected = [[fingerprints(ids[n][: lengths[n]])[-1], lengths[n]] for n in range(4) if q_lens[n]]
        check(rows, np.array(expected, float), name="the last rows, after a failure", axes="B E", rtol=0)
    check_equal(state.held, [pages_needed(n, 3) for n in lengths], name="the pages held at the end")


def test_task_5_a_step_without_pages_runs_nothing_and_changes_nothing(lab):
    model = SlotModel(lab)
    state = model_state(lab, model, num_pages=6)
    fill(state, {1: ([2, 4, 1], 9)})
    step = partial(lab.ragged.forward.forward, model, state, list(range(8)), [4, 1, 3, 0])
    kind = lab.paged.allocator.OutOfPages
    refused(state, kind, step, name="a step that needs 2 + 1 + 1 pages, with 2 free")
    check_equal(model.runs, [], name="what the model was run on")


@pytest.mark.parametrize(
    ("count", "q_lens", "what"),
    [
        (0, [0, 0, 0, 0], "no token at all"),
        (4, [1, 0, 2, 0], "a token too many"),
        (2, [1, 0, 2, 0], "a token too few"),
        (2, [3, 0, -1, 0], "a slot that brings −1"),
        (3, [1, 2], "lengths of two slots of four"),
    ],
)
def test_task_5_what_makes_no_step_is_refused(lab, count, q_lens, what):
    model = SlotModel(lab)
    state = model_state(lab, model)
    fill(state, {1: ([2], 1), 2: ([9], 2)})
    step = partial(lab.ragged.forward.forward, model, state, [1] * count, q_lens)
    refused(state, ValueError, step, name=f"a step with {what}")
    check_equal(model.runs, [], name="what the model was run on")


def test_task_5_a_step_goes_where_the_models_embedding_is(lab):
    """On torch's device "meta" tensors have shapes, and no numbers. The pages are elsewhere here, and never used."""
    usual, given_to_it = SlotModel(lab), list[dict[str, Any]]()
    state = model_state(lab, usual)

    def hidden(tokens: Any, positions: Any, caches: Any) -> Any:
        built = {name: getattr(caches[0].meta, name) for name in TENSORS}
        given_to_it.append({"tokens": tokens, "the model's positions": positions} | built)
        raise KeyError("the model stops here, as the test wanted it to")

    embedding = SimpleNamespace(weight=usual.embedding.weight.to("meta"))
    model = SimpleNamespace(config=usual.config, embedding=embedding, hidden=hidden)
    step = partial(lab.ragged.forward.forward, model, state, [3, 1, 4, 5], [0, 3, 1, 0])
    check_raises(KeyError, step, name="a step whose model stops once it has seen what it is given")
    where = 'tokens and metadata should go where the model\'s embedding is, on the device "meta" here'
    check_on_meta(given_to_it[0], where)
    check_equal(tuple(given_to_it[0]["tokens"].shape), (1, 4), name="the shape of the tokens")


@st.composite
def histories(draw: Any) -> tuple[int, int, list[tuple[str, list[int]]]]:
    """Tokens a page, pages, and what happens to a batch of three slots."""
    counts = st.lists(st.sampled_from([0, 0, 1, 1, 2, 5]), min_size=3, max_size=3)
    marks = st.lists(st.sampled_from([0, 1]), min_size=3, max_size=3)
    events = st.one_of(
        st.tuples(st.sampled_from(["step", "step", "fail"]), counts), st.tuples(st.just("release"), marks)
    )
    return draw(st.sampled_from([1, 2, 3])), draw(st.integers(3, 14)), draw(st.lists(events, max_size=10))


@QUICK
@given(history=histories())
def test_task_5_whatever_happens_each_slot_goes_on_as_if_it_were_alone(history):
    lab, (P, num_pages, events) = door.active(), history
    model = SlotModel(lab)
    state = model_state(lab, model, num_pages, P, slots=3, most=30)
    ids, lengths = [prompt_of(60, seed=n) for n in range(3)], [0] * 3
    for number, (what, counts) in enumerate(events):
        if what == "release":
            state.release([bool(mark) for mark in counts])
            lengths = [0 if mark else length for mark, length in zip(counts, lengths, strict=True)]
            ids = [prompt_of(60, seed=9 * number + n) if counts[n] else ids[n] for n in range(3)]
        elif any(counts):
            model.fails_at = len(model.runs) if what == "fail" else None
            try:
                rows = run_of(lab, model, state, ids, lengths, counts)
            except (KeyError, lab.paged.allocator.OutOfPages):
                rows = None
            if rows is not None:
                lengths = plus(lengths, counts)
                wanted = [[fingerprints(ids[n][: lengths[n]])[-1], lengths[n]] for n in range(3) if counts[n]]
                check(
                    rows, np.array(wanted, float), name=f"the last rows of step {number}", axes="B E", rtol=0
                )
        check_equal(state.lengths.tolist(), lengths, name=f"the lengths after event {number}, {what}")
        state.check()


@sizes_of_pages
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_5_the_model_of_week_1_gives_the_rows_that_it_gives_each_alone(lab, family, P):
    model = real_model(lab, family)
    pool = lab.paged.pool.KvPool(model.config, 40, P, device=lab.device)
    spoil(pool)
    state = lab.ragged.decode_state.DecodeState(pool, 4, 9)
    ids, lengths = [prompt_of(9, seed=n + 5) for n in range(4)], [0] * 4
    for number, q_lens in enumerate(STEPS):
        rows = run_of(lab, model, state, ids, lengths, q_lens)
        lengths = plus(lengths, q_lens)
        busy = [slot for slot, new in enumerate(q_lens) if new]
        wholes = [model.hidden(lab.array([ids[n][: lengths[n]]]), slice(0, lengths[n])) for n in busy]
        expected = np.stack([lab.numpy(whole)[0, -1] for whole in wholes])
        name = f"the last rows of step {number}, against each slot's tokens alone"
        check(rows, expected, name=name, axes="B E", rtol=1e-4, atol=1e-5, nan=UNUSED)
