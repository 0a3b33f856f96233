"""Watches, in Triton's interpreter, which memory a kernel touches, and keeps it from touching any that isn't its own.

On a GPU a stray address ends the process or spoils another array, mostly unnoticed. Here it is reported.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from coursekit.check import CheckFailed

NAN = float("nan")
SMALL = 4096  # bytes
FAR = 1 << 20  # the number of a page that no pool here has
BF16_NAN = 0x7FC0  # as the interpreter keeps it
LEARNERS = "tiny_llm/kernels/paged_attention_triton.py"
Program = tuple[int, int, int]


@dataclass
class Region:
    """The memory of one array that a kernel was given."""

    start: int
    size: int  # bytes
    step: int  # bytes an element
    shape: tuple[int, ...]
    read: set[int] = field(default_factory=set)  # numbers of elements; of a small array, such as a table
    written: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # how often, each element
    rows: dict[Program, set[int]] = field(default_factory=dict)  # of pages: the rows of D that a program read


@dataclass
class Memory:
    """All arrays that kernels were given, and what went astray."""

    regions: dict[int, Region] = field(default_factory=dict)
    astray: dict[str, tuple[np.ndarray, list[str]]] = field(
        default_factory=dict
    )  # "reads" or "writes" -> addresses, lines
    results: list[Any] = field(default_factory=list)  # arrays that the programs have to fill

    def add(self, array: Any) -> None:
        """Know an array, or more of it than before."""
        start, step = array.data_ptr(), array.element_size()
        self.regions.setdefault(start, Region(start, array.numel() * step, step, tuple(array.shape)))

    def of(self, array: Any) -> Region:
        """What happened to an array."""
        return self.regions[array.data_ptr()]

    def touch(self, addresses: np.ndarray, mask: np.ndarray, doing: str, program: Program) -> np.ndarray:
        """Note an access; gives the mask without the addresses that belong to no array."""
        addresses, mask = np.broadcast_arrays(addresses.astype(np.int64), mask)
        wanted, inside = addresses[mask], np.zeros(mask.shape, bool)
        for region in self.regions.values():
            here = mask & (addresses >= region.start) & (addresses < region.start + region.size)
            inside |= here
            elements = (addresses[here] - region.start) // region.step
            if doing == "reads" and len(region.shape) == 4 and len(elements):
                rows = np.unique(elements // region.shape[-1])
                region.rows.setdefault(program, set()).update(rows.tolist())
            if doing == "reads" and region.size < SMALL:
                region.read.update(elements.tolist())
            elif doing == "writes" and len(elements):
                count = region.size // region.step
                times = np.bincount(elements, minlength=count)
                region.written = times + (region.written if len(region.written) else 0)
        if inside.sum() < len(wanted):
            self.astray.setdefault(doing, (addresses[mask & ~inside], _learners_lines()))
        return inside

    def check(self) -> None:
        """Nothing went astray, nothing was written twice, and of the results everything was written."""
        __tracebackhide__ = True
        for doing, (addresses, lines) in self.astray.items():
            where = "".join(f"\n  {line}" for line in lines)
            why = "is a mask missing, or is a number in the address wrong?"
            if doing == "reads" and len(lines) == 2 and "load_tile(" in lines[1] and self._behind(addresses):
                why = (
                    "these are pages behind the sequence's own, where no query sees a key: the loop goes on too far. "
                    "It ends at the largest `seen` of the program's own queries; row i is of token i // group, and a "
                    "spare row sees no key"
                )
            astray = f"the kernel {doing} {len(addresses)} places in memory that belong to none of its arrays"
            raise CheckFailed(f"{astray}: {why}{where}")
        for region in self.regions.values():
            twice = np.flatnonzero(region.written > 1)
            if len(twice):
                place = tuple(int(n) for n in np.unravel_index(twice[0], region.shape))
                raise CheckFailed(
                    f"{len(twice)} elements of the array {list(region.shape)} are written more than once, the first "
                    f"at {place}: programs run at the same time on a GPU, and the last one to write wins"
                )
        for array in self.results:
            if array.data_ptr() in self.regions:
                _check_filled(self.of(array))

    def _behind(self, addresses: np.ndarray) -> bool:
        """Whether all are in the page that no pool has, whose number stands in tables behind the pages needed."""
        pages = [region for region in self.regions.values() if len(region.shape) == 4]
        sizes = [(region.start, region.size // region.shape[0]) for region in pages]
        return any(((addresses - start) // size == FAR).all() for start, size in sizes)


def _check_filled(region: Region) -> None:
    """Each place of a result, out [parts, T, H, D] or lse [parts, T, H], was written by some program."""
    __tracebackhide__ = True
    written = region.written if len(region.written) else np.zeros(region.size // region.step, np.int64)
    rows = written.reshape(*region.shape[:3], -1).min(axis=-1) > 0
    if rows.all():
        return
    part, token, head = (int(n) for n in np.argwhere(~rows)[0])
    raise CheckFailed(
        f"no program wrote {(~rows).sum()} of the {rows.size} rows of {'lse' if len(region.shape) == 3 else 'out'} "
        f"{list(region.shape)}; the first is part {part}, token {token}, query head {head}: are there programs for "
        "all queries, and does each write all rows that are its own, also where it has seen no key?"
    )


def _learners_lines() -> list[str]:
    """Which lines of the learner's kernels are running: the innermost first."""
    lines: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path, line = frame.f_code.co_filename, frame.f_lineno
        if path.endswith(f"/{LEARNERS}"):
            lines.append(f"{LEARNERS}:{line}: {linecache.getline(path, line).strip()}")
        frame = frame.f_back
    return lines[:2]


