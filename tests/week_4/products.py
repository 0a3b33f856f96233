"""For Day 4.7: rows in 8 bits times a matrix in float64, and memory with poison wherever nothing may be touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coursekit.check import CheckFailed, check
from coursekit.checking.comparison import plural

from .eight_bits import Kept, as_python, float32, is_unwritten, require, unwritten
from .records import GROUP, LANES, Coded

NAN = float("nan")
ROOM = 2  # rows behind those in use, and groups behind them, for other matrices
NOT_READ = (
    "NaN was read: it stands in rows and blocks that are none of this call's, in the bias, and in `out` where `add` "
    "is not asked for"
)
NOT_ALONE = (
    "not what it is alone, to the last bit: each row must go through the same operations in the same order, "
    "whichever tile it is in"
)
OUTSIDE = (
    "{name}: something was written to {count} places of `out` that are not this call's; the first is row {row}, "
    "output {output}"
)
MISSING = "{name}: nothing was written to {count} places of `out`; the first is row {row}, output {output}"


@dataclass(frozen=True)
class Product:
    """Rows, a matrix, and what ``out`` holds before."""

    rows: Kept  # [T, K/32]
    matrix: Coded
    before: np.ndarray  # float64 [T, N]

    @classmethod
    def random(cls, T: int, N: int, K: int, bits: int) -> Product:
        rng = np.random.default_rng([T, N, K, bits])
        codes = rng.integers(-127, 128, size=(T, K // GROUP, GROUP)).astype(np.float64)
        steps = float32(rng.uniform(0.001, 0.02, size=(T, K // GROUP)))
        offsets = float32(steps * codes.sum(axis=-1))
        before = float32(3 * rng.normal(size=(T, N)))
        return cls(Kept(codes, steps, offsets), Coded.random(N, K, bits), before)

    @property
    def T(self) -> int:
        return len(self.before)

    def times(self, matrix: Coded | None = None) -> np.ndarray:
        """The rows times a matrix, [T, N]."""
        return self.rows.numbers.reshape(self.T, -1) @ (matrix or self.matrix).values.T

    def expected(self, add: bool) -> np.ndarray:
        return self.times() + (self.before if add else 0)

    def memory(self, lab: Any, first: int = 0, last: int | None = None) -> Any:
        """:class:`Rows8` with the rows first … last − 1; the others, and the room behind them, are poison."""
        last = self.T if last is None else last
        groups = self.rows.steps.shape[1]
        codes = np.full((self.T + ROOM, groups * GROUP), 77, np.int8)
        steps, offsets = np.full((2, self.T + ROOM, groups), NAN, np.float32)
        codes[first:last] = self.rows.codes.reshape(self.T, -1)[first:last]
        steps[first:last], offsets[first:last] = self.rows.steps[first:last], self.rows.offsets[first:last]
        return lab.fast.rows8.Rows8(codes.reshape(-1), steps.reshape(-1).copy(), offsets.reshape(-1).copy())

    def weight(self, lab: Any, block: int | None = None) -> Any:
        """The matrix, laid out; if a block is named, the others' scales and minima are NaN."""
        if block is None:
            return self.matrix.laid_out(lab)
        others = np.arange(len(self.matrix.codes)) // LANES != block
        scales, minima = (
            np.where(others[:, None], NAN, part) for part in (self.matrix.scales, self.matrix.minima)
        )
        return replace(self.matrix, scales=scales, minima=minima).laid_out(lab)

    def out(self, add: bool, where: tuple[slice, slice]) -> np.ndarray:
        """``out`` before the call, float32 [(T + ROOM) · N]: poison but for what is added to."""
        out = unwritten(self.T + ROOM, self.before.shape[1])
        if add:
            out[where] = self.before[where]
        return out.reshape(-1)

    def check(self, out: np.ndarray, add: bool, where: tuple[slice, slice], name: str) -> None:
        """Compare what was written, and require that nothing else was."""
        __tracebackhide__ = True
        rows_of_out = out.reshape(self.T + ROOM, -1)
        expected = self.expected(add)
        own = np.zeros(rows_of_out.shape, bool)
        own[where] = True
        written = ~is_unwritten(rows_of_out)
        for message, wrong in ((OUTSIDE, written & ~own), (MISSING, own & ~written)):
            if wrong.any():
                row, output = np.argwhere(wrong)[0]
                count = int(wrong.sum())
                raise CheckFailed(message.format(name=name, count=count, row=row, output=output))
        largest = np.abs(self.rows.numbers.reshape(self.T, -1)) @ np.abs(self.matrix.values).T
        # Bytes of codes taken for scales can be NaN, too, but not for all outputs.
        missing = np.isnan(rows_of_out[where])
        check(
            rows_of_out[where],
            expected[where],
            name=name,
            axes="row output",
            framework="numpy",
            atol=float(2e-6 * largest.max()),
            suspects={why: wrong_one[where] for why, wrong_one in self.suspects(add).items()},
            nan=NOT_READ if (missing.all(axis=1) == missing.any(axis=1)).all() else None,
        )

    def suspects(self, add: bool) -> dict[str, np.ndarray]:
        """What usual mistakes give, [T, N]."""
        rows, matrix = self.rows, self.matrix
        groups = rows.steps.shape[1]
        codes = matrix.codes.reshape(-1, groups, GROUP)
        sums = np.einsum("tgk,ngk->tng", rows.codes, codes)
        steps, offsets = rows.steps[:, None], rows.offsets[:, None]
        scaled, shifts = sums * steps * matrix.scales, offsets * matrix.minima
        first_row = sums * steps[:1] * matrix.scales + offsets[:1] * matrix.minima
        swapped = codes.reshape(*codes.shape[:2], -1, 2, 4)[..., ::-1, :].reshape(matrix.codes.shape)
        wrong = {
            "the minima are left out": scaled.sum(-1),
            "the scales are left out": (sums * steps + shifts).sum(-1),
            "the steps are left out": (sums * matrix.scales + shifts).sum(-1),
            "the minimum is multiplied by the step, too": (scaled + shifts * steps).sum(-1),
            "scales and minima are exchanged": (sums * steps * matrix.minima + offsets * matrix.scales).sum(
                -1
            ),
            "every row takes the steps and offsets of the first": first_row.sum(-1),
            "every group takes the steps and offsets of the row's first": (
                sums * steps[..., :1] * matrix.scales + offsets[..., :1] * matrix.minima
            ).sum(-1),
            "every row is multiplied as if it were the first": np.repeat(self.times()[:1], self.T, axis=0),
            "only the last group counts: add the groups up": (scaled + shifts)[..., -1],
            "the whole numbers go on from group to group: start them at 0 in each": (
                np.cumsum(sums, axis=-1) * steps * matrix.scales + shifts
            ).sum(-1),
            "codes of 8 bits are unsigned: here they were taken for signed ones": self.times(
                replace(matrix, codes=matrix.codes.astype(np.int8))
            ),
        }
        if matrix.bits == 4:
            wrong["lower and upper halves are exchanged"] = self.times(replace(matrix, codes=swapped))
            wrong["only the lower halves count"] = self._halves(sums, 0)
            wrong["only the upper halves count"] = self._halves(sums, 1)
        wrong = {why: product + (self.before if add else 0) for why, product in wrong.items()}
        if add:
            wrong["`out` is overwritten: with `add`, it is added to"] = self.times()
            wrong["what `out` held is added once per group: once in all"] = (
                self.times() + groups * self.before
            )
        return wrong

    def _halves(self, sums: np.ndarray, half: int) -> np.ndarray:
        matrix = self.matrix
        shape = (-1, sums.shape[-1], 4, 2, 4)
        codes = self.rows.codes.reshape(shape)[..., half, :]
        part = np.einsum("tgqi,ngqi->tng", codes, matrix.codes.reshape(shape)[..., half, :])
        steps, offsets = self.rows.steps[:, None], self.rows.offsets[:, None]
        return (part * steps * matrix.scales + offsets * matrix.minima).sum(-1)


