"""Kernels of registers as a whole: run as Python, and kept on disk until anything that they use changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coursekit.checking.comparison import CheckFailed
from coursekit.checking.kernel_run import run_as_python
from tiny_llm.fast import compiled_tiles, compiled_vectors, llvm_code, registers, tiles, vectors
from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.vectors import floats, fma, load_floats, store_floats
from tiny_llm.kernels import kept

MODULES = {
    each.__name__.rpartition(".")[2]: each
    for each in (compiled_tiles, compiled_vectors, llvm_code, registers, tiles, vectors)
}


def _make_scaled(rows):
    @exact_inlined
    def scaled(x, at, out):
        tile = tiles.load_rows(x, at, 16, rows)
        zeros = tiles.zero_ints(rows)
        tile = tiles.add_scaled_rows(tile, zeros, floats(1), load_floats(x, at), x, x, at, 16)
        tiles.store_rows(out, at, 16, tile)

    return scaled


scaled_2 = _make_scaled(2)


@exact_inlined
def squared_16(x, at, out):
    some = load_floats(x, at)
    store_floats(out, at, fma(some, some, floats(0.5)) + some)


@exact_kernel
def squared(x, out):
    for at in range(0, len(x), 16):
        squared_16(x, at, out)


@exact_kernel
def in_tiles(x, out):
    for at in range(0, len(x), 32):
        scaled_2(x, at, out)


@pytest.mark.parametrize("kernel", [squared, in_tiles])
def test_a_kernel_gives_the_same_as_python(kernel):
    x = np.random.default_rng(1).normal(size=64).astype(np.float32)
    compiled, as_python = np.zeros(64, np.float32), np.zeros(64, np.float32)
    kernel(x, compiled)
    run_as_python(kernel, x, as_python, spread=False, deep=True)
    assert compiled.any()
    assert np.array_equal(compiled, as_python)


@pytest.mark.parametrize("kernel", [squared, in_tiles])
def test_as_python_a_kernel_that_leaves_an_array_is_told_so(kernel):
    x, out = np.zeros(40, np.float32), np.zeros(64, np.float32)
    with pytest.raises(CheckFailed, match="elements 32 to 47 of an array that has 40"):
        run_as_python(kernel, x, out, spread=False, deep=True)


@pytest.mark.parametrize(
    ("kernel", "module", "old", "new"),
    [
        ("squared", "vectors", "c.astype(np.float64)", "-c.astype(np.float64)"),
        ("squared", "compiled_vectors", "fused(builder, a, b, c)", "fused(builder, b, a, c)"),
        ("squared", "llvm_code", "llvm.fma.v16f32", "llvm.fmuladd.v16f32"),
        ("squared", "registers", '"fadd"', '"fsub"'),
        ("squared", "registers", "loaded.align = 1", "loaded.align = 4"),
        ("in_tiles", "compiled_tiles", "builder.sitofp(", "builder.uitofp("),
        ("in_tiles", "tiles", "np.stack(", "np.array("),
    ],
)
def test_a_kernel_is_compiled_anew_when_anything_of_registers_changes(
    monkeypatch, tmp_path, kernel, module, old, new
):
    before = kept.fingerprint(Path(__file__), kernel)
    source = Path(str(MODULES[module].__file__))
    text = source.read_text(encoding="utf-8")
    assert old in text
    changed = tmp_path / source.name
    changed.write_text(text.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(MODULES[module], "__file__", str(changed))
    assert kept.fingerprint(Path(__file__), kernel) != before


@pytest.mark.parametrize("kernel", ["squared", "in_tiles"])
def test_forms_that_a_kernel_does_not_use_do_not_matter(monkeypatch, tmp_path, kernel):
    before = kept.fingerprint(Path(__file__), kernel)
    source = Path(str(compiled_vectors.__file__))
    text = source.read_text(encoding="utf-8")
    changed = tmp_path / source.name
    changed.write_text(text.replace("llvm.rint.v16f32", "llvm.trunc.v16f32"), encoding="utf-8")
    monkeypatch.setattr(compiled_vectors, "__file__", str(changed))
    assert kept.fingerprint(Path(__file__), kernel) == before