@contextmanager
def watched(interpreted: bool, check: bool = True) -> Iterator[Memory]:
    """Watch the kernels that run in this `with` block; compiled for a GPU they are not watched, nothing is checked.

    What `torch.empty` gives here is NaN, and rows that no program writes are reported. Where a load has a mask and no
    `other`, numbers are NaN: on a GPU they may be anything.
    """
    import torch  # slow to import, and loaded where it is needed

    memory = Memory()
    empty = torch.empty

    def spoilt(*size: Any, **options: Any) -> Any:
        array = empty(*size, **options)
        if array.is_floating_point():
            memory.results.append(array.fill_(NAN))
        return array

    torch.empty = spoilt
    try:
        if interpreted:
            with _hooks(memory):
                yield memory
        else:
            yield memory
    finally:
        torch.empty = empty
    if check:
        memory.check()


@contextmanager
def _hooks(memory: Memory) -> Iterator[None]:
    """Stand between the interpreter and memory."""
    from triton.runtime import interpreter

    builder, convert = interpreter.interpreter_builder, interpreter._implicit_cvt
    load, store = builder.create_masked_load, builder.create_masked_store

    def converted(argument: Any) -> Any:
        if hasattr(argument, "data_ptr"):
            memory.add(argument)
        return convert(argument)

    def allowed(addresses: Any, mask: Any, doing: str) -> Any:
        inside = memory.touch(addresses.data, mask.data, doing, builder.grid_idx)
        return interpreter.TensorHandle(inside, mask.dtype)

    def loaded(addresses: Any, mask: Any, other: Any, *rest: Any) -> Any:
        if other is None:
            kind = addresses.get_element_ty()
            numbers = np.zeros(addresses.data.shape, interpreter._get_np_dtype(kind))
            numbers[~np.broadcast_to(mask.data, numbers.shape)] = (
                BF16_NAN
                if kind.is_bf16()
                else (NAN if kind.is_floating() else FAR if numbers.itemsize > 2 else 0)
            )
            other = interpreter.TensorHandle(numbers, kind)
        return load(addresses, allowed(addresses, mask, "reads"), other, *rest)

    def stored(addresses: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(addresses, value, allowed(addresses, mask, "writes"), *rest)

    interpreter._implicit_cvt = converted
    builder.create_masked_load, builder.create_masked_store = loaded, stored
    try:
        yield
    finally:
        interpreter._implicit_cvt = convert
        del builder.create_masked_load, builder.create_masked_store
