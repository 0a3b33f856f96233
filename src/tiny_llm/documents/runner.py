"""A run of the model over a step in which questions attend to the pages of other sequences (Day 4.5, given code)."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_llm.arrays import Tensor, device_of, evaluate, integers
from tiny_llm.documents.attention import NO_REMEDY, Remedy, joined
from tiny_llm.documents.past import JoinMeta
from tiny_llm.model import Transformer
from tiny_llm.paged.attention import PagedAttention, paged_attention
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.paged_cache import PagedCache
from tiny_llm.paged.pool import KvPool
from tiny_llm.scheduling.standing import Chunk


class DocumentRunner(ModelRunner):
    """The model, the pool and the way to attend, for steps with questions about documents."""

    def __init__(
        self,
        model: Transformer,
        pool: KvPool,
        attention: PagedAttention = paged_attention,
        remedy: Remedy = NO_REMEDY,
    ) -> None:
        """Bring them together; nothing runs yet."""
        super().__init__(model, pool, attention)
        self.remedy = remedy

    def run_chunks(self, chunks: Sequence[Chunk], tables: Tensor) -> Tensor:
        """Run the model once over the chunks of a step, and advance their sequences.

        It differs from :meth:`ModelRunner.run` in two things: a token may stand elsewhere than behind the one before
        it, and questions attend to their branches. If anything fails, no sequence has advanced.

        Args:
            chunks: B of them, at least one, in the order in which they were planned.
            tables: int32 [B, M], the pages of each, as :meth:`ForwardMeta.build` takes them.

        Returns:
            [B, E]: for each chunk, the state that ``model.hidden`` gives for its last token.
        """
        weight = self.model.embedding.weight
        counts = [chunk.count for chunk in chunks]
        lengths = [chunk.running.sequence.length for chunk in chunks]
        tokens = [token for chunk in chunks for token in chunk.running.next_ids(chunk.count)]
        positions = [p for chunk in chunks for p in chunk.running.next_positions(chunk.count)]
        meta = ForwardMeta.build(tables, lengths, counts, self.pool.page_size, device_of(weight))
        join = JoinMeta.build(chunks, meta, self.pool.page_size)
        attention = joined(self.attention, join, self.remedy)
        layers = range(self.model.config.num_layers)
        caches = [PagedCache(self.pool, layer, meta, attention) for layer in layers]
        hidden = self.model.hidden(integers([tokens], like=weight), integers(positions, like=weight), caches)
        last = hidden[0, meta.last_rows]
        evaluate(last)  # also in a step that samples nothing
        for chunk in chunks:
            chunk.running.sequence.advance(chunk.count)
        return last
