"""Arrays of any framework, seen through NumPy.

Nothing here imports a framework that is not loaded already, except to make an array of it.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np

# What the frameworks call the same thing; the names on the right are the ones that tests use.
ARTICLES = {"torch": "a torch tensor", "mlx": "an MLX array", "numpy": "a NumPy array"}
DEFAULT_INTEGER = {"torch": "int64", "mlx": "int32", "numpy": "int64"}


class Elsewhere:
    """Something that lies in another process: what the functions here ask of it is answered there."""

    __slots__ = ()

    def answer(self, question: str, *others: Any) -> Any:
        """What the function here of the name ``question`` gives for this and the ``others``, there."""
        raise NotImplementedError


def framework(value: Any) -> str | None:
    """``"torch"``, ``"mlx"`` or ``"numpy"`` for an array of that framework, ``None`` for anything else."""
    if isinstance(value, Elsewhere):
        return value.answer("framework")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    mlx = sys.modules.get("mlx.core")
    if mlx is not None and isinstance(value, mlx.array):
        return "mlx"
    return "numpy" if isinstance(value, np.ndarray) else None


def dtype_name(value: Any) -> str:
    """The dtype of an array as a plain name: ``"float32"``, ``"bfloat16"``, ``"int64"``, ``"bool"``, …

    Raises:
        TypeError: ``value`` is not an array.
    """
    if framework(value) is None:
        raise TypeError(f"{type(value).__name__} is not an array")
    if isinstance(value, Elsewhere):
        return value.answer("dtype_name")
    return str(value.dtype).rsplit(".", 1)[-1].rstrip("_")


def to_numpy(value: Any) -> np.ndarray:
    """A NumPy copy of an array, on the host; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        TypeError: ``value`` is neither an array nor something that ``numpy.array`` takes.
    """
    if isinstance(value, Elsewhere):
        return value.answer("to_numpy")
    kind = framework(value)
    if value is None:  # NumPy would make an array of an object of it
        raise TypeError("NoneType is not an array")
    if kind == "torch":
        plain = value.detach().cpu()
        return np.array((plain.float() if dtype_name(plain) == "bfloat16" else plain).numpy())
    if kind == "mlx":
        mlx = sys.modules["mlx.core"]
        return np.array(value.astype(mlx.float32) if dtype_name(value) == "bfloat16" else value)
    return np.array(value)


def share_memory(a: Any, b: Any) -> bool:
    """Whether the stretches of memory that two arrays span, first element to last, overlap.

    Both must be alive: memory that was freed may have been given to the next array.

    Raises:
        TypeError: one of them is not an array.
    """
    if isinstance(a, Elsewhere):
        return a.answer("share_memory", b)
    (first_a, last_a), (first_b, last_b) = span(a), span(b)
    return first_a < last_b and first_b < last_a


def span(value: Any) -> tuple[int, int]:
    """The addresses of an array's first byte and of the one behind its last; the same one twice when empty.

    Raises:
        TypeError: ``value`` is not an array.
    """
    kind = framework(value)
    if kind is None:
        raise TypeError(f"{type(value).__name__} is not an array")
    if isinstance(value, Elsewhere):
        return value.answer("span")
    if kind == "torch":
        if value.numel() == 0:
            return value.data_ptr(), value.data_ptr()
        steps = zip(value.shape, value.stride(), strict=True)
        reach = sum((size - 1) * stride for size, stride in steps) + 1
        return value.data_ptr(), value.data_ptr() + reach * value.element_size()
    # NumPy has no bfloat16, but the same bits as integers.
    if kind == "mlx" and dtype_name(value) == "bfloat16":
        value = value.view(sys.modules["mlx.core"].uint16)
    first, end = np.lib.array_utils.byte_bounds(np.array(value, copy=False))
    return first, end


def pending_operations(value: Any) -> int:
    """How many operations must still be computed before an array has its numbers: 0, except with MLX, which is lazy.

    Raises:
        TypeError: ``value`` is not an array.
    """
    kind = framework(value)
    if kind is None:
        raise TypeError(f"{type(value).__name__} is not an array")
    if isinstance(value, Elsewhere):
        return value.answer("pending_operations")
    if kind != "mlx":
        return 0
    graph = io.StringIO()  # a box for each operation
    sys.modules["mlx.core"].export_to_dot(graph, value)
    return graph.getvalue().count("[label")


def make_array(values: Any, backend: str, device: str = "cpu", dtype: str | None = None) -> Any:
    """An array of ``backend`` that shares no memory with ``values``.

    Args:
        values: anything that ``numpy.asarray`` takes.
        backend: ``"torch"`` or ``"mlx"``.
        device: where a torch tensor goes; MLX uses its default device.
        dtype: name of the dtype; left out, floats become float32 and integers the framework's usual one.
    """
    source = np.array(
        values, order="C"
    )  # or the copy of a transposed array would lie in memory as that one does
    name = dtype or _default_dtype(source, backend)
    if backend == "torch":
        import torch

        return torch.from_numpy(source).to(device=device, dtype=getattr(torch, name))
    import mlx.core as mx

    array = mx.array(source).astype(getattr(mx, "bool_" if name == "bool" else name))
    mx.eval(array)  # what is put off in one thread can't be computed in another
    return array


def _default_dtype(source: np.ndarray, backend: str) -> str:
    if source.dtype.kind == "f":
        return "float32" if source.dtype == np.float64 else source.dtype.name
    if source.dtype.kind in "iu":
        return DEFAULT_INTEGER[backend]
    return source.dtype.name
