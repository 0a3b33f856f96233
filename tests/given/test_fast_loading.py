"""Weights laid out for the fast kernels: kept, mapped, never believed when they shouldn't be; one table in 8 bits."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType
from test_cache import damaged, make_unreadable, only_file
from test_errors import message
from tiny_models import BLOCKS, ROPE, SIZES, random_model, write_gguf

from tiny_llm.fast import loading
from tiny_llm.fast.accelerate import Linear8, accelerate
from tiny_llm.fast.loading import load_fast
from tiny_llm.fast.table8 import Embedding8
from tiny_llm.model import Transformer
from tiny_llm.weights import WeightsError, load_weights

QWEN = transformers.Qwen2Config(
    **{**SIZES, "intermediate_size": 96, "vocab_size": 80},
    rope_parameters=ROPE,
    hidden_size=64,
    num_attention_heads=2,
    num_key_value_heads=1,
    tie_word_embeddings=True,
)
Q8_0 = GGMLQuantizationType.Q8_0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small GGUF file, all of whose matrices are in 8 bits; head and embedding are two."""
    return write_gguf(tmp_path / "model.gguf", random_model(BLOCKS), Q8_0)


def arrays(parts: Any) -> list[np.ndarray]:
    """All arrays in named tuples."""
    if isinstance(parts, tuple):
        return [array for part in parts for array in arrays(part)]
    return [np.asarray(parts)]


def contents(model: Any) -> list[np.ndarray]:
    """Every number of a fast model, in a fixed order."""
    blocks = tuple(block.parts for block in model.blocks)
    return arrays((blocks, model.embedding.table, model.head.weight, model.norm.weight.numpy()))


def same(one: Any, other: Any) -> bool:
    mine, theirs = contents(one), contents(other)
    return len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))


@pytest.mark.parametrize("config", [BLOCKS, QWEN], ids=["two tables", "one table and biases"])
def test_what_is_loaded_fast_is_the_model_that_accelerate_makes(config: Any, tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(config), Q8_0)
    weights = load_weights(source, bits=4, matmul="plain")
    expected = accelerate(Transformer(weights.config, weights))
    assert same(load_fast(source), expected)
    assert same(load_fast(source), expected), "from the cache"


def test_a_folder_of_safetensors_is_laid_out_without_a_copy_in_the_cache(tmp_path: Path, cache: Path) -> None:
    random_model(BLOCKS).save_pretrained(tmp_path)
    assert same(load_fast(tmp_path), load_fast(tmp_path))
    assert list(cache.iterdir()) == []


def test_a_second_start_comes_from_the_cache_and_is_the_same(source: Path) -> None:
    first = load_fast(source)
    make_unreadable(source)
    assert same(load_fast(source), first)


def test_what_was_laid_out_by_other_code_is_laid_out_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_fast(source)
    monkeypatch.setattr(loading, "fingerprint", lambda file, name: f"another {name}")
    assert same(load_fast(source), first)
    make_unreadable(source)
    assert same(load_fast(source), first), "the new copy was not kept"
    monkeypatch.undo()
    with pytest.raises(WeightsError):
        load_fast(source)


@pytest.mark.parametrize("how", sorted(damaged(bytes(100))))
def test_a_damaged_or_half_written_copy_is_made_again(how: str, source: Path, cache: Path) -> None:
    first = load_fast(source)
    kept = only_file(cache)
    kept.write_bytes(damaged(kept.read_bytes())[how])
    assert same(load_fast(source), first)
    make_unreadable(source)
    assert same(load_fast(source), first), "the damaged copy was not replaced"


