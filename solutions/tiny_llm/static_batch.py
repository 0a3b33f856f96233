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
        for batching, cache in zip(self.caches, caches, strict=True):
            batching.add(slot, cache)

    def remove(self, slot: int) -> None:
        """Make a slot idle.

        Raises:
            ValueError: it is idle already, or there is no such slot.
        """
        for batching in self.caches:
            batching.remove(slot)

    def decode(self, tokens: Sequence[int | None], positions: Sequence[int]) -> Tensor:
        """Run the model on the newest token of every slot.

        Idle slots take part, with token 0 at position 0, and their outputs are left out.

        Args:
            tokens: one per slot; None where the slot is idle.
            positions: where each token stands in its own request; ignored where the slot is idle.

        Returns:
            logits [busy slots, V], in the order of the slots.
        """
        ids = [[0 if token is None else token] for token in tokens]
        rows = [
            slice(0, 1) if token is None else slice(position, position + 1)
            for token, position in zip(tokens, positions, strict=True)
        ]
        new = integers(ids, like=self.model.embedding.weight)
        hidden = self.model.hidden(new, rows, self.caches)
        busy = [slot for slot, token in enumerate(tokens) if token is not None]
        return self.model.logits(hidden[integers(busy, like=hidden), -1])

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
    batch = Batch(model, len(prompts))
    outputs = [[prefill_slot(batch, slot, prompt)] for slot, prompt in enumerate(prompts)]
    busy = list(range(len(prompts)))
    while True:
        for slot in [
            slot for slot in busy if len(outputs[slot]) == max_tokens or outputs[slot][-1] in end_ids
        ]:
            batch.remove(slot)
            busy.remove(slot)
        if not busy:
            return outputs
        tokens = [output[-1] if slot in busy else None for slot, output in enumerate(outputs)]
        positions = [len(prompt) + len(output) - 1 for prompt, output in zip(prompts, outputs, strict=True)]
        for slot, logits in zip(busy, batch.decode(tokens, positions), strict=True):
            outputs[slot].append(greedy(logits))


def prefill_slot(batch: Batch, slot: int, prompt_ids: Sequence[int]) -> int:
    """Run a whole prompt, put its caches into an idle slot, and return the greedy first token."""
    model = batch.model
    caches = [FullKvCache() for _ in range(model.config.num_layers)]
    tokens = integers([list(prompt_ids)], like=model.embedding.weight)
    hidden = model.hidden(tokens, slice(0, len(prompt_ids)), caches)
    batch.add(slot, caches)
    return greedy(model.logits(hidden[0, -1]))
