"""Prompts with a token that the model doesn't have are refused by its name, wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from tiny_llm.paged.limits import unknown_token
from tiny_llm.request import Request

V = 50


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("token", [V, V + 7, -1, 1.0, "a", None], ids=repr)
def test_a_token_that_the_model_does_not_have_is_named(token: Any, place: int) -> None:
    prompt: list[Any] = [0, V - 1, 7]
    prompt[place] = token
    reason = unknown_token(Request(prompt, 3), V)
    assert reason is not None
    assert f"the token {token!r}," in reason
    assert f"0 to {V - 1}" in reason


def test_the_first_and_the_last_token_of_the_vocabulary_are_known() -> None:
    assert unknown_token(Request([0, V - 1], 3), V) is None
