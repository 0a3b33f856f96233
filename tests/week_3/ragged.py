"""Checks of any function that is called like `paged_attention`: random steps over a pool, against a dense oracle.

The pages of a sequence lie anywhere; every place that holds none of its tokens is NaN: free pages, the rest of a
last page, the null page, the layer before. The metadata is made by hand: of the learner's code nothing is needed
but the dataclass `ForwardMeta`, and `merge_attention` for what is merged.

    step = RaggedStep.random(7, CASES["one prompt"](P), P)
    check_step(lab, attention, step)                        # attention(query, keys, values, meta, scale, causal)
    check_merged(lab, attention, step, pages=2)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from coursekit.check import CheckFailed, check, check_untouched

from .pages import UNUSED, pages_needed
from .ragged_step import HKV, WRONG_RULES, D, G, Lengths, RaggedStep, bottom_right, grouped_apart

PAGE_SIZES = (1, 3, 16)

Attention = Callable[[Any, Any, Any, Any, float, bool], tuple[Any, Any]]

Mistakes = Mapping[str, Callable[[], tuple[np.ndarray, np.ndarray]]]
"""Mistake -> what computes the output and the log-sum-exp that it would give."""

APART = "the query heads are cut up as [H/Hkv, Hkv]; those of a group are neighbours: [Hkv, H/Hkv]"

CASES: dict[str, Callable[[int], Lengths]] = {
    "a decode, a first chunk, a later chunk, a whole prompt": lambda P: [(9, 1), (4, 4), (7 + P, 3), (5, 5)],
    "one decode": lambda P: [(2 * P + 1, 1)],
    "decodes only": lambda P: [(5, 1), (1, 1), (3 * P, 1), (2 * P + 1, 1), (17, 1)],
    "one prompt": lambda P: [(2 * P + 2, 2 * P + 2)],
    "a chunk after a long past": lambda P: [(6 * P + 1, 5)],
    "keys up to page edges": lambda P: [
        (kv, q) for k in (1, 2) for kv in (k * P - 1, k * P, k * P + 1) for q in (1, 2) if kv >= q
    ],
}
"""Lengths for pages of P tokens, by what they show."""


@st.composite
def random_steps(draw: Any, dtype: str = "float32", sizes: tuple[int, int, int] = (HKV, G, D)) -> RaggedStep:
    """Any step: one to five sequences, any past, any pages, front pages shared or not."""
    P, shared = draw(st.sampled_from([1, 2, 3, 5, 16])), draw(st.integers(0, 2))
    pairs = st.tuples(st.integers(0, 20), st.integers(1, 6))
    lengths = [(past + new, new) for past, new in draw(st.lists(pairs, min_size=1, max_size=5))]
    return RaggedStep.random(draw(st.integers(0, 999)), lengths, P, shared=shared, dtype=dtype, sizes=sizes)


def check_step(
    lab: Any,
    attention: Attention,
    step: RaggedStep,
    *,
    causal: bool = True,
    name: str = "paged attention",
    rtol: float | None = None,
    atol: float | None = None,
    device: str | None = None,
    mistakes: Mistakes | None = None,
    nan: str = UNUSED,
) -> None:
    """Call `attention` on the step, and compare what it gives, and the log-sum-exp, with the oracle.

    Args:
        lab: the fixture.
        attention: called as `attention(query, keys, values, meta, scale, causal)`.
        step: what to attend over; its `dtype` is that of the pool, and of what comes out.
        causal: whether to ask for the causal rule.
        name: what it is, in the learner's words.
        rtol, atol: tolerances; left out, those of `check` for the dtype. The log-sum-exp is float32 in any case.
        device: where the arrays go, if not on the lab's.
        mistakes: what else would give what; looked at before the usual ones.
        nan: the likely cause of NaN.
    """
    __tracebackhide__ = True
    name = name if causal else f"{name}, causal=False,"
    arguments = step.arguments(lab, device)
    meta = step.meta(lab, device)
    actual = with_sizes_told(step, name, lambda: attention(*arguments, meta, step.scale, causal))
    out, lse = pair_of(actual, name)
    wanted = step.expected(causal)
    wrong = {**(mistakes or {}), **suspects_of(step, causal)}
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "nan": nan}
    check(
        out,
        wanted[0],
        name=f"{name} of {outline(step)}",
        axes="T H D",
        dtype=step.dtype,
        suspects={why: lambda other=other: other()[0] for why, other in wrong.items()},
        **options,
    )
    check(
        lse,
        wanted[1],
        name=f"the log-sum-exp of {name}, {outline(step)}",
        axes="T H",
        suspects={why: lambda other=other: other()[1] for why, other in wrong.items()}
        | wrong_sums(wanted[1]),
        **options,
    )
    before = (step.query, step.keys, step.values)
    for what, argument, numbers in zip(("query", "keys", "values"), arguments, before, strict=True):
        check_untouched(argument, numbers, name=what, dtype=None)


def with_sizes_told(step: RaggedStep, name: str, call: Callable[[], Any]) -> Any:
    """Call it; where arrays don't fit, and one of them has the size of a sequence's whole pages, say so."""
    __tracebackhide__ = True
    try:
        return call()
    except NotImplementedError:
        raise
    except (RuntimeError, ValueError) as error:
        sizes = {int(number) for number in re.findall(r"\d+", str(error))}
        for kv_len in step.kv_lens:
            whole = pages_needed(kv_len, step.P) * step.P
            if whole != kv_len and {whole, kv_len} <= sizes:
                raise CheckFailed(
                    f"{name} of {outline(step)}: {error}\n  likely cause: keys or values were not cut at kv_len: the "
                    f"pages of a sequence of {kv_len} tokens have room for {whole}"
                ) from error
        raise


def check_merged(
    lab: Any,
    attention: Attention,
    step: RaggedStep,
    pages: int,
    *,
    name: str = "paged attention",
    rtol: float | None = None,
    atol: float | None = None,
    device: str | None = None,
) -> None:
    """Attend to the front of each past without the causal rule, to the rest with it, and merge: the whole.

    Arguments as in :func:`check_step`; `pages` is how many pages of each past go into the first part at most. The
    merging is `merge_attention` of Day 3.2.
    """
    __tracebackhide__ = True
    parts = []
    for part, causal in zip(step.cut(pages), (False, True), strict=True):
        actual = attention(*part.arguments(lab, device), part.meta(lab, device), part.scale, causal)
        parts.append(pair_of(actual, name))
    out, lse = pair_of(lab.paged.attention.merge_attention(parts), "merge_attention")
    wanted = step.expected()
    where = f"of two parts, the first of at most {pages} pages, {outline(step)}"
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "nan": UNUSED}
    check(out, wanted[0], name=f"{name} {where}", axes="T H D", dtype=step.dtype, **options)
    check(lse, wanted[1], name=f"the log-sum-exp {where}", axes="T H", **options)


def pair_of(actual: Any, name: str) -> tuple[Any, Any]:
    """The two things that attention gives."""
    pair = isinstance(actual, tuple) and len(actual) == 2
    assert pair, (
        f"{name} should return two things, what was attended to and the log-sum-exp; not {type(actual)}"
    )
    return actual


def outline(step: RaggedStep) -> str:
    """The step in a few words."""
    pairs = ", ".join(f"({q}, {kv})" for q, kv in zip(step.q_lens, step.kv_lens, strict=True))
    return f"(new, keys) = {pairs}; pages of {step.P}"


def suspects_of(step: RaggedStep, causal: bool) -> Mistakes:
    """What the usual mistakes would give: output and log-sum-exp."""
    rules = WRONG_RULES if causal else {"the causal rule was kept, and `causal` is False": bottom_right}
    wrong = {why: lambda seen=seen: step.expected(causal, seen=seen) for why, seen in rules.items()}
    return wrong | {
        "the scores are not scaled": lambda: step.expected(causal, scale=1.0),
        "the scores are divided by √D, not multiplied by `scale`": lambda: step.expected(
            causal, scale=step.query.shape[2] ** -0.5
        ),
        "query head h reads key-value head h % Hkv; neighbours should share one, h // (H / Hkv)": (
            lambda: step.expected(causal, share=lambda h, group: h)
        ),
        APART: lambda: grouped_apart(step.expected(causal, share=lambda h, group: h), step.keys.shape[2]),
    }


def wrong_sums(lse: np.ndarray) -> dict[str, Any]:
    """What is easily taken for a log-sum-exp."""
    return {
        "the logarithm is to base 2": lse / np.log(2),
        "the logarithm was not taken": lambda: np.exp(lse),
        "it has the wrong sign": -lse,
    }
