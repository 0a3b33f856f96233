"""Day 3.3's and 3.4's kernels in Metal: attention to parts of the past, in float64, and what usual mistakes give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from week_2.metal_calls import calls_of

from coursekit.check import check, check_raises
from coursekit.checking.comparison import plural

from .pages import UNUSED
from .ragged import APART, outline, pair_of
from .ragged_step import (
    NOTHING,
    WRONG_RULES,
    Attended,
    Lengths,
    RaggedStep,
    Seen,
    bottom_right,
    everything,
    grouped_apart,
)

ROWS = 8
UNWRITTEN = (
    "some elements hold NaN although no key that was read does: no thread writes them, a number is used before it "
    "has a value, or the total is 0 where nothing is seen, and something is divided by it"
)
UNFINISHED = (
    f"{UNWRITTEN}; or a tile is used before it is complete: a barrier or a part of the tile is missing"
)
PEAK_OF_0 = (
    "the peak starts at 0: all weights are exp(−170), which is 0 in float32; before the first key it is −inf"
)
CAUSALITY = {True: "causal", False: "not causal"}

Cut = Callable[[int, int, int], tuple[int, int]]
"""(part p, of so many, of n keys) -> which of them the part has: from, up to."""
Mistakes = Mapping[str, Callable[[], Attended]]


def evenly(p: int, count: int, n: int) -> tuple[int, int]:
    return p * n // count, (p + 1) * n // count


def equal_sizes(p: int, count: int, n: int) -> tuple[int, int]:
    return p * (n // count), (p + 1) * (n // count)


def by_group(h: int, group: int) -> int:
    return h // group


@dataclass(frozen=True)
class Parts:
    """A step whose pasts are cut into `count` parts.

    `rows` None: each query's part is of the keys that it sees itself. Otherwise the queries that share a key head,
    token by token, are in blocks of so many, and a part is of the keys that the block's last query sees.
    """

    step: RaggedStep
    count: int
    causal: bool
    rows: int | None = None

    @property
    def rule(self) -> Seen:
        return bottom_right if self.causal else everything

    def most(self, i: int, h: int, L: int, S: int, seen: Seen) -> int:
        """How many keys are cut into parts, for token i of L and query head h."""
        if self.rows is None:
            return seen(i, L, S)
        group = self.step.query.shape[1] // self.step.keys.shape[2]
        block = (i * group + h % group) // self.rows * self.rows
        return seen((min(block + self.rows, L * group) - 1) // group, L, S)

    def scores(
        self, seen: Seen, cut: Cut, share: Callable[[int, int], int], scale: float
    ) -> Iterator[tuple[tuple[int, int, int], np.ndarray, np.ndarray]]:
        """For each part, token and head that has any: its place in the output, the scores, the values."""
        H, Hkv = self.step.query.shape[1], self.step.keys.shape[2]
        for b, first in enumerate(self.step.starts[:-1]):
            query, key, value = self.step.dense(b)
            L, S = len(query), len(key)
            for i, h, p in np.ndindex(L, H, self.count):
                begin, end = cut(p, self.count, self.most(i, h, L, S, seen))
                end, g = min(end, seen(i, L, S)), share(h, H // Hkv) % Hkv
                if begin < end:
                    yield (p, first + i, h), key[begin:end, g] @ query[i, h] * scale, value[begin:end, g]

    def attended(
        self,
        *,
        seen: Seen | None = None,
        cut: Cut = evenly,
        share: Callable[[int, int], int] = by_group,
        scale: float | None = None,
        divided: bool = True,
        peaks: bool = False,
    ) -> Attended:
        """Attention to each part by itself: [parts, T, H, D] and the log-sum-exp [parts, T, H].

        `divided` False leaves the sum of the values as it is; `peaks` gives the highest score for the log-sum-exp.
        """
        T, H, D = self.step.query.shape
        out, lse = np.zeros((self.count, T, H, D)), np.full((self.count, T, H), NOTHING)
        factor = self.step.scale if scale is None else scale
        for place, scores, values in self.scores(seen or self.rule, cut, share, factor):
            weights = np.exp(scores - scores.max())
            out[place] = weights @ values / (weights.sum() if divided else 1.0)
            lse[place] = scores.max() + (0.0 if peaks else np.log(weights.sum()))
        return out, lse

    def apart(self) -> Attended:
        out, lse = self.attended(share=lambda h, group: h)
        pairs = [grouped_apart(pair, self.step.keys.shape[2]) for pair in zip(out, lse, strict=True)]
        return np.stack([one for one, _ in pairs]), np.stack([one for _, one in pairs])

    def zeros_for_nothing(self) -> Attended:
        out, lse = self.attended()
        return out, np.where(lse == NOTHING, 0.0, lse)

    def mistakes(self) -> Mistakes:
        """What the usual mistakes give."""
        rules = WRONG_RULES
        if not self.causal:
            rules = {"the causal rule was kept, and `causal` is False": bottom_right}
        found: dict[str, Callable[[], Attended]] = {
            why: partial(self.attended, seen=rule) for why, rule in rules.items()
        }
        found |= {
            "the scores are not scaled": lambda: self.attended(scale=1.0),
            "query head h reads key head h % Hkv; neighbours should share one, h / (H / Hkv)": (
                lambda: self.attended(share=lambda h, group: h)
            ),
            APART: self.apart,
            "where a query sees nothing of a part, the log-sum-exp is −inf": self.zeros_for_nothing,
            "the log-sum-exp is the peak alone: the logarithm of the total is missing": (
                lambda: self.attended(peaks=True)
            ),
            "the weighted sum of the values is not divided by the total": lambda: self.attended(
                divided=False
            ),
        }
        if self.count > 1:
            found |= self.wrong_cuts()
        return found

    def wrong_cuts(self) -> Mistakes:
        return {
            "the parts are of equal size, and the last keys belong to no part: p·n / parts": (
                lambda: self.attended(cut=equal_sizes)
            ),
            "each part goes on to the last key": lambda: self.attended(
                cut=lambda p, count, n: (p * n // count, n)
            ),
            "each part begins with key 0": lambda: self.attended(
                cut=lambda p, count, n: (0, (p + 1) * n // count)
            ),
        }


def in_16_bits(seed: int, lengths: Lengths, P: int, dtype: str) -> RaggedStep:
    """A random step whose numbers have 8 bits, which bfloat16 holds, and float16 too."""
    return replace(RaggedStep.random(seed, lengths, P, dtype="bfloat16"), dtype=dtype)


def without_nan(step: RaggedStep) -> RaggedStep:
    """The same step, whose pool holds zeros wherever no token lies."""
    return replace(step, keys=np.nan_to_num(step.keys), values=np.nan_to_num(step.values))


def check_parts(
    lab: Any, attend: Callable[..., Any], step: RaggedStep, count: int = 1, **options: Any
) -> None:
    """Have Day 3.3's kernel, the learner's attend_parts, attend in `count` parts; options as in `check_kernel`."""
    __tracebackhide__ = True
    causal = options.pop("causal", True)
    check_kernel(lab, attend, Parts(step, count, causal), **options)


def check_tiles(
    lab: Any, attend: Callable[..., Any], step: RaggedStep, count: int = 1, **options: Any
) -> None:
    """The same of Day 3.4's kernel."""
    __tracebackhide__ = True
    causal = options.pop("causal", True)
    check_kernel(lab, attend, Parts(step, count, causal, ROWS), **options)


