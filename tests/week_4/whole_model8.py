"""Whole models of Day 4.7, as Python and compiled, with the caches of the days before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coursekit.check import CheckFailed, check_shape
from coursekit.checking.kernel_run import run_method_as_python
from coursekit.checking.objects import copied

from .small_model8 import LAYERS, SmallModel, V, exactly, in_8_bits, in_bfloat16

IDS = [7, 61, 33, 2, 79, 18, 45]
OFF = 0.03
"""From the same weights without rounding, relative to the logits of a token. A group's step is 1/127 of its peak,
which is 2.4 times as large as its numbers mostly are: they change by step/√12, which is 0.5 %. Each of 8 products has
such inputs, one behind the other: √8 · 0.5 % is 1.5 %, and twice that is allowed."""
SAME_CODES = 0.005
"""From the simulation in NumPy, which rounds in the same places. A number near a tie may come out as another code in
float32: a step is 2 % of it, and it is one of 64 that are added up. That is 0.25 %, and two of them are allowed."""


def fast_of(lab: Any, model: Any) -> Any:
    """What `accelerate` makes of a model that it can take."""
    __tracebackhide__ = True
    try:
        return lab.fast.accelerate.accelerate(model)
    except ValueError as error:
        if not (model.config.tied_embeddings and str(error).startswith("the head isn't a Linear")):
            raise
        raise CheckFailed(
            "`head_of` was called for a model whose configuration says `tied_embeddings`: its head has no matrix of "
            "its own, and takes the embedding's table"
        ) from error


class AsPython:
    """A part of a model that runs without being compiled."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __call__(self, *arguments: Any) -> Any:
        return run_method_as_python(self.part, "__call__", *arguments, spread=False, deep=True)


def uncompiled(fast: Any) -> Any:
    """The same model, whose blocks and head run as Python. They can't take pages."""
    slow = copied(fast)
    slow.blocks, slow.head = [AsPython(block) for block in fast.blocks], AsPython(fast.head)
    return slow


def check_logits(
    lab: Any,
    logits: Any,
    small: SmallModel,
    ids: Sequence[int],
    how: str,
    on_pages: bool = False,
) -> None:
    """Logits [1, L, V] of a whole sequence, against the simulation.

    Pages hold bfloat16. Quotients of two such numbers are ties so often that codes differ everywhere.
    """
    __tracebackhide__ = True
    expected = small.logits(list(ids), in_8_bits, in_bfloat16 if on_pages else exactly)
    found = check_shape(logits, (1, *expected.shape), name=f"the logits {how}", axes="B L V")[0]
    assert lab.dtype(logits) == "float32", f"the logits {how} are {lab.dtype(logits)}, not float32"
    _check_near(found, expected, OFF if on_pages else SAME_CODES, how, "the simulation of 8 bits")


def check_rounding(lab: Any, logits: Any, small: SmallModel, ids: Sequence[int]) -> None:
    """The logits of a whole sequence against those of the same weights, nothing of which is rounded."""
    __tracebackhide__ = True
    _check_near(
        lab.numpy(logits)[0], small.logits(list(ids)), OFF, "without a cache", "the same weights in float64"
    )


def _check_near(found: np.ndarray, expected: np.ndarray, most: float, how: str, than: str) -> None:
    __tracebackhide__ = True
    off = np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    worst = int(off.argmax())
    assert off[worst] < most, (
        f"the logits {how}: those of token {worst} of {len(off)} are {off[worst]:.2%} off those of {than}; "
        f"{most:.1%} is allowed"
    )


def run(lab: Any, model: Any, ids: Sequence[int], start: int = 0, caches: Any = None) -> Any:
    return model(lab.array([list(ids)]), slice(start, start + len(ids)), caches)


def run_in_two(lab: Any, model: Any, ids: Sequence[int], caches: Sequence[Any], first: int = 4) -> Any:
    """The logits of all tokens, of which the first come together, and then the others."""
    both = [run(lab, model, ids[:first], 0, caches), run(lab, model, ids[first:], first, caches)]
    return lab.array(np.concatenate([lab.numpy(each) for each in both], axis=1))


def full_caches(lab: Any) -> list[Any]:
    return [lab.kv_cache.FullKvCache() for _ in range(LAYERS)]


