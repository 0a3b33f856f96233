"""The GGUF format: a header of typed key-value pairs, a table of tensors, then the tensors' bytes.

Only the header is read here, with offsets into the file for the rest. The `gguf` package has a reader of its own,
which makes a NumPy view for every token of the vocabulary and so takes seconds; this one is far quicker.

A header counts things, and a damaged one may count to 2⁶⁴. So nothing is counted out before it is known that the file
has the bytes for it, and that the whole header has no more items than any vocabulary needs.

Source: the format's specification, `docs/gguf.md` in the ggml repository.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tiny_llm.loading.errors import WeightsError, reading
from tiny_llm.loading.files import check_file

T = TypeVar("T")

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
_MAX_ITEMS = 2**21  # pairs, tensors and elements of arrays; the vocabularies of today need up to 1.3 million
_PAIR_BYTES = 8 + 4 + 1  # the least that a pair takes: the length of its key, its type, a value
_ENTRY_BYTES = 8 + 4 + 4 + 8  # and an entry: the length of its name, its axes, its type, its offset
_STRING_BYTES = 8  # and a string: its length
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
        WeightsError: the file can't be read, isn't GGUF, ends in the middle of its header, or has a header of an
            impossible size.
    """
    with reading(path):
        size = check_file(path).stat().st_size
        if size == 0:
            raise WeightsError(f"{path} is empty: download it again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_header(path, size, _Cursor(data, path))


def _read_header(path: Path, size: int, cursor: _Cursor) -> GGUFFile:
    if cursor.take(4) != _MAGIC:
        raise WeightsError(f"{path} isn't a GGUF file: its first bytes are wrong")
    version = cursor.number("<I")
    if version not in _VERSIONS:
        raise WeightsError(
            f"{path} is GGUF version {version} or big-endian; only little-endian versions 2 and 3 are read"
        )
    tensor_count, pair_count = cursor.number("<Q"), cursor.number("<Q")
    metadata = _unique(cursor, _read_pairs(cursor, pair_count))
    entries = _unique(cursor, _read_entries(cursor, tensor_count))
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise cursor.broken()
    start = -(-cursor.at // alignment) * alignment
    tensors = {name: replace(entry, offset=start + entry.offset) for name, entry in entries.items()}
    return GGUFFile(path, size, metadata, tensors)


def _read_pairs(cursor: _Cursor, count: int) -> Iterator[tuple[str, Any]]:
    cursor.expect(count, _PAIR_BYTES)
    for _ in range(count):
        yield cursor.string(), cursor.value(cursor.number("<I"))


def _read_entries(cursor: _Cursor, count: int) -> Iterator[tuple[str, TensorEntry]]:
    cursor.expect(count, _ENTRY_BYTES)
    for _ in range(count):
        name = cursor.string()
        axes = cursor.number("<I")
        if axes > _MAX_AXES:
            raise cursor.broken()
        shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
        yield name, TensorEntry(name, shape, cursor.number("<I"), cursor.number("<Q"))


def _unique(cursor: _Cursor, items: Iterator[tuple[str, T]]) -> dict[str, T]:
    """The items by their names, each of which may come up once."""
    found: dict[str, T] = {}
    for name, item in items:
        if name in found:
            raise cursor.broken()
        found[name] = item
    return found


class _Cursor:
    """A position in the file's bytes that moves forward with each read."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.at = 0
        self.items_left = _MAX_ITEMS

    def broken(self) -> WeightsError:
        return WeightsError(f"{self.path} is damaged or only half a file: download it again")

    def expect(self, count: int, least_bytes: int) -> None:
        """Refuse to go on unless `count` items of at least so many bytes can follow."""
        self.items_left -= count
        if self.items_left < 0 or count * least_bytes > len(self.data) - self.at:
            raise self.broken()

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
            return self.array(self.number("<I"), self.number("<Q"))
        return self.scalars(kind, 1)[0]

    def array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            self.expect(count, _STRING_BYTES)
            return [self.string() for _ in range(count)]
        return self.scalars(kind, count)

    def scalars(self, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise self.broken()
        dtype = _SCALARS[kind]
        self.expect(count, dtype.itemsize)
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
