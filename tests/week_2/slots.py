"""A batching cache with a copy in NumPy of the keys and values that each slot's request has got so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from coursekit.check import check, check_untouched

from .batches import HKV, D, H, aligned, attention_alone, mask_of_batch


class Rows:
    """A `BatchingKvCache`, and beside it in NumPy the keys and values of each slot's request so far."""

    def __init__(self, lab: Any, num_slots: int, seed: int = 40) -> None:
        self.lab = lab
        self.cache = lab.kv_cache.BatchingKvCache(num_slots)
        self.rng = np.random.default_rng(seed)
        self.slots: list[tuple[np.ndarray, np.ndarray] | None] = [None] * num_slots

    def random(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).astype(np.float32).astype(np.float64)

    def add(self, slot: int, length: int) -> Any:
        """Add a request that has `length` tokens already, and return its cache."""
        cache = self.lab.kv_cache.FullKvCache()
        key, value = self.random(HKV, length, D), self.random(HKV, length, D)
        if length:
            cache.append(self.lab.array(key[None]), self.lab.array(value[None]))
        self.cache.add(slot, cache)
        self.slots[slot] = (key, value)
        return cache

    def remove(self, slot: int) -> Any:
        self.slots[slot] = None
        return self.cache.remove(slot)

    def new_tokens(self, L: int) -> tuple[np.ndarray, np.ndarray]:
        """New keys and values [B, Hkv, L, D] for all slots; NaN in the rows of idle ones."""
        key, value = (self.random(len(self.slots), HKV, L, D) for _ in range(2))
        for slot, held in enumerate(self.slots):
            if held is None:
                key[slot] = value[slot] = np.nan
            else:
                parts = zip(held, (key[slot], value[slot]), strict=True)
                old, new = (np.concatenate(part, axis=1) for part in parts)
                self.slots[slot] = (old, new)
        return key, value

    @property
    def lengths(self) -> list[int]:
        return [0 if held is None else held[0].shape[1] for held in self.slots]

    def parts(self, which: int) -> list[np.ndarray]:
        empty = np.zeros((HKV, 0, D))
        return [empty if held is None else held[which] for held in self.slots]

    def check_update(self, L: int, dtype: str = "float32") -> None:
        """Give every slot L tokens and check all that comes back."""
        __tracebackhide__ = True
        key, value = self.new_tokens(L)
        arrays = self.lab.array(key, dtype), self.lab.array(value, dtype)
        before = [self.lab.numpy(array).astype(np.float64) for array in arrays]
        actual = self.cache.update_and_fetch(*arrays)
        three = isinstance(actual, tuple) and len(actual) == 3
        assert three, "update_and_fetch should return three things: keys, values and the mask of the batch"
        S = max(*self.lengths, L)
        for which, name in enumerate(("keys", "values")):
            check(
                actual[which],
                aligned(self.parts(which), S),
                name=f"the batch of {name}",
                axes="B Hkv S D",
                dtype=dtype,
                suspects=self.suspects(which, actual[which], L, S),
            )
        assert actual[2] is not None or L > 1, (
            "no mask came back: one new token needs a mask too, for the padding must be hidden"
        )
        mask = mask_of_batch(L, self.lengths, S)
        check(actual[2], mask, name="the mask of the batch", axes="B 1 L S", dtype=dtype)
        for array, was, name in zip(arrays, before, ("key", "value"), strict=True):
            check_untouched(array, was, name=f"the {name} passed in", dtype=dtype)

    def suspects(self, which: int, actual: Any, L: int, S: int) -> dict[str, Any]:
        """What mistakes would make of the keys (0) or values (1) of the batch that came back as `actual`."""
        parts = self.parts(which)

        def with_idle_rows() -> np.ndarray:
            batch = aligned(parts, S)
            for slot, held in enumerate(self.slots):
                if held is None:
                    batch[slot, :, S - L :] = np.nan
            return batch

        def with_its_padding() -> np.ndarray:
            right, found = aligned(parts, S), self.lab.numpy(actual)
            if found.shape != right.shape:
                return right
            own = aligned([np.ones_like(part) for part in parts], S) == 1
            return np.where(own, right, found)

        def with_a_gap() -> np.ndarray:
            return aligned(
                [
                    np.concatenate(
                        [part[:, :-L], np.zeros((HKV, S - part.shape[1], D)), part[:, -L:]], axis=1
                    )
                    for part in parts
                ],
                S,
            )

        def without_empty_caches() -> np.ndarray:
            return aligned([part[:, : 0 if part.shape[1] == L else None] for part in parts], S)

        def with_sizes_for_tokens() -> np.ndarray:
            """The one new token [Hkv, 1, D] without its row axis is written to the places of D tokens."""
            longer = [
                np.concatenate([part[:, :-1], np.repeat(part[:, -1:], D, axis=1)], axis=1) for part in parts
            ]
            return aligned(longer, S + D - 1)

        suspects = {
            "the padding stands between a request's past and its new tokens: all its tokens are to lie together, in "
            "the last columns": with_a_gap,
            "a slot whose cache was empty is taken for idle": without_empty_caches,
            "S is one column too large: it is the greatest length": lambda: aligned(parts, S + 1),
            "the rows are aligned on the left": lambda: aligned(parts, S, left=True),
            "the rows of idle slots were not ignored": with_idle_rows,
            "the padding isn't zeros but what was in memory before": with_its_padding,
        }
        columns = max(self.lengths)
        if L == 1:
            suspects[
                "a request's cache was given `key[slot]`, which has no row axis: its last axis, of size D, was taken "
                "for tokens"
            ] = with_sizes_for_tokens
        if columns < L:
            suspects["S is not at least L"] = lambda: aligned(parts, columns)
        return suspects

    def check_attend(self, L: int) -> None:
        """Give every slot L tokens and check that each attends as if it were alone."""
        __tracebackhide__ = True
        key, value = self.new_tokens(L)
        query = self.random(len(self.slots), H, L, D)
        actual = self.cache.attend(*(self.lab.array(x) for x in (query, key, value)), 0.3)
        pairs = zip(query, self.parts(0), self.parts(1), strict=True)
        expected = np.stack([attention_alone(*row, 0.3) for row in pairs])
        name = f"attention in slots of lengths {self.lengths}"
        check(actual, expected, name=name, axes="B H L D", rtol=1e-4, atol=1e-5)
