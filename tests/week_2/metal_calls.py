"""How the learner's code calls a Metal kernel: looked at on any machine, whether kernels run there or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coursekit.check import check_equal

SIMD = 32


def calls_of(lab: Any, monkeypatch: pytest.MonkeyPatch, module: Any) -> list[dict[str, Any]]:
    """From now on a kernel of the module only notes how it is called, and gives zeros."""
    calls: list[dict[str, Any]] = []

    def metal_kernel(name: str, inputs: Any, outputs: Any, source: str, header: str = "") -> Any:
        def call(**options: Any) -> list[Any]:
            calls.append({"source": source, **options})
            return [lab.array(np.zeros(shape), "float32") for shape in options["output_shapes"]]

        return call

    monkeypatch.setattr(module, "metal_kernel", metal_kernel)
    return calls


def check_simdgroups(calls: list[dict[str, Any]], function: str, count: int, what: str) -> None:
    """Whether one kernel was called, with a simdgroup for each of `count` things."""
    __tracebackhide__ = True
    check_equal(len(calls), 1, name=f"the number of kernels that {function} calls through metal_kernel")
    (call,) = calls
    assert isinstance(call["source"], str), "the source of a kernel is text"
    threads = int(np.prod(call["grid"]))
    assert threads >= SIMD * count, (
        f"the grid has {threads} threads for {count} {what}s: it counts threads, and each {what} needs 32"
    )
    group = int(np.prod(call["threadgroup"]))
    assert group % SIMD == 0, f"a threadgroup of {group} threads is not made of whole simdgroups of 32"
