"""`mx.fast.metal_kernel` on the CPU: the same arguments, the same source, compiled as C++.

Each call runs in a process of its own, so that a kernel that never ends, or that reads beyond its arrays, is an error
with a message and nothing worse.
"""

from __future__ import annotations

import math
import re
import signal
import struct
import subprocess
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from coursekit.metal.building import KernelError, build
from coursekit.metal.program import Buffer, program

SECONDS = 10.0
"""How long a kernel may run."""
MOST_THREADS = 1024
"""In a threadgroup, as on Apple's GPUs."""
FAULT = 3
TYPES = {
    mx.bool_: "bool",
    mx.uint8: "uint8_t",
    mx.uint16: "uint16_t",
    mx.uint32: "uint32_t",
    mx.uint64: "uint64_t",
    mx.int8: "int8_t",
    mx.int16: "int16_t",
    mx.int32: "int32_t",
    mx.int64: "int64_t",
    mx.float16: "float16_t",
    mx.bfloat16: "bfloat16_t",
    mx.float32: "float",
}
Constant = tuple[str, Any]
_endless: set[str] = set()
"""Programs that were stopped: they are not waited for again."""


class InterpretedKernel:
    """A kernel that can be called as MLX's are; what a call of it means is in MLX's ``metal_kernel``."""

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
    ) -> None:
        """Keep the parts; they are compiled by the first call, which knows the dtypes.

        Raises:
            KernelError: the source is no text.
        """
        if not isinstance(source, str):
            raise KernelError(f"the source of the kernel {name} is {type(source).__name__}, not text")
        self.name, self._source, self._header = name, source, header
        self._inputs, self._outputs = tuple(input_names), tuple(output_names)

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[Constant] | None = None,
        init_value: float | None = None,
    ) -> list[mx.array]:
        """Run the kernel over a grid of threads, and wait for it.

        An element that no thread writes is NaN, or 255 in each byte, unless there is an ``init_value``.

        Raises:
            ValueError: the arguments don't fit the kernel's names, or a size is not positive.
            KernelError: the kernel can't be compiled, or went wrong.
        """
        self._check_counts(inputs, output_shapes, output_dtypes)
        _check_sizes(grid, threadgroup)
        arrays = [_as_array(each) for each in inputs]
        given = [
            Buffer(n, _type(a.dtype), scalar=a.ndim == 0) for n, a in zip(self._inputs, arrays, strict=True)
        ]
        contents = [_bytes(each) for each in arrays]
        for name, array in zip(self._inputs, arrays, strict=True):
            for buffer, content in self._about(name, array):
                given.append(buffer)
                contents.append(content)
        made = [Buffer(n, _type(d), written=True) for n, d in zip(self._outputs, output_dtypes, strict=True)]
        contents += [_blank(s, d, init_value) for s, d in zip(output_shapes, output_dtypes, strict=True)]
        text = program(
            [*given, *made], [_constant(*each) for each in template or ()], self._header, self._source
        )
        path = build(self.name, text, self._header, self._source)
        group = tuple(min(each) for each in zip(grid, threadgroup, strict=True))
        sizes = struct.pack("6I", *grid, *group) + struct.pack(f"{len(contents)}Q", *map(len, contents))
        return _arrays(self._run(str(path), sizes + b"".join(contents)), output_shapes, output_dtypes)

    def _check_counts(self, inputs: Sequence[Any], shapes: Sequence[Any], dtypes: Sequence[Any]) -> None:
        for what, values, names in (
            ("inputs", inputs, self._inputs),
            ("output_shapes", shapes, self._outputs),
            ("output_dtypes", dtypes, self._outputs),
        ):
            if len(values) != len(names):
                raise ValueError(
                    f"{self.name}: {len(values)} {what} for {len(names)} names: {', '.join(names)}"
                )

    def _about(self, name: str, array: mx.array) -> list[tuple[Buffer, bytes]]:
        """What the source asks about an input: its shape, its strides, its number of axes."""
        steps = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
        facts: dict[str, tuple[str, np.ndarray, bool]] = {
            "shape": ("int32_t", np.array(array.shape, np.int32), False),
            "strides": ("int64_t", np.array(steps, np.int64), False),
            "ndim": ("int32_t", np.array(array.ndim, np.int32), True),
        }
        return [
            (Buffer(f"{name}_{fact}", kind, scalar=scalar), values.tobytes())
            for fact, (kind, values, scalar) in facts.items()
            if re.search(rf"\b{name}_{fact}\b", self._source)
        ]

    def _run(self, path: str, content: bytes) -> bytes:
        if path in _endless:
            raise KernelError(f"the kernel {self.name} was not run again: it did not end before")
        try:
            ran = subprocess.run([path], input=content, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            _endless.add(path)
            raise KernelError(
                f"the kernel {self.name} did not end within {SECONDS:.0f} s: does one of its loops never end?"
            ) from error
        if ran.returncode == FAULT:
            raise KernelError(f"the kernel {self.name}: {ran.stderr.decode(errors='replace')}")
        if ran.returncode:
            name = (
                signal.Signals(-ran.returncode).name if ran.returncode < 0 else f"exit code {ran.returncode}"
            )
            raise KernelError(f"the kernel {self.name} was ended: {name}")
        return ran.stdout


def _check_sizes(grid: Sequence[int], threadgroup: Sequence[int]) -> None:
    for name, sizes in (("grid", grid), ("threadgroup", threadgroup)):
        if len(sizes) != 3 or any(type(size) is not int or size < 1 for size in sizes):
            raise ValueError(f"{name} must be three positive whole numbers, not {tuple(sizes)}")
    if math.prod(threadgroup) > MOST_THREADS:
        raise ValueError(f"a threadgroup has {MOST_THREADS} threads at most, not {math.prod(threadgroup)}")


def _as_array(value: Any) -> mx.array:
    return value if isinstance(value, mx.array) else mx.array(value)


def _type(dtype: mx.Dtype) -> str:
    if dtype not in TYPES:
        raise ValueError(f"{dtype} is no dtype for a kernel")
    return TYPES[dtype]


def _bytes(array: mx.array) -> bytes:
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array).tobytes()


def _blank(shape: Sequence[int], dtype: mx.Dtype, value: float | None) -> bytes:
    if value is not None:
        return _bytes(mx.full(tuple(shape), value, dtype))
    return b"\xff" * (math.prod(shape) * dtype.size)


def _constant(name: str, value: Any) -> tuple[str, str, str]:
    if isinstance(value, mx.Dtype):
        return "typename", name, _type(value)
    if isinstance(value, bool):
        return "bool", name, str(value).lower()
    if isinstance(value, int):
        return "int", name, str(value)
    raise ValueError(f"{name} of the template is {type(value).__name__}: it may be a dtype, an int or a bool")


def _arrays(content: bytes, shapes: Sequence[Sequence[int]], dtypes: Sequence[mx.Dtype]) -> list[mx.array]:
    found, start = [], 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        end = start + math.prod(shape) * dtype.size
        plain = np.frombuffer(content[start:end], _plain(dtype))
        found.append(mx.array(plain).view(dtype).reshape(tuple(shape)))
        start = end
    return found


def _plain(dtype: mx.Dtype) -> Any:
    """An unsigned format of NumPy of the same size."""
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.size]
