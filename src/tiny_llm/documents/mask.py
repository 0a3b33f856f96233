"""Which tokens of a document prompt see one another (Day 4.4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tiny_llm.documents.positions import QUESTION, SYSTEM, segment_ids
from tiny_llm.documents.prompt import Segments


def document_mask(segments: Segments, like: Tensor | None = None) -> Tensor:
    """The mask of a document prompt: which of its L tokens sees which.

    No token sees one behind it; each sees itself. A token of the system prompt sees the system prompt; one of a
    document sees the system prompt and this document; one of the question sees everything.

    Args:
        segments: the prompt.
        like: the mask takes this array's dtype and device; float32 on the default device when None.

    Returns:
        [L, L]: 0 where a token sees another, −inf elsewhere.
    """
    raise NotImplementedError("Week 4 Day 4 Task 3: The mask")
