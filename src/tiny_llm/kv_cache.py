"""The seam between the model and everything that remembers tokens (Days 1.5, 2.1 and 2.6)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tiny_llm.arrays import Tensor, empty, zeros
from tiny_llm.attention import batched_causal_mask, causal_mask, scaled_dot_product_attention_grouped


class LayerCache(ABC):
    """What one attention layer knows about the tokens before this call.

    The model calls :meth:`attend` once per layer and forward pass, and doesn't know how keys and values are kept.
    """

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Store the keys and values of the new tokens, then attend to all the tokens that the new ones may see.

        Before: ``query`` and ``key`` are already rotated to their positions.
        After: the cache holds the new tokens too.

        Args:
            query: [B, H, L, D].
            key: [B, Hkv, L, D]; value likewise.
            scale: what to multiply the scores by.

        Returns:
            [B, H, L, D]. A new token sees itself, the new tokens before it, and the past of its own sequence.
        """


class DenseCache(LayerCache):
    """A cache that can hand out its keys and values as ordinary arrays."""

    @abstractmethod
    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Store the new tokens and return all the keys and values that the new queries may see.

        Args:
            key: [B, Hkv, L, D]; value likewise.

        Returns:
            keys and values [B, Hkv, S, D], past and new, and the mask for the L new queries over the S keys:
            [L, S], [B, 1, L, S], or None when every new query may see every key.
        """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Update, then plain grouped attention over what :meth:`update_and_fetch` returns."""
        raise NotImplementedError("Week 1 Day 5 Task 1: The seam")


class NoCache(DenseCache):
    """Remembers nothing: each call is a whole sequence, and its tokens see one another causally."""

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the new keys and values as they are, with the causal mask [L, L] for them."""
        raise NotImplementedError("Week 1 Day 5 Task 1: The seam")


class FullKvCache(DenseCache):
    """All the keys and values of one sequence (or of B sequences that grow in step).

    They lie at the front of storage that has room to spare, so that a new token is written behind the others and
    nothing else moves.
    """

    first_capacity = 64  # tokens that the first storage has room for, unless more come at once

    def __init__(self) -> None:
        """Start empty. There is no storage yet: its sizes come with the first keys."""
        self.length = 0  # tokens held
        self.keys: Tensor | None = None  # [B, Hkv, capacity, D]; valid up to self.length
        self.values: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the L new tokens behind the others and return the keys and values of all S tokens.

        When the storage is full, storage of at least twice the size replaces it: each token is then copied only a
        few times in all, however long the sequence grows.

        Args:
            key: [B, Hkv, L, D]; value likewise.

        Returns:
            keys and values [B, Hkv, S, D], views of the storage.
        """
        raise NotImplementedError("Week 2 Day 1 Task 1: Storage that grows")

    def _room_for(self, storage: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Storage [B, Hkv, at least ``end``, D] with the tokens held: ``storage`` itself if it is large enough."""
        raise NotImplementedError("Week 2 Day 1 Task 1: Storage that grows")

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the new tokens, and return all the tokens with the mask for the new ones.

        Args:
            key: [B, Hkv, L, D]; value likewise.

        Returns:
            keys and values [B, Hkv, S, D], and the mask [L, S]: causal, bottom-right aligned; None for a single new
            token, which may see every key.
        """
        raise NotImplementedError("Week 2 Day 1 Task 2: Behind the seam")

    def rewind(self, count: int) -> None:
        """Forget the newest ``count`` tokens; the next tokens take their places.

        Raises:
            ValueError: ``count`` is negative, or larger than the number of tokens held. The cache stays as it was.
        """
        raise NotImplementedError("Week 2 Day 1 Task 3: Rewind")


class BatchingKvCache(DenseCache):
    """The caches of several requests of different lengths, each in a slot, as one dense batch (Day 2.6).

    The batch is built anew at each call: row b is slot b, aligned on the right, so that the newest keys of all rows
    lie in the last columns. A slot without a request is idle: its row takes part, and gets zeros.
    """

    def __init__(self, num_slots: int) -> None:
        """Start with ``num_slots`` idle slots; B = ``num_slots`` in all calls."""
        self.slots: list[FullKvCache | None] = [None] * num_slots
        self.bytes_copied = 0  # into dense batches so far, padding included

    def add(self, slot: int, cache: FullKvCache) -> None:
        """Put a request's cache, not a copy of it, into an idle slot, where it goes on growing.

        Args:
            slot: 0 … ``num_slots`` − 1.
            cache: a cache with B = 1, prefilled or empty.

        Raises:
            ValueError: the slot is taken (an empty cache takes it, too), or there is none of this number. The message
                names the slot.
        """
        raise NotImplementedError("Week 2 Day 6 Task 2: The batching cache")

    def remove(self, slot: int) -> FullKvCache:
        """Make a slot idle and return the cache that was in it.

        Raises:
            ValueError: the slot is idle already, or there is no such slot. The message names the slot.
        """
        raise NotImplementedError("Week 2 Day 6 Task 2: The batching cache")

    def _check(self, slot: int) -> None:
        if not 0 <= slot < len(self.slots):
            raise ValueError(f"there is no slot {slot}: this cache has slots 0 to {len(self.slots) - 1}")

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Give each request its new tokens, then build the batch.

        Args:
            key: [B, Hkv, L, D], one row per slot; the rows of idle slots are ignored. value likewise.

        Returns:
            keys and values [B, Hkv, S, D] for S = max(S_b), the request of slot b in the last S_b columns and zeros
            before them, and the mask [B, 1, L, S] of :func:`batched_causal_mask`. S is at least L.

        Raises:
            ValueError: the number of rows isn't the number of slots. No cache has grown then.
        """
        raise NotImplementedError("Week 2 Day 6 Task 2: The batching cache")

    def _append(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor] | None:
        """Append row ``slot`` of the new tokens to its cache: keys and values [1, Hkv, S_b, D]; None if idle."""
        raise NotImplementedError("Week 2 Day 6 Task 2: The batching cache")
