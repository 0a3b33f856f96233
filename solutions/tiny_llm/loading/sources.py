"""Reading one named tensor from a file: GGUF (dequantized, or its 4-bit blocks as they are) or safetensors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tiny_llm.config import ModelConfig
from tiny_llm.loading.errors import WeightsError, reading
from tiny_llm.loading.fields import Fields
from tiny_llm.loading.files import check_file, damaged, is_there, read_json
from tiny_llm.loading.gguf_config import config_from_gguf, is_rope_divisors
from tiny_llm.loading.gguf_file import GGUFFile, TensorEntry, read_gguf
from tiny_llm.loading.hf_config import config_from_folder
from tiny_llm.loading.layout import GGUF_NAMES, HF_NAMES, Part
from tiny_llm.loading.quantized import GROUP_SIZE, from_gguf_blocks, take_rows
from tiny_llm.quantize import QuantizedTensor

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

_SLAB_ROWS = 1024  # dequantized at a time: the gguf package holds everything twice while it works


class TensorSource(Protocol):
    """A model in a file format: its config, and its tensors one at a time."""

    path: Path
    config: ModelConfig
    names: dict[str, str]  # the name of each role in this format

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The name and shape of every tensor of the weights. The files have the bytes for all of them."""

    def read(self, part: Part) -> Tensor:
        """The tensor on the CPU, in any floating-point dtype, in its canonical row order.

        Raises:
            WeightsError: it can't be read.
        """

    def read_4_bits(self, part: Part) -> QuantizedTensor | None:
        """The matrix in the 4 bits that it is stored in, in canonical row order; None if it is stored otherwise.

        Raises:
            WeightsError: as for :meth:`read`.
        """


class GGUFSource:
    """A GGUF file."""

    names = GGUF_NAMES

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: GGUFFile = read_gguf(path)
        self.config = config_from_gguf(self.file)
        self._bytes = np.memmap(path, mode="r", dtype=np.uint8)
        self._check_bytes()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self.file.tensors.items() if not is_rope_divisors(name)}

    def read(self, part: Part) -> Tensor:
        """float32 [part.shape]; query and key rows of a Llama file are put back in their original order."""
        name = part.name(self.names)
        values = torch.from_numpy(self._dequantize(name, *self._stored(name)))
        return _unpermute(values, self.config.head_dim) if self._is_permuted(part) else values

    def read_4_bits(self, part: Part) -> QuantizedTensor | None:
        """Blocks of Q4_1 and Q4_0, copied without arithmetic on the weights."""
        name = part.name(self.names)
        kind, stored = self._stored(name)
        if kind.name not in ("Q4_1", "Q4_0"):
            return None
        rows, width = self.file.tensors[name].shape
        weight = from_gguf_blocks(stored.reshape(rows, width // GROUP_SIZE, -1))
        if self._is_permuted(part):
            return take_rows(weight, _unpermute(torch.arange(rows), self.config.head_dim))
        return weight

    def _is_permuted(self, part: Part) -> bool:
        return self.config.architecture == "llama" and part.role in ("query", "key")

    def _stored(self, name: str) -> tuple[GGMLQuantizationType, np.ndarray]:
        """How a tensor is stored, and its bytes [rows, …], or [1, …] for a vector."""
        entry = self.file.tensors[name]
        kind, rows, row_bytes = self._storage(entry)
        return kind, self._bytes[entry.offset : entry.offset + rows * row_bytes].reshape(rows, row_bytes)

    def _check_bytes(self) -> None:
        """Refuse a header that gives out more bytes than the file has, be it by giving some to two tensors."""
        given = 0
        for entry in self.file.tensors.values():
            _, rows, row_bytes = self._storage(entry)
            given += rows * row_bytes
            if max(given, entry.offset + rows * row_bytes) > self.file.size:
                raise damaged(self.path, entry.name)

    def _storage(self, entry: TensorEntry) -> tuple[GGMLQuantizationType, int, int]:
        """How a tensor is stored: its type, its rows, and the bytes of each."""
        # Imported here, because a third of a second is much for programs that find their weights in the cache.
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            kind = GGMLQuantizationType(entry.type_id)
        except ValueError:
            raise WeightsError(
                f"{self.path}: {entry.name} has storage type {entry.type_id}, which is unknown"
            ) from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if not entry.shape or 0 in entry.shape or entry.shape[-1] % block:
            raise damaged(self.path, entry.name)
        return kind, math.prod(entry.shape[:-1]), entry.shape[-1] // block * block_bytes

    def _dequantize(self, name: str, kind: GGMLQuantizationType, stored: np.ndarray) -> np.ndarray:
        from gguf.quants import dequantize

        shape = self.file.tensors[name].shape
        values = np.empty((len(stored), shape[-1]), np.float32)
        try:
            with np.errstate(
                all="ignore"
            ):  # whether all are numbers is checked later, and then said in one line
                for start in range(0, len(stored), _SLAB_ROWS):
                    slab = slice(start, start + _SLAB_ROWS)
                    values[slab] = dequantize(stored[slab], kind)
        except NotImplementedError:
            raise WeightsError(
                f"{self.path}: {name} is stored as {kind.name}, which the gguf package can't read yet; "
                "choose another quantization"
            ) from None
        return values.reshape(shape)


class SafetensorsSource:
    """A Hugging Face folder: config.json, and one model.safetensors or several with an index."""

    names = HF_NAMES

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.config = config_from_folder(folder)
        self._files: dict[str, Any] = {}  # tensor name -> the open file that holds it
        for shard in _shards(folder):
            opened = _open(shard)
            self._files.update(dict.fromkeys(opened.keys(), opened))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(file.get_slice(name).get_shape()) for name, file in self._files.items()}

    def read(self, part: Part) -> Tensor:
        name = part.name(self.names)
        return self._files[name].get_tensor(name)

    def read_4_bits(self, part: Part) -> QuantizedTensor | None:
        """None: such files hold whole floats."""
        return None


def open_source(path: Path) -> TensorSource:
    """The source at a path that `locate` found: a folder is Hugging Face's, a file is GGUF.

    Raises:
        WeightsError: its header or its config can't be read, is damaged, or isn't supported.
    """
    with reading(path):
        return SafetensorsSource(path) if path.is_dir() else GGUFSource(path)


def _unpermute(rows: Tensor, head_dim: int) -> Tensor:
    """Put query and key rows [heads · D, …] of a Llama GGUF file back in their original order.

    In the original, row i of a head turns together with row i + D/2. llama.cpp turns neighbors instead, so its
    converter interleaves the two halves of each head; splitting the pairs again puts the halves back.
    """
    heads = rows.shape[0] // head_dim
    pairs = rows.reshape(heads, head_dim // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


def _shards(folder: Path) -> list[Path]:
    """The folder's weight files: those that the index names, or the only one."""
    index = folder / "model.safetensors.index.json"
    if not is_there(index):
        found = sorted(folder.glob("model.safetensors")) or sorted(folder.glob("*.safetensors"))
        if len(found) == 1:
            return found
        what = "no .safetensors file" if not found else "several .safetensors files but no index"
        raise WeightsError(f"{folder} has {what}: download the model again")
    shards = Fields(index, read_json(index)).within("weight_map").file_names()
    for name in shards:
        if not is_there(folder / name):
            raise WeightsError(f"{folder} lacks {name}, which its index names: download the model again")
    return [folder / name for name in shards]


def _open(path: Path) -> Any:
    try:
        return safe_open(check_file(path), framework="pt")
    except SafetensorError as error:
        raise damaged(path, str(error)) from error
