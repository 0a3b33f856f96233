"""Where this package keeps what it made once and will want again: weights, kernels (given code)."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_dir

CACHE_VARIABLE = "TINY_LLM_CACHE"


def cache_folder() -> Path:
    """The folder that TINY_LLM_CACHE names, or else the user's cache folder for this package. It need not exist."""
    # `coursekit.bytecode` repeats this rule: the course's tool may not import the learner's package.
    return Path(os.environ.get(CACHE_VARIABLE) or user_cache_dir("tiny-llm", appauthor=False))
