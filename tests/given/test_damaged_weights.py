"""Headers that count too far, weights that are no numbers: one line, and no more memory than the files take."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from refusals import message
from safetensors.torch import load_file, save_file
from tiny_models import write_gguf

from tiny_llm.loading.gguf_file import read_gguf
from tiny_llm.weights import load_weights

UINT8, UINT32, FLOAT32, STRING, ARRAY = 0, 4, 6, 8, 9
MANY = 2**63 + 1


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def header(tensors: int = 0, pairs: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + rest


def entry(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + axes + struct.pack("<IQ", kind, offset)


def pair(kind: int, rest: bytes = b"") -> bytes:
    return string(b"k") + struct.pack("<I", kind) + rest


def array(kind: int, count: int) -> bytes:
    return pair(ARRAY, struct.pack("<IQ", kind, count))


HEADERS = {
    "2^63 tensors": header(tensors=MANY),
    "2^40 tensors, and zeros": header(tensors=2**40, rest=bytes(10_000)),
    "2^63 pairs": header(pairs=MANY),
    "2^40 pairs, and zeros": header(pairs=2**40, rest=bytes(10_000)),
    "a long name": header(pairs=1, rest=string(b"k", MANY)),
    "a long text": header(pairs=1, rest=pair(STRING, string(b"x", 2**62))),
    "2^63 texts": header(pairs=1, rest=array(STRING, MANY)),
    "2^62 numbers": header(pairs=1, rest=array(FLOAT32, 2**62)),
    "an array of arrays": header(pairs=1, rest=array(ARRAY, 1) + bytes(64)),
    "four million empty texts": header(pairs=1, rest=array(STRING, 2**22) + bytes(8 * 2**22)),
    "four million numbers": header(pairs=1, rest=array(UINT8, 2**22) + bytes(2**22)),
    "an unknown type": header(pairs=1, rest=pair(77, bytes(8))),
    "a name that is no text": header(pairs=1, rest=string(b"\xff\xfe") + bytes(16)),
    "a key twice": header(pairs=2, rest=2 * pair(UINT32, bytes(4))),
    "a tensor twice": header(tensors=2, rest=2 * entry(b"t", (4,), 0, 0) + bytes(64)),
    "nine axes": header(tensors=1, rest=entry(b"t", (1,) * 9, 0, 0) + bytes(64)),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_counts_too_far_or_repeats_itself_is_damaged(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(HEADERS[kind])
    assert "is damaged or only half a file" in message(read_gguf, path)


def test_a_header_gives_no_more_bytes_to_its_tensors_than_the_file_has(tmp_path: Path, model: Any) -> None:
    numbers = np.zeros(8000, np.float32)
    path = write_gguf(tmp_path / "model.gguf", model, extra={"first": numbers, "second": numbers})
    tensors = read_gguf(path).tensors
    start = tensors["token_embd.weight"].offset  # it comes first, so this is where the data begin
    first, second = (struct.pack("<IQ", 0, tensors[name].offset - start) for name in ("first", "second"))
    content = path.read_bytes()
    assert content.count(second) == 1
    path.write_bytes(content.replace(second, first)[: -numbers.nbytes])  # now both have the same bytes
    assert "is damaged or only half a file" in message(load_weights, path)


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(bits: int | None, value: float, folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = value
    save_file(tensors, folder / "model.safetensors")
    text = message(lambda: load_weights(folder, bits=bits, matmul="auto" if bits is None else "plain"))
    assert "model.layers.1.mlp.up_proj.weight holds NaN or infinity" in text


@pytest.mark.filterwarnings("error")
def test_a_scale_that_is_no_number_is_one_line_too(tmp_path: Path, model: Any) -> None:
    path = write_gguf(tmp_path / "model.gguf", model, GGMLQuantizationType.Q4_1)
    at = read_gguf(path).tensors["blk.1.ffn_up.weight"].offset
    content = bytearray(path.read_bytes())
    content[at : at + 2] = np.float16("inf").tobytes()
    path.write_bytes(content)
    for bits in (None, 4):
        text = message(lambda bits=bits: load_weights(path, bits=bits, matmul="plain" if bits else "auto"))
        assert "blk.1.ffn_up.weight holds NaN or infinity" in text


def test_weights_in_8_bit_floats_are_refused_since_their_scales_are_elsewhere(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors")
    assert "choose weights in float32" in message(load_weights, folder)


def test_rotary_divisors_that_make_no_sense_are_refused(
    tmp_path: Path, model: Any, vocabulary: dict[str, Any]
) -> None:
    for wrong in (np.zeros(8), np.full(8, np.nan), np.full(8, -2.0), np.full(8, np.inf), np.ones(9)):
        extra = {"rope_freqs.weight": wrong.astype(np.float32)}
        path = write_gguf(tmp_path / "model.gguf", model, extra=extra)
        assert "rope_" in message(load_weights, path)
