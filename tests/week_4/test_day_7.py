"""Day 4.7: weights and activations in 8 bits and less, in registers, and a block that is one kernel."""

from __future__ import annotations

import copy
import operator

import numpy as np
import pytest

from coursekit.check import check, check_equal, check_raises

from .block8_checks import check_after, check_before
from .head8 import check_head
from .kept_steps import (
    GROUP,
    HKV,
    LENGTHS,
    check_arrays,
    check_newest_is_right,
    check_tasks,
    count_alive,
    meta_of,
    step_of,
)
from .small_model8 import FAMILIES, SmallModel
from .whole_model8 import (
    IDS,
    check_company,
    check_logits,
    check_pages,
    check_rounding,
    check_rows,
    full_caches,
    run,
    run_in_two,
    uncompiled,
)

families = pytest.mark.parametrize("family", FAMILIES)

# Task 1: weights laid out


# Task 2: activations in 8 bits


# Task 3: the multiplication


# Task 4: small operations, fused


# Task 5: attention in tiles


# Task 6: the block and the model


@families
def test_task_6_before_attention_gives_rotated_queries_and_keys_and_values(lab, family):
    check_before(lab, SmallModel(family), seed=601)


def test_task_6_after_attention_adds_both_products_to_the_stream(lab):
    check_after(lab, SmallModel("plain"), seed=601)


def test_task_6_a_step_is_given_as_arrays_with_its_tasks(lab):
    meta, most = meta_of(lab), lab.fast.tiled_attention.QUERIES
    for heads, group in ((HKV, GROUP), (3, 100)):
        step = step_of(lab.fast.attend.TiledAttention(), meta, heads, group)
        check_arrays(lab, step, meta)
        check_tasks(step, LENGTHS, heads, group, most)


def test_task_6_the_steps_that_layers_ask_for_in_turn_are_made_once(lab):
    attention, metas = lab.fast.attend.TiledAttention(), [meta_of(lab, seed=seed) for seed in range(4)]
    first = [step_of(attention, meta) for meta in metas]
    for step, meta in zip(first, metas, strict=True):
        check_arrays(lab, step, meta)
    for layer in range(2, 4):
        for number, (step, meta) in enumerate(zip(first, metas, strict=True)):
            again = step_of(attention, meta) is step
            assert again, (
                f"layer {layer} asks for step {number} of 4, and it is made anew: the newest 4 are kept"
            )


def test_task_6_other_heads_get_other_tasks(lab):
    attention, meta = lab.fast.attend.TiledAttention(), meta_of(lab)
    for heads, group in ((2, 3), (3, 2), (2, 200)):
        found = step_of(attention, meta, heads, group)
        check_tasks(found, LENGTHS, heads, group, lab.fast.tiled_attention.QUERIES)


def test_task_6_new_metadata_are_never_taken_for_old_ones(lab):
    check_newest_is_right(lab, lab.fast.attend.TiledAttention())


def test_task_6_of_the_steps_before_only_a_few_are_kept(lab):
    alive = count_alive(lab, lab.fast.attend.TiledAttention())
    assert alive <= 4, f"after 12 steps, {alive} are kept: only the newest 4 can be asked for again"


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (64,), (0, 64)], ids=str)
def test_task_6_the_head_takes_two_rows_in_8_bits_for_one(lab, shape):
    check_head(lab, np.random.default_rng(620).normal(size=shape).astype(np.float32))


def test_task_6_the_head_takes_other_dtypes_and_arrays_that_lie_in_pieces(lab):
    x = np.random.default_rng(621).normal(size=(64, 3)).astype(np.float32)
    for dtype in ("bfloat16", "float32"):
        check_head(lab, x.T, lab.array(x, dtype).T)


@families
def test_task_6_the_fast_model_gives_the_logits_of_the_same_weights(lab, family):
    small = SmallModel(family)
    fast = uncompiled(lab.fast.accelerate.accelerate(small.model(lab)))
    logits = run(lab, fast, IDS)
    check_logits(lab, logits, small, IDS, "without a cache")
    check_rounding(lab, logits, small, IDS)


@families
def test_task_6_accelerate_leaves_the_model_as_it_is(lab, family):
    model = SmallModel(family).model(lab)
    before, blocks, logits = dict(vars(model)), list(model.blocks), lab.numpy(run(lab, model, IDS))
    fast = lab.fast.accelerate.accelerate(model)
    assert fast is not model, "the model itself came back: the fast one is another object"
    changed = [name for name, value in before.items() if vars(model).get(name) is not value]
    assert not changed, f"of the model that was given, this was exchanged: {', '.join(changed)}"
    assert all(map(operator.is_, model.blocks, blocks)), "the blocks were exchanged in the model's own list"
    check(
        run(lab, model, IDS),
        logits,
        name="the logits of the model that was given, afterwards",
        rtol=0,
        atol=0,
    )


@families
def test_task_6_accelerate_exchanges_blocks_and_embedding_and_head(lab, family):
    model = SmallModel(family).model(lab)
    fast = lab.fast.accelerate.accelerate(model)
    assert isinstance(fast, type(model)), f"a {type(fast).__name__} came back, not a {type(model).__name__}"
    kinds = [type(part).__name__ for part in (*fast.blocks, fast.embedding, fast.head)]
    check_equal(
        kinds, ["Block8", "Block8", "Embedding8", "Linear8"], name="the kinds of blocks, embedding, head"
    )
    shared = [name for name in ("config", "rope", "norm") if getattr(fast, name) is not getattr(model, name)]
    assert not shared, f"not exchanged are config, rope and norm; these are others: {', '.join(shared)}"
    rooms = {id(block.rooms) for block in fast.blocks}
    assert len(rooms) == 1, f"{len(fast.blocks)} blocks have {len(rooms)} Rooms: one is enough for all"
    same = fast.head.weight.records is fast.embedding.table.records
    if model.config.tied_embeddings:
        assert same, "the head of tied embeddings is laid out a second time: it takes the embedding's table"
    else:
        assert not same, "the model has a head of its own, and the fast one took the embedding's table for it"


def test_task_6_what_is_laid_out_already_stays(lab):
    model = SmallModel("biases").model(lab)
    fast, ready = lab.fast.accelerate.accelerate(model), copy.copy(model)
    ready.embedding, ready.head = fast.embedding, fast.head
    again = lab.fast.accelerate.accelerate(ready)
    assert again.embedding is fast.embedding, "the embedding is an Embedding8 already, and was made anew"
    assert again.head is fast.head, "the head beside an Embedding8 was made anew"


def test_task_6_what_the_kernels_cannot_do_is_refused(lab):
    model = SmallModel("plain").model(lab)
    fast = lab.fast.accelerate.accelerate(model)
    check_raises(ValueError, lambda: lab.fast.accelerate.accelerate(fast), match="only once")


@families
def test_task_6_compiled_it_gives_these_logits_with_dense_caches(lab, family):
    small = SmallModel(family)
    fast = lab.fast.accelerate.accelerate(small.model(lab))
    check_logits(lab, run_in_two(lab, fast, IDS, full_caches(lab)), small, IDS, "with a cache, in two calls")
    check_rows(lab, fast, small)


@families
def test_task_6_compiled_it_gives_these_logits_on_pages(lab, family):
    small = SmallModel(family)
    check_pages(lab, lab.fast.accelerate.accelerate(small.model(lab)), small)


def test_task_6_compiled_a_sequence_on_pages_gets_the_same_alone_and_beside_others(lab):
    check_company(lab, lab.fast.accelerate.accelerate(SmallModel("norms of the heads").model(lab)))
