"""What a learner is told when Numba can't compile a kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch

from coursekit.running import compiler_errors
from coursekit.running.failures import describe
from coursekit.running.places import Places

minima = np.zeros(3, np.float32)


def misspelt(x: Any, out: Any) -> None:
    out[0] = minimum[0]  # type: ignore[name-defined]  # noqa: F821


@numba.njit(inline="always")
def low(byte: Any) -> Any:
    # Another line before the one that is meant.
    return top & 15  # type: ignore[name-defined]  # noqa: F821


def calls_misspelt(x: Any, out: Any) -> None:
    out[0] = low(3)


def uses_torch(x: Any, out: Any) -> None:
    total = torch.zeros(3)
    out[0] = total[0]


def calls_size(x: Any, out: Any) -> None:
    out[0] = x.size(0)


def too_many_indices(x: Any, out: Any) -> None:
    out[0] = x[0, 0, 0]


def reshapes_what_was_turned(x: Any, out: Any) -> None:
    turned = np.zeros((len(x), 2, 2)).transpose(1, 0, 2).reshape(12)
    out[0] = turned[0]


def list_for_a_shape(x: Any, out: Any) -> None:
    out[:] = np.zeros([3])


def steps(x: Any, out: Any) -> None:
    for i in numba.prange(0, len(x), 2):
        out[i] = x[i]


def refused(function: Callable[..., Any], **options: Any) -> numba.core.errors.NumbaError:
    with pytest.raises(numba.core.errors.NumbaError) as caught:
        numba.njit(**options)(function)(np.zeros(3, np.float32), np.zeros(3, np.float32))
    return caught.value


CASES = [
    (
        misspelt,
        "name 'minimum' is not defined",
        "out[0] = minimum[0]  # type: ignore[name-defined]  # noqa: F821",
    ),
    (
        calls_misspelt,
        "name 'top' is not defined",
        "return top & 15  # type: ignore[name-defined]  # noqa: F821",
    ),
    (uses_torch, "Unknown attribute 'zeros' of type Module(torch)", "total = torch.zeros(3)"),
    (calls_size, "Invalid use of int64 with parameters (0)", "out[0] = x.size(0)"),
    (too_many_indices, "cannot index array(float32, 1d, C) with 3 indices", "out[0] = x[0, 0, 0]"),
    (
        reshapes_what_was_turned,
        "reshape() supports contiguous array only",
        "turned = np.zeros((len(x), 2, 2)).transpose(1, 0, 2).reshape(12)",
    ),
    (list_for_a_shape, "Cannot parse input types to function np.empty", "out[:] = np.zeros([3])"),
]


@pytest.mark.parametrize(("function", "says", "line"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_the_cause_and_the_line_are_found_in_the_long_message(function, says, line):
    error = refused(function)
    assert says in compiler_errors.cause(error)
    assert "\n" not in compiler_errors.cause(error)
    place = compiler_errors.place(error)
    assert (None if place is None else place[2]) == line


def test_a_loop_that_can_not_be_shared_out_is_explained_too():
    error = refused(steps, parallel=True)
    assert "step size of 1" in compiler_errors.cause(error)
    place = compiler_errors.place(error)
    assert place is not None
    assert place[0] == Path(__file__).resolve()


def test_the_learner_is_shown_cause_file_and_line():
    here = Path(__file__).resolve()
    failure = describe(refused(uses_torch), Places(here.parent, (here.parent,)))
    first, where, line, *_ = failure.message.splitlines()
    assert first == "TypingError: Numba can't compile this: Unknown attribute 'zeros' of type Module(torch)"
    assert where.strip().startswith(f"{here.name}:")
    assert line.strip() == "total = torch.zeros(3)"


def test_other_errors_are_left_alone():
    assert not compiler_errors.is_compiler_error(TypeError("no"))
