"""4-bit weights: a file's own numbers survive, the rest is quantized, and a float copy of it all is never made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType
from test_errors import message
from tiny_models import BLOCKS, FAMILIES, ROPE, SIZES, random_model, tokens, write_gguf

from tiny_llm.loading.locate import locate
from tiny_llm.model import Transformer
from tiny_llm.quantize import QuantizedLinear, QuantizedTensor, dequantize, quantize
from tiny_llm.weights import Weights, load_weights

MATRICES = ("qkv", "attention_out", "gate_up", "down")
WIDE: dict[str, Any] = {
    "llama": BLOCKS,
    "qwen2": transformers.Qwen2Config(
        **{**SIZES, "intermediate_size": 96},
        rope_parameters=ROPE,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
    ),
    "qwen3": transformers.Qwen3Config(
        **{**SIZES, "intermediate_size": 96},
        rope_parameters=ROPE,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        tie_word_embeddings=True,
    ),
}


def in_4_bits(weights: Weights, name: str) -> torch.Tensor:
    """The values of a tensor that must be in 4 bits."""
    tensor = weights.tensors[name]
    assert isinstance(tensor, QuantizedTensor), name
    return dequantize(tensor)


def unpermuted(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Query or key rows of a Llama's GGUF file, in their original order: even rows of a head, then odd ones."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return torch.cat([pairs[:, :, 0], pairs[:, :, 1]], dim=1).reshape(rows.shape)


@pytest.fixture(scope="module")
def real() -> Weights:
    """The course's model in 4 bits."""
    return load_weights("smollm2-135m", bits=4, matmul="plain")


def test_every_4_bit_tensor_of_the_packaged_file_keeps_its_numbers(real: Weights) -> None:
    file = {t.name: t for t in gguf.GGUFReader(locate("smollm2-135m")).tensors}

    def stored(name: str) -> torch.Tensor:
        tensor = file.pop(name)
        assert tensor.tensor_type == GGMLQuantizationType.Q4_1, name
        return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type))

    for i in range(30):
        query = unpermuted(stored(f"blk.{i}.attn_q.weight"), 9)
        key = unpermuted(stored(f"blk.{i}.attn_k.weight"), 3)
        expected = {
            "qkv": torch.cat([query, key, stored(f"blk.{i}.attn_v.weight")]),
            "attention_out": stored(f"blk.{i}.attn_output.weight"),
            "gate_up": torch.cat([stored(f"blk.{i}.ffn_gate.weight"), stored(f"blk.{i}.ffn_up.weight")]),
            "down": stored(f"blk.{i}.ffn_down.weight"),
        }
        for name in MATRICES:
            actual = in_4_bits(real, f"blocks.{i}.{name}.weight")
            assert torch.equal(actual.view(torch.int32), expected[name].view(torch.int32)), (i, name)
    assert not [name for name, tensor in file.items() if tensor.tensor_type == GGMLQuantizationType.Q4_1]


def test_the_matrices_of_the_blocks_take_five_bits_a_weight_and_nothing_else_is_quantized(
    real: Weights,
) -> None:
    quantized = {name: t for name, t in real.tensors.items() if isinstance(t, QuantizedTensor)}
    assert quantized.keys() == {f"blocks.{i}.{name}.weight" for i in range(30) for name in MATRICES}
    weights = sum(t.shape[0] * t.shape[1] for t in quantized.values())
    assert sum(t.nbytes for t in quantized.values()) == weights * 5 // 8
    assert {t.group_size for t in quantized.values()} == {32}
    assert all(real.tensor(name).dtype == torch.float32 for name in real.tensors.keys() - quantized.keys())
    assert real.nbytes < 180e6


@pytest.mark.parametrize("kind", ["Q4_1", "Q4_0"])
@pytest.mark.parametrize("family", WIDE)
def test_4_bit_blocks_are_taken_over_as_they_are(family: str, kind: str, tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(WIDE[family]), GGMLQuantizationType[kind])
    floats, small = load_weights(source), load_weights(source, bits=4)
    assert floats.tensors.keys() == small.tensors.keys()
    for name in floats.tensors:
        quantized = any(f".{matrix}.weight" in name for matrix in MATRICES)
        actual = in_4_bits(small, name) if quantized else small.tensor(name)
        assert torch.equal(actual, floats.tensor(name)), name


@pytest.mark.parametrize("kind", ["folder", "F32", "F16", "Q8_0", "Q5_1"])
def test_anything_else_is_quantized_in_groups_of_32(kind: str, tmp_path: Path) -> None:
    model, source = random_model(BLOCKS), tmp_path / "model.gguf"
    if kind == "folder":
        source = tmp_path
        model.save_pretrained(source)
    else:
        write_gguf(source, model, GGMLQuantizationType[kind])
    floats, small = load_weights(source), load_weights(source, bits=4)
    for name in MATRICES:
        expected = dequantize(quantize(floats.tensor(f"blocks.2.{name}.weight"), 32))
        assert torch.equal(in_4_bits(small, f"blocks.2.{name}.weight"), expected), name
    assert torch.equal(small.tensor("head.weight"), floats.tensor("head.weight"))


