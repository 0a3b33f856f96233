"""The parts of a tokenizer, the same for all file formats."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True)
class TokenizerParts:
    """The parts that the reader of a file format passes to `Tokenizer`."""

    backend: tokenizers.Tokenizer  # text ↔ ids
    bos_id: int | None  # the token that starts a text, if the model has one
    declared_end_ids: tuple[int, ...]  # the end tokens that the files name
    template: str | None  # the chat template, Jinja source
    template_variables: dict[str, str]  # bos_token, eos_token and the like, which templates write out
