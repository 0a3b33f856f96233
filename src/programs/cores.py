"""What the programs need to run requests on pages: a way to attend, a pool of the right size, and an engine on it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coursekit.errors import CourseError
from programs.waiting import waiting

if TYPE_CHECKING:
    import torch

    from tiny_llm.generate import Sample
    from tiny_llm.model import Transformer
    from tiny_llm.paged.attention import PagedAttention
    from tiny_llm.paged.batch import PagedBatch
    from tiny_llm.paged.model_runner import ModelRunner
    from tiny_llm.ragged.batch import RaggedBatch
    from tiny_llm.request import Request

PAGE_SIZE = 16
"""Tokens per page, where nothing else is said."""


def choose(name: str, dtype: str, device: str) -> PagedAttention:
    """The way to attend that goes by a name.

    Raises:
        CourseError: there is no such way, or not for this dtype or device.
    """
    import torch

    return _choose(name, getattr(torch, dtype), device)


def _choose(name: str, dtype: Any, device: Any) -> PagedAttention:
    from tiny_llm.paged.attention_backends import choose_attention

    try:
        return choose_attention(str(name), dtype, device)  # a message shows the name, not the option's class
    except ValueError as error:
        raise CourseError(str(error)) from None


def choose_for(name: str, model: Transformer) -> PagedAttention:
    """The same for a model that is loaded."""
    from tiny_llm.arrays import device_of

    weight = model.embedding.weight
    return _choose(name, weight.dtype, device_of(weight))


def warm_up(name: str, model: Transformer) -> None:
    """Attend once, with a single token, so that a kernel that was never compiled on this machine is compiled now.

    With Day 4.7's way to attend the model is run, as all of it is made of kernels then.
    """
    from tiny_llm.arrays import device_of, host_array, zeros

    if name == "tiled":
        _run_once(model)
        return

    from tiny_llm.paged.metadata import ForwardMeta

    weight, config = model.embedding.weight, model.config
    meta = ForwardMeta.build(host_array([[1]]), [0], [1], PAGE_SIZE, device_of(weight))
    pages = zeros((2, PAGE_SIZE, config.num_kv_heads, config.head_dim), like=weight)
    query = zeros((1, config.num_heads, config.head_dim), like=weight)
    attention = choose_for(name, model)
    with waiting("compiling the attention kernel: half a minute, once"):
        attention(query, pages, pages, meta, 1.0, True)


def _run_once(model: Transformer) -> None:
    """Run a fast model on a single token."""
    import torch

    from tiny_llm.fast.threads import release_threads
    from tiny_llm.paged.metadata import ForwardMeta
    from tiny_llm.paged.paged_cache import PagedCache

    runner = make_runner(model, 2, choose_for("tiled", model))
    meta = ForwardMeta.build(torch.ones(1, 1, dtype=torch.int32), [0], [1], PAGE_SIZE)
    layers = range(model.config.num_layers)
    caches = [PagedCache(runner.pool, layer, meta, runner.attention) for layer in layers]
    with waiting("compiling the kernels: a minute, once"):
        model.logits(model.hidden(torch.tensor([[0]]), meta.positions, caches)[0])
    release_threads()  # an engine computes on another thread than this one


def require_memory(
    model: Transformer, num_pages: int, page_size: int = PAGE_SIZE, advice: str = "give a smaller --pages"
) -> None:
    """Refuse a pool that is larger than all the memory of the machine, or of the GPU that the model is on.

    Args:
        model: the model.
        num_pages: how many pages the pool would have.
        page_size: tokens per page.
        advice: what to do about it, for the message.

    Raises:
        CourseError: it is; the message says how many pages there would be room for.
    """
    from tiny_llm.arrays import device_of

    weight, config = model.embedding.weight, model.config
    page_bytes = 2 * config.num_layers * page_size * config.num_kv_heads * config.head_dim * weight.itemsize
    memory = total_memory(device_of(weight))
    if memory is not None and num_pages * page_bytes > memory:
        raise CourseError(
            f"{num_pages:,} pages of {page_size} tokens would take {num_pages * page_bytes / 1e9:,.0f} GB; there are "
            f"{memory / 1e9:.0f} GB in all, room for {memory // page_bytes:,} pages: {advice}"
        )


def total_memory(device: torch.device | None) -> int | None:
    """Bytes of memory of the machine, or of a CUDA GPU; None where the system does not tell."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def most_pages(model: Transformer) -> int:
    """How many pages one request can come to hold, which the model's positions limit."""
    from tiny_llm.paged.places import pages_for

    return pages_for(model.config.max_positions, PAGE_SIZE)


