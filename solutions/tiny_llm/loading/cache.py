"""Converted weights, kept for the next time.

One safetensors file for each source and form, in the user's cache folder (or where TINY_LLM_CACHE says). Its header
carries the config, the size and time of the source when it was read, and a checksum of the tensors. A file that
doesn't match is converted again and replaced. Files are written under another name and then renamed, so a reader sees
a whole file or none, even while another process writes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from safetensors import safe_open
from torch import Tensor

from tiny_llm.cache_folder import CACHE_VARIABLE, cache_folder
from tiny_llm.config import ModelConfig
from tiny_llm.loading.aligned_safetensors import write_aligned
from tiny_llm.loading.convert import convert
from tiny_llm.loading.errors import WeightsError, reading, unreadable
from tiny_llm.loading.files import check_file
from tiny_llm.loading.layout import layout, shape
from tiny_llm.loading.sources import TensorSource, open_source

_FORMAT = 2  # to be raised when the same source would give other tensors, or the header changes
_ABANDONED_SECONDS = 3600.0
_WORDS = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.uint8: torch.uint8,
}

Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""The dtype and the shape of each tensor, by its name."""


@dataclass(frozen=True)
class Form:
    """A form into which a source's tensors are brought."""

    name: str  # part of the file's name
    make: Callable[[TensorSource], dict[str, Tensor]]  # contiguous tensors on the CPU
    shapes: Callable[[ModelConfig], Shapes]  # of what ``make`` gives
    facts: Mapping[str, str] = field(default_factory=dict)  # what else must be the same for a file to be used


def in_floats(dtype: torch.dtype) -> Form:
    """All tensors in one dtype."""

    def shapes(config: ModelConfig) -> Shapes:
        return {name: (dtype, shape(parts)) for name, parts in layout(config).items()}

    return Form(str(dtype).removeprefix("torch."), lambda source: convert(source, dtype), shapes)


def convert_once(path: Path, form: Form) -> tuple[ModelConfig, dict[str, Tensor]]:
    """A GGUF file's config and tensors in a form, on the CPU: from the cache, or converted and then cached.

    Cached tensors are mapped from the file rather than copied. Writing to such a tensor changes this process's view
    of it only.

    Raises:
        WeightsError: the source can't be read or isn't supported.
    """
    stamp = {**form.facts, **_stamp(path)}
    kept = _file_for(path, form)
    found = _read(kept, stamp, form)
    if found is not None:
        return found
    source = open_source(path)
    tensors = form.make(source)
    _write(kept, source.config, tensors, stamp)
    return source.config, tensors


def _file_for(path: Path, form: Form) -> Path:
    where = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    return cache_folder() / f"{path.stem}-{where}-{form.name}.safetensors"


def _stamp(path: Path) -> dict[str, str]:
    """The facts of the source that must be unchanged for a cached file to be used."""
    try:
        status = check_file(path).stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return {"format": str(_FORMAT), "size": str(status.st_size), "modified": str(status.st_mtime_ns)}


def _read(kept: Path, stamp: dict[str, str], form: Form) -> tuple[ModelConfig, dict[str, Tensor]] | None:
    """The cached config and tensors, or None where no usable file is there."""
    if not kept.exists():
        return None
    try:
        with reading(kept), safe_open(kept, framework="pt") as file:
            header = file.metadata() or {}
            if any(header.get(key) != value for key, value in stamp.items()):
                return None
            config = ModelConfig.from_json(header["config"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except WeightsError:
        return None
    found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    whole = found == form.shapes(config) and header.get("checksum") == _checksum(tensors)
    return (config, tensors) if whole else None


def _checksum(tensors: dict[str, Tensor]) -> str:
    """A sum over all the tensors' bits, each tensor's weighted by its place among the sorted names.

    It finds accidental damage to a file, and costs little more than reading it.
    """
    total = 0
    for place, name in enumerate(sorted(tensors), start=1):
        flat = tensors[name].reshape(-1)
        words = flat.view(torch.int64 if flat.nbytes % 8 == 0 else _WORDS[flat.dtype])
        total += place * int(words.sum(dtype=torch.int64))
    return format(total % 2**64, "016x")


def _write(kept: Path, config: ModelConfig, tensors: dict[str, Tensor], stamp: dict[str, str]) -> None:
    """Keep the tensors, or say once that they can't be kept; the caller has them in either case."""
    header = {**stamp, "config": config.to_json(), "checksum": _checksum(tensors)}
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(kept)
        _replace(kept, tensors, header)
    except OSError as error:
        _warn(
            f"the converted weights can't be kept in {kept.parent} ({error}), so the next start takes as long again; "
            f"set {CACHE_VARIABLE} to a folder that can be written"
        )


@functools.cache
def _warn(message: str) -> None:
    """Print a message on stderr, the first time that it comes up."""
    Console(stderr=True).print(f"[yellow]warning:[/yellow] {escape(message)}", soft_wrap=True)


def _replace(kept: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    handle, name = tempfile.mkstemp(prefix=f"{kept.name}.", suffix=".tmp", dir=kept.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        write_aligned(unfinished, tensors, header)
        unfinished.replace(kept)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_abandoned(kept: Path) -> None:
    """Delete the unfinished files of writers that were killed."""
    for unfinished in kept.parent.glob(f"{kept.name}.*.tmp"):
        if time.time() - unfinished.stat().st_mtime > _ABANDONED_SECONDS:
            unfinished.unlink(missing_ok=True)
