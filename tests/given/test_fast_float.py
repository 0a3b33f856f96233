"""Day 4.7's blocks in float32 and bfloat16, beside the model that they were made from."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from fast_models import FAMILIES, Noted, differences, engine, random_ids, require_onednn, small_model

from tiny_llm.engine_core import generate_all
from tiny_llm.fast.float_model import accelerate_floats
from tiny_llm.fast.packed import BLOCK, Packed, onednn_takes
from tiny_llm.kernels.paged_attention_cpu import paged_attention_cpu
from tiny_llm.model import Transformer

LENGTH = 70
LENGTHS = (1, 2, 17, 33, 64, 65)
FAMILY = "three, and norms of the heads"
INVARIANT: dict[torch.dtype, Any] = {torch.float32: paged_attention_cpu, torch.bfloat16: "tiled"}
"""Ways to attend whose results for a token depend on its sequence alone."""


@cache
def fast_model(dtype: torch.dtype, family: str = FAMILY) -> Transformer:
    return accelerate_floats(small_model(family, dtype))


def logits_of(model: Transformer, length: int = LENGTH) -> torch.Tensor:
    return model(torch.tensor([random_ids(length, 1)]), slice(0, length))[0].float()


@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_the_logits_are_those_of_the_model(family: str) -> None:
    expected = logits_of(small_model(family, torch.float32))
    torch.testing.assert_close(logits_of(fast_model(torch.float32, family)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_they_are_as_near_to_float32_as_the_model_is(family: str) -> None:
    model = small_model(family, torch.bfloat16)
    expected = logits_of(small_model(family, torch.float32))

    def off(logits: torch.Tensor) -> float:
        return float((logits - expected).norm() / expected.norm())

    assert off(logits_of(fast_model(torch.bfloat16, family))) < 1.2 * off(logits_of(model))


@pytest.mark.parametrize("dtype", INVARIANT)
def test_the_model_itself_goes_on_as_before(dtype: torch.dtype) -> None:
    model = small_model(FAMILY, dtype)
    before = logits_of(model)
    fast = accelerate_floats(model)
    first = logits_of(fast)
    assert torch.equal(logits_of(model), before)
    assert torch.equal(logits_of(fast), first)


def answers(model: Transformer, together: bool, **limits: int) -> list[Noted]:
    """The requests of some prompts after they have run, in one engine, or each in its own."""
    requests = [Noted(random_ids(length, seed)) for seed, length in enumerate(LENGTHS)]
    attention = INVARIANT[model.embedding.weight.dtype]
    for group in [requests] if together else [[request] for request in requests]:
        generate_all(engine(model, attention, **limits), group)
    assert [request.error for request in requests] == [None] * len(requests)
    assert all(bool(row.isfinite().all()) for request in requests for row in request.logits)
    return requests


@cache
def alone(dtype: torch.dtype) -> list[Noted]:
    return answers(fast_model(dtype), together=False)


@pytest.mark.parametrize("dtype", INVARIANT)
@pytest.mark.parametrize("budget", [9, 64, 4096])
def test_a_request_gets_the_same_alone_and_beside_others_in_chunks_of_any_size(
    dtype: torch.dtype, budget: int
) -> None:
    require_onednn(dtype)
    together = answers(fast_model(dtype), together=True, token_budget=budget)
    assert differences(together, alone(dtype)) == []


@pytest.mark.parametrize("dtype", INVARIANT)
def test_a_projection_whose_way_depends_on_the_company_is_noticed(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Packed._multiply

    def by_company(self: Packed, x: torch.Tensor) -> torch.Tensor:
        return whole(self, x) if len(x) < 8 else whole(self, x * 3) / 3

    apart = alone(dtype)
    monkeypatch.setattr(Packed, "_multiply", by_company)
    assert differences(answers(fast_model(dtype), together=True), apart)


@pytest.mark.parametrize("dtype", INVARIANT)
@pytest.mark.parametrize(("width", "outputs"), [(576, 96), (1536, 96), (1536, 576), (2048, 96)])
def test_a_row_has_the_same_bits_beside_any_number_of_others(
    dtype: torch.dtype, width: int, outputs: int
) -> None:
    require_onednn(dtype)
    dice = torch.Generator().manual_seed(width)
    packed = Packed(torch.randn(outputs, width, generator=dice), torch.randn(outputs, generator=dice), dtype)
    rows = torch.randn(130, width, generator=dice).to(dtype)
    expected = packed(rows)
    for count in (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 129):
        assert torch.equal(packed(rows[-count:]), expected[-count:]), f"{count} rows"


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 9])
def test_in_blocks_every_call_has_the_same_number_of_rows_and_no_row_is_lost(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = Packed(torch.randn(7, 64), torch.randn(7), torch.float32)
    x, whole, calls = torch.randn(rows, 64), Packed._multiply, []

    def noted(self: Packed, x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return whole(self, x)

    expected = packed(x)
    packed.block = 4
    monkeypatch.setattr(Packed, "_multiply", noted)
    torch.testing.assert_close(packed(x), expected)
    assert packed(x).shape == (rows, 7)
    assert set(calls) == ({4} if rows else {0})


def test_only_bfloat16_on_a_processor_with_amx_goes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(8, 64)
    for there in (True, False):
        monkeypatch.setattr("tiny_llm.fast.packed.has_amx", lambda there=there: there)
        assert Packed(weight, None, torch.float32).block is None
        expected = BLOCK if there and onednn_takes(torch.bfloat16) else None
        assert Packed(weight, None, torch.bfloat16).block == expected


@pytest.mark.parametrize("dtype", INVARIANT)
def test_without_onednn_the_projection_gives_the_same_but_for_rounding(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(96, 64, generator=dice), torch.randn(96, generator=dice)
    rows = torch.randn(5, 64, generator=dice)
    expected = rows.to(dtype).double() @ weight.to(dtype).double().T + bias.to(dtype).double()
    monkeypatch.setattr("tiny_llm.fast.packed.onednn_takes", lambda dtype: False)
    plain = Packed(weight, bias, dtype)
    assert not plain.onednn
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    assert float((plain(rows.to(dtype)).double() - expected).abs().max() / expected.abs().max()) < bound


def test_a_model_that_there_are_no_blocks_for_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="bits"):
        accelerate_floats(small_model(FAMILY))
    with pytest.raises(ValueError, match="float16"):
        accelerate_floats(small_model(FAMILY, torch.float16))
