"""The float64 model of Week 1 under any mask, with a remedy for isolated documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from week_1 import numpy_model as oracle

from .document_model import all_logits
from .document_prompts import QUESTION, SYSTEM
from .joined_attention import merged


def remedied(
    ids: Sequence[int],
    positions: Sequence[int],
    sees: np.ndarray,
    asks: np.ndarray,
    remedy: tuple[float, float],
) -> np.ndarray:
    """[L, V] as `all_logits`; a token of the question weighs the documents' tokens by the remedy."""
    if remedy == (1.0, 1.0):
        return all_logits("llama", ids, positions, sees)
    tensors = oracle.random_tensors("llama")
    x = tensors["embedding.weight"][list(ids)]
    for i in range(oracle.LAYERS):
        block = f"blocks.{i}"
        normed = oracle.rms_norm_rows(x, tensors[f"{block}.attention_norm.weight"])
        x = x + _attend(tensors, block, normed, positions, sees, asks, remedy)
        normed = oracle.rms_norm_rows(x, tensors[f"{block}.mlp_norm.weight"])
        x = x + np.stack([oracle.mlp(tensors, block, row) for row in normed])
    return oracle.logits(tensors, oracle.rms_norm_rows(x, tensors["norm.weight"]))


def _attend(
    tensors: Any,
    block: str,
    x: np.ndarray,
    positions: Sequence[int],
    sees: np.ndarray,
    asks: np.ndarray,
    remedy: Any,
) -> np.ndarray:
    parts = [oracle.project(tensors, block, row) for row in x]
    keys = np.stack(
        [
            [oracle.rotate(head, place) for head in part[1]]
            for part, place in zip(parts, positions, strict=True)
        ]
    )
    values = np.stack([part[2] for part in parts])
    of_documents = ~np.isin(asks, [SYSTEM, QUESTION])
    temperature, factor = remedy
    out = []
    for t, (query, place) in enumerate(zip([part[0] for part in parts], positions, strict=True)):
        heads = []
        for h in range(oracle.H):
            scores = keys[:, h // (oracle.H // oracle.HKV)] @ oracle.rotate(query[h], place) * oracle.D**-0.5
            mine = values[:, h // (oracle.H // oracle.HKV)]
            hot = sees[t] & of_documents & (asks[t] == QUESTION)
            rest = sees[t] & ~hot
            groups = [(scores[rest], mine[rest], 1.0)]
            if hot.any():
                groups.append((scores[hot] / temperature, mine[hot], factor))
            heads.append(merged(groups)[0])
        out.append(tensors[f"{block}.attention_out.weight"] @ np.concatenate(heads))
    return np.stack(out)
