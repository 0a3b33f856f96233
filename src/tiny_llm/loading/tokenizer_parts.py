"""What a tokenizer is made of, whichever format it came in."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True)
class TokenizerParts:
    """What the reader of a format hands to `Tokenizer`."""

    backend: tokenizers.Tokenizer  # text ↔ ids
    bos_id: int | None  # the token that starts a text, if the model has one
    declared_end_ids: tuple[int, ...]  # what the files name as the end
    template: str | None  # the chat template, Jinja source
    template_variables: dict[str, str]  # bos_token, eos_token and the like, which templates write out
