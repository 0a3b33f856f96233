"""The largest array that a function makes, or its peak of memory: whether something long was ever written out."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from coursekit.backends import Backend
from coursekit.errors import CourseError

# Python's own objects (numbers, slices, frames) come and go in less; a NumPy array or a list this large is data.
PYTHON_NOISE = 1 << 20
BYTES_IN_PYTHON = 8  # of a NumPy float64, and of a place in a list


def largest_array(
    backend: str, function: Callable[..., Any], *arguments: Any, **options: Any
) -> tuple[Any, int]:
    """What ``function`` returns, and the number of elements of the largest array that it made on the way.

    What counts is memory, not shape: an array that views another one (a slice, a reshape, ``expand``) is as large as
    the memory behind it, and memory of the arguments counts as none. So broadcasting is free until something writes
    its result out, as a matrix product of an expanded array does. Any other array that takes part in an operation
    counts, wherever it came from: pass all that the function may use as arguments.

    What one operation of torch keeps for itself while it runs is not seen. NumPy arrays and lists can't be seen one
    by one: where all memory that Python holds meanwhile passes a mebibyte, it counts as one array of 8 bytes an
    element.

    The function is called twice, as first calls may import and compile.

    Raises:
        CourseError: the backend is not torch. MLX builds a graph first and then fuses it, and tells only how much
            memory was in use at the peak: there, see :func:`peak_bytes`.
    """
    if backend != Backend.TORCH:
        raise CourseError(
            "MLX does not tell which arrays it makes, so the largest can't be found: "
            "look at `peak_bytes` instead"
        )
    function(*arguments, **options)
    watch = _watch([*arguments, *options.values()])
    tracemalloc.start()
    try:
        with watch:
            result = function(*arguments, **options)
        in_python = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return result, max(watch.largest, in_python // BYTES_IN_PYTHON if in_python > PYTHON_NOISE else 0)


def peak_bytes(
    backend: str, function: Callable[..., Any], *arguments: Any, **options: Any
) -> tuple[Any, int]:
    """What ``function`` returns, evaluated, and the most bytes that MLX's arrays took beyond those before the call.

    The result counts, too. The function is called twice, as first calls may import and compile.

    Raises:
        CourseError: the backend is not MLX: torch tells which arrays it makes, see :func:`largest_array`.
    """
    if backend != Backend.MLX:
        raise CourseError("torch tells no peak of memory on a CPU: look at `largest_array` instead")
    import mlx.core as mx

    mx.eval(function(*arguments, **options))
    mx.eval([value for value in (*arguments, *options.values()) if isinstance(value, mx.array)])
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    result = function(*arguments, **options)
    mx.eval(result)
    return result, mx.get_peak_memory() - before


def _watch(given: list[Any]) -> Any:
    """A context in which every torch operation of this thread passes by, and the largest array is noted."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def tensors(tree: Any) -> list[torch.Tensor]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    def place(tensor: torch.Tensor) -> tuple[int, int]:
        """Where the memory behind a tensor is and how long: the same for all its views."""
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes()

    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.known = {place(tensor) for tensor in tensors(given)}
            self.largest = 0

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return (
                False  # torch would import its compiler, which takes seconds, only to keep it away from here
            )

        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operation(*args, **(kwargs or {}))
            for tensor in tensors((args, kwargs, result)):
                if place(tensor) not in self.known:
                    size = tensor.untyped_storage().nbytes() // tensor.element_size()
                    self.largest = max(self.largest, size)
            return result

    return Watch()
