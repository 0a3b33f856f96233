"""For Day 4.7: matrices in 4 and 8 bits as records, byte by byte, and what usual mistakes make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from week_2.packed import on_cpu

from coursekit.check import check, check_equal, check_shape

LANES, GROUP = 16, 32
# N, K: the number of blocks differs from that of the groups.
SHAPES = [(16, 64), (48, 64), (32, 96), (80, 32)]

Place = Callable[[int, int], tuple[int, int]]  # output of a block, input of a group -> byte, bits to the left


def place_8_bits(o: int, k: int) -> tuple[int, int]:
    return 64 * (k // 4) + 4 * o + k % 4, 0


def place_4_bits(o: int, k: int) -> tuple[int, int]:
    return 64 * (k // 8) + 4 * o + k % 4, 4 * (k % 8 // 4)


PLACES = {4: place_4_bits, 8: place_8_bits}
MISPLACED: dict[int, dict[str, Place]] = {
    8: {
        "a register holds four inputs of each output side by side; here it is 16 outputs of each input": (
            lambda o, k: (64 * (k // 4) + 16 * (k % 4) + o, 0)
        ),
        "all 32 inputs of an output lie side by side: a register has four of each of the 16 outputs": (
            lambda o, k: (32 * o + k, 0)
        ),
    },
    4: {
        "the first register's codes are in the upper halves: they belong in the lower ones": (
            lambda o, k: (place_4_bits(o, k)[0], 4 - place_4_bits(o, k)[1])
        ),
        "neighboring inputs share a byte: two registers do, so it is inputs k and k + 4": (
            lambda o, k: (64 * (k // 8) + 4 * o + k % 8 // 2, 4 * (k % 2))
        ),
        "inputs k and k + 16 share a byte, as in Day 2.2: here it is inputs k and k + 4": (
            lambda o, k: (64 * (k % 16 // 4) + 4 * o + k % 4, 4 * (k // 16))
        ),
        "a register holds four inputs of each output side by side; here it is 16 outputs of each input": (
            lambda o, k: (64 * (k // 8) + 16 * (k % 4) + o, 4 * (k % 8 // 4))
        ),
    },
}


def code_bytes(codes: np.ndarray, bits: int, place: Place | None = None) -> np.ndarray:
    """The codes of all records: uint8 [N, K] → uint8 [blocks, groups, 32 · 16 · bits/8]."""
    outputs, width = codes.shape
    laid = np.zeros((outputs // LANES, width // GROUP, 64 * bits), np.uint8)
    for n, k in np.ndindex(outputs, width):
        byte, shift = (place or PLACES[bits])(n % LANES, k % GROUP)
        laid[n // LANES, k // GROUP, byte] |= codes[n, k] << shift
    return laid


def by_record(numbers: np.ndarray) -> np.ndarray:
    """Scales or minima [N, groups] in the order of the records: [blocks, groups, 16]."""
    ordered = np.zeros((len(numbers) // LANES, numbers.shape[1], LANES))
    for n, group in np.ndindex(numbers.shape):
        ordered[n // LANES, group, n % LANES] = numbers[n, group]
    return ordered


def groups_first(ordered: np.ndarray) -> np.ndarray:
    """What lies in each record if the records of a group, not those of a block, follow each other."""
    return ordered.swapaxes(0, 1).reshape(ordered.shape)


@dataclass(frozen=True)
class Coded:
    """A matrix in codes, with scales and minima that float16 holds."""

    codes: np.ndarray  # uint8 [N, K]
    scales: np.ndarray  # float64 [N, K/32]
    minima: np.ndarray
    bits: int

    @classmethod
    def random(cls, outputs: int, width: int, bits: int) -> Coded:
        """All codes; scales and minima of both signs that differ everywhere."""
        rng = np.random.default_rng([outputs, width, bits])
        codes = rng.integers(2**bits, size=(outputs, width)).astype(np.uint8)
        scales, minima = rng.normal(size=(2, outputs, width // GROUP)) / [[[2.0**bits / 2]], [[1]]]
        scales, minima = (part.astype(np.float16).astype(np.float64) for part in (scales, minima))
        return cls(codes, scales, minima, bits)

    @property
    def values(self) -> np.ndarray:
        """The weights, float64 [N, K]."""
        scales, minima = (np.repeat(part, GROUP, axis=1) for part in (self.scales, self.minima))
        return self.codes * scales + minima

    def laid_out(self, lab: Any) -> Any:
        """The matrix as the kernels get it, without Task 1; its bias is NaN, as a product does not read it."""
        numbers = [
            by_record(part).astype(np.float16).view(np.uint8).reshape(*code_bytes_shape(self), 32)
            for part in (self.scales, self.minima)
        ]
        records = np.concatenate([code_bytes(self.codes, self.bits), *numbers], axis=2)
        bias = np.full(len(self.codes), np.nan, np.float32)
        return lab.fast.weights8.LaidOut(records.reshape(-1), bias, *self.codes.shape, self.bits)


def code_bytes_shape(matrix: Coded) -> tuple[int, int]:
    """Blocks and groups of a matrix."""
    return matrix.codes.shape[0] // LANES, matrix.codes.shape[1] // GROUP


def check_records(laid: Any, expected: Coded, name: str, **suspects: Any) -> None:
    """Compare a :class:`LaidOut`, part by part, with what it should hold.

    Args:
        suspects: for "codes", "scales" or "minima", what usual mistakes give, in the shape of `expected`'s.
    """
    __tracebackhide__ = True
    (outputs, width), bits = expected.codes.shape, expected.bits
    blocks, groups = code_bytes_shape(expected)
    size = 64 * bits + 64
    for field, value in (("outputs", outputs), ("width", width), ("bits", bits)):
        check_equal(getattr(laid, field), value, name=f"{field} of {name}")
    records = check_shape(
        laid.records, (blocks * groups * size,), name=f"records of {name}", framework="numpy"
    )
    assert laid.records.dtype == np.uint8, f"records of {name}: uint8 expected, {laid.records.dtype} found"
    assert laid.records.flags.c_contiguous, f"records of {name} do not lie in one piece"
    split = records.reshape(blocks, groups, size)
    parts = {"scales": (expected.scales, expected.minima), "minima": (expected.minima, expected.scales)}
    for at, (field, (own, other)) in zip((64 * bits, 64 * bits + 32), parts.items(), strict=True):
        found = np.ascontiguousarray(split[:, :, at : at + 32]).view(np.float16).astype(np.float64)
        wanted = by_record(own)
        check(
            found,
            wanted,
            name=f"the {field} in the records of {name}",
            axes="block group output",
            framework="numpy",
            dtype=None,
            rtol=0,
            atol=0,
            suspects={
                "scales and minima are exchanged": by_record(other),
                "they are those of another block or group": groups_first(wanted),
                **{why: by_record(part) for why, part in suspects.get(field, {}).items()},
            },
        )
    right = code_bytes(expected.codes, bits)
    check(
        split[:, :, : 64 * bits],
        right,
        name=f"the codes in the records of {name}",
        axes="block group byte",
        framework="numpy",
        suspects={
            **{
                why: (lambda place=place: code_bytes(expected.codes, bits, place))
                for why, place in MISPLACED[bits].items()
            },
            "the records of a group follow each other: those of a block must": lambda: groups_first(right),
            **{why: code_bytes(codes, bits) for why, codes in suspects.get("codes", {}).items()},
        },
    )


def lay_out(lab: Any, matrix: Coded, **options: Any) -> Any:
    """The learner's records of a matrix."""
    codes = on_cpu(lab, matrix.codes, "uint8")
    numbers = (on_cpu(lab, part, "float16") for part in (matrix.scales, matrix.minima))
    return lab.fast.weights8.lay_out(codes, *numbers, matrix.bits, **options)
