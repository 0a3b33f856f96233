"""The one door from the tests to the learner's code.

Arrays, plain values and opaque handles cross it, so that a test says nothing about the framework behind it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from coursekit import arrays
from coursekit.backends import Backend, Device
from coursekit.errors import CourseError
from coursekit.lab_modules import Modules
from coursekit.largest_array import largest_array, peak_bytes
from coursekit.paths import Course

IMPORTED = Backend.TORCH.package
"""What is imported on both tracks."""

_active: Lab | None = None


class Lab(Modules):
    """The modules of one package, and arrays of its framework on one device.

    ``lab.attention`` is the learner's module ``attention``, imported when it is first touched; ``lab.paged.pool``
    works for modules in folders. With MLX, ``tiny_llm`` takes the modules that hold arrays from ``tiny_llm_mlx``.
    """

    def __init__(
        self, backend: str = Backend.TORCH, device: str = Device.CPU, course: Course | None = None
    ) -> None:
        """Open the door to ``backend`` on ``device``.

        Raises:
            CourseError: the backend is not installed, or the device is not there.
        """
        self.backend = backend
        self.device = device
        self.package = Backend(backend).package
        self._course = course
        prepare(backend, device)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._import(name)

    def array(self, values: Any, dtype: str | None = None) -> Any:
        """An array of the backend, on the lab's device, that shares no memory with ``values``.

        Args:
            values: a NumPy array, or nested lists of numbers.
            dtype: ``"float32"``, ``"bfloat16"``, ``"float16"``, ``"int64"``, ``"int32"`` or ``"bool"``; left out,
                float64 becomes float32 and integers become int64 (torch) or int32 (MLX).
        """
        return arrays.make_array(values, self.backend, self.device, dtype)

    def numpy(self, value: Any) -> np.ndarray:
        """A NumPy copy of an array; bfloat16 becomes float32."""
        return arrays.to_numpy(value)

    def dtype(self, value: Any) -> str:
        """The name of an array's dtype, such as ``"float32"``."""
        return arrays.dtype_name(value)

    def is_array(self, value: Any) -> bool:
        """Whether ``value`` is an array of the backend."""
        return arrays.framework(value) == self.backend

    def shares_memory(self, a: Any, b: Any) -> bool:
        """Whether two arrays that are both alive lie in the same memory, at least in part.

        What is compared is the stretch from an array's first element to its last.
        """
        return arrays.share_memory(a, b)

    def pending_operations(self, value: Any) -> int:
        """How many operations must still be computed before an array has its numbers: 0, except with MLX."""
        return arrays.pending_operations(value)

    def largest_array(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, int]:
        """``function(*arguments, **options)``, and the number of elements of the largest array made on the way.

        Views and the arguments' own memory count as none; see :func:`coursekit.largest_array.largest_array`.

        Raises:
            CourseError: the backend is MLX, which doesn't tell.
        """
        return largest_array(self.backend, function, *arguments, **options)

    def peak_bytes(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, int]:
        """``function(*arguments, **options)``, and the bytes that MLX took at most beyond what was there before.

        Raises:
            CourseError: the backend is torch, which doesn't tell.
        """
        return peak_bytes(self.backend, function, *arguments, **options)

    def _import(self, name: str) -> Any:
        """Import ``name`` ("attention", "paged.pool")."""
        module = importlib.import_module(f"{IMPORTED}.{name}")
        if (
            self.package != IMPORTED
            and self._has(name)
            and self.package not in Path(module.__file__ or "").parts
        ):
            raise ModuleNotFoundError(
                f"No module named '{self.package}.{name}'", name=f"{self.package}.{name}"
            )
        return _Folder(self, name, module) if hasattr(module, "__path__") else module

    def _has(self, name: str) -> bool:
        """Whether the reference of this backend has the module: the learner's copy may have lost it."""
        course = self._course = self._course or Course.find()
        path = course.solution(self.package).joinpath(*name.split("."))
        return path.is_dir() or path.with_suffix(".py").is_file()


class _Folder:
    """A package of the learner's whose modules are imported when touched."""

    def __init__(self, lab: Lab, name: str, module: ModuleType) -> None:
        self._lab = lab
        self._name = name
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name in vars(self._module) and not isinstance(vars(self._module)[name], ModuleType):
            return vars(self._module)[name]
        return self._lab._import(f"{self._name}.{name}")


def active() -> Lab:
    """The lab of this test run.

    Raises:
        CourseError: no run is going on.
    """
    if _active is None:
        raise CourseError("no lab is open: run the tests with `pdm run test`")
    return _active


def active_or_none() -> Lab | None:
    """The lab of this test run, or ``None`` outside a run."""
    return _active


def set_active(lab: Lab | None) -> None:
    """Make ``lab`` the one that ``active`` gives; the test plugin calls this."""
    global _active
    _active = lab


def prepare(backend: str, device: str) -> None:
    """Make sure of a framework and a device, and let MLX use that device.

    Raises:
        CourseError: the backend is not installed, or the device is not there.
    """
    _require_backend(backend)
    _require_device(backend, device)


def _require_backend(backend: str) -> None:
    if backend != Backend.MLX:
        return
    try:
        import mlx.core  # noqa: F401
    except ImportError as error:
        raise CourseError(
            "--backend mlx needs MLX, which can't be imported here: install it with `pip install 'mlx[cpu]'` on "
            f"Linux or `pip install mlx` on a Mac; there is none for Windows ({error})"
        ) from error


def _require_device(backend: str, device: str) -> None:
    if backend == Backend.MLX:
        _set_mlx_device(device)
        return
    if device == Device.CPU:
        return
    import torch

    if device == Device.CUDA and not torch.cuda.is_available():
        raise CourseError(
            "--device cuda needs an NVIDIA GPU that torch can use; there is none: try --device cpu"
        )
    if device == Device.MPS and not torch.backends.mps.is_available():
        raise CourseError("--device mps needs an Apple GPU; there is none: try --device cpu")


def _set_mlx_device(device: str) -> None:
    import mlx.core as mx

    if device == Device.CUDA:
        raise CourseError("--backend mlx runs with --device cpu or --device mps, not cuda")
    if device == Device.MPS and not mx.metal.is_available():
        raise CourseError("--device mps needs an Apple GPU; there is none: try --device cpu")
    mx.set_default_device(mx.gpu if device == Device.MPS else mx.cpu)
