"""Metadata of steps by hand, and what `TiledAttention.step_of` has to give for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coursekit.check import CheckFailed, check, check_equal
from coursekit.checking.kernel_run import run_method_as_python
from coursekit.checking.objects import collect_garbage, replaced, weak

from .beside_kept_steps import slots_of_the_newest

HKV, QUERIES_PER_HEAD, P = 2, 3, 4
LENGTHS = [(9, 2), (0, 5), (3, 1)]  # past and new tokens of each sequence
FIELDS = {
    "starts": "cu_seqlens_q",
    "kv_lens": "seq_lens_kv",
    "tables": "block_table",
    "slots": "slot_mapping",
}


def meta_of(lab: Any, lengths: Sequence[tuple[int, int]] = LENGTHS, seed: int = 0) -> Any:
    """A step's metadata; the pages lie anywhere, and the table is a part of a larger one."""
    past, new = map(list, zip(*lengths, strict=True))
    pages = 1 + np.random.default_rng(seed).permutation(len(lengths) * 8).reshape(len(lengths), 8)
    meta = lab.paged.metadata.ForwardMeta.build(lab.array(pages, "int32"), past, new, P)
    table = lab.numpy(meta.block_table)
    wide = lab.array(np.concatenate([table, table], axis=1), "int32")
    return replaced(meta, block_table=wide[:, : table.shape[1]])


def kept_step_of(attention: Any, meta: Any, heads: int = HKV, group: int = QUERIES_PER_HEAD) -> Any:
    return run_method_as_python(attention, "step_of", meta, heads, group, spread=False, deep=True)


def check_arrays(lab: Any, step: Any, meta: Any) -> None:
    """The step's arrays are those of its metadata, in one piece each."""
    __tracebackhide__ = True
    for field, name in FIELDS.items():
        found = getattr(step, field)
        expected = lab.numpy(getattr(meta, name))
        check(found, expected, name=f"step.{field}", dtype=str(expected.dtype), framework="numpy")
        assert found.flags.c_contiguous, f"step.{field} must lie in one piece: the kernels count its elements"


def tasks_of(step: Any) -> list[list[int]]:
    return sorted(np.asarray(step.tasks).tolist())


def check_tasks(step: Any, lengths: Sequence[tuple[int, int]], heads: int, group: int, most: int) -> None:
    """Each sequence, key head and run of `most` queries is a task."""
    __tracebackhide__ = True
    expected = [
        [b, head, first]
        for b, (_, new) in enumerate(lengths)
        for head in range(heads)
        for first in range(0, new * group, most)
    ]
    check_equal(
        tasks_of(step), sorted(expected), name=f"the tasks with {heads} key heads, {group} queries each"
    )


def check_told_apart(lab: Any, attention: Any) -> None:
    """Metadata that are there at the same time and have some numbers, or all tensors, in common."""
    __tracebackhide__ = True
    first, longer = (meta_of(lab, [(past, 1), (6, 2)]) for past in (0, 2))
    moved = replaced(first, slot_mapping=meta_of(lab, [(0, 1), (6, 2)], seed=1).slot_mapping)
    step = kept_step_of(attention, first)
    for meta, other in ((longer, "kv_lens"), (moved, "slots")):
        found = getattr(kept_step_of(attention, meta), other)
        expected = lab.numpy(getattr(meta, FIELDS[other])).tolist()
        if found.tolist() != expected:
            raise CheckFailed(
                f"two steps have the same pages, and not the same {FIELDS[other]}: the second got the arrays of the "
                f"first. Steps are told apart by the object `meta`, not by some of its numbers"
            )
    if kept_step_of(attention, replaced(first)) is step:
        raise CheckFailed(
            "another object `meta`, whose tensors are those of the first, got the first one's Step: steps are told "
            "apart by `meta` itself, not by what is in it"
        )


def check_newest_is_right(lab: Any, attention: Any) -> None:
    """Metadata that come and go: a new one may get the id of one that is gone."""
    __tracebackhide__ = True
    for seed in range(5):
        first, other = (meta_of(lab, [(past, 2)], past) for past in (seed, seed + 1))
        found = slots_of_the_newest(attention, first, other, HKV, QUERIES_PER_HEAD)
        if found != lab.numpy(other.slot_mapping).tolist():
            raise CheckFailed(
                "a step's metadata are new, and the arrays are those of an earlier step, whose metadata are gone: a "
                "new object may get the id of one that is gone. Keep the metadata beside what is made of them"
            )


def count_alive(lab: Any, attention: Any, count: int = 12) -> int:
    """How many of some steps' metadata are still there, when only the attention may hold them."""
    watched = []
    for seed in range(count):
        meta = meta_of(lab, seed=seed)
        kept_step_of(attention, meta)
        watched.append(weak(meta))
        del meta
    collect_garbage()
    return sum(each() is not None for each in watched)
