"""For Day 4.7: rows in 8 bits in float64, room with poison in it, and how a group is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coursekit.check import CheckFailed, check
from coursekit.checking.kernel_run import run_as_python

GROUP = 32
UNWRITTEN = -128  # a code that no number gets
# A NaN that stays what it is only where nothing is written: arithmetic makes another of it.
UNWRITTEN_BITS = 0x7F812345
TINY = 2.0**-126
OUTSIDE = "something was written to groups that are not of this row"
TRUNCATED = "the numbers are cut off: each becomes the nearest whole number"
UP = "halves are rounded up: the even number is taken"
AWAY = "halves are rounded away from 0: the even number is taken"
SIGNED = "the largest number is taken, not the largest magnitude"
POISON = "NaN was read: it stands in `rows` before the call, and in `x` beside the row"
OF_GIVEN = "it is the sum of the given numbers: what was kept counts, step · Σ codes"
UNSCALED = "Σ codes is not multiplied by the step"


def float32(x: Any) -> np.ndarray:
    """The nearest float32, in float64."""
    return np.asarray(x).astype(np.float32).astype(np.float64)


@dataclass
class Kept:
    """Groups in 8 bits: codes [..., n, 32], steps and offsets [..., n], all float64."""

    codes: np.ndarray
    steps: np.ndarray
    offsets: np.ndarray

    @property
    def numbers(self) -> np.ndarray:
        """What they stand for."""
        return self.codes * self.steps[..., None]


def in_steps(x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """x [..., 32] counted in steps [...], not yet rounded; zeros where the steps are too small."""
    usable = (steps >= TINY)[..., None]
    return np.where(usable, x / np.where(usable, steps[..., None], 1), 0)


def kept(x: np.ndarray) -> Kept:
    """The groups that numbers [..., n, 32] become."""
    steps = float32(np.abs(x).max(axis=-1) / 127)
    codes = np.rint(in_steps(x, steps))
    return Kept(codes, steps, float32(steps * codes.sum(axis=-1)))


def suspected(x: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """What usual mistakes make of numbers [..., n, 32]: by part, by mistake."""
    right = kept(x)
    quotient = in_steps(x, right.steps)
    return {
        "codes": {
            TRUNCATED: np.trunc(quotient),
            UP: np.floor(quotient + 0.5),
            AWAY: np.copysign(np.floor(np.abs(quotient) + 0.5), quotient),
            "they are rounded down": np.floor(quotient),
            "they lie from −128 to 128, or thereabouts: the largest magnitude becomes 127": np.rint(
                quotient * 128 / 127
            ),
        },
        "steps": {
            "it is the largest magnitude / 128, not / 127": right.steps * 127 / 128,
            "it is the largest magnitude itself": right.steps * 127,
            "it is 1 / step": 1 / np.where(right.steps > 0, right.steps, np.inf),
            SIGNED: x.max(axis=-1) / 127,
            "only the first 16 numbers count": np.abs(x[..., :16]).max(axis=-1) / 127,
            "only the last 16 numbers count": np.abs(x[..., 16:]).max(axis=-1) / 127,
        },
        "offsets": {
            OF_GIVEN: x.sum(axis=-1),
            UNSCALED: right.codes.sum(axis=-1),
            "only the first 16 numbers count": right.numbers[..., :16].sum(axis=-1),
            "only the last 16 numbers count": right.numbers[..., 16:].sum(axis=-1),
        },
    }


def random_groups(seed: int, count: int) -> np.ndarray:
    """Numbers of both signs, float32 in float64 [count, 32]: each group of its own size, none near a half step."""
    rng = np.random.default_rng([seed, count])
    x = float32((0.2 + rng.normal(size=(count, GROUP))) * 10.0 ** rng.uniform(-3, 3, size=(count, 1)))
    quotient = in_steps(x, kept(x).steps)
    return np.where(np.abs(quotient % 1 - 0.5) < 1e-3, 0, x)


def unwritten(*shape: int) -> np.ndarray:
    """NaN, float32, of which :func:`is_unwritten` tells whether anything was written over it."""
    return np.full(shape, UNWRITTEN_BITS, np.int32).view(np.float32)


def is_unwritten(x: np.ndarray) -> np.ndarray:
    """Where nothing was written since :func:`unwritten`."""
    bits: np.ndarray = x.view(np.int32) == UNWRITTEN_BITS
    return bits


def room(lab: Any, groups: int) -> Any:
    """Room for groups, none of which is written yet."""
    codes = np.full(groups * GROUP, UNWRITTEN, np.int8)
    return lab.fast.rows8.Rows8(codes, unwritten(groups), unwritten(groups))


def registers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """32 numbers as two registers."""
    return x[:16].astype(np.float32), x[16:].astype(np.float32)


def as_python(kernel: Any, *arguments: Any) -> Any:
    """Run a function of registers as Python."""
    __tracebackhide__ = True
    return run_as_python(kernel, *arguments, spread=False, deep=True)


def require(holds: bool, otherwise: str) -> None:
    """Fail with a message unless something holds."""
    __tracebackhide__ = True
    if not holds:
        raise CheckFailed(otherwise)


def check_groups(rows: Any, first: int, expected: Kept, name: str, given: np.ndarray | None = None) -> None:
    """Compare some groups, from number ``first`` on, and require that no other was written to.

    Args:
        expected: of n groups.
        given: the numbers that they were made of, [n, 32], to name usual mistakes; None if they aren't known exactly.
    """
    __tracebackhide__ = True
    stop = first + len(expected.steps)
    mistakes = {} if given is None else suspected(given)
    nan = "0 / 0 or 0 · ∞: a group of zeros has no inverse step, and becomes codes, step and offset 0"
    usable = bool(np.all(expected.steps >= TINY))
    for field in ("steps", "offsets"):
        lacking = [i for i in range(first, stop) if is_unwritten(getattr(rows, field))[i]]
        require(
            not lacking,
            f"the {field} of {name}: nothing was written for group {', '.join(map(str, lacking))}",
        )
    parts = {
        "codes": (rows.codes.reshape(-1, GROUP)[first:stop], "group number"),
        "steps": (rows.steps[first:stop], "group"),
        "offsets": (rows.offsets[first:stop], "group"),
    }
    for field in ("steps", "codes", "offsets"):
        found, axes = parts[field]
        wanted = getattr(expected, field)
        check(
            found,
            wanted if field != "codes" else wanted.astype(np.int64),
            name=f"the {field} of {name}",
            axes=axes,
            framework="numpy",
            rtol=0 if field == "codes" else 2e-7,
            atol=0,
            suspects=mistakes.get(field),
            nan=POISON if usable else nan if field == "offsets" else None,
        )
    check_unwritten(rows, first, stop, name)


def check_unwritten(rows: Any, first: int, stop: int, name: str) -> None:
    """Require that nothing but groups first … stop − 1 was written to."""
    __tracebackhide__ = True
    outside = np.ones(len(rows.steps), bool)
    outside[first:stop] = False
    codes, steps, offsets = rows.codes.reshape(-1, GROUP), rows.steps, rows.offsets
    untouched = {
        "codes": codes[outside] == UNWRITTEN,
        "steps": is_unwritten(steps[outside]),
        "offsets": is_unwritten(offsets[outside]),
    }
    for field, places in untouched.items():
        require(places.all(), f"the {field} of {name}: {OUTSIDE}")


def copies(rows: Any) -> list[np.ndarray]:
    """The arrays of a named tuple, copied."""
    return [part.copy() for part in rows if isinstance(part, np.ndarray)]


def check_only_read(now: np.ndarray, before: np.ndarray, name: str) -> None:
    """Require that an array is what it was before the call."""
    __tracebackhide__ = True
    require(now.tobytes() == before.tobytes(), f"{name} was written to: it may only be read")


def check_same_bits(rows: Any, expected: Any, name: str) -> None:
    """Require that two rooms hold the same, to the last bit."""
    __tracebackhide__ = True
    for field in ("codes", "steps", "offsets"):
        found, wanted = getattr(rows, field), getattr(expected, field)
        same = found.tobytes() == wanted.tobytes()
        require(same, f"{name}: the {field} aren't those of Python to the last bit")