def test_a_cache_folder_that_cannot_be_written_costs_one_warning(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = load_fast(source)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TINY_LLM_CACHE", str(tmp_path / "file" / "cache"))
    assert same(load_fast(source), expected)
    assert same(load_fast(source), expected)
    assert "TINY_LLM_CACHE" in capsys.readouterr().err


def test_two_processes_that_start_at_once_leave_one_whole_copy(source: Path, cache: Path) -> None:
    program = f"import sys; sys.path[:0] = {sys.path!r}\nfrom tiny_llm.fast.loading import load_fast\n"
    command = [sys.executable, "-c", program + f"load_fast({str(source)!r})"]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in started:
        _, errors = process.communicate(timeout=110)
        assert process.returncode == 0, errors
    assert [file.suffix for file in cache.iterdir() if file.is_file()] == [".safetensors"]
    expected = load_fast(source)
    make_unreadable(source)
    assert same(load_fast(source), expected)


def test_the_table_gives_the_numbers_of_a_file_in_8_bits_exactly(source: Path) -> None:
    expected = load_weights(source).tensor("embedding.weight")
    ids = torch.arange(len(expected)).reshape(2, -1)
    found = load_fast(source).embedding(ids)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected[ids])


def test_of_other_files_the_table_is_off_by_half_a_step_at_most(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(BLOCKS))
    expected = load_weights(source).tensor("embedding.weight")
    found = load_fast(source).embedding(torch.arange(len(expected)))
    steps = expected.reshape(len(expected), -1, 32).abs().amax(-1) / 127
    off = (found - expected).abs().reshape(len(expected), -1, 32).amax(-1)
    assert (
        off <= 0.57 * steps
    ).all()  # a step is rounded to float16: 127 of them miss the largest by 0.06 more


def test_a_tied_head_has_no_table_of_its_own(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(QWEN), Q8_0)
    weights = load_weights(source, bits=4, matmul="plain")
    for model in (load_fast(source), accelerate(Transformer(weights.config, weights))):
        assert isinstance(model.head, Linear8)
        assert isinstance(model.embedding, Embedding8)
        assert model.head.weight.records is model.embedding.table.records


def test_the_tensor_that_stands_for_the_table_says_where_it_is_and_has_no_numbers(source: Path) -> None:
    expected, weight = load_weights(source).tensor("embedding.weight"), load_fast(source).embedding.weight
    assert (weight.shape, weight.device, weight.dtype) == (expected.shape, expected.device, torch.bfloat16)
    assert weight.isnan().all()
    assert weight.untyped_storage().nbytes() < 100


def refused(source: Path, **sizes: Any) -> str:
    """The message about a model of these sizes, one line."""
    fields: dict[str, Any] = {**SIZES, "intermediate_size": 96, "vocab_size": 80, "hidden_size": 64, **sizes}
    config = transformers.LlamaConfig(rope_parameters=ROPE, **fields)
    return message(load_fast, write_gguf(source / "model.gguf", random_model(config)))


def test_a_matrix_without_kernels_for_its_size_is_refused_in_one_line(tmp_path: Path) -> None:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    assert "81 × 64" in refused(tmp_path, **heads, vocab_size=81)


def test_heads_without_kernels_for_their_size_are_refused_in_one_line(tmp_path: Path) -> None:
    assert "16 numbers" in refused(tmp_path, num_attention_heads=4, num_key_value_heads=2)


def test_positions_that_only_a_damaged_config_has_are_refused_in_one_line(tmp_path: Path) -> None:
    config = copy.deepcopy(BLOCKS)
    config.max_position_embeddings = 10**9
    model = random_model(config)
    source = write_gguf(tmp_path / "model.gguf", model)
    assert "asks for 1,000,000,000 positions" in message(load_fast, source)


MEASURE = """
from tiny_llm.fast.loading import load_fast

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))

before = anonymous()
model = load_fast()
print(anonymous() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells which memory is mapped")
def test_weights_that_were_kept_take_no_memory_of_their_own() -> None:
    load_fast()
    program = f"import sys; sys.path[:0] = {sys.path!r}\n{MEASURE}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    own = int(done.stdout)
    print(f"{own / 1e6:.0f} MB of the process's own")
    assert own < 30e6, "the weights, 98 MB, were copied"
