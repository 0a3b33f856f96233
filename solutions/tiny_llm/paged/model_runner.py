"""A step of the engine: one run of the model over the new tokens of many sequences, and sampling (Day 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_llm.arrays import Tensor, device_of, evaluate, integers
from tiny_llm.model import Transformer
from tiny_llm.paged.attention import PagedAttention, paged_attention
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.paged_cache import PagedCache
from tiny_llm.paged.pool import KvPool
from tiny_llm.paged.running import Running
from tiny_llm.paged.sequence import PagedSequence


class ModelRunner:
    """The model, the pool with its keys and values, and the way to attend: all that a step needs but its plan."""

    def __init__(self, model: Transformer, pool: KvPool, attention: PagedAttention = paged_attention) -> None:
        """Bring the three together; nothing runs yet."""
        self.model = model
        self.pool = pool
        self.attention = attention

    def run(
        self, sequences: Sequence[PagedSequence], tables: Tensor, tokens: Sequence[int], q_lens: Sequence[int]
    ) -> Tensor:
        """Run the model once over the new tokens of some sequences, and advance these sequences.

        Tokens and metadata go where the model's embedding is. If anything fails, no sequence has advanced.

        Args:
            sequences: R of them, each once; those that bring tokens have pages for them.
            tables: int32 [R, M], the pages of each, as :meth:`ForwardMeta.build` takes them.
            tokens: the T new token ids: those of the first sequence, then those of the second, and so on.
            q_lens: R numbers: how many of the tokens belong to each sequence. They add up to T. A sequence with 0
                tokens takes no part.

        Returns:
            [B, E]: for each of the B sequences that take part, the state that ``model.hidden`` gives for its last
            token.

        Raises:
            ValueError: the numbers don't add up to T, or :meth:`ForwardMeta.build` refuses them.
        """
        if len(tokens) != sum(q_lens):
            raise ValueError(
                f"{len(tokens)} tokens were given for sequences that bring {sum(q_lens)} together"
            )
        weight = self.model.embedding.weight
        lengths = [sequence.length for sequence in sequences]
        meta = ForwardMeta.build(tables, lengths, q_lens, self.pool.page_size, device_of(weight))
        layers = range(self.model.config.num_layers)
        caches = [PagedCache(self.pool, layer, meta, self.attention) for layer in layers]
        hidden = self.model.hidden(integers([tokens], like=weight), meta.positions, caches)
        last = hidden[0, meta.last_rows]
        evaluate(last)  # also in a step that samples nothing
        for sequence, q_len in zip(sequences, q_lens, strict=True):
            sequence.advance(q_len)
        return last

    def sample(self, hidden: Tensor, took_part: Sequence[Running]) -> None:
        """Let each request that has no token due accept its next one.

        The head runs once, on the rows of these requests, or not at all if there is none. A request that still has
        tokens due, in the middle of its prompt, gets none. What a request's sampler raises comes through.

        Args:
            hidden: [B, E], what :meth:`run` returned.
            took_part: the B requests that the rows belong to, in the same order.
        """
        complete = [row for row, each in enumerate(took_part) if each.due == 0]
        if not complete:
            return
        for row, logits in zip(complete, self.model.logits(hidden[complete]), strict=True):
            took_part[row].request.accept(logits)
