"""What the environment says about a notebook's run: for readers nothing is set."""

from __future__ import annotations

import os

IMPL = "TINY_LLM_NOTEBOOK_IMPL"
"""Whose package runs from the beginning: ``learner`` (as when it isn't set) or ``solution``."""
PLAIN = "TINY_LLM_NOTEBOOK_PLAIN"
"""Set: a picture for the controls' first values stands where the controls would be."""
SHORT = "TINY_LLM_NOTEBOOK_SHORT"
"""Set: measurements take as little time as they can, and their figures mean little."""


def plain() -> bool:
    return bool(os.environ.get(PLAIN))


def short() -> bool:
    return bool(os.environ.get(SHORT))
