"""The text of `bench quality`: five short ones that come with the course, or a file; as pieces of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coursekit.errors import CourseError

if TYPE_CHECKING:
    from tiny_llm.tokenizer import Tokenizer

TEXTS = Path(__file__).with_name("texts")
"""A story, an explanation, a dialogue, a recipe, and a commentary on code."""
LONGEST = 1024
"""Tokens of a piece: longer texts are cut into such pieces, each of which is predicted for itself."""


@dataclass(frozen=True)
class Piece:
    """Some tokens of a text; the second is the first that can be predicted."""

    name: str
    token_ids: tuple[int, ...]  # at least two


def read_pieces(tokenizer: Tokenizer, path: Path | None = None, longest: int = LONGEST) -> list[Piece]:
    """The pieces of a file, or of the course's texts.

    Args:
        tokenizer: the model's.
        path: a file in UTF-8.
        longest: tokens per piece, at least 2. A last token that would be alone is left out.

    Raises:
        CourseError: the file can't be read, or has fewer than two tokens.
    """
    if path is not None:
        pieces = _cut(path.name, _read(path), tokenizer, longest)
        if not pieces:
            raise CourseError(f"the text in {path} is too short: there is nothing in it to predict")
        return pieces
    files = sorted(TEXTS.glob("*.txt"))
    return [piece for file in files for piece in _cut(file.stem, _read(file), tokenizer, longest)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CourseError(f"can't read the text in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CourseError(f"can't read the text in {path}: it isn't UTF-8") from None


def _cut(name: str, text: str, tokenizer: Tokenizer, longest: int) -> list[Piece]:
    ids = tokenizer.encode(text, control_tokens=False)
    parts = [tuple(ids[start : start + longest]) for start in range(0, len(ids), longest)]
    whole = [part for part in parts if len(part) > 1]
    return [
        Piece(name if len(whole) == 1 else f"{name} {number}", part)
        for number, part in enumerate(whole, start=1)
    ]
