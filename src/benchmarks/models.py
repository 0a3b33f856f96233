"""The models that the ladders run on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.week_2 import GetModel
from coursekit.backends import Device
from programs.loaded import load, load_fast

if TYPE_CHECKING:
    from tiny_llm.model import Transformer

MODEL = "smollm2-135m"
FORMS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "kernel": {"dtype": "float32", "bits": 4, "matmul": "kernel"},
    "torch": {"dtype": "bfloat16", "bits": 4, "matmul": "torch"},
    "bfloat16": {"dtype": "bfloat16"},
}
"""The models that the cases name, and how to load each; "packed", "fast" and "recorded" are Day 4.7's."""


def make_models(progress: Console, device: str = Device.CPU) -> GetModel:
    """Loads each model when it is first asked for."""

    @cache
    def model(name: str) -> Transformer:
        if name == "packed":
            from tiny_llm.fast.float_model import accelerate_floats

            return accelerate_floats(model("bfloat16"))
        if name == "fast":
            return load_fast(MODEL, progress).model
        if name == "recorded":
            from tiny_llm.fast.cuda import accelerate_on_cuda

            return accelerate_on_cuda(model("bfloat16"))
        return load(MODEL, device=device, console=progress, **FORMS[name]).model

    return model
