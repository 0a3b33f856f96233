"""Converted weights are kept, used again, and never believed when they shouldn't be."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tiny_models import BLOCKS, FAMILIES, random_model, write_gguf

import tiny_llm.loading.cache as cache_module
from tiny_llm.weights import Weights, load_weights


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small GGUF file."""
    return write_gguf(tmp_path / "model.gguf", random_model(FAMILIES["qwen2"]))


def same(one: Weights, other: Weights) -> bool:
    """Whether two loads gave the same model, bit for bit."""
    return (
        one.config == other.config
        and one.tensors.keys() == other.tensors.keys()
        and all(torch.equal(one.tensor(name), other.tensor(name)) for name in one.tensors)
    )


def make_unreadable(source: Path) -> None:
    """Replace a file's content by zeros, keeping its size and its time, so that only a cached copy can be loaded."""
    status = source.stat()
    source.write_bytes(bytes(status.st_size))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))


def only_file(cache: Path) -> Path:
    (file,) = cache.iterdir()
    return file


def test_a_second_load_comes_from_the_cache_and_is_the_same(source: Path) -> None:
    first = load_weights(source)
    make_unreadable(source)
    assert same(load_weights(source), first)


def test_every_dtype_is_kept_beside_the_others(source: Path, cache: Path) -> None:
    first = {dtype: load_weights(source, dtype) for dtype in ("float32", "bfloat16", "float16")}
    assert len(list(cache.iterdir())) == 3
    make_unreadable(source)
    for dtype, weights in first.items():
        assert same(load_weights(source, dtype), weights)


def test_files_of_one_name_in_two_folders_do_not_share_a_cached_copy(source: Path, tmp_path: Path) -> None:
    first = load_weights(source)
    (tmp_path / "other").mkdir()
    other = write_gguf(tmp_path / "other" / source.name, random_model(FAMILIES["qwen2"], seed=1))
    assert not same(load_weights(other), first)
    assert same(load_weights(source), first)


def test_a_changed_source_is_converted_again_and_replaces_the_old_copy(source: Path, cache: Path) -> None:
    old = load_weights(source)
    write_gguf(source, random_model(FAMILIES["qwen2"], seed=1))
    os.utime(source, (time.time() + 5, time.time() + 5))
    new = load_weights(source)
    assert not same(new, old)
    assert only_file(cache).exists()
    make_unreadable(source)
    assert same(load_weights(source), new)


def damaged(content: bytes) -> dict[str, bytes]:
    """Ways in which a file gets broken."""
    flipped = bytearray(content)
    flipped[-40] ^= 0x10
    middle = len(content) // 2
    return {
        "empty": b"",
        "cut in the header": content[:100],
        "cut in the data": content[:-1],
        "one bit flipped": bytes(flipped),
        "a page of zeros": content[:middle] + bytes(512) + content[middle + 512 :],
        "another kind of file": b"not weights at all" * 100,
        "two tensors' names exchanged": content.replace(b"blocks.0.down", b"blocks.#.down")
        .replace(b"blocks.1.down", b"blocks.0.down")
        .replace(b"blocks.#.down", b"blocks.1.down"),
    }


@pytest.mark.parametrize("how", damaged(bytes(100)))
def test_a_damaged_copy_is_converted_again(how: str, source: Path, cache: Path) -> None:
    first = load_weights(source)
    kept = only_file(cache)
    kept.write_bytes(damaged(kept.read_bytes())[how])
    assert same(load_weights(source), first)
    make_unreadable(source)
    assert same(load_weights(source), first), "the damaged copy was not replaced"


def test_a_copy_of_an_older_format_is_converted_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "_FORMAT", 0)
        old = load_weights(source)
        status = source.stat()
        write_gguf(source, random_model(FAMILIES["qwen2"], seed=1))
        os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert same(load_weights(source), old), (
            "size and time are the same, so the copy should have been used"
        )
    assert not same(load_weights(source), old)


def test_nothing_is_left_behind_when_writing_is_interrupted(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "write_aligned", write_half)
        with pytest.raises(KeyboardInterrupt):
            load_weights(source)
    assert list(cache.iterdir()) == []
    first = load_weights(source)
    make_unreadable(source)
    assert same(load_weights(source), first)


def test_what_a_killed_writer_left_is_removed_after_an_hour(source: Path, cache: Path) -> None:
    load_weights(source)
    kept = only_file(cache)
    old, young = cache / f"{kept.name}.old.tmp", cache / f"{kept.name}.young.tmp"
    old.write_bytes(b"half")
    young.write_bytes(b"somebody is writing")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    kept.unlink()
    load_weights(source)
    assert not old.exists()
    assert young.exists()
    assert kept.exists()


def test_many_writers_at_once_all_get_the_model_and_leave_one_whole_copy(source: Path, cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        loads = list(pool.map(lambda _: load_weights(source), range(16)))
    assert all(same(loaded, loads[0]) for loaded in loads)
    assert only_file(cache).suffix == ".safetensors"
    make_unreadable(source)
    assert same(load_weights(source), loads[0])


def test_writing_to_a_loaded_tensor_does_not_change_the_copy_on_disk(source: Path) -> None:
    load_weights(source)
    second = load_weights(source)
    before = second.tensor("norm.weight").clone()
    second.tensor("norm.weight").zero_()
    assert torch.equal(load_weights(source).tensor("norm.weight"), before)


def test_cached_tensors_start_where_the_processor_reads_them_fastest(tmp_path: Path) -> None:
    # In this model the tensors' sizes are multiples of a cache line, as in real ones.
    source = write_gguf(tmp_path / "blocks.gguf", random_model(BLOCKS))
    load_weights(source)
    weights = load_weights(source)
    assert {weights.tensor(name).data_ptr() % 64 for name in weights.tensors} == {0}


def test_a_cache_folder_that_cannot_be_written_costs_one_warning_and_nothing_else(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = load_weights(source)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TINY_LLM_CACHE", str(tmp_path / "file" / "cache"))
    assert same(load_weights(source), expected)
    assert same(load_weights(source), expected)
    warning = capsys.readouterr().err
    assert warning.count("warning:") == 1
    assert "TINY_LLM_CACHE" in warning


def test_a_safetensors_folder_is_not_copied_into_the_cache(tmp_path: Path, cache: Path) -> None:
    random_model(FAMILIES["llama"]).save_pretrained(tmp_path)
    load_weights(tmp_path)
    assert list(cache.iterdir()) == []
