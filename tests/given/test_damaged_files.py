"""Whatever is in a model's files: one line, at once, and no more memory than the files take."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tokenizers
import torch
from gguf import GGMLQuantizationType, GGUFValueType
from safetensors.torch import load_file, save_file
from tiny_models import write_gguf
from whole_models import MESSAGES, run_whole, whole_model, write_whole_folder, write_whole_gguf

import tiny_llm.loading.apart as apart
from tiny_llm.loading.errors import reading
from tiny_llm.loading.gguf_file import read_gguf
from tiny_llm.tokenizer import load_tokenizer
from tiny_llm.weights import WeightsError, load_weights

UINT8, UINT32, FLOAT32, STRING, ARRAY = 0, 4, 6, 8, 9
MANY = 2**63 + 1


@pytest.fixture(scope="module")
def vocabulary() -> dict[str, Any]:
    """A small trained vocabulary."""
    return tiny_tokenizers.trained()


@pytest.fixture(scope="module")
def model(vocabulary: dict[str, Any]) -> Any:
    """A small Llama."""
    return whole_model(vocabulary)


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory, model: Any, vocabulary: dict[str, Any]) -> Path:
    """It, as a Hugging Face folder that stays as it is."""
    return write_whole_folder(tmp_path_factory.mktemp("undamaged"), model, vocabulary)


@pytest.fixture
def folder(tmp_path: Path, undamaged: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(undamaged, tmp_path / "folder"))


@pytest.fixture
def change_json(folder: Path) -> Callable[..., Path]:
    """A function that changes top-level keys of one of the folder's JSON files."""

    def change(name: str, **values: Any) -> Path:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
        return folder

    return change


