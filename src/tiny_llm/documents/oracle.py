"""A document prompt as one dense run of the model under a mask: slow, and plainly right (Day 4.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tiny_llm.arrays import Tensor, integers
from tiny_llm.documents.mask import document_mask
from tiny_llm.documents.positions import segment_positions
from tiny_llm.documents.prompt import Segments
from tiny_llm.generate import Sample, greedy
from tiny_llm.kv_cache import FullKvCache
from tiny_llm.model import Transformer


class MaskedCache(FullKvCache):
    """The keys and values of one sequence whose first tokens come at once, under a mask of their own.

    What comes after them sees all of them, and itself causally, as in any :class:`FullKvCache`.
    """

    def __init__(self, mask: Tensor) -> None:
        """Start empty.

        Args:
            mask: [L, L], for the L tokens of the first call.
        """
        super().__init__()
        self.mask = mask

    def update_and_fetch(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the new tokens, and return all the tokens with the mask for the new ones.

        Args:
            key: [B, Hkv, L, D]; value likewise.

        Returns:
            keys and values [B, Hkv, S, D], and the mask: in the first call the one of the constructor, later that of
            :class:`FullKvCache`.
        """
        raise NotImplementedError("Week 4 Day 4 Task 4: The oracle")


def generate_documents(
    model: Transformer,
    segments: Segments,
    max_tokens: int,
    end_ids: Collection[int] = (),
    sample: Sample = greedy,
    strategy: str = "shared",
    max_chunk_len: int | None = None,
) -> Iterator[int]:
    """Generate the answer to a document prompt: the whole prompt in one run of the model, then token after token.

    The first token generated stands at the position behind the question's last one, the next one behind it.

    Args:
        model: logits for the next token come from the last row of what ``model.hidden`` returns.
        segments: the prompt, with a question of at least one token.
        max_tokens: how many tokens to produce at most; 0 produces none and runs nothing.
        end_ids: ids that end the text. The one produced is yielded too.
        sample: chooses a token from the last row of logits [V] and the ids of the question and of what was produced;
            the system prompt and the documents are not among them.
        strategy: where documents and question stand, see :func:`segment_starts`.
        max_chunk_len: likewise.

    Yields:
        Each new token id as soon as it is known. The last one may stand at the model's last position.

    Raises:
        ValueError: the question is empty, or a token of the prompt would stand behind the model's last position but
            one, so that nothing can be generated; or as :func:`segment_starts` says. Raised when the first token is
            asked for, before the model runs, also where ``max_tokens`` is 0.
    """
    raise NotImplementedError("Week 4 Day 4 Task 4: The oracle")
