"""A tokenizer from a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from tiny_llm.loading.apart import Apart, Overrun
from tiny_llm.loading.errors import WeightsError, reading
from tiny_llm.loading.fields import Fields
from tiny_llm.loading.files import check_file, damaged, is_there, read_json, read_text
from tiny_llm.loading.hf_config import declared_end_ids
from tiny_llm.loading.tokenizer_parts import TokenizerParts

_VARIABLES = ("bos_token", "eos_token", "unk_token", "pad_token")


def hf_tokenizer(folder: Path) -> TokenizerParts:
    """The tokenizer in the folder's tokenizer.json, with the settings of tokenizer_config.json.

    Raises:
        WeightsError: there is no tokenizer.json, or one of the files is broken.
    """
    with reading(folder):
        backend = _backend(folder)
        settings_path = folder / "tokenizer_config.json"
        settings = Fields(settings_path, read_json(settings_path) if is_there(settings_path) else {})
        named = {name: token for name in _VARIABLES if (token := _token(settings, name)) is not None}
        eos = backend.token_to_id(named.get("eos_token", ""))
        ends = dict.fromkeys(i for i in (eos, *declared_end_ids(folder)) if i is not None)
        return TokenizerParts(
            backend=backend,
            bos_id=backend.token_to_id(named.get("bos_token", "")),
            declared_end_ids=tuple(ends),
            template=_template(folder, settings),
            template_variables=named,
        )


def _backend(folder: Path) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    if not is_there(path):
        raise WeightsError(
            f"{folder} has no tokenizer.json: download it, or use a GGUF file, which has its own"
        )
    check_file(path)
    try:
        problem = Apart("tiny_llm.loading.tokenizer_trial").ask({"path": str(path)}).get("problem")
    except Overrun as overrun:
        problem = str(overrun)
    if problem is not None:
        raise damaged(path, problem)
    backend = tokenizers.Tokenizer.from_file(str(path))
    # Settings from training. A prompt that was cut short, or padded to a billion tokens, would be another prompt.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _token(settings: Fields, name: str) -> str | None:
    """A token of the settings, which is a string or an object with its content and flags."""
    if isinstance(settings.get(name), dict):
        return settings.within(name).text("content")
    return settings.text(name)


def _template(folder: Path, settings: Fields) -> str | None:
    """The folder's chat template: a file of its own, or a setting; of several named ones, the default."""
    path = folder / "chat_template.jinja"
    if is_there(path):
        return read_text(path)
    if not isinstance(settings.get("chat_template"), list):
        return settings.text("chat_template")
    for entry in settings.items("chat_template"):
        named = Fields(settings.path, entry if isinstance(entry, dict) else {})
        if named.get("name") == "default":
            return named.text("template")
    return None
