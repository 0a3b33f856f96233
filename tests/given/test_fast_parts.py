"""The given parts of Day 4.7 by themselves: instructions, exact kernels, threads, the table, attention on pages."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fast_models import small_model
from test_fast_loading import Q8_0, QWEN, same
from tiny_models import random_model, write_gguf

from tiny_llm.fast import instructions, threads
from tiny_llm.fast.attend import TiledAttention
from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.loading import load_fast
from tiny_llm.fast.parts import parts_of
from tiny_llm.fast.rooms import make_room
from tiny_llm.fast.table8 import Embedding8
from tiny_llm.fast.weights8 import lay_out_8_bits
from tiny_llm.layers import RMSNorm
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool

ALL = (
    instructions.DOT4,
    instructions.DOT4_OF_8,
    instructions.DOT4_OF_4,
    instructions.SIGNED_DOT4_OF_4,
    instructions.HALF,
)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("+avx2,+avxvnni,+f16c", {instructions.DOT4_OF_8, instructions.HALF}),
        ("+avx512f,+avx512vnni", {instructions.DOT4}),
        ("-avx512f,+avx512vnni,-avxvnni", set()),
        ("+neon", {instructions.HALF}),
        ("+neon,+dotprod", {instructions.HALF, instructions.SIGNED_DOT4_OF_4}),
        ("+neon,+i8mm", {instructions.HALF, instructions.DOT4_OF_4}),
        ("+dotprod,+i8mm", set()),
    ],
)
def test_each_instruction_is_there_where_all_that_it_needs_is(
    monkeypatch: pytest.MonkeyPatch, features: str, expected: set[str]
) -> None:
    monkeypatch.setattr("numba.config.CPU_FEATURES", features)
    assert {name for name in ALL if instructions.has.__wrapped__(name)} == expected


def test_where_numba_is_told_nothing_the_processor_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CPU_FEATURES", None)
    monkeypatch.setattr(instructions, "get_host_cpu_features", lambda: "+avx512f,+avx512vnni,+f16c")
    assert {name for name in ALL if instructions.has.__wrapped__(name)} == {
        instructions.DOT4,
        instructions.HALF,
    }


@exact_inlined
def plus(a, b):
    return a + b


@exact_kernel
def add_up(numbers, out):
    total = np.float32(0)
    for i in range(len(numbers)):
        total = plus(total, numbers[i])
    out[0] = total
    out[1] = numbers[0] / out[1]


def test_a_kernel_keeps_to_the_order_of_its_sums_and_divides_as_numpy_does() -> None:
    numbers = np.random.default_rng(8).standard_normal(4099).astype(np.float32) * 1e4
    expected = np.float32(0)
    for number in numbers:
        expected += number
    out = np.zeros(2, np.float32)
    add_up(numbers, out)
    assert out[0] == expected, "the compiler has changed the order"
    assert out[0] != numbers.sum(), "other orders would give the same"
    assert np.isinf(out[1])


COUNT = """
import os, torch
from tiny_llm.fast.threads import release_threads

