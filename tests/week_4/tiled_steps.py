"""Day 4.7's attention by tiles: two tiles in a row, and whole steps over pages in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, random_numbers, stored
from week_3.pages import UNUSED
from week_3.ragged import outline
from week_3.ragged_step import Lengths, RaggedStep

from coursekit.check import CheckFailed

from .beside_tiled_steps import attend_as_python
from .folded_rows import NOTHING
from .online_softmax import empty_scratch, put, put_keys
from .small_operations import call


def check_two_tiles(lab: Any, peak: int, last: int, group: int, seen: int | None, where: str) -> None:
    """Queries fold 64 keys and then ``last`` more; their highest score is that of key ``peak``.

    Args:
        group: queries of a token.
        seen: how many of the second tile's keys the first token sees; None for all.
    """
    __tracebackhide__ = True
    rows, D, tile = 4, 32, 64
    queries, keys = random_numbers(571, rows, D), random_numbers(572, tile + last, D)
    values = random_numbers(573, tile + last, D)
    queries[:, 0], keys[:, 0] = 4.0, 0.0
    keys[peak, 0] = 8.0
    scratch = empty_scratch(lab, D)
    put(scratch.queries, 0, queries)
    scratch.peaks[:], scratch.totals[:], scratch.gathered[:] = NOTHING, 0.0, 0.0
    for start, stop in ((0, tile), (tile, tile + last)):
        put_keys(scratch, keys[start:stop])
        put(scratch.values, 0, values[start:stop])
        visible = tile if start == 0 or seen is None else seen
        arguments = 0, rows, visible, 0, group, seen is not None and start > 0, stop - start, D, scratch
        call(lab.fast.online_softmax.fold, *arguments)
    scores = queries @ keys.T
    if seen is not None:
        for i in range(rows):
            scores[i, tile + max(0, seen + i // group) :] = -np.inf
    highest = scores.max(axis=1)
    weights = np.exp(scores - highest[:, None])
    out = scratch.gathered[: rows * D].reshape(rows, D) / scratch.totals[:rows, None]
    for found, right, name, axes in (
        (scratch.peaks[:rows], highest, "the peaks", "queries"),
        (scratch.totals[:rows], weights.sum(axis=1), "the totals", "queries"),
        (
            out,
            weights @ values / weights.sum(axis=1)[:, None],
            "what was gathered, divided by the total,",
            "queries D",
        ),
    ):
        check_numpy(found, right, name=f"{name} {where}", axes=axes, rtol=3e-5, atol=1e-5)


def step_of(seed: int, lengths: Lengths, P: int, sizes: tuple[int, int, int], **options: Any) -> RaggedStep:
    """A step over pages in bfloat16; every place that holds no token of a sequence is NaN."""
    return RaggedStep.random(seed, lengths, P, dtype="bfloat16", sizes=sizes, **options)


def attended(
    lab: Any, step: RaggedStep, *, causal: bool, workers: int, python: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What `attend` gives for all tokens: [T, H, D] and the log-sum-exp [T, H]; it only reads what it is given."""
    __tracebackhide__ = True
    tiled = lab.fast.tiled_attention
    (T, H, D), Hkv = step.query.shape, step.keys.shape[2]
    query = stored(step.query, "float32").reshape(T, Hkv, H // Hkv, D)
    keys, values = (stored(x, "bfloat16").view(np.uint16) for x in (step.keys, step.values))
    starts, kv_lens = np.array(step.starts, np.int32), np.array(step.kv_lens, np.int32)
    width = max(map(len, step.tables))
    tables = np.array([table + [0] * (width - len(table)) for table in step.tables], np.int32)
    tasks = tiled.deal.py_func(starts, kv_lens, Hkv, H // Hkv)
    made = tiled.Step(starts, kv_lens, tables, tasks, np.zeros(T, np.int64))
    out, lse = np.full(query.shape, NAN, np.float32), np.full(query.shape[:3], NAN, np.float32)
    arguments = query, keys, values, made, np.float32(step.scale), causal, workers, out, lse
    before = [x.copy() for x in (query, keys, values, tables)]
    if python:
        attend_as_python(tiled.attend, *arguments)
    else:
        tiled.attend(*arguments)
    for name, array, was in zip(
        ("query", "keys", "values", "tables"), (query, keys, values, tables), before, strict=True
    ):
        if np.asarray(array).tobytes() != was.tobytes():
            raise CheckFailed(f"the argument `{name}` was written to, which may only be read")
    return out.reshape(T, H, D), lse.reshape(T, H)


def check_attend(
    lab: Any,
    step: RaggedStep,
    *,
    causal: bool = True,
    workers: int = 2,
    python: bool = False,
    rtol: float = 3e-5,
) -> None:
    """`attend` against each sequence alone, dense, in float64."""
    __tracebackhide__ = True
    found = attended(lab, step, causal=causal, workers=workers, python=python)
    right = step.expected(causal)
    how = f"{'as Python' if python else 'compiled'}, {'' if causal else 'not '}causal, {outline(step)}"
    for place, name, axes in ((0, "attention", "T H D"), (1, "the log-sum-exp", "T H")):
        check_numpy(
            found[place], right[place], name=f"{name}, {how}", axes=axes, rtol=rtol, atol=1e-5, nan=UNUSED
        )


def check_company(
    lab: Any, lengths: Lengths, P: int, sizes: tuple[int, int, int], *, python: bool = False
) -> None:
    """Each token of a step comes out the same to the last bit as in a step that has this token alone."""
    __tracebackhide__ = True
    step = step_of(581, lengths, P, sizes)
    together = attended(lab, step, causal=True, workers=2, python=python)[0]
    for b, (kv_len, q_len) in enumerate(lengths):
        for i in range(q_len):
            row, seen = step.starts[b] + i, kv_len - q_len + i + 1
            own = alone(step, b, row, seen)
            found = attended(lab, own, causal=True, workers=1, python=python)[0]
            if found[0].tobytes() != together[row].tobytes():
                raise CheckFailed(
                    f"token {i} of {q_len} new ones of a sequence of {kv_len}: alone in a step it comes out "
                    f"otherwise than beside the others, up to {np.abs(found[0] - together[row]).max():g} apart"
                )


def alone(step: RaggedStep, b: int, row: int, seen: int) -> RaggedStep:
    """A step of one token, which is the last of those that it sees."""
    table: Sequence[int] = step.tables[b][: -(-seen // step.P)]
    return RaggedStep(
        step.query[[row]], step.keys, step.values, [list(table)], [1], [seen], step.scale, step.dtype
    )
