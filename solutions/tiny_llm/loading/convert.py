"""From a source's tensors to ours: every part read, checked, cast or quantized, and stacked."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.layout import Layout, Part, layout, shape
from tiny_llm.loading.quantized import GROUP_SIZE, is_quantized, stack_rows
from tiny_llm.loading.sources import TensorSource, missing_tensor
from tiny_llm.quantize import QuantizedTensor, quantize

_SILENT_SECONDS = 1.0
_HARMLESS = re.compile(r".*rotary_emb\.inv_freq")  # rotary frequencies, which follow from the base


Converted = Tensor | QuantizedTensor
"""A tensor of ours: in floats, or in 4 bits."""


def convert(source: TensorSource, dtype: torch.dtype) -> dict[str, Tensor]:
    """All the model's tensors by our names, on the CPU, in `dtype`.

    Raises:
        WeightsError: a tensor is missing, has another shape than the config says, or is unknown: leaving an unknown
            tensor out would change the model's answers.
    """
    wanted = _wanted(source)
    return {name: _stack(source, parts, dtype) for name, parts in _with_progress(wanted)}


def convert_to_4_bits(source: TensorSource, dtype: torch.dtype) -> dict[str, Converted]:
    """The same with the matrices of the blocks in 4 bits; the rest is in `dtype`.

    What the source has in 4 bits keeps its numbers. Anything else is quantized tensor by tensor, so that at most one
    of them is in memory as floats.

    Raises:
        WeightsError: as for :func:`convert`, or a matrix can't be cut into groups of 32.
    """
    tensors: dict[str, Converted] = {}
    for name, parts in _with_progress(_wanted(source)):
        if is_quantized(name, shape(parts)):
            tensors[name] = stack_rows([_in_4_bits(source, part) for part in parts])
        else:
            tensors[name] = _stack(source, parts, dtype)
    return tensors


def _wanted(source: TensorSource) -> Layout:
    """The tensors to make, once the source is known to have all their parts."""
    wanted = layout(source.config)
    _check_names(source, [part for parts in wanted.values() for part in parts])
    return wanted


def _check_names(source: TensorSource, parts: list[Part]) -> None:
    present = source.tensor_names()
    known = {part.name(source.names) for part in parts}
    for name in sorted(known - present):
        raise missing_tensor(source.path, name)
    spare_head = f"{source.names['head']}.weight"  # written by some tools although the embedding is the head
    for name in sorted(present - known - {spare_head}):
        if not _HARMLESS.fullmatch(name):
            raise WeightsError(
                f"{source.path} has a tensor {name!r} that a plain {source.config.architecture} model lacks: "
                "this variant isn't supported; choose another model"
            )


def _stack(source: TensorSource, parts: tuple[Part, ...], dtype: torch.dtype) -> Tensor:
    stacked = torch.empty(shape(parts), dtype=dtype)
    row = 0
    for part in parts:
        stacked[row : row + part.shape[0]] = _read(source, part)
        row += part.shape[0]
    return stacked


def _in_4_bits(source: TensorSource, part: Part) -> QuantizedTensor:
    weight = source.read_4_bits(part)
    if weight is not None:
        _check_shape(source, part, weight.shape)
        return weight
    if part.shape[1] % GROUP_SIZE:
        raise WeightsError(
            f"{source.path}: {part.name(source.names)} has rows of {part.shape[1]} weights, which can't be cut into "
            f"groups of {GROUP_SIZE}: load this model without 4 bits"
        )
    return quantize(_read(source, part), GROUP_SIZE)


def _read(source: TensorSource, part: Part) -> Tensor:
    values = source.read(part)
    _check_shape(source, part, tuple(values.shape))
    if not values.is_floating_point():
        raise WeightsError(
            f"{source.path}: {part.name(source.names)} is stored as {values.dtype}, which isn't supported; "
            "choose weights in float32, float16 or bfloat16"
        )
    return values


def _check_shape(source: TensorSource, part: Part, found: tuple[int, ...]) -> None:
    if found != part.shape:
        raise WeightsError(
            f"{source.path}: {part.name(source.names)} has shape {list(found)} where the config asks for "
            f"{list(part.shape)}: its files don't belong together; download it again"
        )


def _with_progress(items: Layout) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """The items one by one, with a bar on stderr once it has taken longer than a second."""
    start = time.monotonic()
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("reading the weights", total=len(items), visible=False)
        for item in items.items():
            yield item
            slow = time.monotonic() - start > _SILENT_SECONDS
            progress.update(task, advance=1, visible=slow)
            if slow:
                progress.refresh()
