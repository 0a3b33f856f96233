"""Whatever is wrong with a model, the answer is one line that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from gguf import GGUFValueType
from huggingface_hub import errors as hub_errors
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, random_model, write_gguf

from tiny_llm.tokenizer import load_tokenizer
from tiny_llm.weights import WeightsError, load_weights


def message(load: Callable[..., object], *arguments: Any) -> str:
    """The one line that loading fails with."""
    with pytest.raises(WeightsError) as caught:
        load(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture(scope="module")
def model() -> Any:
    """A Llama."""
    return random_model(FAMILIES["llama"])


@pytest.fixture
def folder(tmp_path: Path, model: Any) -> Path:
    """It, as a Hugging Face folder."""
    model.save_pretrained(tmp_path / "folder")
    return tmp_path / "folder"


@pytest.fixture
def change_config(folder: Path) -> Callable[..., Path]:
    """A function that changes the folder's config.json; a value of None removes the key."""

    def change(**values: Any) -> Path:
        path = folder / "config.json"
        config = {**json.loads(path.read_text()), **values}
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
        return folder

    return change


@pytest.mark.parametrize(
    "source", ["no-such-model", "./org/name", "models/x.gguf", "/no/such/folder", "a/b/c"]
)
def test_a_wrong_path_is_answered_with_what_can_be_given(source: str) -> None:
    for load in (load_weights, load_tokenizer):
        text = message(load, source)
        assert "no model at" in text
        assert "smollm2-135m" in text


def test_a_file_that_is_no_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "notes.gguf").write_text("hello, I am not a model")
    (tmp_path / "empty.gguf").write_text("")
    assert "isn't a .gguf file" in message(load_weights, tmp_path / "notes.txt")
    assert "isn't a GGUF file" in message(load_weights, tmp_path / "notes.gguf")
    assert "is empty" in message(load_weights, tmp_path / "empty.gguf")
    assert "no config.json" in message(load_weights, tmp_path)
    assert "no tokenizer.json" in message(load_tokenizer, tmp_path)


@pytest.mark.parametrize("kept", [3, 10, 23, 30, 200, 2000, 0.5, 0.999])
def test_half_a_gguf_file_is_to_be_downloaded_again(kept: float, tmp_path: Path, model: Any) -> None:
    source = write_gguf(tmp_path / "model.gguf", model)
    whole = source.read_bytes()
    source.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    assert "download it again" in message(load_weights, source)


@pytest.mark.parametrize("kept", [0, 5, 100, 0.5, 0.999])
def test_half_a_safetensors_file_is_to_be_downloaded_again(kept: float, folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    assert "download it again" in message(load_weights, folder)


def test_half_a_config_is_to_be_downloaded_again(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text()[:50])
    assert "download it again" in message(load_weights, folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mamba"}, "'mamba'"),
        ({"model_type": None}, "None"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}}, "'low_freq_factor'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0}}, "'yarn'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear'"),
        ({"partial_rotary_factor": 0.5}, "part of a head"),
        ({"use_sliding_window": True, "sliding_window": 32}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "sliding-window"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"attention_bias": True}, "bias on the attention output"),
        ({"mlp_bias": True}, "bias in the MLP"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "three"}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "5 key-value heads"),
        ({"head_dim": 7}, "odd"),
        ({"rms_norm_eps": "small"}, "norm_eps"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused(
    changes: dict[str, Any], named: str, change_config: Callable[..., Path]
) -> None:
    assert named in message(load_weights, change_config(**changes))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"llama.rope.scaling.type": ("yarn", GGUFValueType.STRING)}, "'yarn'"),
        ({"llama.attention.sliding_window": (32, GGUFValueType.UINT32)}, "sliding-window"),
        ({"llama.expert_count": (8, GGUFValueType.UINT32)}, "mixture of experts"),
        ({"llama.rope.dimension_count": (4, GGUFValueType.UINT32)}, "4 rotated"),
        ({"split.count": (2, GGUFValueType.UINT16)}, "one of several parts"),
    ],
)
def test_a_gguf_that_cannot_be_run_is_refused(
    settings: dict[str, Any], named: str, tmp_path: Path, model: Any
) -> None:
    assert named in message(load_weights, write_gguf(tmp_path / "model.gguf", model, settings=settings))


