"""From a model's path to its config and its tensors in the form that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from tiny_llm.config import ModelConfig
from tiny_llm.loading.cache import convert_once, in_floats
from tiny_llm.loading.convert import Converted, Quantize, convert, convert_to_4_bits
from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.sources import open_source
from tiny_llm.quantize import quantize

_MODEST_BYTES = 2**26  # what the table of angles may take however small the model is


def load_floats(path: Path, dtype: torch.dtype) -> tuple[ModelConfig, Mapping[str, Converted]]:
    """All tensors in ``dtype``, on the CPU: those of a GGUF file from the cache, those of a folder read afresh.

    Raises:
        WeightsError: the model can't be read or isn't supported.
    """
    if not path.is_dir():
        return convert_once(path, in_floats(dtype))
    folder = open_source(path)
    return folder.config, convert(folder, dtype)


def load_4_bits(
    path: Path, dtype: torch.dtype, quantize: Quantize = quantize
) -> tuple[ModelConfig, Mapping[str, Converted]]:
    """The same with the matrices of the blocks in 4 bits; ``quantize`` is for those that the file has otherwise.

    Raises:
        WeightsError: as for :func:`load_floats`, or a matrix can't be cut into groups.
    """
    opened = open_source(path)
    return opened.config, convert_to_4_bits(opened, dtype, quantize)


def check_positions(path: Path, config: ModelConfig, weight_bytes: int) -> None:
    """Refuse positions whose table of angles would take more memory than the weights: a damaged config has such.

    Raises:
        WeightsError: there are too many positions.
    """
    table_bytes = 4 * config.head_dim * config.max_positions
    if table_bytes > max(weight_bytes, _MODEST_BYTES):
        raise WeightsError(
            f"{path} asks for {config.max_positions:,} positions, too many for so small a model: "
            "its config is damaged; download it again"
        )
