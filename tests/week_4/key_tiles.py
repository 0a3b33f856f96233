"""Day 4.7's tiles of keys and values: the pages that they come from, and what must be in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import random_numbers, stored

from coursekit.check import CheckFailed

from .small_operations import FILL, call, check_kept

TILE = 64
COUNTS = (1, 15, 16, 17, 31, 33, 63, 64)
HKV = 3
NO_PAGE = 2**30  # in a table where no page may be looked up
NOWHERE = 2**50  # in `starts` where nothing may be read
KEPT = -5  # in `starts` where nothing may be written
HEAD = 1
UNUSED = (
    "numbers were read that belong to no token of this tile and head: the test has put NaN into all of them"
)


def in_sixteens(count: int) -> int:
    return -(-count // 16) * 16


def table_of(P: int, stop: int) -> np.ndarray:
    """The pages of a sequence, in no order; behind its last one no page is named."""
    used = -(-stop // P)
    return np.concatenate(
        [np.random.default_rng(P).permutation(used + 4)[:used], np.full(3, NO_PAGE)]
    ).astype(np.int32)


def right_starts(table: np.ndarray, P: int, D: int, start: int, stop: int) -> np.ndarray:
    """int64 [TILE], counted: which element of [N, P, Hkv, D] is the first of the head, for each token."""
    at = [
        np.ravel_multi_index((table[p // P], p % P, HEAD, 0), (NO_PAGE, P, HKV, D))
        for p in range(start, stop)
    ]
    count = stop - start
    return np.array(at + [at[-1]] * (in_sixteens(count) - count) + [KEPT] * (TILE - in_sixteens(count)))


def check_find(page_tiles: Any, P: int, D: int, start: int, stop: int) -> None:
    """`find` for a head of some tokens."""
    __tracebackhide__ = True
    table, starts = table_of(P, stop), np.full(TILE, KEPT)
    before, shape = table.copy(), (len(table) + 4, P, HKV, D)
    try:
        call(page_tiles.find, table, shape, HEAD, start, stop, starts)
    except CheckFailed as error:
        raise CheckFailed(f"{error}\n  the tokens are at {start} … {stop - 1}, on pages of {P}") from error
    check_kept({"table": table}, {"table": before})
    count, p = stop - start, np.arange(start, stop)
    pages, offsets = table[p // P].astype(np.int64), p % P
    shifted = np.arange(count)
    right = right_starts(table, P, D, start, stop)

    def like(at: np.ndarray) -> np.ndarray:
        other = right.copy()
        other[:count], other[count : in_sixteens(count)] = at, at[-1]
        return other

    not_repeated = right.copy()
    not_repeated[count:] = KEPT
    wrong = {
        "these are places; each has Hkv heads of D numbers": like(pages * P + offsets),
        "the head was left out": like((pages * P + offsets) * HKV * D),
        "a place was taken for one head; it has Hkv": like(((pages * P + offsets) + HEAD) * D),
        "a page's number was taken for a place: it stands for P places": like(
            ((pages + offsets) * HKV + HEAD) * D
        ),
        "the place in the page, position % P, was left out": like((pages * P * HKV + HEAD) * D),
        "the table was not asked: position p does not lie in place p": like((p * HKV + HEAD) * D),
        "the tokens are counted from the first of the sequence: position `start` + i is asked for": like(
            ((table[shifted // P].astype(np.int64) * P + shifted % P) * HKV + HEAD) * D
        ),
        "heads come before places here; in the pages it is the other way round": like(
            ((pages * HKV + HEAD) * P + offsets) * D
        ),
        "the last token's isn't repeated up to a multiple of 16": not_repeated,
    }
    check_numpy(
        starts,
        right,
        name=f"starts for tokens {start} … {stop - 1}, head {HEAD} of {HKV}, D {D}, pages of {P} ({KEPT} before)",
        axes="TILE",
        dtype="int64",
        rtol=0,
        atol=0,
        suspects={why: at for why, at in wrong.items() if not np.array_equal(at, right)},
    )


class Tokens:
    """Tokens of one head anywhere in the pages of a layer; all other numbers there are NaN."""

    def __init__(self, count: int, D: int, seed: int = 551) -> None:
        """Random numbers of both signs that bfloat16 holds exactly."""
        N, P = 6, 24
        self.count, self.D = count, D
        self.numbers = random_numbers(seed, count, D, dtype="bfloat16")
        places = np.random.default_rng(seed + D).permutation(N * P)[:count]
        pages = np.full((N * P, HKV, D), np.nan)
        pages[places, HEAD] = self.numbers
        self.pages = stored(pages, "bfloat16").view(np.uint16).reshape(-1)
        at = (places * HKV + HEAD) * D
        repeated = np.full(in_sixteens(count) - count, at[-1])
        self.starts = np.concatenate([at, repeated, np.full(TILE - in_sixteens(count), NOWHERE)])

    def load(self, function: Any) -> np.ndarray:
        """What a function that loads a tile makes of an array that was full."""
        __tracebackhide__ = True
        tile = np.full(TILE * self.D, FILL, np.float32)
        given = {"pages": self.pages, "starts": self.starts}
        before = {name: array.copy() for name, array in given.items()}
        call(function, self.pages, self.starts, self.count, self.D, tile)
        check_kept(given, before)
        return tile

    @property
    def whole(self) -> np.ndarray:
        """[up to a multiple of 16, D]: the numbers, the last one repeated."""
        return self.numbers[np.minimum(np.arange(in_sixteens(self.count)), self.count - 1)]


def filled(numbers: np.ndarray, size: int) -> np.ndarray:
    """One number behind the other, in an array that was full."""
    return np.concatenate([numbers.reshape(-1), np.full(size - numbers.size, FILL)])


def side_by_side(numbers: np.ndarray) -> np.ndarray:
    """[count, D], count a multiple of 16, as [count/16, D, 16]."""
    return numbers.reshape(-1, 16, numbers.shape[1]).swapaxes(1, 2)


def check_keys(page_tiles: Any, count: int, D: int) -> None:
    """`load_keys`."""
    __tracebackhide__ = True
    tokens = Tokens(count, D)
    tile, whole = tokens.load(page_tiles.load_keys), tokens.whole
    wrong = {
        "the tokens lie one behind the other, as values do; of keys, 16 are side by side": whole,
        "all keys are side by side, [D, count]; 16 of them are, [TILE/16, D, 16]": whole.T,
        "each block of 16 keys has the numbers of the first": side_by_side(
            np.resize(whole[:16], whole.shape)
        ),
        "each 32 numbers of a head are the first 32": side_by_side(np.tile(whole[:, :32], D // 32)),
    }
    right = side_by_side(whole).reshape(-1)
    check_numpy(
        tile,
        filled(right, TILE * D),
        name=f"the tile of {count} keys of {D} numbers (it was full of {FILL:.0f} before)",
        axes="TILE·D",
        rtol=0,
        atol=0,
        suspects={
            why: filled(x, TILE * D) for why, x in wrong.items() if not np.array_equal(x.reshape(-1), right)
        },
        nan=UNUSED,
    )


def check_values(page_tiles: Any, count: int, D: int) -> None:
    """`load_values`."""
    __tracebackhide__ = True
    tokens = Tokens(count, D)
    tile, whole = tokens.load(page_tiles.load_values), tokens.whole
    right, size = filled(tokens.numbers, TILE * D), TILE * D
    wrong = {
        "16 tokens are side by side, as of keys; values lie one token behind the other": side_by_side(whole),
        "what `starts` repeats behind the last token was written, too": whole,
        "each 16 numbers of a token are the first 16": np.tile(tokens.numbers[:, :16], D // 16),
    }
    check_numpy(
        tile,
        right,
        name=f"the tile of the values of {count} tokens, {D} numbers each (it was full of {FILL:.0f} before)",
        axes="TILE·D",
        rtol=0,
        atol=0,
        suspects={
            why: filled(x, size) for why, x in wrong.items() if not np.array_equal(filled(x, size), right)
        },
        nan=UNUSED,
    )
