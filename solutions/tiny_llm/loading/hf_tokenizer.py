"""A tokenizer from a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers

from tiny_llm.loading.errors import WeightsError
from tiny_llm.loading.hf_config import declared_end_ids, read_json
from tiny_llm.loading.tokenizer_parts import TokenizerParts

_VARIABLES = ("bos_token", "eos_token", "unk_token", "pad_token")


def hf_tokenizer(folder: Path) -> TokenizerParts:
    """The tokenizer in the folder's tokenizer.json, with the settings of tokenizer_config.json.

    Raises:
        WeightsError: there is no tokenizer.json, or one of the files is broken.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise WeightsError(
            f"{folder} has no tokenizer.json: download it, or use a GGUF file, which has its own"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise WeightsError(f"{path} is damaged or only half a file ({error}): download it again") from error
    settings_path = folder / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    named = {name: _text(settings[name]) for name in _VARIABLES if settings.get(name) is not None}
    eos = backend.token_to_id(named.get("eos_token", ""))
    return TokenizerParts(
        backend=backend,
        bos_id=backend.token_to_id(named.get("bos_token", "")),
        declared_end_ids=tuple(dict.fromkeys(i for i in (eos, *declared_end_ids(folder)) if i is not None)),
        template=_template(folder, settings),
        template_variables=named,
    )


def _text(token: Any) -> str:
    """A token of the settings, which is a string or an object with its content and flags."""
    return token["content"] if isinstance(token, dict) else str(token)


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The folder's chat template: a file of its own, or a setting; of several named ones, the default."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        return next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template