def run_rows(lab: Any, model: Any, rows: Sequence[Sequence[int]], first: Sequence[int]) -> np.ndarray:
    """Requests with caches in slots: of each, the logits of its last token, which all bring together."""
    batch = [lab.kv_cache.BatchingKvCache(len(rows)) for _ in range(LAYERS)]
    for slot, (ids, count) in enumerate(zip(rows, first, strict=True)):
        caches = full_caches(lab)
        run(lab, model, ids[:count], 0, caches)
        for layer, cache in zip(batch, caches, strict=True):
            layer.add(slot, cache)
    newest = lab.array([[ids[count]] for ids, count in zip(rows, first, strict=True)])
    return np.asarray(lab.numpy(model(newest, [slice(count, count + 1) for count in first], batch)))


class OnPages:
    """An engine in small: sequences on pages of bfloat16, each of which brings any number of tokens per step."""

    def __init__(self, lab: Any, model: Any, page_size: int = 4, num_pages: int = 60) -> None:
        self.lab, self.model, self.page_size = lab, model, page_size
        dtype = lab.array([0.0], "bfloat16").dtype
        self.pool = lab.paged.pool.KvPool(model.config, num_pages, page_size, dtype=dtype)
        self.pool.keys[...] = self.pool.values[...] = float("nan")
        self.attention = lab.fast.attend.TiledAttention()

    def step(self, tables: np.ndarray, sequences: Sequence[tuple[int, Sequence[int]]]) -> list[np.ndarray]:
        """Past tokens and new ids of each sequence → the logits of each, [L, V]."""
        lab, brought = self.lab, [len(ids) for _, ids in sequences]
        meta = lab.paged.metadata.ForwardMeta.build(
            lab.array(tables, "int32"), [past for past, _ in sequences], brought, self.page_size
        )
        caches = [
            lab.paged.paged_cache.PagedCache(self.pool, layer, meta, self.attention)
            for layer in range(LAYERS)
        ]
        ids = [each for _, some in sequences for each in some]
        logits = lab.numpy(self.model(lab.array([ids]), meta.positions, caches))[0]
        assert logits.shape == (len(ids), V), f"the logits of {len(ids)} tokens are {list(logits.shape)}"
        return np.split(logits, np.cumsum(brought)[:-1])


def check_rows(lab: Any, model: Any, small: SmallModel) -> None:
    """Two requests of different lengths in slots."""
    __tracebackhide__ = True
    rows, first = (IDS, IDS[::-1][:4]), (len(IDS) - 1, 3)
    found = run_rows(lab, model, rows, first)
    for row, ids in enumerate(rows):
        expected = small.logits(list(ids[: first[row] + 1]), in_8_bits)[-1:]
        _check_near(found[row], expected, SAME_CODES, f"of row {row} in slots", "the simulation of 8 bits")


TABLES = np.array([[9, 4, 21, 30], [2, 33, 17, 5], [40, 41, 3, 8]])


def check_pages(lab: Any, model: Any, small: SmallModel) -> None:
    """A prompt in two chunks beside another sequence, on pages that lie anywhere."""
    __tracebackhide__ = True
    pages, other = OnPages(lab, model), IDS[::-1]
    steps = [
        pages.step(TABLES[:2], [(0, IDS[:4]), (0, other[:5])]),
        pages.step(TABLES[:2], [(4, IDS[4:]), (5, other[5:])]),
    ]
    for row, ids in enumerate((IDS, other)):
        logits = np.concatenate([step[row] for step in steps])
        check_logits(lab, lab.array(logits[None]), small, ids, f"of sequence {row} on pages", on_pages=True)


def check_company_of_model(lab: Any, model: Any) -> None:
    """The logits of a sequence, to the last bit, whatever the steps have beside it."""
    __tracebackhide__ = True
    dice = np.random.default_rng(630)
    ids, others = dice.integers(0, V, 11).tolist(), dice.integers(0, V, (2, 14)).tolist()
    chunks = [(0, ids[:6]), (6, ids[6:10]), (10, ids[10:])]
    alone = OnPages(lab, model)
    expected = [alone.step(TABLES[:1], [chunk])[0] for chunk in chunks]
    crowd = OnPages(lab, model)
    beside = [[(0, others[0][:9])], [(9, others[0][9:10]), (0, others[1][:13])], [(13, others[1][13:])]]
    rows = [[1], [1, 2], [2]]
    for number, (chunk, company, places) in enumerate(zip(chunks, beside, rows, strict=True)):
        found = crowd.step(TABLES[[*places, 0]], [*company, chunk])[-1]
        same = np.array_equal(found, expected[number])
        assert same, f"step {number}: beside {len(company)} others, a sequence gets other logits than alone"
