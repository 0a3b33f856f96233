"""MLX's 4-bit weights: a file's own codes survive, and MLX's kernel multiplies by them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from tiny_models import BLOCKS, random_model, write_gguf

from tiny_llm import quantize as torchs
from tiny_llm.loading.locate import locate
from tiny_llm.quantize import QuantizedTensor
from tiny_llm.weights import load_weights

PARTS = ("nibbles", "scales", "minima")
HERE = Path(__file__).parent


def start(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `mlx_child.py` with the package that is tested here, and MLX's arrays."""
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    package = Path(torchs.__file__).parent.parent
    places = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TINY_LLM_BACKEND": "mlx", "PYTHONPATH": places}
    command = [sys.executable, str(HERE / "mlx_child.py"), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def run(what: str, given: Path, out: Path) -> dict[str, Any]:
    """What the child saved."""
    done = start(what, given, out)
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        return dict(arrays)


def check_same_tensors(source: Path, out: Path) -> None:
    """Both tracks load the same tensors from a model, to the bit."""
    found, wanted = run("load", source, out), load_weights(source, bits=4, matmul="plain").tensors
    assert {name.partition(":")[0] for name in found} == set(wanted)
    for name, tensor in wanted.items():
        if isinstance(tensor, QuantizedTensor):
            for part in PARTS:
                expected = getattr(tensor, part).numpy()
                assert found[f"{name}:{part}"].dtype == expected.dtype, (name, part)
                assert np.array_equal(found[f"{name}:{part}"], expected), (name, part)
        else:
            assert np.array_equal(found[name], tensor.numpy()), name


def test_the_packaged_files_codes_are_taken_over(tmp_path: Path) -> None:
    check_same_tensors(locate("smollm2-135m"), tmp_path / "out.npz")


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "F16"])
def test_4_bit_blocks_are_taken_over_and_anything_else_is_quantized(kind: str, tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(BLOCKS), GGMLQuantizationType[kind])
    check_same_tensors(source, tmp_path / "out.npz")


def random_matrix(group_size: int) -> tuple[dict[str, Any], np.ndarray]:
    """The parts of a quantized matrix [6, 256] with rows of input [2, 3, 256], and its codes [6, 256]."""
    random = np.random.default_rng(220 + group_size)
    codes = random.integers(0, 16, (6, 256 // group_size, group_size), dtype=np.uint8)
    low, high = np.split(codes, 2, axis=-1)
    parts = {
        "nibbles": low | (high << 4),
        "scales": random.uniform(0.1, 1, codes.shape[:2]).astype(np.float16),
        "minima": random.normal(size=codes.shape[:2]).astype(np.float16),
        "x": random.normal(size=(2, 3, 256)).astype(np.float32),
    }
    return parts, codes.reshape(6, 256)


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_a_packed_matrix_has_its_codes_in_order_and_multiplies(group_size: int, tmp_path: Path) -> None:
    parts, codes = random_matrix(group_size)
    np.savez(tmp_path / "in.npz", **parts)
    found = run("multiply", tmp_path / "in.npz", tmp_path / "out.npz")
    places = 4 * np.arange(8, dtype=np.uint32)
    assert found["words"].dtype == np.uint32
    unpacked = (found["words"][..., None] >> places) & 15
    assert np.array_equal(unpacked.reshape(codes.shape), codes)
    scales, minima = (np.repeat(parts[part].astype(np.float64), group_size, axis=1) for part in PARTS[1:])
    for dtype, bits in (("float32", 20), ("bfloat16", 6), ("float16", 9)):
        expected = parts["x"].astype(np.float64) @ (codes * scales + minima).T
        near = 2.0**-bits * np.abs(expected).max()
        assert np.abs(found[f"mlx.core.{dtype}"] - expected).max() < near, dtype


@pytest.mark.parametrize("group_size", [4, 16, 256])
def test_other_group_sizes_are_refused(group_size: int, tmp_path: Path) -> None:
    parts, _ = random_matrix(group_size)
    np.savez(tmp_path / "in.npz", **parts)
    done = start("multiply", tmp_path / "in.npz", tmp_path / "out.npz")
    assert f"MLX's kernel takes groups of 32, 64 or 128 weights, not of {group_size}" in done.stderr
