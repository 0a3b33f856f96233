"""A batch of slots, and static batching over it (Day 2.6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiny_llm.arrays import Tensor, integers
from tiny_llm.generate import greedy
from tiny_llm.kv_cache import BatchingKvCache, FullKvCache
from tiny_llm.model import Transformer


class Batch:
    """The caches of up to ``num_slots`` requests, and the step that decodes them together."""

    def __init__(self, model: Transformer, num_slots: int) -> None:
        """Start with idle slots."""
        self.model = model
        self.num_slots = num_slots
        self.caches = [BatchingKvCache(num_slots) for _ in range(model.config.num_layers)]

    def add(self, slot: int, caches: Sequence[FullKvCache]) -> None:
        """Put a prefilled request into an idle slot: its caches, one per layer.

        Raises:
            ValueError: the slot is taken, there is no such slot, or there are not as many caches as layers.
        """
        raise NotImplementedError("Week 2 Day 6 Task 3: A batch through the model")

    def remove(self, slot: int) -> None:
        """Make a slot idle.

        Raises:
            ValueError: it is idle already, or there is no such slot.
        """
        raise NotImplementedError("Week 2 Day 6 Task 3: A batch through the model")

    def decode(self, tokens: Sequence[int | None], positions: Sequence[int]) -> Tensor:
        """Run the model on the newest token of every slot.

        Idle slots take part, with token 0 at position 0, and their outputs are left out.

        Args:
            tokens: one per slot; None where the slot is idle.
            positions: where each token stands in its own request; ignored where the slot is idle.

        Returns:
            logits [busy slots, V], in the order of the slots.
        """
        raise NotImplementedError("Week 2 Day 6 Task 3: A batch through the model")

    @property
    def bytes_copied(self) -> int:
        """Bytes written to rebuild dense batches so far, over all layers."""
        return sum(cache.bytes_copied for cache in self.caches)


def generate_static(
    model: Transformer, prompts: Sequence[Sequence[int]], max_tokens: int, end_ids: Collection[int] = ()
) -> list[list[int]]:
    """Static batching, greedy: prefill each prompt alone, then decode all together until the last request has ended.

    The slot of a request that ends early stays idle.

    Args:
        model: the model.
        prompts: the token ids of each prompt, one slot per prompt; none gives no outputs. Each prompt has at least
            one token, and the model has positions for ``max_tokens`` more.
        max_tokens: the most tokens that a request gets; at least 1.
        end_ids: ids that end a request. The end token belongs to the output.

    Returns:
        the new tokens for each prompt, in the order of the prompts.
    """
    raise NotImplementedError("Week 2 Day 6 Task 4: Static batching")


def prefill_slot(batch: Batch, slot: int, prompt_ids: Sequence[int]) -> int:
    """Run a whole prompt, put its caches into an idle slot, and return the greedy first token."""
    raise NotImplementedError("Week 2 Day 6 Task 4: Static batching")
