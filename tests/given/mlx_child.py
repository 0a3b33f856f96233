"""What the tests of given MLX code run in a process of its own: in theirs, `tiny_llm` is torch's.

python mlx_child.py load MODEL.gguf OUT.npz      every tensor of the model with 4-bit weights
python mlx_child.py multiply IN.npz OUT.npz      words and products of a quantized matrix
python mlx_child.py attend MACHINE               which way to attend each name gives; "gpu", "compiler" or "bare"
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np

# Imported by name: to a type checker `tiny_llm` is torch's.
packed_matmul, quantize, weights, backends = (
    import_module(f"tiny_llm.{name}")
    for name in ("packed_matmul", "quantize", "weights", "paged.attention_backends")
)

PARTS = ("nibbles", "scales", "minima")


def load(source: str, out: str) -> None:
    """Save the tensors by name, a quantized one as its three parts."""
    arrays: dict[str, Any] = {}
    for name, tensor in weights.load_weights(source, bits=4).tensors.items():
        if isinstance(tensor, quantize.QuantizedTensor):
            arrays |= {f"{name}:{part}": np.array(getattr(tensor, part)) for part in PARTS}
        else:
            arrays[name] = np.array(tensor)
    np.savez(out, **arrays)


def multiply(given: str, out: str) -> None:
    """Save the packed words, and x · Wᵀ for x in three dtypes, as float32, with the dtype that came."""
    arrays = np.load(given)
    weight = quantize.QuantizedTensor(*(mx.array(arrays[part]) for part in PARTS))
    found: dict[str, Any] = {"words": np.array(packed_matmul.pack_words(weight.nibbles))}
    packed = packed_matmul.PackedMatmul(weight)
    for dtype in (mx.float32, mx.bfloat16, mx.float16):
        product = packed(mx.array(arrays["x"]).astype(dtype))
        assert product.dtype == dtype, f"{dtype} came in, and {product.dtype} out"
        found[str(dtype)] = np.array(product.astype(mx.float32))
    np.savez(out, **found)


def attend(machine: str) -> None:
    """Print what each name gives on a machine with Metal, with a C++ compiler alone, or with neither."""
    mx.metal.is_available = lambda: machine == "gpu"
    reason = "there is no compiler here" if machine == "bare" else None
    vars(backends)["why_not"] = lambda: reason
    for name in (*backends.ATTENTIONS, "cpu"):
        try:
            print(f"{name}: {backends.choose_attention(name, mx.float32).__name__}")
        except ValueError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"load": load, "multiply": multiply, "attend": attend}
    commands[sys.argv[1]](*sys.argv[2:])