def message(call: Callable[..., object], *arguments: Any) -> str:
    """The one printable line that the call fails with."""
    with pytest.raises(WeightsError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 700
    return text


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def header(tensors: int = 0, pairs: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + rest


def entry(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + axes + struct.pack("<IQ", kind, offset)


def test_the_undamaged_models_run(
    tmp_path: Path, folder: Path, model: Any, vocabulary: dict[str, Any]
) -> None:
    assert run_whole(folder) >= 0
    assert run_whole(write_whole_gguf(tmp_path / "model.gguf", model, vocabulary)) >= 0


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


@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size", "max_position_embeddings", "head_dim"])
@pytest.mark.parametrize(
    "value",
    [
        10**400,
        10**12,
        2**31 - 1,
        0,
        -3,
        1.5,
        True,
        "32",
        [32],
        {},
        float("nan"),
        float("inf"),
        "\ud800",
        "x" * 10_000,
    ],
    ids=lambda value: f"{value!a:.20}",
)
def test_a_wild_size_is_refused_before_anything_is_made_of_it(
    key: str, value: Any, change_json: Callable[..., Path]
) -> None:
    text = message(load_weights, change_json("config.json", **{key: value}))
    if value != 2**31 - 1:
        assert key in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", 0),
        ("tie_word_embeddings", "yes"),
        ("eos_token_id", -1),
        ("eos_token_id", [2, "x"]),
        ("eos_token_id", 10**9),
        ("bos_token_id", 703.5),
        ("rope_parameters", [1]),
        ("rope_parameters", {"rope_theta": 1e-300}),
        ("rope_parameters", {"rope_theta": float("inf")}),
        (
            "rope_parameters",
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0},
        ),
        ("layer_types", 3),
        ("hidden_act", {}),
        ("model_type", ["llama"]),
        ("model_type", "llama\n\x1b[2Jdone"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_named(
    key: str, value: Any, change_json: Callable[..., Path]
) -> None:
    text = message(load_weights, change_json("config.json", **{key: value}))
    assert "config.json" in text or "end_ids is 1000000000" in text


def test_deep_or_repeated_json_is_one_line(folder: Path) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"):
        path = folder / name
        whole = path.read_bytes()
        for content in (
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[]",
            b"\xff\xfe\x00",
            b'{"a": 1' + b"0" * 5000 + b"}",
        ):
            path.write_bytes(content)
            message(run_whole, folder)
        path.write_bytes(whole)
    run_whole(folder)


@pytest.mark.parametrize(
    "names", [{"a": 1}, ["x"], {"a": "../../etc/passwd"}, {"a": ".."}, {"a": "/dev/zero"}], ids=str
)
def test_an_index_can_name_files_of_its_folder_only(names: Any, folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "model.safetensors.index.json" in message(load_weights, folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"],
)
def test_a_file_that_cannot_be_read_is_not_called_damaged(name: str, folder: Path) -> None:
    path = folder / name
    path.unlink()
    path.symlink_to("nowhere")
    assert "is a link to a file that isn't there" in message(run_whole, folder)
    path.unlink()
    path.mkdir()
    assert "is a folder; a file is needed" in message(run_whole, folder)
    path.rmdir()
    os.mkfifo(path)
    assert "isn't an ordinary file" in message(run_whole, folder)


def test_what_the_system_refuses_is_said_as_it_says_it(tmp_path: Path) -> None:
    def refuse() -> None:
        with reading(tmp_path):
            raise PermissionError(13, "Permission denied")

    assert message(refuse) == f"can't read {tmp_path}: Permission denied"


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "~nobody-of-that-name/x.gguf", "\ud800"], ids=ascii)
def test_a_name_that_no_file_can_have_is_one_line(name: str) -> None:
    for load in (load_weights, load_tokenizer):
        message(load, name)


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


def test_a_token_without_a_row_in_the_embedding_is_found_at_loading(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    last = {
        **content["added_tokens"][-1],
        "content": "<one too many>",
        "id": content["added_tokens"][-1]["id"] + 1,
    }
    content["added_tokens"].append(last)
    path.write_text(json.dumps(content))
    assert f"id {last['id']}" in message(run_whole, folder)


def test_a_gguf_tokenizer_whose_parts_do_not_fit_is_one_line(
    tmp_path: Path, model: Any, vocabulary: dict[str, Any]
) -> None:
    text, array = GGUFValueType.STRING, GGUFValueType.ARRAY
    for key, value in (
        ("token_type", ([1, 2], array, GGUFValueType.INT32)),
        ("merges", (["only-one-part", "a b c"], array, text)),
        ("tokens", ([3, 4], array, GGUFValueType.INT32)),
        ("eos_token_id", (-7, GGUFValueType.INT32)),
        ("bos_token_id", ("one", text)),
    ):
        path = tiny_tokenizers.write_gguf_tokenizer(tmp_path / "t.gguf", vocabulary, "qwen2")
        metadata = read_gguf(path).metadata
        assert key == "bos_token_id" or f"tokenizer.ggml.{key}" in metadata
        broken = {**tiny_tokenizers.ggml_settings(vocabulary), f"tokenizer.ggml.{key}": value}
        message(load_tokenizer, write_gguf(tmp_path / "m.gguf", model, settings=broken))


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


STEPS = {
    "a pattern that panics": split(r"(a|aa)+$"),
    "an unknown kind": {"type": "Splitt"},
    "a broken pattern": split("("),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_tokenizer_that_breaks_the_library_is_damaged(
    step: str, change_json: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert "is damaged" in message(load_tokenizer, change_json("tokenizer.json", pre_tokenizer=STEPS[step]))
    assert capfd.readouterr().err == ""


def test_a_tokenizer_that_makes_a_text_endless_is_damaged(
    change_json: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 1.0)
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 60}
    steps = {"type": "Sequence", "normalizers": [longer] * 6}
    assert "is damaged" in message(load_tokenizer, change_json("tokenizer.json", normalizer=steps))


def test_a_text_that_a_pattern_gives_up_on_is_one_line(change_json: Callable[..., Path]) -> None:
    step = split(r"(q|qq)+$")
    tokenizer = load_tokenizer(change_json("tokenizer.json", pre_tokenizer=step))
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_chat([{"role": "user", "content": text}])):
        assert "gives up on this text" in message(encode, "q" * 60 + "!")


def test_a_prompt_is_neither_cut_nor_padded_by_settings_of_the_file(change_json: Callable[..., Path]) -> None:
    cut = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    pad = {"strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    pad |= {"pad_type_id": 0, "pad_token": "x"}
    plain = load_tokenizer(change_json("tokenizer.json")).encode("the cat sat")
    changed = load_tokenizer(change_json("tokenizer.json", truncation=cut, padding=pad))
    assert changed.encode("the cat sat") == plain


TEMPLATES = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a division by zero": "{{ 1 / 0 }}",
    "a recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a long text": "{{ 'x' * 10 ** 10 }}",
    "a wide number": "{{ '%0900000000d' % 1 }}",
    "many texts": "{% for a in range(9999) %}{{ 'x' * 100000 }}{% endfor %}",
    "doubling": "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "deep brackets": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "half a character": "{{ '\\ud800' }}",
    "a filter": "{{ 'x' | center(10 ** 10) }}",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_that_does_not_end_well_is_one_line(
    template: str, tmp_path: Path, vocabulary: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 0.5)
    path = tiny_tokenizers.write_gguf_tokenizer(
        tmp_path / "t.gguf", vocabulary, "qwen2", chat_template=TEMPLATES[template]
    )
    tokenizer = load_tokenizer(path)
    for ask in (tokenizer.chat, tokenizer.encode_chat):
        assert "--raw" in message(ask, MESSAGES)


def test_after_a_template_that_was_stopped_the_next_conversation_is_written(
    tmp_path: Path, vocabulary: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 0.5)
    template = "{% if messages[0].content == 'loop' %}" + TEMPLATES["nested loops"] + "{% endif %}fine"
    path = tiny_tokenizers.write_gguf_tokenizer(
        tmp_path / "t.gguf", vocabulary, "qwen2", chat_template=template
    )
    tokenizer = load_tokenizer(path)
    assert "--raw" in message(tokenizer.chat, [{"role": "user", "content": "loop"}])
    assert tokenizer.chat(MESSAGES) == "fine"


def test_a_conversation_can_use_every_private_character_of_the_first_plane(
    tmp_path: Path, vocabulary: dict[str, Any]
) -> None:
    path = tiny_tokenizers.write_gguf_tokenizer(
        tmp_path / "t.gguf", vocabulary, "qwen2", chat_template=tiny_tokenizers.CHATML
    )
    said = "".join(map(chr, range(0xE000, 0xF900))) + "<|im_end|>"
    ids = load_tokenizer(path).encode_chat([{"role": "user", "content": said}])
    assert ids.count(2) == 2
