"""What the tests of given MLX code run in a process of its own: in theirs, `tiny_llm` is torch's.

python mlx_child.py load MODEL.gguf OUT.npz      every tensor of the model with 4-bit weights
python mlx_child.py multiply IN.npz OUT.npz      words and products of a quantized matrix
python mlx_child.py pool OUT.json                what a new pool of pages is
python mlx_child.py attend MACHINE               which way to attend each name gives; "gpu", "compiler" or "bare"
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

# Imported by name: to a type checker `tiny_llm` is torch's.
packed_matmul, quantize, weights, paged_pool, backends = (
    import_module(f"tiny_llm.{name}")
    for name in ("packed_matmul", "quantize", "weights", "paged.pool", "paged.attention_backends")
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


def pool(out: str) -> None:
    """Save the sizes, dtypes and contents of a pool of 2 layers, with 5 pages of 3 tokens."""
    before = mx.get_active_memory()
    made = paged_pool.KvPool(
        SimpleNamespace(num_layers=2, num_kv_heads=7, head_dim=4), 5, 3, dtype=mx.bfloat16
    )
    taken = mx.get_active_memory() - before
    arrays = [*made.keys, *made.values]
    told = {
        "layers": (len(made.keys), len(made.values)),
        "shapes": [array.shape for array in arrays],
        "dtypes": [str(array.dtype) for array in arrays],
        "zero": not any(bool(array.any()) for array in arrays),
        "sizes": (made.num_pages, made.page_size, made.nbytes),
        "taken": taken,
    }
    Path(out).write_text(json.dumps(told), encoding="utf-8")


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
    commands: dict[str, Callable[..., None]] = {
        "load": load,
        "multiply": multiply,
        "pool": pool,
        "attend": attend,
    }
    commands[sys.argv[1]](*sys.argv[2:])
