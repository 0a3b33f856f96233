"""Tiles out of pages and the online softmax of Day 3.4: calls of the learner's functions, and float64 oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from week_2.decode_oracle import random_numbers

from coursekit.check import CheckFailed, check

from .beside_triton import launch_one
from .beside_triton_memory import FAR, NAN
from .pages import UNUSED

NOTHING = -np.inf
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


@dataclass
class Tile:
    """Some positions of one sequence, in a pool that is NaN but for that sequence's tokens."""

    pages: np.ndarray  # [N, P, Hkv, D]
    table: list[int]
    positions: np.ndarray  # [TILE]
    wanted: np.ndarray  # bool [TILE]
    head: int
    dtype: str = "float32"

    @classmethod
    def random(
        cls,
        seed: int,
        start: int,
        stop: int,
        P: int,
        *,
        sizes: tuple[int, int] = (3, 24),
        head: int = 1,
        TILE: int = 16,
        dtype: str = "float32",
    ) -> Tile:
        """Positions start … start + TILE − 1, of which those below `stop` are there, and wanted."""
        (Hkv, D), count = sizes, -(-stop // P)
        rng = np.random.default_rng(seed)
        table = rng.permutation(np.arange(1, count + 3))[:count].tolist()
        pages = np.full((count + 3, P, Hkv, D), NAN)
        numbers = random_numbers(seed, stop, Hkv, D, dtype=dtype)
        for position in range(stop):
            pages[table[position // P], position % P] = numbers[position]
        positions = start + np.arange(TILE)
        return cls(pages, table, positions, positions < stop, head, dtype)

    @property
    def width(self) -> int:
        return 1 << (self.pages.shape[3] - 1).bit_length()

    def expected(self) -> np.ndarray:
        """The tile [TILE, WIDTH]."""
        _, P, _, D = self.pages.shape
        tile = np.zeros((len(self.positions), self.width))
        for t, position in enumerate(self.positions):
            if self.wanted[t]:
                tile[t, :D] = self.pages[self.table[position // P], position % P, self.head]
        return tile

    def load(self, lab: Any, far: bool = False) -> tuple[Any, list[int], list[int] | None]:
        """What the learner's load_tile gives; addresses outside of all arrays that it asks for, in bytes from the
        start of the pages; entries of the table that it reads, None where no interpreter watches.

        With `far`, such addresses are no mistake.
        """
        (_, P, Hkv, D), TILE = self.pages.shape, len(self.positions)
        pages = lab.array(self.pages, self.dtype)
        table = lab.array(np.array([*self.table, FAR, FAR, FAR, FAR]), "int32")
        positions, wanted = lab.array(self.positions, "int32"), lab.array(self.wanted.astype(int), "int32")
        out = lab.array(np.full((TILE, self.width), NAN), self.dtype)
        arguments = (pages, table, positions, wanted, out, self.head, Hkv, P, D, self.width, TILE)
        results = (("the tile", (TILE, self.width), DTYPES[self.dtype]),)
        function = lab.kernels.paged_attention_triton.load_tile
        return out, *launch_one("store_tile", function, results, arguments, far)

    def far(self, lab: Any) -> list[int]:
        """The addresses outside of all arrays that load_tile asks for, in bytes from the start of the pages."""
        return self.load(lab, far=True)[1]

    def check(self, lab: Any, what: str) -> None:
        """The tile is right, and of the table no more was read than it takes."""
        __tracebackhide__ = True
        (_, P, Hkv, D), flat = self.pages.shape, self.pages.reshape(-1)
        out, _, read = self.load(lab)

        def of_row(number: Callable[[int, int], int]) -> np.ndarray:
            """What comes of another formula for the row of a head: page, offset -> row."""
            tile = self.expected()
            for t in np.flatnonzero(self.wanted):
                position = self.positions[t]
                row = number(self.table[position // P], position % P)
                tile[t, :D] = flat[(np.arange(D) + row * D) % flat.size]
            return tile

        check(
            out,
            self.expected(),
            name=f"the tile {what}",
            axes="TILE WIDTH",
            dtype=self.dtype,
            rtol=0,
            atol=0,
            nan=f"{UNUSED}, or it was not masked: unwanted positions, and columns from D on, are zeros "
            "(a mask without `other` leaves anything there)",
            suspects={
                "the offset in the page is forgotten": lambda: of_row(lambda b, p: b * P * Hkv + self.head),
                "a page's number is taken for a place": lambda: of_row(
                    lambda b, p: (b + p) * Hkv + self.head
                ),
                "head and offset are swapped: pages are [N, P, Hkv, D]": lambda: of_row(
                    lambda b, p: (b * Hkv + self.head) * P + p
                ),
                "the head is forgotten": lambda: of_row(lambda b, p: (b * P + p) * Hkv),
            },
        )
        needed = {int(p) // P for p in self.positions[self.wanted]}
        more = [entry for entry in read or () if entry not in needed]
        if more:
            raise CheckFailed(
                f"load_tile reads entries {more} of the table, and {what} only {sorted(needed)} are wanted: "
                "the first load needs a mask, too"
            )


def fold(lab: Any, scores: np.ndarray, peaks: np.ndarray, totals: np.ndarray) -> list[Any]:
    """What the learner's fold_scores gives: weights, keep, peaks, totals."""
    ROWS, TILE = scores.shape
    given = [lab.array(x, "float32") for x in (scores, peaks, totals)]
    stored = [lab.array(np.full(shape, NAN), "float32") for shape in ((ROWS, TILE), ROWS, ROWS, ROWS)]
    names = ("weights", "keep", "the new peaks", "the new totals")
    results = tuple((name, tuple(x.shape), "fp32") for name, x in zip(names, stored, strict=True))
    function = lab.kernels.paged_attention_triton.fold_scores
    launch_one("store_folded", function, results, (*given, *stored, ROWS, TILE))
    return stored


def folded(scores: np.ndarray, peaks: np.ndarray, totals: np.ndarray) -> list[np.ndarray]:
    """The same in float64, row by row."""
    weights, keep, highest = np.zeros(scores.shape), np.zeros(len(peaks)), peaks.copy()
    sums = np.zeros(len(peaks))
    for i, row in enumerate(scores):
        highest[i] = max(peaks[i], row.max())
        if highest[i] > NOTHING:
            weights[i], keep[i] = np.exp(row - highest[i]), np.exp(peaks[i] - highest[i])
        sums[i] = totals[i] * keep[i] + weights[i].sum()
    return [weights, keep, highest, sums]


def check_fold(lab: Any, scores: np.ndarray, peaks: np.ndarray, totals: np.ndarray, what: str) -> None:
    """All four results of one tile."""
    __tracebackhide__ = True
    scores, peaks, totals = (np.asarray(x, np.float32).astype(np.float64) for x in (scores, peaks, totals))
    actual, wanted = fold(lab, scores, peaks, totals), folded(scores, peaks, totals)
    own = folded(scores, np.full_like(peaks, NOTHING), totals)
    with np.errstate(all="ignore"):
        upside_down = np.exp(wanted[2] - peaks)
    sums = wanted[0].sum(axis=1)
    suspects: Sequence[dict[str, Any]] = (
        {"each tile is measured against its own peak, not against the highest so far": own[0]},
        {"the wrong way round: exp(old − new) is what the old counts": upside_down},
        {"the peak has fallen: an earlier tile had a higher score": own[2]},
        {
            "what was there before is not rescaled": totals + sums,
            "what was there before is forgotten": sums,
        },
    )
    names = ("the weights", "keep", "the new peaks", "the new totals")
    for n, name in enumerate(names):
        check(
            actual[n],
            wanted[n],
            name=f"{name} {what}",
            axes="ROWS TILE" if n == 0 else "ROWS",
            suspects=suspects[n],
            nan="−inf − (−inf) is NaN: where a query has seen nothing yet, subtract 0",
        )


def finished(
    lab: Any, gathered: np.ndarray, peaks: np.ndarray, totals: np.ndarray
) -> tuple[list[Any], list[np.ndarray]]:
    """What the learner's finish gives, and what it should."""
    given = [lab.array(x, "float32") for x in (gathered, peaks, totals)]
    stored = [lab.array(np.full(shape, NAN), "float32") for shape in (gathered.shape, len(peaks))]
    names = ("what was attended to", "the log-sum-exp")
    results = tuple((name, tuple(x.shape), "fp32") for name, x in zip(names, stored, strict=True))
    function = lab.kernels.paged_attention_triton.finish
    launch_one("store_finished", function, results, (*given, *stored, *gathered.shape))
    out, lse = np.zeros(gathered.shape), np.full(len(peaks), NOTHING)
    for i, total in enumerate(totals):
        if total > 0:
            out[i], lse[i] = gathered[i] / total, peaks[i] + np.log(total)
    return stored, [out, lse]
