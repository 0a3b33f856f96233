"""The greedy choice of a whole step: of each row the best score, of equal ones the lowest id."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tiny_llm.engine.step_sampler import best_tokens

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_row_has_its_best_token_in_every_dtype(dtype: torch.dtype) -> None:
    logits = torch.from_numpy(np.random.default_rng(3).standard_normal((5, 301))).to(dtype)
    before = logits.clone()
    rows = [[float(score) for score in row] for row in logits]
    assert best_tokens(logits) == [row.index(max(row)) for row in rows]
    assert torch.equal(logits, before)


def test_of_equal_scores_the_lowest_id_is_the_best() -> None:
    logits = torch.tensor(
        [[1.0, 3.0, 2.0, 3.0], [-2.0, -2.0, -5.0, -2.0], [-torch.inf] * 4, [0.0, -0.0, 0.0, 0.0]]
    )
    assert best_tokens(logits) == [1, 0, 0, 0]
    close = torch.tensor([[1.0, 1 + 1e-12]], dtype=torch.float64)
    assert best_tokens(close) == [1], "they are equal in float32 only"


def test_no_row_and_rows_of_a_larger_array() -> None:
    assert best_tokens(torch.zeros(0, 7)) == []
    assert best_tokens(torch.tensor([[1.0, 2.0], [9.0, 8.0], [3.0, 4.0]]).T[:, :2]) == [1, 1]