def test_a_gguf_of_another_architecture_is_refused(tmp_path: Path, model: Any) -> None:
    source = write_gguf(tmp_path / "model.gguf", model)
    source.write_bytes(source.read_bytes().replace(b"llama", b"bloom"))
    assert "'bloom'" in message(load_weights, source)


def test_a_missing_tensor_is_named(folder: Path, tmp_path: Path, model: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert "'model.layers.2.mlp.up_proj.weight'" in message(load_weights, folder)
    source = write_gguf(tmp_path / "model.gguf", model, skip="blk.1.ffn_down.weight")
    assert "'blk.1.ffn_down.weight'" in message(load_weights, source)


def test_a_missing_head_is_named_when_the_config_says_that_it_is_separate(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert "'lm_head.weight'" in message(load_weights, folder)


def test_a_tensor_of_the_wrong_shape_is_named(folder: Path, change_config: Callable[..., Path]) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.weight"] = torch.zeros(48, 16)
    save_file(tensors, folder / "model.safetensors")
    text = message(load_weights, folder)
    assert "model.layers.1.self_attn.k_proj.weight" in text
    assert "[48, 16]" in text
    assert "[16, 48]" in text


def test_a_tensor_that_the_family_lacks_is_refused(folder: Path, tmp_path: Path, model: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.layers.0.mlp.gate.weight": torch.zeros(4, 48)}, folder / "model.safetensors")
    assert "'model.layers.0.mlp.gate.weight'" in message(load_weights, folder)
    source = write_gguf(tmp_path / "m.gguf", model, extra={"rope_long.weight": np.ones(4, np.float32)})
    assert "'rope_long.weight'" in message(load_weights, source)


def test_a_folder_whose_shards_are_not_all_there_names_the_missing_one(tmp_path: Path, model: Any) -> None:
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    lost = sorted(tmp_path.glob("*.safetensors"))[1]
    lost.unlink()
    assert lost.name in message(load_weights, tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert "no index" in message(load_weights, tmp_path)


def test_a_dtype_or_device_that_is_not_there_is_refused(folder: Path) -> None:
    assert "float32, bfloat16, float16" in message(load_weights, folder, "float8")
    assert "cpu, cuda, mps" in message(load_weights, folder, "float32", "tpu")
    absent = "mps" if not torch.backends.mps.is_available() else "cuda"
    assert f"no {absent} device" in message(load_weights, folder, "float32", absent)


def test_asking_weights_for_a_tensor_that_they_lack_names_it(folder: Path) -> None:
    weights = load_weights(folder)
    assert "'blocks.9.qkv.weight'" in message(weights.linear, "blocks.9.qkv")
    assert "'norm.bias'" in message(weights.tensor, "norm.bias")


def test_a_hub_model_without_a_network_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for load in (load_weights, load_tokenizer):
        assert "check the network" in message(load, "some-organisation/some-model")


def test_a_hub_model_that_does_not_exist_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Response:
        headers: dict[str, str] = {}  # noqa: RUF012 (what the library's error looks at)
        request = None

    def refuse(*_: object, **__: object) -> str:
        raise hub_errors.RepositoryNotFoundError("not found", response=Response())  # type: ignore[arg-type]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    assert "no model of that name" in message(load_weights, "some-organisation/some-model")


def test_a_hub_model_is_loaded_from_the_folder_that_the_hub_gives(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    asked = {}

    def download(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert load_weights("some-organisation/some-model").config == load_weights(folder).config
    assert not any(
        pattern.endswith((".bin", ".onnx", ".gguf")) for pattern in asked["some-organisation/some-model"]
    )
