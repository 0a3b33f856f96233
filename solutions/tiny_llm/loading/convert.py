"""From a source's tensors to ours: every part read, checked, cast or quantized, and stacked."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from tiny_llm.loading.errors import WeightsError, reading
from tiny_llm.loading.layout import Layout, Part, layout, shape
from tiny_llm.loading.quantized import GROUP_SIZE, is_quantized, stack_rows
from tiny_llm.loading.sources import TensorSource
from tiny_llm.quantize import QuantizedTensor, quantize

_SILENT_SECONDS = 1.0
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_HARMLESS = re.compile(r".*rotary_emb\.inv_freq")  # rotary frequencies, which follow from the base


Converted = Tensor | QuantizedTensor
"""A tensor of ours: in floats, or in 4 bits."""

Quantize = Callable[[Tensor, int], QuantizedTensor]
"""Takes a matrix in floats and a group size, as Day 2.2's `quantize` does."""


def convert(source: TensorSource, dtype: torch.dtype) -> dict[str, Tensor]:
    """All the model's tensors by our names, on the CPU, in `dtype`.

    Raises:
        WeightsError: a tensor is missing, has another shape than the config says, or is unknown: leaving an unknown
            tensor out would change the model's answers.
    """
    wanted = _wanted(source)
    return {name: _stack(source, parts, dtype) for name, parts in _with_progress(wanted)}


def convert_to_4_bits(
    source: TensorSource, dtype: torch.dtype, quantize: Quantize = quantize
) -> dict[str, Converted]:
    """The same with the matrices of the blocks in 4 bits; the rest is in `dtype`.

    What the source has in 4 bits keeps its numbers. Anything else is quantized tensor by tensor, by ``quantize``, so
    that at most one of them is in memory as floats. A QuantizedTensor holds torch tensors here on both tracks.

    Raises:
        WeightsError: as for :func:`convert`, or a matrix can't be cut into groups of 32.
    """
    tensors: dict[str, Converted] = {}
    for name, parts in _with_progress(_wanted(source)):
        if is_quantized(name, shape(parts)):
            tensors[name] = stack_rows([_in_4_bits(source, part, quantize) for part in parts])
        else:
            tensors[name] = _stack(source, parts, dtype)
    return tensors


def _wanted(source: TensorSource) -> Layout:
    """The tensors to make, once the source is known to have all their parts, in their shapes.

    So nothing is allocated for a tensor that isn't there, or is smaller than the config says.
    """
    wanted = layout(source.config)
    shapes = source.shapes()
    _check_parts(source, shapes, [part for parts in wanted.values() for part in parts])
    return wanted


def _check_parts(source: TensorSource, shapes: dict[str, tuple[int, ...]], parts: list[Part]) -> None:
    known = {part.name(source.names): part for part in parts}
    for name, part in sorted(known.items()):
        if name not in shapes:
            raise WeightsError(
                f"{source.path} has no tensor {name!r}: it is incomplete or another kind of model; "
                "download it again"
            )
        if shapes[name] != part.shape:
            raise WeightsError(
                f"{source.path}: {name} has shape {list(shapes[name])} where the config asks for "
                f"{list(part.shape)}: its files don't belong together; download it again"
            )
    spare_head = f"{source.names['head']}.weight"  # written by some tools although the embedding is the head
    for name in sorted(shapes.keys() - known.keys() - {spare_head}):
        if not _HARMLESS.fullmatch(name):
            raise WeightsError(
                f"{source.path} has a tensor {name!r} that a plain {source.config.architecture} model lacks: "
                "this variant isn't supported; choose another model"
            )


def _stack(source: TensorSource, parts: tuple[Part, ...], dtype: torch.dtype) -> Tensor:
    with reading(source.path):
        stacked = torch.empty(shape(parts), dtype=dtype)
    row = 0
    for part in parts:
        stacked[row : row + part.shape[0]] = _read(source, part)
        row += part.shape[0]
    return stacked


def _in_4_bits(source: TensorSource, part: Part, quantize: Quantize) -> QuantizedTensor:
    with reading(source.path):
        weight = source.read_4_bits(part)
    if weight is not None:
        _check_finite(source, part, weight.scales)
        _check_finite(source, part, weight.minima)
        return weight
    if part.shape[1] % GROUP_SIZE:
        raise WeightsError(
            f"{source.path}: {part.name(source.names)} has rows of {part.shape[1]} weights, which can't be cut into "
            f"groups of {GROUP_SIZE}: load this model without 4 bits"
        )
    return quantize(_read(source, part), GROUP_SIZE)


def _read(source: TensorSource, part: Part) -> Tensor:
    with reading(source.path):
        values = source.read(part)
    if values.dtype not in _FLOATS:
        raise WeightsError(
            f"{source.path}: {part.name(source.names)} is stored as {values.dtype}, which isn't supported; "
            "choose weights in float32, float16 or bfloat16"
        )
    _check_finite(source, part, values)
    return values


def _check_finite(source: TensorSource, part: Part, values: Tensor) -> None:
    """A single NaN among the weights makes every score NaN. `aminmax` passes it on, and copies nothing."""
    if not all(torch.isfinite(end) for end in torch.aminmax(values)):
        raise WeightsError(
            f"{source.path}: {part.name(source.names)} holds NaN or infinity, so it is damaged: download it again"
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
