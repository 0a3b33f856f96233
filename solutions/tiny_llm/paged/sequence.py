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
        wanted = pages_for(self.length + count, self.page_size)
        self.pages += self.allocator.allocate(max(0, wanted - len(self.pages)))

    def places(self, start: int, stop: int) -> list[int]:
        """The places of the tokens at positions ``start`` … ``stop`` − 1."""
        return places_of(self.pages, start, stop, self.page_size)

    def advance(self, count: int) -> None:
        """Note that ``count`` more tokens are in the pool, in all layers: once per step, after the model has run."""
        self.length += count

    def release(self) -> None:
        """Give up one reference to each page, and be empty again.

        What the allocator raises comes through, Ctrl-C too; the sequence still has its pages then.
        """
        self.allocator.free(self.pages)
        self.pages, self.length = [], 0


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
        start, L = self.sequence.length, key.shape[2]
        places = integers(self.sequence.places(0, start + L), like=key)
        self.pool.write(self.layer, places[start:], key[0].swapaxes(0, 1), value[0].swapaxes(0, 1))
        keys, values = self.pool.gather(self.layer, places)
        mask = None if L == 1 else causal_mask(L, start + L, like=key)
        return keys.swapaxes(0, 1)[None], values.swapaxes(0, 1)[None], mask


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
    ids, limit = list(prompt_ids), model.config.max_positions
    if not 0 < len(ids) < limit:
        raise ValueError(f"a prompt needs 1 to {limit - 1} tokens; this one has {len(ids)}")
    sequence = PagedSequence(allocator, pool.page_size)
    caches = [GatherCache(pool, layer, sequence) for layer in range(model.config.num_layers)]
    try:
        for _ in range(min(max_tokens, limit - len(ids))):
            new = ids[sequence.length :]
            sequence.reserve(len(new))
            tokens = integers([new], like=model.embedding.weight)
            hidden = model.hidden(tokens, slice(sequence.length, len(ids)), caches)
            sequence.advance(len(new))
            token = sample(model.logits(hidden[0, -1]), ids)
            ids.append(token)
            yield token
            if token in end_ids:
                return
    finally:
        sequence.release()