def run_tile(lab: Any, product: Product, block: int, row: int, rows: int, add: bool) -> None:
    """Require that multiply_tile, as Python, writes one tile, and reads and writes nothing else."""
    __tracebackhide__ = True
    where = slice(row, row + rows), slice(16 * block, 16 * block + 16)
    out = product.out(add, where)
    x, weight = product.memory(lab, row, row + rows), product.weight(lab, block)
    as_python(lab.fast.multiply.multiply_tile, weight, block, x, row, rows, add, out)
    product.check(out, add, where, name=f"a tile of {plural(rows, 'row')} from row {row} on, block {block}")


def check_alone(lab: Any, product: Product, T: int, add: bool, call: Any) -> None:
    """Require that each of the first T rows comes out of multiply_block as it does alone, bit by bit."""
    __tracebackhide__ = True
    together, alone = (product.out(add, (slice(0, T), slice(None))) for _ in range(2))
    weight, x = product.weight(lab), product.memory(lab)
    block = lab.fast.multiply.multiply_block
    call(block, weight, 0, x, 0, T, add, together)
    for row in range(T):
        call(block, weight, 0, x, row, row + 1, add, alone)
    N = product.before.shape[1]
    one, other = (out[: T * N].view(np.int32).reshape(T, N) for out in (together, alone))
    different = [row for row in range(T) if not np.array_equal(one[row], other[row])]
    which = ", ".join(map(str, different))
    require(not different, f"of {plural(T, 'row')}, row {which}: {NOT_ALONE}")


def grow(product: Product, times: int) -> Product:
    """The same with all rows many times over."""
    rows = product.rows
    parts = (np.concatenate([part] * times) for part in (rows.codes, rows.steps, rows.offsets))
    return replace(product, rows=Kept(*parts), before=np.concatenate([product.before] * times))
