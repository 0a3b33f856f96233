"""A model whose weights are laid out for the kernels already (Day 4.7, given code).

To read the weights and lay them out takes longer than the rest of a start, and holds them several times for a moment.
So it is done once. Later starts map the file, from which the kernels then read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tiny_llm.config import ModelConfig
from tiny_llm.fast import weights8
from tiny_llm.fast.accelerate import Linear8, accelerate
from tiny_llm.fast.llvm_code import LANES
from tiny_llm.fast.parts import require_head, require_sizes
from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.table8 import Embedding8
from tiny_llm.fast.weights8 import LaidOut, lay_out_4_bits, lay_out_8_bits, record_bytes
from tiny_llm.kernels.kept import fingerprint
from tiny_llm.loading.cache import Form, Shapes, convert_once
from tiny_llm.loading.convert import convert_to_4_bits
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.layout import layout, shape
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.loading.models import check_positions
from tiny_llm.loading.quantized import is_quantized
from tiny_llm.loading.sources import TensorSource, open_source
from tiny_llm.model import Transformer
from tiny_llm.quantize import QuantizedTensor

_TABLES = ("embedding", "head")


def load_fast(source: str | Path = DEFAULT_MODEL) -> Transformer:
    """A model as :func:`accelerate` makes it: the blocks' matrices in 4 bits, embedding and head in 8.

    What is laid out of a GGUF file is kept in the cache folder, until the file or the way to lay out changes. A
    safetensors folder is laid out each time.

    Args:
        source: as for :func:`load_weights`.

    Raises:
        WeightsError: as for :func:`load_weights`, or a matrix has sizes for which there are no kernels.
    """
    path = locate(source)
    config, tensors = _lay_out_folder(path) if path.is_dir() else convert_once(path, _form())
    check_positions(path, config, sum(tensor.nbytes for tensor in tensors.values()))
    weights = LaidOutWeights(config, tensors)
    model = Transformer(config, weights)  # type: ignore[arg-type]
    table = weights.matrix("embedding")
    model.embedding = Embedding8(table)
    model.head = Linear8(table if config.tied_embeddings else weights.matrix("head"))
    return accelerate(model)


@dataclass(frozen=True)
class LaidOutWeights:
    """What a :class:`Transformer` asks of :class:`tiny_llm.weights.Weights`."""

    config: ModelConfig
    tensors: Mapping[str, Tensor]  # uint8 where a matrix is laid out, otherwise float32

    def tensor(self, name: str) -> Tensor:
        """A vector; or for the embedding a tensor that only says where it is, as :class:`Embedding8` has it."""
        if name == "embedding.weight":
            return Embedding8(self.matrix("embedding")).weight
        return self.tensors[name]

    def linear(self, name: str) -> Linear8:
        """The projection of that name."""
        return Linear8(self.matrix(name))

    def matrix(self, name: str) -> LaidOut:
        """The matrix of that name, with its bias."""
        outputs, width = shape(layout(self.config)[f"{name}.weight"])
        bias = self.tensors.get(f"{name}.bias")
        return LaidOut(
            self.tensors[f"{name}.weight"].numpy(),
            np.zeros(0, np.float32) if bias is None else bias.numpy(),
            outputs,
            width,
            _bits(f"{name}.weight", (outputs, width)) or 0,
        )


def _bits(name: str, sizes: tuple[int, ...]) -> int | None:
    """In how many bits a tensor is laid out; None for those that stay in float32."""
    if name.removesuffix(".weight") in _TABLES:
        return 8
    return 4 if is_quantized(name, sizes) else None


def _form() -> Form:
    file = Path(weights8.__file__)
    code = "".join(fingerprint(file, function.__name__) for function in (lay_out_4_bits, lay_out_8_bits))
    return Form("laid-out", _lay_out, _shapes, {"code": code})


def _shapes(config: ModelConfig) -> Shapes:
    shapes: Shapes = {}
    for name, parts in layout(config).items():
        sizes = shape(parts)
        bits = _bits(name, sizes)
        if bits is None:
            shapes[name] = (torch.float32, sizes)
        else:
            records = sizes[0] // LANES * (sizes[1] // GROUP)
            shapes[name] = (torch.uint8, (records * record_bytes(bits),))
    return shapes


def _lay_out_folder(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    source = open_source(path)
    return source.config, _lay_out(source)


def _lay_out(source: TensorSource) -> dict[str, Tensor]:
    _require_sizes(source)
    converted = convert_to_4_bits(source, torch.float32)
    tensors: dict[str, Tensor] = {}
    for name in list(converted):
        tensor = converted.pop(name)  # not both at once
        if isinstance(tensor, QuantizedTensor):
            tensors[name] = torch.from_numpy(lay_out_4_bits(tensor).records)
        elif _bits(name, tensor.shape) == 8:
            tensors[name] = torch.from_numpy(lay_out_8_bits(tensor).records)
        else:
            tensors[name] = tensor
    return tensors


def _require_sizes(source: TensorSource) -> None:
    try:
        require_head(source.config.head_dim)
        for name, parts in layout(source.config).items():
            sizes = shape(parts)
            if _bits(name, sizes) is not None:
                require_sizes(name, *sizes)
    except ValueError as error:
        raise WeightsError(f"{source.path}: {error}") from error
