"""Kernels in Metal's language on the CPU: what they compute, and what is said of a kernel that goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from coursekit.metal import interpreter  # noqa: E402
from coursekit.metal.building import KernelError, compiler  # noqa: E402
from coursekit.metal.interpreter import InterpretedKernel  # noqa: E402

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")
PLACE = "uint i = thread_position_in_grid.x;\n"


def run(source: str, *inputs: Any, size: int = 40, group: int = 40, dtype: Any = None, **options: Any) -> Any:
    """One output `out` [size] of a kernel whose inputs are called a, b, …"""
    names = "abcd"[: len(inputs)]
    kernel = InterpretedKernel("probe", list(names), ["out"], source, options.pop("header", ""))
    (out,) = kernel(
        inputs=list(inputs),
        grid=options.pop("grid", (size, 1, 1)),
        threadgroup=options.pop("threadgroup", (group, 1, 1)),
        output_shapes=[(size,)],
        output_dtypes=[dtype or mx.float32],
        **options,
    )
    return np.array(out.astype(mx.float32) if out.dtype == mx.bfloat16 else out)


def numbers(size: int = 40) -> np.ndarray:
    return np.random.default_rng(size).normal(size=size).astype(np.float32)


@needs_compiler
def test_every_thread_of_the_grid_runs_once():
    source = PLACE + "out[i] = a[i] + b * i + exp(-a[i] * a[i]);"
    a = numbers()
    expected = a + 3 * np.arange(40) + np.exp(-a * a)
    assert np.allclose(run(source, mx.array(a), 3, group=16), expected, rtol=1e-6)


@needs_compiler
def test_a_grid_has_three_axes_and_threadgroups_at_its_edge_are_smaller():
    source = """
    uint3 p = thread_position_in_grid, n = threads_per_grid, g = threadgroup_position_in_grid;
    uint place = (p.z * n.y + p.y) * n.x + p.x;
    out[place] = 1000 * (g.x + 10 * g.y) + 100 * threads_per_threadgroup.x + thread_index_in_threadgroup;
    """
    found = run(source, size=5 * 3 * 2, grid=(5, 3, 2), threadgroup=(4, 2, 1)).reshape(2, 3, 5)
    for y in range(3):
        for x in range(5):
            wide = 4 if x < 4 else 1
            expected = 1000 * (x // 4 + 10 * (y // 2)) + 100 * wide + y % 2 * wide + x % 4
            assert (found[:, y, x] == expected).all()


@needs_compiler
def test_a_simdgroup_adds_up_and_passes_numbers_on():
    a = numbers(70)
    for call, expected in (
        ("simd_sum(a[i])", [a[:32].sum(), a[32:64].sum(), a[64:].sum()]),
        ("simd_max(a[i])", [a[:32].max(), a[32:64].max(), a[64:].max()]),
        ("simd_min(a[i])", [a[:32].min(), a[32:64].min(), a[64:].min()]),
        ("simd_broadcast(a[i], 2)", a[[2, 34, 66]]),
        ("simd_sum(simd_shuffle_xor(a[i], 1))", [a[:32].sum(), a[32:64].sum(), a[64:].sum()]),
    ):
        found = run(PLACE + f"out[i] = {call};", mx.array(a), size=70, group=70)
        assert np.allclose(found, np.repeat(expected, 32)[:70], rtol=1e-5), call


@needs_compiler
def test_threads_that_have_ended_take_no_part():
    found = run(PLACE + "if (i >= 5) return;\nout[i] = simd_sum(1.0f);")
    assert (found[:5] == 5).all()
    assert np.isnan(found[5:]).all()


@needs_compiler
def test_a_barrier_makes_shared_memory_whole_and_without_one_it_is_not():
    lines = "threadgroup float shared[40];\nshared[i % 40] = i;\n{}\nout[i] = shared[39 - i % 40];"
    wait = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    both = run(PLACE + lines.format(wait), size=80)
    assert (both == [*range(39, -1, -1), *range(79, 39, -1)]).all()
    assert np.isnan(run(PLACE + lines.format(""), size=80)).any()


@needs_compiler
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_short_floats_are_read_and_rounded_as_mlx_does(name):
    dtype = getattr(mx, name)
    every = mx.array(np.arange(65536, dtype=np.uint16)).view(dtype)
    found = run(PLACE + "out[i] = a[i];", every, size=65536, group=256)
    assert np.array_equal(found, np.array(every.astype(mx.float32)), equal_nan=True)
    rng = np.random.default_rng(5)
    spread = rng.normal(size=3000) * 10.0 ** rng.integers(-9, 6, 3000)
    edges = [65519.9, 65520, 65504, 6e-8, 3e-8, 2.9e-8, 0, -0.0, 6.1e-5, 6.097e-5, np.inf, -np.inf]
    numbers = mx.array(np.array([*spread, *edges], np.float32))
    found = run(PLACE + "out[i] = a[i];", numbers, size=3012, group=256, dtype=dtype)
    assert np.array_equal(found, np.array(numbers.astype(dtype).astype(mx.float32)))


@needs_compiler
def test_shapes_strides_constants_and_helpers_are_there():
    source = (
        PLACE + "out[i] = twice(T(a_shape[1] + 10 * a_strides[0] + 100 * a_ndim + 1000 * N + 10000 * YES));"
    )
    template = [("T", mx.float32), ("N", 4), ("YES", True)]
    header = "inline float twice(float x) { return 2 * x; }"
    found = run(source, mx.zeros((3, 7)), size=2, template=template, header=header)
    assert (found == 2 * (7 + 70 + 200 + 4000 + 10000)).all()


@needs_compiler
def test_an_array_that_is_no_row_of_memory_is_read_as_if_it_were_one():
    a = mx.array(numbers(12).reshape(3, 4))
    assert (run(PLACE + "out[i] = a[i];", a.T, size=12) == np.array(a).T.reshape(-1)).all()


@needs_compiler
def test_what_no_thread_writes_is_nan_or_what_was_asked_for():
    source = PLACE + "if (i == 1) out[i] = 5;"
    assert np.isnan(run(source)[[0, 2]]).all()
    assert (run(source, init_value=2)[:3] == [2, 5, 2]).all()


@needs_compiler
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("out[i] = a[i];\nout[i] = missing;", r"'missing'.*line 3 of your source: out\[i\] = missing;"),
        ("a[i] = 0;", r"read-only.*line 2 of your source"),
        ("if (i) {", "behind the end of your source"),
        ("out[i] = a[i + 1];", r"thread \(39, 0, 0\) of the grid reads or writes element 40 of a, which has 40"),
        ("out[i + 2] = 0;", "element 40 of out, which has 40"),
        ("out[i - 1] = 0;", "reads or writes|in front of out"),
        ("int k = -1 - int(i); out[k] = 0;", "in front of out"),
        ("int big = i + 1; float own[90000]; own[big * 800] = a[i]; out[i] = own[big * 2];", "no room for its own"),
        ("if (i % 3) out[i] = simd_sum(1.0f);\nelse out[i] = simd_max(1.0f);", "line 3, thread 1 .* line 2: all"),
        ("if (i < 8) threadgroup_barrier(mem_flags::mem_none);\nsimd_sum(1.0f);", "must come to the same"),
    ],
)  # fmt: skip
def test_a_kernel_that_goes_wrong_is_told_so(source, says):
    with pytest.raises(KernelError, match=says):
        run(PLACE + source, mx.array(numbers()))


@needs_compiler
def test_a_kernel_that_never_ends_is_stopped_and_not_waited_for_again(monkeypatch):
    monkeypatch.setattr(interpreter, "SECONDS", 0.5)
    source = PLACE + "while (a[0] < 50) out[i] = 1;"
    with pytest.raises(KernelError, match="did not end within"):
        run(source, mx.array(numbers()))
    with pytest.raises(KernelError, match="not run again"):
        run(source, mx.array(numbers()))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"grid": (40, 1)}, "grid must be three"),
        ({"grid": (0, 1, 1)}, "grid must be three positive"),
        ({"threadgroup": (1025, 1, 1)}, "1024 threads at most"),
        ({"template": [("N", 2.5)]}, "may be a dtype, an int or a bool"),
    ],
)
def test_arguments_that_can_not_be_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        run(PLACE, **options)


def test_as_many_arrays_as_names():
    kernel = InterpretedKernel("probe", ["a", "b"], ["out"], PLACE)
    sizes: dict[str, Any] = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1)}
    with pytest.raises(ValueError, match="1 inputs for 2 names: a, b"):
        kernel(inputs=[1], output_shapes=[(1,)], output_dtypes=[mx.float32], **sizes)
    with pytest.raises(KernelError, match="is int, not text"):
        InterpretedKernel("probe", [], [], 5)  # type: ignore[arg-type]


def test_without_a_compiler_the_kernel_says_what_to_install(monkeypatch):
    monkeypatch.setattr("coursekit.metal.building.compiler", lambda: None)
    with pytest.raises(KernelError, match=r"install clang\+\+ or g\+\+"):
        run(PLACE)
