"""Every test of the loading code keeps its converted weights in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test; empty at first."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TINY_LLM_CACHE", str(folder))
    return folder
