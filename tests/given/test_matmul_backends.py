"""Which way to multiply 4-bit weights is chosen, and that each gives the same to rounding."""

from __future__ import annotations

import pytest
import torch

from tiny_llm.kernels.matmul_backends import MATMULS, choose_matmul, torch_takes
from tiny_llm.kernels.quantized_matmul_cpu import KernelMatmul
from tiny_llm.kernels.quantized_matmul_torch import TorchInt4Matmul
from tiny_llm.quantize import DequantizedMatmul, QuantizedTensor, dequantize, quantize


def quantized(outputs: int, width: int, group_size: int = 32) -> QuantizedTensor:
    torch.manual_seed(outputs + width)
    return quantize(torch.randn(outputs, width), group_size)


@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        ("auto", torch.float32, KernelMatmul),
        ("auto", torch.float16, KernelMatmul),
        ("auto", torch.bfloat16, TorchInt4Matmul),
        ("plain", torch.bfloat16, DequantizedMatmul),
        ("kernel", torch.bfloat16, KernelMatmul),
        ("torch", torch.float32, TorchInt4Matmul),
    ],
)
def test_the_way_depends_on_the_name_and_the_dtype(name, dtype, kind):
    assert isinstance(choose_matmul(name, dtype)(quantized(48, 64)), kind)


@pytest.mark.parametrize(("outputs", "group_size"), [(40, 32), (48, 16), (48, 4)])
def test_auto_falls_back_to_our_kernel_where_torchs_takes_no_such_matrix(outputs, group_size):
    weight = quantized(outputs, 64, group_size)
    assert not torch_takes(weight)
    assert isinstance(choose_matmul("auto", torch.bfloat16)(weight), KernelMatmul)


@pytest.mark.parametrize("group_size", [32, 64, 128, 256])
@pytest.mark.parametrize("outputs", [16, 48])
def test_what_torchs_kernel_is_said_to_take_it_takes(outputs, group_size):
    weight = quantized(outputs, 256, group_size)
    assert torch_takes(weight)
    assert choose_matmul("torch", torch.bfloat16)(weight)(torch.ones(1, 256)).shape == (1, outputs)


def test_auto_falls_back_where_torch_has_no_such_kernel(monkeypatch):
    monkeypatch.delattr(torch, "_weight_int4pack_mm_for_cpu")
    assert isinstance(choose_matmul("auto", torch.bfloat16)(quantized(48, 64)), KernelMatmul)


def test_torchs_kernel_asked_for_by_name_is_refused_where_it_takes_no_such_matrix():
    with pytest.raises(ValueError, match="40 × 64 in groups of 32; choose kernel"):
        choose_matmul("torch", torch.bfloat16)(quantized(40, 64))


def test_other_devices_have_the_plain_way_only():
    assert choose_matmul("auto", torch.bfloat16, "cuda") is DequantizedMatmul
    assert choose_matmul("plain", torch.float32, torch.device("mps")) is DequantizedMatmul
    for name in ("kernel", "torch"):
        with pytest.raises(ValueError, match="for the CPU; choose plain"):
            choose_matmul(name, torch.float32, "cuda")


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match="choose one of: auto, plain, kernel, torch"):
        choose_matmul("fast", torch.float32)


@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("name", MATMULS)
def test_all_ways_agree(name, rows):
    weight = quantized(48, 96)
    x = torch.randn(rows, 96)
    expected = x @ dequantize(weight).T
    # torch's kernel rounds x, the weights and the result to bfloat16.
    tolerance = 0.2 if name == "torch" else 1e-4
    assert torch.allclose(choose_matmul(name, torch.float32)(weight)(x), expected, rtol=1e-2, atol=tolerance)
