"""Day 3.3's kernels for one part of a sequence and for all parts of all: calls, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, TILE

from .paged_kernel import BITS, FILL, SWAPPED, TIGHT, arrays_of, check_kept, numbers_of_bits, padded
from .pages import UNUSED
from .ragged_step import NOTHING, ZERO_PEAKS, RaggedStep

PART = 1024
LEFT_OUT = "some tasks were not worked off: what stood there before is still there"
UNWRITTEN = f"it was not written everywhere, 0 was divided by 0 where a token sees nothing, or {UNUSED}"

Pair = tuple[np.ndarray, np.ndarray]
Sees = Callable[[int, int, int], range]  # (token i, query head h, heads of a group) -> the keys that it sees


def attended(step: RaggedStep, b: int, sees: Sees, bits: bool = False) -> tuple[np.ndarray, ...]:
    """The tokens of sequence b over any of its keys: the output [L, H, D], peaks and totals [L, H]."""
    query, *pages = step.dense(b)
    key, value = (numbers_of_bits(step, x) if bits else x for x in pages)
    L, H, _ = query.shape
    group = H // key.shape[1]
    out, peaks, totals = np.zeros(query.shape), np.full((L, H), NOTHING), np.zeros((L, H))
    for i, h in np.ndindex(L, H):
        keys = [j for j in sees(i, h, group) if 0 <= j < len(key)]
        if keys:
            scores = key[keys, h // group] @ query[i, h] * step.scale
            peaks[i, h] = scores.max()
            weights = np.exp(scores - peaks[i, h])
            totals[i, h] = weights.sum()
            out[i, h] = weights @ value[keys, h // group] / totals[i, h]
    return out, peaks, totals


def pair(step: RaggedStep, b: int, sees: Sees, bits: bool = False) -> Pair:
    """The output and the log-sum-exp, which is −inf where nothing is seen."""
    out, peaks, totals = attended(step, b, sees, bits)
    return out, peaks + np.log(np.where(totals == 0, 1, totals))


# Task 3


def check_part(
    cpu_kernel: Any, step: RaggedStep, start: int, stop: int, first_seen: int, **tolerances: float
) -> None:
    """Attend to the keys `start` … `stop` − 1 of a single sequence."""
    __tracebackhide__ = True
    L, H, D = step.query.shape
    out, lse = np.full((L, H, D), NAN, np.float32), np.full((L, H), NAN, np.float32)
    given = arrays_of(step)
    before = {name: array.copy() for name, array in given.items()}
    cpu_kernel.attend_part(
        *given.values(),
        padded(step.tables[0], step.P),
        start,
        stop,
        first_seen,
        np.float32(step.scale),
        out,
        lse,
    )
    check_kept(given, before)
    right = pair(step, 0, lambda i, h, g: range(start, min(stop, first_seen + i)))
    wrong = wrong_parts(step, start, stop, first_seen)
    where = f"of {L} tokens over keys {start} … {stop - 1}, of which the first token sees those below {first_seen}"
    for place, name, axes in ((0, "out", "L H D"), (1, "lse", "L H")):
        check_numpy(
            (out, lse)[place],
            right[place],
            name=f"{name} {where}",
            axes=axes,
            suspects={why: other[place] for why, other in wrong.items()},
            nan=UNWRITTEN,
            **(TIGHT | tolerances),
        )


def wrong_parts(step: RaggedStep, start: int, stop: int, first_seen: int) -> dict[str, Pair]:
    """What the usual mistakes would give for one part."""
    L = len(step.query)
    whole = start + -(-(stop - start) // TILE) * TILE
    rules: dict[str, Sees] = {
        "the keys before the part are read again: begin at `start`": lambda i, h, g: range(
            min(stop, first_seen + i)
        ),
        "the last tile goes on behind `stop`": lambda i, h, g: range(start, min(whole, first_seen + i)),
        "every token sees all keys of the part": lambda i, h, g: range(start, stop),
        "every token sees as much as the first": lambda i, h, g: range(start, min(stop, first_seen)),
        SWAPPED: lambda i, h, g: range(start, min(stop, first_seen + (i * g + h % g) % L)),
    }
    wrong = {why: pair(step, 0, sees) for why, sees in rules.items()}

    def right(i: int, h: int, g: int) -> range:
        return range(start, min(stop, first_seen + i))

    if step.dtype != "float32":
        wrong[BITS] = pair(step, 0, right, bits=True)
    out, peaks, totals = attended(step, 0, right)
    logarithms = np.log(np.where(totals == 0, 1, totals))
    return (
        {ZERO_PEAKS: (out, np.where(totals == 0, 0, peaks + logarithms))}
        | wrong
        | {
            "the keys are added up instead of the values": pair(replace(step, values=step.keys), 0, right),
            "the rows of `queries` are sorted head by head; sort them token by token": pair(
                replace(step, query=head_by_head(step)), 0, right
            ),
            "out is not divided by the total": (out * totals[..., None], peaks + logarithms),
            "the logarithm of the total was not taken": (out, peaks + totals),
            "only the logarithm of the total: the peak was not added": (out, logarithms),
            "only the peak: the logarithm of the total was not added": (out, peaks),
        }
    )


def head_by_head(step: RaggedStep) -> np.ndarray:
    """The query [L, H, D] that acts as if row i of a key head were token i % L, head i // L of the group."""
    (L, H, D), Hkv = step.query.shape, step.keys.shape[2]
    grouped = step.query.reshape(L, Hkv, H // Hkv, D)
    return grouped.transpose(1, 2, 0, 3).reshape(Hkv, L, H // Hkv, D).transpose(1, 0, 2, 3).reshape(L, H, D)


# Task 4


def check_pages(
    cpu_kernel: Any,
    step: RaggedStep,
    rows: Sequence[int] | None = None,
    *,
    causal: bool = True,
    workers: int = 2,
) -> None:
    """Attend for some sequences of a step; what belongs to none of their parts must stay as it was."""
    __tracebackhide__ = True
    T, H, D = step.query.shape
    chosen = list(range(len(step.tables))) if rows is None else list(rows)
    parts = max(1, *(-(-kv_len // PART) for kv_len in step.kv_lens))
    out, lse = np.full((parts, T, H, D), FILL, np.float32), np.full((parts, T, H), FILL, np.float32)
    width = max(map(len, step.tables))
    given = arrays_of(step)
    before = {name: array.copy() for name, array in given.items()}
    cpu_kernel.attend_pages(
        *given.values(),
        np.array(step.starts, np.int32),
        np.array(step.kv_lens, np.int32),
        np.array([table + [0] * (width - len(table)) for table in step.tables], np.int32),
        np.array(chosen, np.int32),
        np.float32(step.scale),
        causal,
        workers,
        out,
        lse,
    )
    check_kept(given, before)
    right, wrong = parts_of(step, chosen, parts, causal), wrong_pages(step, chosen, parts, causal)
    where = f"of sequences {chosen} by {workers} workers, kv_lens {step.kv_lens}, q_lens {step.q_lens}"
    for place, name, axes in ((0, "out", "parts T H D"), (1, "lse", "parts T H")):
        check_numpy(
            (out, lse)[place],
            right[place],
            name=f"{name} {where}, in arrays that were full of {FILL:.0f}",
            axes=axes,
            suspects={why: lambda other=other, place=place: other()[place] for why, other in wrong.items()}
            | {LEFT_OUT: np.where((out, lse)[place] == FILL, FILL, right[place])},
            nan=UNUSED,
            **TIGHT,
        )


def parts_of(
    step: RaggedStep,
    chosen: Sequence[int],
    parts: int,
    causal: bool,
    *,
    extra: int = 0,
    top_left: bool = False,
    keys: Callable[[int, int], range] = lambda part, kv_len: range(
        part * PART, min((part + 1) * PART, kv_len)
    ),
    done: Callable[[int, int], bool] = lambda part, kv_len: part * PART < kv_len,
    bits: bool = False,
) -> Pair:
    """What the kernel writes; the options are mistakes.

    Args:
        extra: keys that each token sees beyond what it should.
        top_left: whether token i of a sequence sees keys 0 … i.
        keys: (part, kv_len) -> the keys of the part.
        done: (part, kv_len) -> whether there is such a part, or it is worked off.
        bits: whether the bits of bfloat16 are taken for numbers.
    """
    T, H, D = step.query.shape
    out, lse = np.full((parts, T, H, D), FILL), np.full((parts, T, H), FILL)
    for b in chosen:
        kv_len, L = step.kv_lens[b], step.q_lens[b]
        tokens = slice(step.starts[b], step.starts[b + 1])
        first = 1 if top_left else kv_len - L + 1 + extra
        for part in range(parts):
            if done(part, kv_len):
                some = keys(part, kv_len)

                def sees(i: int, h: int, g: int, first: int = first, some: range = some) -> range:
                    return range(some.start, min(some.stop, first + i) if causal else some.stop)

                out[part, tokens], lse[part, tokens] = pair(step, b, sees, bits)
    return out, lse


def wrong_pages(
    step: RaggedStep, chosen: Sequence[int], parts: int, causal: bool
) -> dict[str, Callable[[], Pair]]:
    """What the usual mistakes would give for all parts."""
    everybody = range(len(step.tables))

    def mistake(rows: Sequence[int] = chosen, is_causal: bool = causal, **options: Any) -> Callable[[], Pair]:
        return lambda: parts_of(step, rows, parts, is_causal, **options)

    wrong = {
        "all sequences were attended to: only those in `rows` are asked for": mistake(everybody),
        "only whole parts are worked off: a short last part is left out": mistake(
            done=lambda part, kv_len: (part + 1) * PART <= kv_len
        ),
        "every part begins with the first key": mistake(
            keys=lambda part, kv_len: range(min((part + 1) * PART, kv_len))
        ),
        "every part goes on to the last key": mistake(keys=lambda part, kv_len: range(part * PART, kv_len)),
        "tasks are left out: nothing was written": mistake(()),
        BITS: mistake(bits=True),
    }
    if not causal:
        return wrong | {"the causal rule was kept, and `causal` is False": mistake(is_causal=True)}
    return wrong | {
        "the causal rule is left out: tokens see the future": mistake(is_causal=False),
        "the causal rule is aligned at the top left: token i sees keys 0 … i": mistake(top_left=True),
        "a token doesn't see itself: the first one sees kv_len − L + 1 keys": mistake(extra=-1),
        "a token sees the one after it": mistake(extra=1),
    }
