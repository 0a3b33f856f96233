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
        keys, values, mask = self.update_and_fetch(key, value)
        return scaled_dot_product_attention_grouped(query, keys, values, scale, mask)


class NoCache(DenseCache):
    """Remembers nothing: each call is a whole sequence, and its tokens see one another causally."""

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the new keys and values as they are, with the causal mask [L, L] for them."""
        L = key.shape[2]
        return key, value, causal_mask(L, L, like=key)


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
        start, end = self.length, self.length + key.shape[2]
        self.keys = self._room_for(self.keys, key, end)
        self.values = self._room_for(self.values, value, end)
        self.keys[:, :, start:end] = key
        self.values[:, :, start:end] = value
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _room_for(self, storage: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Storage [B, Hkv, at least ``end``, D] with the tokens held: ``storage`` itself if it is large enough."""
        if storage is not None and end <= storage.shape[2]:
            return storage
        capacity = self.first_capacity if storage is None else 2 * storage.shape[2]
        B, Hkv, _, D = new.shape
        larger = empty((B, Hkv, max(capacity, end), D), like=new)
        if storage is not None:
            larger[:, :, : self.length] = storage[:, :, : self.length]
        return larger

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the new tokens, and return all the tokens with the mask for the new ones.

        Args:
            key: [B, Hkv, L, D]; value likewise.

        Returns:
            keys and values [B, Hkv, S, D], and the mask [L, S]: causal, bottom-right aligned; None for a single new
            token, which may see every key.
        """
        keys, values = self.append(key, value)
        L, S = key.shape[2], keys.shape[2]
        return keys, values, None if L == 1 else causal_mask(L, S, like=key)

    def rewind(self, count: int) -> None:
        """Forget the newest ``count`` tokens; the next tokens take their places.

        Raises:
            ValueError: ``count`` is negative, or larger than the number of tokens held. The cache stays as it was.
        """
        if not 0 <= count <= self.length:
            raise ValueError(f"can't rewind {count} tokens: the cache holds {self.length}")
        self.length -= count


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
        self._check(slot)
        if self.slots[slot] is not None:
            raise ValueError(f"slot {slot} is taken")
        self.slots[slot] = cache

    def remove(self, slot: int) -> FullKvCache:
        """Make a slot idle and return the cache that was in it.

        Raises:
            ValueError: the slot is idle already, or there is no such slot. The message names the slot.
        """
        self._check(slot)
        cache = self.slots[slot]
        if cache is None:
            raise ValueError(f"slot {slot} is idle: there is nothing to remove")
        self.slots[slot] = None
        return cache

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
        if len(key) != len(self.slots):
            raise ValueError(f"{len(key)} rows were given for {len(self.slots)} slots")
        parts = [self._append(slot, key, value) for slot in range(len(self.slots))]
        lengths = [0 if part is None else part[0].shape[2] for part in parts]
        B, Hkv, L, D = key.shape
        S = max(*lengths, L)
        keys, values = zeros((B, Hkv, S, D), like=key), zeros((B, Hkv, S, D), like=value)
        for slot, part in enumerate(parts):
            if part is not None:
                keys[slot, :, S - lengths[slot] :] = part[0][0]
                values[slot, :, S - lengths[slot] :] = part[1][0]
        self.bytes_copied += keys.nbytes + values.nbytes
        return keys, values, batched_causal_mask(L, lengths, S, like=key)

    def _append(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor] | None:
        """Append row ``slot`` of the new tokens to its cache: keys and values [1, Hkv, S_b, D]; None if idle."""
        cache = self.slots[slot]
        return None if cache is None else cache.append(key[slot : slot + 1], value[slot : slot + 1])
