"""Samplers of Day 4.6 beside those of Day 1.7: what a whole step gives, in the process of the learner's code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from coursekit.beside import beside


@beside
def new_samplers(lab: Any, params: dict[str, Any], prompt_len: int, alone: dict[str, Any]) -> tuple[Any, Any]:
    """The sampler of a row of a step, and that of Day 1.7."""
    row = lab.engine.step_sampler.RowSampler(lab.engine.params.SamplingParams(**params), prompt_len)
    return row, new_alone(lab, alone)


@beside
def new_alone(lab: Any, params: dict[str, Any]) -> Any:
    """The sampler of Day 1.7."""
    return lab.sampler.Sampler(lab.sampler.SamplingParams(**params))


@beside
def whole_step(
    lab: Any,
    logits: Any,
    rows: Sequence[tuple[Any, list[int]]],
    alone: Sequence[tuple[Any, np.ndarray]],
    dtype: str,
) -> dict[str, Any]:
    """One step: the tokens that each sampler of Day 1.7 gives on its own scores, and those of `choose_step`.

    Args:
        lab: the lab.
        logits: what `choose_step` gets.
        rows: the sampler and the token ids of each row.
        alone: the sampler of Day 1.7 for each row, and its scores.
        dtype: for these scores.

    Returns:
        `alone` and `found`, the tokens; and `states`, as :func:`states_of` gives them.
    """
    expected = [
        int(sampler(lab.array(scores, dtype), ids))
        for (_, ids), (sampler, scores) in zip(rows, alone, strict=True)
    ]
    row = lab.engine.step_sampler.Row
    found = lab.engine.step_sampler.choose_step(logits, [row(sampler, ids) for sampler, ids in rows])
    samplers = [(one, other) for (one, _), (other, _) in zip(rows, alone, strict=True)]
    return {"alone": expected, "found": found, "states": states_of(samplers)}


@beside
def states_of(samplers: Sequence[tuple[Any, Any]]) -> list[tuple[str, str]]:
    """Where the generators of both samplers of each row are, as texts that are equal where the states are."""
    return [(_state(one), _state(other)) for one, other in samplers]


def _state(sampler: Any) -> str:
    return hashlib.sha256(repr(sampler.random.getstate()).encode()).hexdigest()