def count():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(3)  # starts threads of its own, which stay
before = count()
x = torch.arange(2_000_000, dtype=torch.float32)
first = (x * 2).sum()
during = count()
release_threads()
after = count()
release_threads()
assert torch.equal((x * 2).sum(), first)
print(before, during, after, count())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="only Linux lists a process's threads")
def test_helpers_end_when_they_are_released_and_come_again_when_they_are_needed() -> None:
    program = f"import sys; sys.path[:0] = {sys.path!r}\n{COUNT}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    before, during, after, again = map(int, done.stdout.split())
    assert during > before, "torch has no helpers here that could be released"
    assert after == before
    assert again == during


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_without_gnus_openmp_nothing_happens(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def absent(name: str) -> Any:
        raise error(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    threads.release_threads()


def test_ids_of_any_shape_are_looked_up() -> None:
    values = torch.from_numpy(np.random.default_rng(4).standard_normal((48, 96)).astype(np.float32))
    table = Embedding8(lay_out_8_bits(values))
    every = table(torch.arange(48))
    assert every.shape == (48, 96)
    assert float((every - values).abs().max()) < 0.03
    for ids in (
        torch.tensor(47),
        torch.tensor([5, 5, 17]),
        torch.tensor([[[0], [16]]]),
        torch.zeros(0, 3).long(),
    ):
        found = table(ids)
        assert found.shape == (*ids.shape, 96)
        assert torch.equal(found, every[ids])
    before = every.clone()
    every += 1
    assert torch.equal(table(torch.arange(48)), before), "what is looked up is part of the table itself"


def test_a_file_that_has_changed_is_laid_out_again(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", random_model(QWEN), Q8_0)
    first = load_fast(source)
    other = random_model(QWEN)
    with torch.no_grad():
        for weight in other.parameters():
            weight *= -1
    write_gguf(source, other, Q8_0)
    os.utime(source, (2e9, 2e9))
    assert not same(load_fast(source), first)


PAGE, H, HKV, D = 5, 6, 2, 32
STARTS, LENGTHS = (0, 7, 12), (4, 1, 6)  # positions of the first new token; how many there are


def attended(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, causal: bool) -> Any:
    """[L, H, D] over [S, Hkv, D], in float64: the output, and the logarithm of the sum of all weights."""
    L, S = len(query), len(keys)
    out, lse = np.zeros((L, H, D)), np.zeros((L, H))
    for row in range(L):
        seen = S - L + row + 1 if causal else S
        for head in range(H):
            scores = keys[:seen, head // (H // HKV)] @ query[row, head] * scale
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ values[:seen, head // (H // HKV)] / weights.sum()
            lse[row, head] = scores.max() + np.log(weights.sum())
    return out, lse


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all keys"])
def test_the_tiled_way_attends_over_pages_and_gives_the_dtype_of_the_queries(
    causal: bool, dtype: torch.dtype
) -> None:
    random = np.random.default_rng(21)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.from_numpy(random.standard_normal(shape).astype(np.float32))

    keys, values = (torch.full((12, PAGE, HKV, D), torch.nan, dtype=torch.bfloat16) for _ in range(2))
    tables = torch.tensor([[3, 9, 0, 0], [7, 1, 0, 0], [2, 11, 5, 6]], dtype=torch.int32)
    both, ends = [], [start + length for start, length in zip(STARTS, LENGTHS, strict=True)]
    for table, end in zip(tables, ends, strict=True):
        own = [numbers(end, HKV, D).bfloat16() for _ in range(2)]
        for place in range(end):
            for pages, one in zip((keys, values), own, strict=True):
                pages[table[place // PAGE], place % PAGE] = one[place]
        both.append([one.double().numpy() for one in own])
    query = numbers(sum(LENGTHS), H, D).to(dtype)
    attend, meta = TiledAttention(), ForwardMeta.build(tables, STARTS, LENGTHS, PAGE)
    for step, scale in ((meta, 0.3), (ForwardMeta.build(tables, STARTS, LENGTHS, PAGE), 0.1), (meta, 0.1)):
        before = query.clone()
        out, lse = attend(query, keys, values, step, scale, causal)
        assert (out.dtype, lse.dtype, out.shape) == (dtype, torch.float32, query.shape)
        assert torch.equal(query, before)
        row = 0
        for length, (its_keys, its_values) in zip(LENGTHS, both, strict=True):
            part = slice(row, row + length)
            row += length
            right, sums = attended(query[part].double().numpy(), its_keys, its_values, scale, causal)
            rough = 1e-5 if dtype is torch.float32 else 1e-2
            np.testing.assert_allclose(out[part].double().numpy(), right, rtol=rough, atol=rough)
            np.testing.assert_allclose(lse[part].numpy(), sums, rtol=1e-5, atol=1e-5)


def test_the_tiled_way_knows_the_step_of_each_run_by_its_metadata() -> None:
    attend = TiledAttention()
    tables = torch.ones(1, 2, dtype=torch.int32)
    one, other = (ForwardMeta.build(tables, [start], [1], PAGE) for start in (0, 3))
    first = attend.step_of(one, HKV, H // HKV)
    assert attend.step_of(one, HKV, H // HKV) is first, "all layers use the same arrays"
    assert list(attend.step_of(other, HKV, H // HKV).kv_lens) == [4]
    assert list(attend.step_of(one, HKV, H // HKV).kv_lens) == [1]


def test_the_pages_are_those_of_the_pool_that_is_asked_for() -> None:
    attend, config = TiledAttention(), small_model("two, and biases").config
    pools = [KvPool(config, 4, PAGE, dtype=torch.bfloat16) for _ in range(2)]
    for number, pool in enumerate(pools):
        pool.keys.fill_(number + 1)
        pool.values.fill_(number + 5)
    for number in (0, 0, 1, 0):
        layers = attend.pages_of(pools[number])
        assert len(layers) == config.num_layers
        for pages in layers:
            for array, value in ((pages.keys, number + 1), (pages.values, number + 5)):
                assert (torch.from_numpy(array).view(torch.bfloat16) == value).all()


@pytest.mark.parametrize("widest", ["qkv", "out", "down"])
def test_a_room_has_place_for_the_rows_of_any_projection(widest: str) -> None:
    widths = {name: 160 if name == widest else 64 for name in ("qkv", "out", "down")}
    projections = {name: SimpleNamespace(width=width, outputs=64) for name, width in widths.items()}
    parts: Any = SimpleNamespace(
        shape=(2, 1, 32), gate_up=SimpleNamespace(width=64, outputs=192), **projections
    )
    assert len(make_room(parts, 3).rows.codes) >= 3 * 160


def test_each_norm_of_a_block_keeps_its_own_eps() -> None:
    model = small_model("three, and norms of the heads")
    for block, number in zip(model.blocks, (1, 2), strict=True):
        block.attention_norm = RMSNorm(block.attention_norm.weight, number / 4)
        block.mlp_norm = RMSNorm(block.mlp_norm.weight, number / 8)
    eps = [(float(parts.attention_eps), float(parts.mlp_eps)) for parts in parts_of(model)]
    assert eps == [(0.25, 0.125), (0.5, 0.25)]
    assert [float(parts.heads.eps) for parts in parts_of(model)] == [pytest.approx(1e-5)] * 2
