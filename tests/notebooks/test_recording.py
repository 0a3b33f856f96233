"""What the reference's model gives attention, recorded for notebooks: beside float64 arithmetic by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from courses import make_course

from coursekit.errors import CourseError
from coursekit.paths import ROOT_VARIABLE
from notebooks import recorded
from notebooks.recording import Recorded
from tiny_llm.weights import Weights, load_weights

TEXT = "Pages are read in order."


@pytest.fixture(scope="module")
def weights() -> Weights:
    return load_weights()


@cache
def found() -> Recorded:
    return recorded(TEXT)


def numbers(weights: Weights, name: str) -> np.ndarray:
    tensor = weights.tensors[name]
    assert isinstance(tensor, torch.Tensor)
    return tensor.numpy().astype(np.float64)


def normed(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * scale


def turned(heads: np.ndarray, base: float) -> np.ndarray:
    """[H, L, D], each token turned by its position; pairs are i and i + D/2."""
    _, L, D = heads.shape
    angles = np.outer(np.arange(L), base ** (-np.arange(0, D, 2) / D))
    a, b = heads[..., : D // 2], heads[..., D // 2 :]
    return np.concatenate(
        [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1
    )


def test_the_shapes_are_those_of_the_model_and_the_tokens_those_of_the_text(weights):
    config, L = weights.config, len(found().tokens)
    assert "".join(found().tokens) == TEXT
    layers, head = config.num_layers, config.head_dim
    assert found().stream.shape == (2 * layers + 1, L, config.hidden_size)
    assert found().query.shape == (layers, config.num_heads, L, head)
    assert found().key.shape == found().value.shape == (layers, config.num_kv_heads, L, head)
    assert {part.dtype for part in (found().stream, found().query, found().key, found().value)} == {
        np.dtype(np.float32)
    }


@pytest.mark.parametrize("layer", [0, 29])
def test_a_layers_queries_keys_and_values_are_made_from_its_stream(weights, layer):
    config, place = weights.config, f"blocks.{layer}."
    x = normed(found().stream[2 * layer], numbers(weights, f"{place}attention_norm.weight"), config.norm_eps)
    flat = x @ numbers(weights, f"{place}qkv.weight").T
    heads = flat.reshape(len(x), -1, config.head_dim).transpose(1, 0, 2)
    H, Hkv = config.num_heads, config.num_kv_heads
    for part, expected in (
        (found().query, turned(heads[:H], config.rope_base)),
        (found().key, turned(heads[H : H + Hkv], config.rope_base)),
        (found().value, heads[H + Hkv :]),
    ):
        np.testing.assert_allclose(part[layer], expected, rtol=1e-3, atol=2e-3)


def test_the_same_text_is_run_once():
    assert recorded(TEXT) is found()


def test_a_reference_that_fails_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv(ROOT_VARIABLE, str(make_course(tmp_path).root))
    with pytest.raises(CourseError, match=r"the reference's model did not run: (.|\n)*kv_cache"):
        recorded("Another text, for another course.")
