"""The seam between the model and everything that remembers tokens (Days 1.5, 2.1 and 2.6)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from tiny_llm.attention import causal_mask, scaled_dot_product_attention_grouped


class LayerCache(ABC):
    """What one attention layer knows about the tokens before this call.

    The model calls :meth:`attend` once per layer and forward pass. How keys and values are kept is no concern of
    the model's.
    """

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Take in the keys and values of the new tokens, then attend to all that the new tokens may see.

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
        """Take in the new tokens and return everything that may be attended to.

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
