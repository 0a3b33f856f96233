"""Mistakes in additive masks: 0 where a key may be seen, −inf where it may not."""

from __future__ import annotations

import numpy as np

from coursekit.checking.cases import Case


def mask_not_infinite(case: Case) -> str | None:
    masked = np.isneginf(case.expected)
    if not masked.any() or not np.isfinite(case.actual).all():
        return None
    if (case.actual[masked] < -1e3).all():
        return "a large negative number stands where −inf is expected"
    if case.same(case.actual, ~masked) or case.same(case.actual, masked):
        return "this mask holds 1 and 0 (or True and False); it is added to the scores, so 0 and −inf are expected"
    return "nothing is masked: −inf is expected there"


def zero_times_infinity(case: Case) -> str | None:
    """NaN in all the places that should be 0, and nowhere else: a 0/1 mask was multiplied by −inf."""
    shown = case.expected == 0
    if not (shown | np.isneginf(case.expected)).all() or shown.all() or not shown.any():
        return None
    if (np.isnan(case.actual) == shown).all():
        return "0 · ∞ is NaN: fill with −inf, then clear one side"
    return None


def mask_elsewhere(case: Case) -> str | None:
    """A causal mask along the last two axes [L, S] whose diagonal is not the bottom-right one."""
    if case.expected.ndim < 2 or case.expected.size == 0:
        return None
    hidden = _hidden(case.expected), _hidden(case.actual)
    rows, columns = case.expected.shape[-2:]
    right = ~np.tri(rows, columns, columns - rows, dtype=bool)
    if not hidden[0].any() or not (hidden[0] == right).all() or (hidden[1] == hidden[0]).all():
        return None
    elsewhere = (
        (
            0,
            "the mask is aligned top-left; with L ≠ S it must be aligned bottom-right (the last query sees all)",
        ),
        (columns - rows - 1, "off by one: the mask hides the diagonal too (a token must see itself)"),
        (columns - rows + 1, "off by one: the mask lets each token see the one after it"),
    )
    for diagonal, text in elsewhere:
        if (hidden[1] == ~np.tri(rows, columns, diagonal, dtype=bool)).all():
            return text
    if (hidden[1] == np.tri(rows, columns, columns - rows - 1, dtype=bool)).all():
        return "the wrong triangle: it hides the past and shows the future"
    if (hidden[1] == ~right).all():
        return "the mask is inverted: it hides what may be seen and shows what may not"
    return "the mask is upside down or transposed" if (hidden[1] == np.tri(rows, columns, -1)).all() else None


def _hidden(mask: np.ndarray) -> np.ndarray:
    """Where an additive mask hides (−inf), or a 0/1 one (0)."""
    infinite = np.isneginf(mask)
    return infinite if infinite.any() or not np.isin(mask, (0, 1)).all() or not mask.any() else mask == 0
