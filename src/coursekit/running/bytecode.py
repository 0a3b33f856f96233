"""Where the tests' process keeps compiled modules in environments that forbid Python to write any."""

from __future__ import annotations

import os
from collections.abc import Mapping

from platformdirs import user_cache_dir

FORBIDDEN = "PYTHONDONTWRITEBYTECODE"
FOLDER = "PYTHONPYCACHEPREFIX"
CACHE = "TINY_LLM_CACHE"


def kept_bytecode(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, in which Python may keep bytecode: without it, importing torch takes three times as long.

    Many containers forbid it, so that no `__pycache__` stands beside their files. None will: it goes to the user's
    cache folder. Whoever names a folder has decided otherwise.
    """
    kept = dict(environment)
    if kept.get(FORBIDDEN) and not kept.get(FOLDER):
        del kept[FORBIDDEN]
        cache = kept.get(CACHE) or user_cache_dir("tiny-llm", appauthor=False)
        kept[FOLDER] = os.path.join(cache, "bytecode")
    return kept
