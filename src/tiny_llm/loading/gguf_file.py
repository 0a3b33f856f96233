"""The GGUF format: a header of typed key-value pairs, a table of tensors, then the tensors' bytes.

Only the header is read here, with offsets into the file for the rest. The `gguf` package has a reader of its own,
which makes a NumPy view for every token of the vocabulary and so takes seconds; this one is far quicker.

Source: the format's specification, `docs/gguf.md` in the ggml repository.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiny_llm.loading.errors import WeightsError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    _BOOL: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_MAX_AXES = 8
_ALIGNMENT = 32  # bytes, where the file doesn't say


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies in the file."""

    name: str
    shape: tuple[
        int, ...
    ]  # in elements, slowest axis first, as in NumPy (the file has it the other way round)
    type_id: int  # the number of its storage type in ggml (0 is float32, 1 is float16, 3 is Q4_1, …)
    offset: int  # bytes from the start of the file


@dataclass(frozen=True)
class GGUFFile:
    """A GGUF file's header."""

    path: Path
    size: int  # of the file, in bytes
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]


def read_gguf(path: Path) -> GGUFFile:
    """Read the header of a GGUF file (version 2 or 3, little-endian).

    Raises:
        WeightsError: the file can't be read, isn't GGUF, or ends in the middle of its header.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            raise WeightsError(f"{path} is empty: download it again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_header(path, size, _Cursor(data, path))
    except OSError as error:
        raise WeightsError(f"can't read {path}: {error.strerror or error}") from error


def _read_header(path: Path, size: int, cursor: _Cursor) -> GGUFFile:
    if cursor.take(4) != _MAGIC:
        raise WeightsError(f"{path} isn't a GGUF file: its first bytes are wrong")
    version = cursor.number("<I")
    if version not in _VERSIONS:
        raise WeightsError(
            f"{path} is GGUF version {version} or big-endian; only little-endian versions 2 and 3 are read"
        )
    tensor_count, pair_count = cursor.number("<Q"), cursor.number("<Q")
    metadata = {}
    for _ in range(pair_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.number("<I"))
    entries = [_read_entry(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise cursor.broken()
    start = -(-cursor.at // alignment) * alignment
    tensors = {e.name: TensorEntry(e.name, e.shape, e.type_id, start + e.offset) for e in entries}
    return GGUFFile(path, size, metadata, tensors)


def _read_entry(cursor: _Cursor) -> TensorEntry:
    name = cursor.string()
    axes = cursor.number("<I")
    if axes > _MAX_AXES:
        raise cursor.broken()
    shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
    return TensorEntry(name, shape, cursor.number("<I"), cursor.number("<Q"))


class _Cursor:
    """A position in the file's bytes that moves forward with each read."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.at = 0

    def broken(self) -> WeightsError:
        return WeightsError(f"{self.path} is damaged or only half a file: download it again")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.at + count
        if end > len(self.data):
            raise self.broken()
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        try:
            return self.take(self.number("<Q")).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.broken() from error

    def value(self, kind: int) -> Any:
        """A metadata value: a plain Python number, bool, string, or a list of them."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            kind, count = self.number("<I"), self.number("<Q")
            return [self.string() for _ in range(count)] if kind == _STRING else self.scalars(kind, count)
        return self.scalars(kind, 1)[0]

    def scalars(self, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise self.broken()
        dtype = _SCALARS[kind]
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
