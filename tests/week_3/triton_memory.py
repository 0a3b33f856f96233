"""Watches, in Triton's interpreter, which memory a kernel touches, and keeps it from touching any that isn't its own.

On a GPU a stray address ends the program or spoils somebody else's array, mostly unnoticed. Here it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coursekit.check import CheckFailed

NAN = float("nan")
SMALL = 4096  # bytes


@dataclass
class Region:
    """The memory of one array that a kernel was given."""

    start: int
    size: int  # bytes
    step: int  # bytes an element
    shape: tuple[int, ...]
    read: set[int] = field(default_factory=set)  # numbers of elements; of a small array, such as a table
    written: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # how often, each element


@dataclass
class Memory:
    """All arrays that kernels were given, and what went astray."""

    regions: dict[int, Region] = field(default_factory=dict)
    astray: dict[str, np.ndarray] = field(default_factory=dict)  # "reads" or "writes" -> addresses

    def add(self, array: Any) -> None:
        """Know an array, or more of it than before."""
        start, step = array.data_ptr(), array.element_size()
        self.regions.setdefault(start, Region(start, array.numel() * step, step, tuple(array.shape)))

    def of(self, array: Any) -> Region:
        """What happened to an array."""
        return self.regions[array.data_ptr()]

    def touch(self, addresses: np.ndarray, mask: np.ndarray, doing: str) -> np.ndarray:
        """Note an access; gives the mask without the addresses that belong to no array."""
        addresses, mask = np.broadcast_arrays(addresses.astype(np.int64), mask)
        wanted, inside = addresses[mask], np.zeros(mask.shape, bool)
        for region in self.regions.values():
            here = mask & (addresses >= region.start) & (addresses < region.start + region.size)
            inside |= here
            elements = (addresses[here] - region.start) // region.step
            if doing == "reads" and region.size < SMALL:
                region.read.update(elements.tolist())
            elif doing == "writes" and len(elements):
                count = region.size // region.step
                times = np.bincount(elements, minlength=count)
                region.written = times + (region.written if len(region.written) else 0)
        if inside.sum() < len(wanted):
            self.astray.setdefault(doing, addresses[mask & ~inside])
        return inside

    def check(self) -> None:
        """Nothing went astray, and nothing was written twice."""
        __tracebackhide__ = True
        for doing, addresses in self.astray.items():
            near = min(self.regions.values(), key=lambda region: abs(addresses[0] - region.start))
            away = int(addresses[0] - near.start) // near.step
            raise CheckFailed(
                f"the kernel {doing} {len(addresses)} places in memory that belong to none of its arrays; the first "
                f"would be element {away} of the array {list(near.shape)}, which has {near.size // near.step}: "
                "is a mask missing?"
            )
        for region in self.regions.values():
            twice = np.flatnonzero(region.written > 1)
            if len(twice):
                place = tuple(int(n) for n in np.unravel_index(twice[0], region.shape))
                raise CheckFailed(
                    f"{len(twice)} elements of the array {list(region.shape)} are written more than once, the first "
                    f"at {place}: programs run at the same time on a GPU, and who comes last wins"
                )


@contextmanager
def watched(lab: Any, check: bool = True) -> Iterator[Memory]:
    """Watch the kernels that run in this block; compiled for a GPU they are not watched, and nothing is checked.

    What `torch.empty` gives here is NaN, so that what no program writes is noticed.
    """
    memory = Memory()
    torch = lab.kernels.compiling_triton.torch
    empty = torch.empty

    def spoilt(*size: Any, **options: Any) -> Any:
        array = empty(*size, **options)
        return array.fill_(NAN) if array.is_floating_point() else array

    torch.empty = spoilt
    try:
        if lab.kernels.compiling_triton.INTERPRETED.value:
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

    def loaded(addresses: Any, mask: Any, *rest: Any) -> Any:
        mask = interpreter.TensorHandle(memory.touch(addresses.data, mask.data, "reads"), mask.dtype)
        return load(addresses, mask, *rest)

    def stored(addresses: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask = interpreter.TensorHandle(memory.touch(addresses.data, mask.data, "writes"), mask.dtype)
        return store(addresses, value, mask, *rest)

    interpreter._implicit_cvt = converted
    builder.create_masked_load, builder.create_masked_store = loaded, stored
    try:
        yield
    finally:
        interpreter._implicit_cvt = convert
        del builder.create_masked_load, builder.create_masked_store
