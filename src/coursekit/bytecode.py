"""Keeps compiled modules in environments that forbid Python to write any."""

from __future__ import annotations

import os
import sys

FORBIDDEN = "PYTHONDONTWRITEBYTECODE"
FOLDER = "PYTHONPYCACHEPREFIX"
CACHE = "TINY_LLM_CACHE"


def keep_bytecode() -> None:
    """Let this process and its children keep bytecode in the user's cache folder, where the environment forbids it.

    Many containers forbid it, so that no `__pycache__` stands beside their files; none will. Without bytecode,
    importing torch takes three times as long. A folder that the environment names is a decision, and stays.
    """
    if not os.environ.get(FORBIDDEN) or os.environ.get(FOLDER):
        return
    from platformdirs import user_cache_dir

    # The rule of `tiny_llm.cache_folder`, once more: this tool may not import the learner's package.
    cache = os.environ.get(CACHE) or user_cache_dir("tiny-llm", appauthor=False)
    del os.environ[FORBIDDEN]
    os.environ[FOLDER] = sys.pycache_prefix = os.path.join(cache, "bytecode")
    sys.dont_write_bytecode = False
