"""What a function must not do to its arguments, in whatever dtype they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coursekit.check import check_untouched


def float_dtypes(lab: Any) -> list[str]:
    """The float dtypes that arrays can have on the lab's device; MLX and Apple's GPUs compute with no float64."""
    wide = lab.backend == "torch" and lab.device != "mps"
    return ["float32", "bfloat16", "float16", *(["float64"] if wide else [])]


def check_leaves_alone(lab: Any, call: Callable[..., Any], **arguments: np.ndarray) -> None:
    """Call ``call`` with these arrays by position, in every float dtype, and require that none was written to.

    In-place work often shows in one dtype alone: `x.float()` is a copy of a bfloat16 array, and x itself in float32.
    """
    __tracebackhide__ = True
    for dtype in float_dtypes(lab):
        arrays = {name: lab.array(values, dtype) for name, values in arguments.items()}
        before = {name: lab.numpy(array) for name, array in arrays.items()}
        call(*arrays.values())
        for name, array in arrays.items():
            check_untouched(array, before[name], name=f"{name}, in {dtype}", dtype=dtype)
