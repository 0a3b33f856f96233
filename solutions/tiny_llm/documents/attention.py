"""Attention of a step with questions: over their own pages, and over those of their branches (Day 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import update_wrapper

from tiny_llm.arrays import Tensor, with_rows
from tiny_llm.documents.past import JoinMeta
from tiny_llm.paged.attention import Attended, PagedAttention, merge_attention, paged_attention
from tiny_llm.paged.metadata import ForwardMeta


@dataclass(frozen=True)
class Remedy:
    """How to weigh documents that don't see one another; the defaults change nothing.

    Source: adaptive parallel encoding, APE (Yang et al. 2025, arXiv 2502.05431), without its shared prefix, which is
    the system prompt here.
    """

    # Divides the scores of the documents' tokens; below 1 the highest gain on the others.
    temperature: float = 1.0
    scale: float = 1.0  # multiplies the documents' log-sum-exp

    def __post_init__(self) -> None:
        """Check the numbers (given code).

        Raises:
            ValueError: one of them is not above 0.
        """
        if not (self.temperature > 0 and self.scale > 0):
            raise ValueError(
                f"a temperature of {self.temperature} and a scale of {self.scale}: both must be above 0"
            )


NO_REMEDY = Remedy()


def attend_joined(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    join: JoinMeta,
    own: Attended,
    scale: float,
    attention: PagedAttention = paged_attention,
    remedy: Remedy = NO_REMEDY,
) -> Attended:
    """What the questions of a step attend to in all: their own tokens, the system prompt and the documents.

    No part of the past needs the causal rule: all of it stands before the question. The parts are merged by their
    log-sum-exp. With a remedy, the documents' scores are divided by its temperature; then the log-sum-exp of all
    documents together is multiplied by its scale.

    Args:
        query: [T, H, D], all tokens of the step.
        keys: a layer's pages [N, P, Hkv, D], with the new tokens written; values likewise.
        join: which tokens are those of questions, and their past.
        own: of all T tokens, [T, H, D] and the log-sum-exp [T, H] of attention over their own pages. They are not
            changed.
        scale: what to multiply the scores by.
        attention: how to attend. It is called with its six arguments by position; the last of them, ``causal``, is
            False.
        remedy: how to weigh the documents.

    Returns:
        the same as ``own``: for the questions over everything that they see, for all others as it was.
    """
    asked, hot = query[join.rows], scale / remedy.temperature
    system = attention(asked, keys, values, join.system, scale, False)
    full = attention(asked, keys, values, join.pages, hot, False)
    single_keys, single_values = (pages.flatten(0, 1)[:, None] for pages in (keys, values))
    loose = attention(asked, single_keys, single_values, join.loose, hot, False)
    documents, weight = merge_attention([full, loose])
    mine = own[0][join.rows], own[1][join.rows]
    out, lse = merge_attention([mine, system, (documents, weight * remedy.scale)])
    return with_rows(own[0], join.rows, out), with_rows(own[1], join.rows, lse)


def joined(attention: PagedAttention, join: JoinMeta | None, remedy: Remedy = NO_REMEDY) -> PagedAttention:
    """A way to attend for one step that may have questions (given code).

    Args:
        attention: how to attend over pages.
        join: what the questions attend to beyond their own pages; None for a step without questions.
        remedy: how to weigh the documents.
    """

    if join is None:
        return attention

    def attend(
        query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta, scale: float, causal: bool
    ) -> Attended:
        own = attention(query, keys, values, meta, scale, causal)
        return attend_joined(query, keys, values, join, own, scale, attention, remedy)

    # `inspect.unwrap` finds the way to attend that is behind it.
    return update_wrapper(attend, attention, assigned=(), updated=())
