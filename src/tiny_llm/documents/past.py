"""What a step has to know of the past that its questions attend to: the pages of other sequences (Day 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_llm.arrays import Tensor, integers
from tiny_llm.documents.join import Question
from tiny_llm.paged.allocator import NULL_PAGE
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.places import pages_for
from tiny_llm.scheduling.standing import Chunk


@dataclass(frozen=True)
class Past:
    """The tokens that one question attends to, its own left out. Each token of a document is in one list, once."""

    system: list[int]  # the pages of the system prompt, in order; the last may hold tokens of a document, too
    system_len: int  # tokens of the system prompt
    pages: list[int]  # the pages that are full of tokens of one document, of all documents
    loose: list[int]  # the places of all other tokens of documents

    @classmethod
    def of(cls, question: Question, page_size: int) -> Past:
        """Sort the tokens of a question's branches.

        The system prompt is in every branch, and counts once: the pages of the first branch stand for it. A page that
        a document shares with the system prompt, and one that is not full, give loose tokens. The order within a list
        makes no difference to attention, except that the system prompt's pages come in their order.

        Args:
            question: with branches whose pages are there for all their tokens, computed already or in this step.
            page_size: P.
        """
        raise NotImplementedError("Week 4 Day 5 Task 1: The past of a question")


@dataclass(frozen=True)
class JoinMeta:
    """The questions of a step, and their past, as three sets of keys that attention is run over one by one.

    Each part is metadata for the queries of the questions alone, in the order of the step.
    """

    rows: Tensor  # int64 [Q]: which of the T tokens of the step are those of questions
    system: ForwardMeta  # pages of P tokens
    pages: ForwardMeta  # pages of P tokens, all of them full
    loose: ForwardMeta  # "pages" of one token: the pool seen as N · P of them

    @classmethod
    def build(cls, chunks: Sequence[Chunk], meta: ForwardMeta, page_size: int) -> JoinMeta | None:
        """The metadata of a step's questions; None for a step without any.

        Args:
            chunks: B chunks: the step, in the order in which it runs.
            meta: its metadata, with a row for each chunk.
            page_size: P.
        """
        raise NotImplementedError("Week 4 Day 5 Task 1: The past of a question")


def _part(
    meta: ForwardMeta, rows: Tensor, starts: list[int], tables: list[list[int]], kv_lens: list[int]
) -> ForwardMeta:
    """Metadata for some tokens of a step, over other pages (given code).

    Args:
        meta: the step.
        rows: int64 [Q], which of its tokens.
        starts: B + 1 numbers: sequence b has the tokens ``starts[b]`` … ``starts[b + 1]`` − 1 of these.
        tables: the pages that each sequence attends to; none is allowed.
        kv_lens: how many tokens are in them.
    """
    width = max(1, *map(len, tables))
    table = [pages + [NULL_PAGE] * (width - len(pages)) for pages in tables]

    def int32(numbers: list) -> Tensor:
        return integers(numbers, like=meta.block_table)

    return ForwardMeta(
        positions=meta.positions[rows],
        slot_mapping=meta.slot_mapping[rows],
        cu_seqlens_q=int32(starts),
        seq_lens_kv=int32(kv_lens),
        block_table=int32(table),
        last_rows=integers(starts[1:], like=rows) - 1,
        starts=starts,
        kv_lens=kv_lens,
    )
