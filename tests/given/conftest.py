"""What several tests of the loading code share: a cache folder of their own, and a small model's files.

Fixtures import what they need: not every test here waits for transformers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test; empty at first."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TINY_LLM_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def vocabulary() -> dict[str, Any]:
    """A small trained vocabulary; tests leave it as it is."""
    import tiny_tokenizers

    return tiny_tokenizers.trained()


@pytest.fixture(scope="session")
def model(vocabulary: dict[str, Any]) -> Any:
    """A small Llama with this vocabulary; tests leave it as it is."""
    from whole_models import whole_model

    return whole_model(vocabulary)


@pytest.fixture(scope="session")
def undamaged(tmp_path_factory: pytest.TempPathFactory, model: Any, vocabulary: dict[str, Any]) -> Path:
    """It, as a Hugging Face folder that stays as it is."""
    from whole_models import write_whole_folder

    return write_whole_folder(tmp_path_factory.mktemp("undamaged"), model, vocabulary)


@pytest.fixture
def folder(tmp_path: Path, undamaged: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(undamaged, tmp_path / "folder"))


@pytest.fixture
def change_json(folder: Path) -> Callable[..., Path]:
    """A function that changes top-level keys of one of the folder's JSON files."""

    def change(name: str, **values: Any) -> Path:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
        return folder

    return change