def test_parts_of_one_matrix_may_be_stored_in_different_ways(tmp_path: Path) -> None:
    source = write_gguf(
        tmp_path / "model.gguf",
        random_model(BLOCKS),
        GGMLQuantizationType.Q4_1,
        others={"attn_v": GGMLQuantizationType.Q8_0, "ffn_gate": GGMLQuantizationType.Q4_0},
    )
    floats, small = load_weights(source), load_weights(source, bits=4)
    qkv = floats.tensor("blocks.0.qkv.weight")
    value_as_stored = dequantize(quantize(qkv[-32:], 32))
    assert torch.equal(in_4_bits(small, "blocks.0.qkv.weight"), torch.cat([qkv[:-32], value_as_stored]))
    assert torch.equal(in_4_bits(small, "blocks.0.gate_up.weight"), floats.tensor("blocks.0.gate_up.weight"))


@pytest.mark.parametrize("matmul", ["plain", "kernel"])
@pytest.mark.parametrize("family", WIDE)
def test_a_model_in_4_bits_computes_what_its_dequantized_weights_compute(
    family: str, matmul: str, tmp_path: Path
) -> None:
    model = random_model(WIDE[family])
    model.save_pretrained(tmp_path)
    small = load_weights(tmp_path, bits=4, matmul=matmul)
    back = {n: dequantize(t) if isinstance(t, QuantizedTensor) else t for n, t in small.tensors.items()}
    ids = tokens(model)
    positions = slice(0, ids.shape[1])
    expected = Transformer(small.config, Weights(small.config, back))(ids, positions)
    torch.testing.assert_close(Transformer(small.config, small)(ids, positions), expected, rtol=0, atol=1e-4)
    assert isinstance(small.linear("blocks.0.qkv"), QuantizedLinear)


def test_the_other_tensors_are_in_the_dtype_asked_for(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(WIDE["qwen2"]), GGMLQuantizationType.Q4_1)
    wide, half = load_weights(source, bits=4), load_weights(source, "bfloat16", bits=4)
    for name, tensor in half.tensors.items():
        if isinstance(tensor, QuantizedTensor):
            assert torch.equal(dequantize(tensor), in_4_bits(wide, name)), name
        else:
            assert torch.equal(tensor, wide.tensor(name).bfloat16()), name
    x = torch.ones(2, 64, dtype=torch.bfloat16)
    assert half.linear("blocks.0.qkv")(x).dtype == torch.bfloat16


def test_nothing_is_kept_in_the_cache_folder(tmp_path: Path, cache: Path) -> None:
    load_weights(write_gguf(tmp_path / "model.gguf", random_model(BLOCKS)), bits=4)
    assert list(cache.iterdir()) == []


def test_what_cannot_be_had_in_4_bits_is_refused(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "wide.gguf", random_model(BLOCKS))
    for bits in (0, 2, 8, 16):
        assert f"not in {bits}" in message(load_weights, source, "float32", "cpu", bits)
    text = message(load_weights, source, "float32", "cpu", 4, "magic")
    assert all(way in text for way in ("'magic'", "plain", "kernel", "torch"))
    assert "ask for 4 bits too" in message(load_weights, source, "float32", "cpu", None, "kernel")
    small = load_weights(source, bits=4, matmul="torch")
    assert "in 4 bits: use linear()" in message(small.tensor, "blocks.0.qkv.weight")
    assert "no tensor 'blocks.9.qkv.weight'" in message(small.linear, "blocks.9.qkv")


def test_rows_that_cannot_be_cut_into_groups_are_named(tmp_path: Path) -> None:
    text = message(
        load_weights,
        write_gguf(tmp_path / "m.gguf", random_model(FAMILIES["llama"])),
        "float32",
        "cpu",
        4,
    )
    assert "blk.0.attn_q.weight" in text
    assert "48" in text


def test_half_a_file_is_to_be_downloaded_again(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(BLOCKS), GGMLQuantizationType.Q4_1)
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) - 2000])
    assert "download it again" in message(load_weights, source, "float32", "cpu", 4)


# A process of its own: the peak of this one was reached by other tests. `peak` is the most memory that the process
# has had at once, in bytes.
MEASURE = """
import gguf.quants, resource, sys, torch
from pathlib import Path
import tiny_llm.kernels.matmul_backends
from tiny_llm.model import Transformer
from tiny_llm.quantize import QuantizedTensor, dequantize
from tiny_llm.weights import load_weights

def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

torch.ones(64, 64) @ torch.ones(64, 64)
before = peak()
weights = load_weights("smollm2-135m", bits=4, matmul="plain")
Transformer(weights.config, weights).hidden(torch.tensor([[1]]), slice(0, 1))
loaded = peak()
copy = [dequantize(t) for t in weights.tensors.values() if isinstance(t, QuantizedTensor)]
print(loaded - before, peak() - before, sum(t.nbytes for t in copy))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no peak of memory to ask for this way")
def test_a_full_float_copy_of_the_matrices_is_never_made() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{MEASURE}"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    loaded, with_copy, copy = map(int, done.stdout.split())
    print(f"peak {loaded / 1e6:.0f} MB, {with_copy / 1e6:.0f} MB with a float copy of {copy / 1e6:.0f} MB")
    assert loaded < 0.8 * copy
    assert with_copy > 1.2 * copy, "the measurement doesn't notice a full copy"
