"""Weights from both formats give the logits that transformers gives, for every supported family."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType
from tiny_models import (
    BLOCKS,
    FAMILIES,
    expected_logits,
    our_logits,
    permute_for_llama_cpp,
    random_model,
    rope_divisors,
    write_gguf,
)

from tiny_llm.loading.rope_scaling import Llama3Scaling
from tiny_llm.weights import load_weights


def assert_same_logits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """All logits within 1e-4."""
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_safetensors_folder_gives_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    model = random_model(FAMILIES[family])
    model.save_pretrained(tmp_path)
    assert_same_logits(our_logits(model, tmp_path), expected_logits(model))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gguf_file_gives_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    model = random_model(FAMILIES[family])
    source = write_gguf(tmp_path / "model.gguf", model)
    assert_same_logits(our_logits(model, source), expected_logits(model))


@pytest.mark.parametrize("family", ["llama tied", "qwen2", "qwen3"])
def test_shards_with_an_index_are_read_as_one_model(family: str, tmp_path: Path) -> None:
    model = random_model(FAMILIES[family])
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_logits(our_logits(model, tmp_path), expected_logits(model))


def test_the_config_says_what_the_family_is(tmp_path: Path) -> None:
    for family in ("llama tied", "qwen2", "qwen3"):
        random_model(FAMILIES[family]).save_pretrained(tmp_path / family)
    llama, qwen2, qwen3 = (load_weights(tmp_path / f).config for f in ("llama tied", "qwen2", "qwen3"))
    assert (llama.tied_embeddings, llama.qkv_bias, llama.qk_norm) == (True, False, False)
    assert (qwen2.tied_embeddings, qwen2.qkv_bias, qwen2.qk_norm) == (False, True, False)
    assert (qwen3.tied_embeddings, qwen3.qkv_bias, qwen3.qk_norm) == (False, False, True)
    assert (qwen3.num_heads, qwen3.num_kv_heads, qwen3.head_dim, qwen3.hidden_size) == (6, 2, 14, 40)
    assert (llama.bos_id, llama.end_ids, llama.rope_base, llama.max_positions) == (1, (2,), 5000.0, 80)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_both_formats_of_one_model_give_the_same_config(family: str, tmp_path: Path) -> None:
    model = random_model(FAMILIES[family])
    model.save_pretrained(tmp_path / "folder")
    folder = load_weights(tmp_path / "folder").config
    file = load_weights(write_gguf(tmp_path / "model.gguf", model)).config
    assert file.norm_eps == pytest.approx(folder.norm_eps)
    assert {**vars(file), "norm_eps": 0} == {**vars(folder), "norm_eps": 0}


def test_a_config_written_by_an_older_transformers_is_understood(tmp_path: Path) -> None:
    model = random_model(FAMILIES["qwen2"])
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {"rope_theta": 5000.0, "rope_scaling": None, "sliding_window": 32, "use_sliding_window": False}
    path.write_text(json.dumps(config))
    assert_same_logits(our_logits(model, tmp_path), expected_logits(model))


@pytest.mark.parametrize(
    ("head_dim", "numbers"),
    [
        (128, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),  # Llama 3.1 8B
        (64, {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),  # Llama 3.2 1B
        (96, {"factor": 3.5, "low_freq_factor": 0.5, "high_freq_factor": 9.0}),
    ],
)
def test_rotary_divisors_are_those_of_transformers(head_dim: int, numbers: dict[str, float]) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "original_max_position_embeddings": 8192,
        **numbers,
    }
    config = transformers.LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, rope_parameters=rope
    )
    ours = Llama3Scaling(original_max_position_embeddings=8192, **numbers).divisors(head_dim, 500_000.0)
    assert 1.0 in ours
    assert numbers["factor"] in ours
    np.testing.assert_allclose(ours, rope_divisors(config), rtol=1e-5)


@pytest.mark.parametrize("source", ["folder", "gguf"])
def test_a_scaled_model_keeps_its_divisors_through_the_cache(source: str, tmp_path: Path) -> None:
    model = random_model(FAMILIES["llama 3.1"])
    path = tmp_path / "folder"
    model.save_pretrained(path)
    if source == "gguf":
        path = write_gguf(tmp_path / "model.gguf", model)
    for _ in range(2):
        np.testing.assert_allclose(
            load_weights(path).config.rope_divisors, rope_divisors(model.config), rtol=1e-5
        )


def test_every_end_id_of_the_generation_config_counts(tmp_path: Path) -> None:
    model = random_model(FAMILIES["qwen3"])
    model.generation_config.eos_token_id = [5, 2]
    model.save_pretrained(tmp_path)
    assert load_weights(tmp_path).config.end_ids == (5, 2)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q4_0", "Q5_1", "F16", "BF16"])
def test_quantized_matrices_equal_the_gguf_packages_own_dequantization(kind: str, tmp_path: Path) -> None:
    model = random_model(BLOCKS)
    stored = GGMLQuantizationType[kind]
    weights = load_weights(write_gguf(tmp_path / "model.gguf", model, stored))

    def rounded(name: str, heads: int = 0) -> torch.Tensor:
        values = model.state_dict()[name].numpy()
        if not heads:
            return torch.tensor(gguf.dequantize(gguf.quantize(values, stored), stored))
        # Rows are quantized one by one, so permuting them only changes which row is which.
        permuted = permute_for_llama_cpp(values, heads)
        stored_rows = gguf.dequantize(gguf.quantize(permuted, stored), stored)
        order = permute_for_llama_cpp(torch.arange(len(values)).numpy(), heads)
        back = torch.empty_like(torch.tensor(stored_rows))
        back[torch.tensor(order)] = torch.tensor(stored_rows)
        return back

    layer = "model.layers.1"
    query, key = (
        rounded(f"{layer}.self_attn.q_proj.weight", 4),
        rounded(f"{layer}.self_attn.k_proj.weight", 2),
    )
    qkv = torch.cat([query, key, rounded(f"{layer}.self_attn.v_proj.weight")])
    gate_up = torch.cat([rounded(f"{layer}.mlp.gate_proj.weight"), rounded(f"{layer}.mlp.up_proj.weight")])
    assert torch.equal(weights.tensor("blocks.1.qkv.weight"), qkv)
    assert torch.equal(weights.tensor("blocks.1.gate_up.weight"), gate_up)
    assert torch.equal(weights.tensor("embedding.weight"), rounded("model.embed_tokens.weight"))


@pytest.mark.parametrize("source", ["folder", "gguf"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_weights_are_the_float32_ones_rounded(source: str, dtype: str, tmp_path: Path) -> None:
    model = random_model(FAMILIES["qwen3"])
    path = tmp_path / "folder"
    model.save_pretrained(path)
    if source == "gguf":
        path = write_gguf(tmp_path / "model.gguf", model)
    full, half = load_weights(path), load_weights(path, dtype)
    assert full.tensors.keys() == half.tensors.keys()
    for name in half.tensors:
        tensor = half.tensor(name)
        assert tensor.dtype == getattr(torch, dtype)
        assert torch.equal(tensor, full.tensor(name).to(tensor.dtype)), name


def test_a_folder_stored_in_bfloat16_loads_as_float32(tmp_path: Path) -> None:
    model = random_model(FAMILIES["llama"])
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    expected = expected_logits(model)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    assert_same_logits(our_logits(model, tmp_path), expected)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_weights_on_an_accelerator_give_the_same_logits(device: str, tmp_path: Path) -> None:
    if not getattr(torch, device).is_available():
        pytest.skip(f"this machine has no {device} device")
    model = random_model(FAMILIES["qwen2"])
    source = write_gguf(tmp_path / "model.gguf", model)
    assert load_weights(source, device=device).tensor("norm.weight").device.type == device
    torch.testing.assert_close(
        our_logits(model, source, device=device), expected_logits(model), rtol=0, atol=1e-3
    )
