"""How the loading code refuses a file: with one printable line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tiny_llm.weights import WeightsError


def message(call: Callable[..., object], *arguments: Any) -> str:
    """The one printable line that the call fails with."""
    with pytest.raises(WeightsError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 700
    return text
