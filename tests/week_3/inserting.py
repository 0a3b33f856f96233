"""A step's new tokens, where they must be once a layer has written them, and an attention that listens."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_1.numpy_model import HKV, D

from coursekit.check import check, check_equal

from .batch_model import six_arguments
from .pages import LAYERS, as_one, place_of, pool_of
from .ragged import RaggedStep


def heads_of(lab: Any, x: np.ndarray) -> Any:
    """[T, H, D] as the model brings it: [1, H, T, D]."""
    return lab.array(x.swapaxes(0, 1)[None])


def new_rows(step: RaggedStep) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Places, keys and values [T, Hkv, D] of a step's new tokens."""
    places = [
        place_of(table, kv - q + i, step.P)
        for table, kv, q in zip(step.tables, step.kv_lens, step.q_lens, strict=True)
        for i in range(q)
    ]
    keys, values = (x.reshape(-1, *x.shape[2:])[places] for x in (step.keys, step.values))
    return places, keys, values


def pool_for(lab: Any, step: RaggedStep, layer: int | None = None) -> Any:
    """A pool for the step: in one layer the keys and values of the past, everywhere else NaN."""
    pool = pool_of(lab, step.keys.shape[0], step.P)
    if layer is not None:
        places, _, _ = new_rows(step)
        for part, pages in ((pool.keys, step.keys), (pool.values, step.values)):
            before = pages.copy()
            before.reshape(-1, HKV, D)[places] = np.nan  # the new tokens come with the call
            part[layer] = lab.array(before)
    return pool


def written_alone(step: RaggedStep, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values [layers, N, P, Hkv, D] of a pool that was NaN, after a layer has written the step."""
    places, *new = new_rows(step)
    pools = []
    for numbers in new:
        pool = np.full((LAYERS, *step.keys.shape), np.nan)
        pool[layer].reshape(-1, HKV, D)[places] = numbers
        pools.append(pool)
    return pools[0], pools[1]


def check_pool(lab: Any, pool: Any, step: RaggedStep, layer: int) -> None:
    """The step's new tokens are in their places in this layer, and nothing else of the pool has changed."""
    __tracebackhide__ = True
    wanted = written_alone(step, layer)
    for n, name in enumerate(("keys", "values")):
        check(
            as_one(lab, getattr(pool, name)),
            wanted[n],
            name=f"pool.{name} afterwards, NaN where this step writes nothing",
            axes="layers N P Hkv D",
            suspects={"keys and values are mixed up": wanted[1 - n]},
            rtol=0,
            atol=0,
        )


class Listening:
    """In the place of `paged_attention`: notes what it was given, and answers with `answer` [T, H, D]."""

    def __init__(self, lab: Any, answer: np.ndarray, pool: Any) -> None:
        self.lab, self.answer, self.pool = lab, answer, pool
        self.calls: list[tuple[Any, ...]] = []
        self.written: list[int] = []  # the layers of the pool that had new keys when this was called
        self.given: list[int] = []  # the layers whose keys are like those that it was given

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        six_arguments(arguments, named)
        arrays = [self.lab.numpy(x) for x in arguments[:3]]
        pool = [self.lab.numpy(keys) for keys in self.pool.keys]
        self.written = [layer for layer in range(len(pool)) if not np.isnan(pool[layer]).all()]
        self.given = [n for n in range(len(pool)) if np.array_equal(pool[n], arrays[1], equal_nan=True)]
        self.calls.append((*arrays, *arguments[3:]))
        return self.lab.array(self.answer), self.lab.array(self.answer[:, :, 0])

    def check(self, step: RaggedStep, layer: int, meta: Any, scale: float) -> None:
        """It was called once, for the step, with the new tokens in their places."""
        __tracebackhide__ = True
        check_equal(
            len(self.calls),
            1,
            name="how often the `attention` that the test has passed in, which is not `paged_attention`, was called",
        )
        query, keys, values, *rest = self.calls[0]
        check(query, step.query, name="the queries given to `attention`", axes="T H D", framework="numpy")
        wanted = written_alone(step, layer)
        if not self.written:
            cause = (
                "the pool has none of the new tokens when `attention` is called: they are written first, and into "
                "the pool's own arrays"
            )
        elif layer not in self.written:
            cause = f"the new tokens were written to layer {self.written[0]}, and not to layer {layer}"
        elif layer not in self.given:
            cause = f"`attention` was given the pages of another layer, not those of layer {layer}"
        else:
            cause = "new tokens are in other places than `slot_mapping` says"
        for n, (name, found) in enumerate((("keys", keys), ("values", values))):
            check(
                found,
                wanted[n][layer],
                name=f"the {name} given to `attention`, NaN where this step writes nothing",
                axes="N P Hkv D",
                framework="numpy",
                suspects={"keys and values are mixed up": wanted[1 - n][layer]},
                rtol=0,
                atol=0,
                nan=cause,
            )
        assert rest[0] is meta, "`attention` was given other metadata than the step's"
        check_equal(tuple(rest[1:]), (scale, True), name="scale and causal, as `attention` got them")