def check_kernel(
    lab: Any, attend: Callable[..., Any], parts: Parts, *, peaks: bool = False, **tolerance: float
) -> None:
    """Have the learner's kernel attend to each part, and compare with the oracle.

    Args:
        lab: the fixture.
        attend: called as `attend(query, keys, values, meta, scale, causal, parts)`.
        parts: what to attend over.
        peaks: whether the scores lie so far below 0 that a first peak of 0 makes all weights 0.
        tolerance: rtol and atol.
    """
    __tracebackhide__ = True

    def run(one: RaggedStep) -> Any:
        arguments = [*one.arguments(lab), one.meta(lab), one.scale, parts.causal, parts.count]
        return pair_of(attend(*arguments), "the kernel")

    actual = run(parts.step)
    spoilt = any(np.isnan(lab.numpy(x)).any() for x in actual)
    clean = spoilt and not any(np.isnan(lab.numpy(x)).any() for x in run(without_nan(parts.step)))
    wanted, wrong = parts.attended(), parts.mistakes()
    spoiler = UNUSED if clean else UNWRITTEN if parts.rows is None else UNFINISHED
    options: dict[str, Any] = {"nan": spoiler, "rtol": 1e-5, "atol": 5e-6} | tolerance
    where = f"of {outline(parts.step)}, {CAUSALITY[parts.causal]}, in {plural(parts.count, 'part')}"
    for place, name, axes in ((1, "lse", "parts T H"), (0, "out", "parts T H D")):
        found: dict[str, Any] = {why: partial(pick, other, place) for why, other in wrong.items()}
        if peaks:
            found = {PEAK_OF_0: np.zeros_like(wanted[0]) if place == 0 else np.full_like(wanted[1], NOTHING)}
        check(
            actual[place],
            wanted[place],
            name=f"{name} {where}",
            axes=axes,
            suspects=found,
            **options,
        )


def pick(mistake: Callable[[], Attended], place: int) -> np.ndarray:
    return mistake()[place]


def check_refused(lab: Any, attend: Callable[..., Any]) -> None:
    """Sizes that don't fit are refused: a GPU would read other memory, and say nothing."""
    __tracebackhide__ = True
    step = RaggedStep.random(379, [(5, 2), (4, 1)], 3)
    query, keys, values = step.arguments(lab)
    meta = step.meta(lab)
    for what, arguments in (
        ("queries of fewer tokens than the step has", (query[:2], keys, values)),
        ("queries of D 7 and keys of D 8", (query[:, :, :7], keys, values)),
        ("values of another shape than the keys", (query, keys, values[:, :, :, :7])),
        ("2 key heads for 5 query heads", (query[:, :5], keys, values)),
    ):
        check_raises(ValueError, partial(attend, *arguments, meta, 0.4), name=what)


def inputs_of(lab: Any, monkeypatch: Any, module: Any, call: Callable[[], Any]) -> list[tuple[int, ...]]:
    """The shapes of the arrays that the kernel is given in a call."""
    calls = calls_of(lab, monkeypatch, module)
    call()
    return [tuple(lab.numpy(each).shape) for each in calls[0]["inputs"] if lab.is_array(each)]