def make_runner(
    model: Transformer, num_pages: int, attention: PagedAttention, page_size: int = PAGE_SIZE
) -> ModelRunner:
    """The model with a pool of ``num_pages`` pages, the null page included."""
    from tiny_llm.arrays import device_of
    from tiny_llm.paged.model_runner import ModelRunner
    from tiny_llm.paged.pool import KvPool

    weight = model.embedding.weight
    pool = KvPool(model.config, num_pages, page_size, weight.dtype, device_of(weight))
    return ModelRunner(model, pool, attention)


def paged_batch(
    model: Transformer, requests: Sequence[Request], attention: PagedAttention, seats: int, chunk: int
) -> PagedBatch:
    """Day 3.2's engine, with pages for the longest ``seats`` of some requests at a time."""
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.batch import PagedBatch

    num_pages = 1 + max(1, sum(pages_needed(model, requests)[:seats]))
    return PagedBatch(make_runner(model, num_pages, attention), PageAllocator(num_pages), seats, chunk)


def ragged_batch(
    model: Transformer, seats: int, num_pages: int, max_pages: int, token_budget: int, attention: str = "auto"
) -> RaggedBatch:
    """Day 3.6's engine on pages of its own.

    Args:
        model: the model.
        seats: how many requests may run at a time.
        num_pages: how many pages there are, the null page left out.
        max_pages: how many of them one seat may hold.
        token_budget: how many tokens a step brings at most.
        attention: the name of a way to attend.
    """
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.ragged.batch import RaggedBatch
    from tiny_llm.ragged.decode_state import DecodeState

    runner = make_runner(model, 1 + num_pages, choose_for(attention, model))
    state = DecodeState(PageAllocator(1 + num_pages), PAGE_SIZE, seats, max_pages)
    return RaggedBatch(runner, state, token_budget)


def ragged_batch_for(
    model: Transformer, requests: Sequence[Request], seats: int, token_budget: int, attention: str = "auto"
) -> RaggedBatch:
    """The same, with pages for the longest ``seats`` of some requests at a time."""
    needed = pages_needed(model, requests)
    return ragged_batch(model, seats, max(1, sum(needed[:seats])), max(1, *needed), token_budget, attention)


def pages_needed(model: Transformer, requests: Sequence[Request], page_size: int = PAGE_SIZE) -> list[int]:
    """How many pages each of some requests may come to need, the most first."""
    from tiny_llm.paged.limits import most_tokens
    from tiny_llm.paged.places import pages_for

    limit = model.config.max_positions
    return sorted((pages_for(most_tokens(each, limit), page_size) for each in requests), reverse=True)


def generate(
    attention: PagedAttention,
    model: Transformer,
    prompt_ids: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int],
    sample: Sample,
) -> Iterator[int]:
    """One request's tokens, as they come, from Day 3.2's engine with a pool of its own."""
    from tiny_llm.request import Request

    request = Request(prompt_ids, max_tokens, end_ids, sample)
    core = paged_batch(model, [request], attention, 1, max(1, request.prompt_len))
    if request.finished(core.max_positions):
        return
    core.push(request)
    try:
        while core.requests:
            core.step()
            yield request.token_ids[-1]
    finally:
        core.abort([request])
