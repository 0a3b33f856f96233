"""Whatever is in a model's files: one line, at once, and no more memory than the files take."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import message
from whole_models import run_whole, write_whole_gguf

from tiny_llm.loading.errors import reading
from tiny_llm.tokenizer import load_tokenizer
from tiny_llm.weights import load_weights


def test_the_undamaged_models_run(
    tmp_path: Path, folder: Path, model: Any, vocabulary: dict[str, Any]
) -> None:
    assert run_whole(folder) >= 0
    assert run_whole(write_whole_gguf(tmp_path / "model.gguf", model, vocabulary)) >= 0


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
