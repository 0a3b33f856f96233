"""The forms of the model that `bench quality` compares: how each is loaded, and how it predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.model import Transformer

ROWS = 128
"""Tokens whose logits are computed at a time: those of a whole piece would take 200 MB."""

Load = Callable[..., "Transformer"]
"""Called with some of ``dtype``, ``bits`` and ``matmul``; gives the model."""

Predict = Callable[[Sequence[int]], Iterator["Tensor"]]
"""Token ids → the logits behind each of them, float32 [up to ROWS, V] at a time, in order."""


@dataclass(frozen=True)
class Form:
    """A form of the model."""

    name: str
    label: str
    make: Callable[[Load], Predict]


def _plain(**how: Any) -> Callable[[Load], Predict]:
    """All tokens at once, without a cache."""

    def make(load: Load) -> Predict:
        model = load(**how)
        return lambda token_ids: whole(model, token_ids)

    return make


def _packed_on_pages(load: Load) -> Predict:
    from tiny_llm.fast.float_model import accelerate_floats

    model = accelerate_floats(load(dtype="bfloat16"))
    return lambda token_ids: on_pages(model, token_ids)


def _fast(load: Load) -> Transformer:
    from tiny_llm.fast.accelerate import accelerate

    return accelerate(load(bits=4, matmul="plain"))


def _fast_whole(load: Load) -> Predict:
    model = _fast(load)
    return lambda token_ids: whole(model, token_ids)


def _fast_on_pages(load: Load) -> Predict:
    model = _fast(load)
    return lambda token_ids: on_pages(model, token_ids)


def whole(model: Transformer, token_ids: Sequence[int]) -> Iterator[Tensor]:
    """Logits, all tokens in one run of the model."""
    import torch

    hidden = model.hidden(torch.tensor([list(token_ids)]), slice(0, len(token_ids)))
    yield from _logits(model, hidden)


def on_pages(model: Transformer, token_ids: Sequence[int], attention: str = "tiled") -> Iterator[Tensor]:
    """Logits as the engine computes them: keys and values on pages, in chunks of its token budget."""
    import torch

    from tiny_llm.engine.limits import Limits
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.attention_backends import choose_attention
    from tiny_llm.paged.metadata import ForwardMeta
    from tiny_llm.paged.paged_cache import PagedCache
    from tiny_llm.paged.places import pages_for
    from tiny_llm.paged.pool import KvPool
    from tiny_llm.paged.sequence import PagedSequence
    from tiny_llm.paged.tables import tables_of

    limits, dtype = Limits(), model.embedding.weight.dtype
    num_pages = pages_for(len(token_ids), limits.page_size) + 1  # the null page, too
    pool, attend = (
        KvPool(model.config, num_pages, limits.page_size, dtype),
        choose_attention(attention, dtype),
    )
    sequence = PagedSequence(PageAllocator(num_pages), limits.page_size)
    sequence.reserve(len(token_ids))
    for start in range(0, len(token_ids), limits.token_budget):
        new = list(token_ids[start : start + limits.token_budget])
        meta = ForwardMeta.build(tables_of([sequence]), [start], [len(new)], limits.page_size)
        caches = [PagedCache(pool, layer, meta, attend) for layer in range(model.config.num_layers)]
        yield from _logits(model, model.hidden(torch.tensor([new]), meta.positions, caches))


def _logits(model: Transformer, hidden: Tensor) -> Iterator[Tensor]:
    for rows in hidden[0].split(ROWS):
        yield model.logits(rows).float()


BASE = Form("float32", "float32", _plain(dtype="float32"))
FORMS = (
    Form("bfloat16", "bfloat16", _plain(dtype="bfloat16")),
    Form("packed-pages", "bfloat16, packed, on pages", _packed_on_pages),
    Form("torch", "4 bits, bfloat16", _plain(dtype="bfloat16", bits=4, matmul="torch")),
    Form("fast", "4 × 8 bits", _fast_whole),
    Form("fast-pages", "4 × 8 bits, on pages", _fast_on_pages),
)
"""Each has the weights of :data:`BASE`, but for the rounding to bfloat16."""
