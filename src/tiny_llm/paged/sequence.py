"""One request's pages, and attention over them by gathering (Day 3.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tiny_llm.arrays import Tensor, integers
from tiny_llm.attention import causal_mask
from tiny_llm.generate import Sample, greedy
from tiny_llm.kv_cache import DenseCache
from tiny_llm.model import Transformer
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.places import pages_for, places_of
from tiny_llm.paged.pool import KvPool


class PagedSequence:
    """The pages that hold one sequence, in order, and how many tokens are in them."""

    def __init__(self, allocator: PageAllocator, page_size: int) -> None:
        """Start empty, without a page."""
        self.allocator = allocator
        self.page_size = page_size
        self.pages: list[int] = []
        self.length = 0  # tokens whose keys and values are in the pool

    def reserve(self, count: int) -> None:
        """Take the pages that ``count`` more tokens need beyond those that are there; before the model runs on them.

        Raises:
            OutOfPages: too few pages are free; the sequence is as it was.
        """
        raise NotImplementedError("Week 3 Day 1 Task 4: A sequence of pages")

    def places(self, start: int, stop: int) -> list[int]:
        """The places of the tokens at positions ``start`` … ``stop`` − 1."""
        raise NotImplementedError("Week 3 Day 1 Task 4: A sequence of pages")

    def advance(self, count: int) -> None:
        """Note that ``count`` more tokens are in the pool, in all layers: once per step, after the model has run."""
        raise NotImplementedError("Week 3 Day 1 Task 4: A sequence of pages")

    def release(self) -> None:
        """Give up one reference to each page, and be empty again.

        What the allocator raises comes through, Ctrl-C too; the sequence still has its pages then.
        """
        raise NotImplementedError("Week 3 Day 1 Task 4: A sequence of pages")


class GatherCache(DenseCache):
    """One layer of a pool, as the model sees it when it runs on one sequence: it writes and gathers by place."""

    def __init__(self, pool: KvPool, layer: int, sequence: PagedSequence) -> None:
        """Look at one layer of the pool for one sequence; several layers share both."""
        self.pool = pool
        self.layer = layer
        self.sequence = sequence

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Write the L new tokens behind the sequence's ``length``, then gather all S.

        The sequence itself doesn't change: its pages were reserved before, and the code that runs the model advances
        it after all layers have run.

        Args:
            key: [1, Hkv, L, D]; value likewise.

        Returns:
            keys and values [1, Hkv, S, D] and the mask [L, S]: causal, bottom-right aligned; None for a single token.
        """
        raise NotImplementedError("Week 3 Day 1 Task 5: Attention by gathering")


def generate_on_pages(
    model: Transformer,
    pool: KvPool,
    allocator: PageAllocator,
    prompt_ids: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int] = (),
    sample: Sample = greedy,
) -> Iterator[int]:
    """Day 2.1's generation with keys and values in a pool that other requests may use, too.

    Pages are taken when they are needed, at most one for a decoded token, and given back at the end, however that
    comes: the last token, an error, Ctrl-C, or a caller that closes the generator.

    Args:
        model: the model.
        pool: where keys and values go.
        allocator: hands out the pool's pages.
        prompt_ids: at least one token id, and fewer than the model has positions.
        max_tokens: how many tokens to generate at most.
        end_ids: ids that end the text. The one that was generated is yielded, too.
        sample: chooses a token from the last row of logits [V] and all the ids so far.

    Yields:
        Each new token id as soon as it is known.

    Raises:
        ValueError: the prompt is empty or too long.
        OutOfPages: too few pages are free for the next tokens.
    """
    raise NotImplementedError("Week 3 Day 1 Task 5: Attention by gathering")
