"""Writing safetensors files whose data starts on a cache line.

The format is a length (8 bytes), a JSON header of names, dtypes, shapes and offsets, then the tensors' bytes. The
library's own writer leaves the data at any multiple of 8 bytes, and a matrix that is mapped from there is up to a
quarter slower to multiply by. Padding the header with spaces, which the format allows, cures that; in the supported
models the tensors' sizes are multiples of a cache line, so all of them are then aligned.

Source: the format's description in the README of the safetensors repository.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT = 64  # bytes
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint8: "U8"}


def write_aligned(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write contiguous CPU tensors in float32, bfloat16, float16 or uint8, with strings as metadata.

    Raises:
        OSError: the file can't be written.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
