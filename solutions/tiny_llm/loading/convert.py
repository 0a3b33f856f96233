"""From a source's tensors to ours: every part read, checked, cast and stacked."""

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
from tiny_llm.loading.sources import TensorSource, missing_tensor

_SILENT_SECONDS = 1.0
_HARMLESS = re.compile(r".*rotary_emb\.inv_freq")  # rotary frequencies, which follow from the base


def convert(source: TensorSource, dtype: torch.dtype) -> dict[str, Tensor]:
    """All the model's tensors by our names, on the CPU, in `dtype`.

    Raises:
        WeightsError: a tensor is missing, has another shape than the config says, or is none that we know, so that
            running without it would give other answers than the model's.
    """
    wanted = layout(source.config)
    _check_names(source, [part for parts in wanted.values() for part in parts])
    return {name: _stack(source, parts, dtype) for name, parts in _with_progress(wanted)}


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
        values = source.read(part)
        if tuple(values.shape) != part.shape:
            raise WeightsError(
                f"{source.path}: {part.name(source.names)} has shape {list(values.shape)} where the config asks for "
                f"{list(part.shape)}: its files don't belong together; download it again"
            )
        if not values.is_floating_point():
            raise WeightsError(
                f"{source.path}: {part.name(source.names)} is stored as {values.dtype}, which isn't supported; "
                "choose weights in float32, float16 or bfloat16"
            )
        stacked[row : row + part.shape[0]] = values
        row += part.shape[0]
    return stacked


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
