"""The C++ program around a kernel's source: its signature, as MLX writes it, and the call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCE_NAME, HEADER_NAME, WRAPPER_NAME = "your source", "your header", "the program around it"
"""What the compiler calls the parts in its messages."""

POSITIONS = {
    "thread_position_in_grid": ("uint3", "at.in_grid"),
    "thread_position_in_threadgroup": ("uint3", "at.in_group"),
    "threadgroup_position_in_grid": ("uint3", "at.group"),
    "threads_per_grid": ("uint3", "at.grid"),
    "threadgroups_per_grid": ("uint3", "at.groups"),
    "threads_per_threadgroup": ("uint3", "at.group_size"),
    "thread_index_in_threadgroup": ("uint", "at.index"),
    "thread_index_in_simdgroup": ("uint", "at.lane"),
    "simdgroup_index_in_threadgroup": ("uint", "at.simdgroup"),
    "threads_per_simdgroup": ("uint", "machine::LANES"),
    "simdgroups_per_threadgroup": (
        "uint",
        "uint(at.group_size.count() + machine::LANES - 1) / machine::LANES",
    ),
}
"""What a kernel may ask about its thread: by name, the type, and where the machine has the answer."""


@dataclass(frozen=True)
class Buffer:
    """One array that the kernel is given.

    scalar: whether it comes by value, as MLX gives arrays of no axis.
    """

    name: str
    type: str
    written: bool = False
    scalar: bool = False

    @property
    def parameter(self) -> str:
        if self.written:
            return f"device {self.type}* {self.name}"
        return f"const device {self.type}{'&' if self.scalar else '*'} {self.name}"

    def argument(self, number: int) -> str:
        return f"{'*' if self.scalar else ''}({self.type}*) all[{number}].start"


def program(
    buffers: Sequence[Buffer], constants: Sequence[tuple[str, str, str]], header: str, source: str
) -> str:
    """The whole program; inputs come first in ``buffers``.

    Args:
        buffers: what the kernel is given.
        constants: of the template: kind ("typename", "int", "bool"), name, and value.
        header: what stands before the kernel.
        source: the kernel's body.
    """
    positions = {name: POSITIONS[name] for name in POSITIONS if re.search(rf"\b{name}\b", source)}
    parameters = [each.parameter for each in buffers] + [f"const {positions[n][0]} {n}" for n in positions]
    arguments = [each.argument(n) for n, each in enumerate(buffers)] + [
        where for _, where in positions.values()
    ]
    written = sum(each.written for each in buffers)
    wrapper = f'#line 1 "{WRAPPER_NAME}"'
    lines = [
        '#include "language.h"',
        "namespace metal {",
        *(
            f"typedef {value} {name};" if kind == "typename" else f"constexpr {kind} {name} = {value};"
            for kind, name, value in constants
        ),
        f'#line 1 "{HEADER_NAME}"',
        header,
        wrapper,
        f"static void body({', '.join(parameters)}) {{",
        f'#line 1 "{SOURCE_NAME}"',
        source,
        wrapper,
        "}",
        "static void call(const machine::Position& at, machine::Buffer* all) {",
        f"body({', '.join(arguments)});",
        "}",
        f"static machine::Buffer all[] = {{{', '.join(_entry(each) for each in buffers)}}};",
        "}",
        f"int main() {{ return machine::run(metal::call, metal::all, {len(buffers) - written}, {written}); }}",
    ]
    return "\n".join(lines) + "\n"


def _entry(buffer: Buffer) -> str:
    return f'{{"{buffer.name}", sizeof({buffer.type})}}'
