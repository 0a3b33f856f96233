"""The way to attend over pages is chosen by name, dtype and device."""

from __future__ import annotations

import pytest
import torch

from tiny_llm.kernels.paged_attention_auto import paged_attention_auto
from tiny_llm.kernels.paged_attention_cpu import paged_attention_cpu
from tiny_llm.paged.attention import paged_attention
from tiny_llm.paged.attention_backends import ATTENTIONS, choose_attention


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("auto", torch.float32, paged_attention_auto),
        ("auto", torch.bfloat16, paged_attention_auto),
        ("auto", torch.float16, paged_attention),
        ("reference", torch.float32, paged_attention),
        ("cpu", torch.float32, paged_attention_cpu),
        ("cpu", torch.bfloat16, paged_attention_cpu),
    ],
)
def test_on_the_cpu_the_name_and_the_dtype_decide(name, dtype, expected):
    assert choose_attention(name, dtype) is expected


def test_other_devices_have_the_reference_path():
    assert choose_attention("auto", torch.float32, "mps") is paged_attention
    assert choose_attention("reference", torch.float32, "cuda") is paged_attention


def test_a_kernel_that_does_not_run_there_is_refused_in_one_line():
    for name, dtype, device in (
        ("cpu", torch.float16, "cpu"),
        ("cpu", torch.float32, "cuda"),
        ("triton", torch.float32, "mps"),
    ):
        with pytest.raises(ValueError, match="choose reference") as error:
            choose_attention(name, dtype, device)
        assert "\n" not in str(error.value)


def test_an_unknown_name_is_refused_with_all_names():
    with pytest.raises(ValueError, match=", ".join(ATTENTIONS)):
        choose_attention("fast", torch.float32)
