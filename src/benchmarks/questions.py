"""The question set of `bench isolation`: short documents, a question about them, and what counts as an answer."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coursekit.errors import CourseError

if TYPE_CHECKING:
    from tiny_llm.documents.prompt import Segments
    from tiny_llm.tokenizer import Tokenizer

QUESTIONS = Path(__file__).with_name("questions.toml")

KINDS = {
    "one": "one document",
    "two": "two documents",
    "compare": "order or comparison",
}
"""What it takes to find the answer, and what the tables call it."""

SYSTEM = """Notes:
The bus to Elm leaves at six.
The door of the church is red.
Question: When does the bus to Elm leave?
Answer: At six.

Notes:
"""
"""An example of what is asked for: without one, a small model goes on with whole sentences, or with more notes."""


@dataclass(frozen=True)
class Item:
    """One question."""

    kind: str
    documents: tuple[str, ...]
    question: str
    answer: str
    accepted: tuple[str, ...]

    def is_right(self, text: str) -> bool:
        """Whether a text has one of the accepted spellings as whole words; upper and lower case are the same."""
        return any(
            re.search(rf"(?<!\w){re.escape(spelling)}(?!\w)", text, re.IGNORECASE)
            for spelling in self.accepted
        )


@dataclass(frozen=True)
class EncodedItem:
    """One question as token ids."""

    item: Item
    segments: Segments
    answer_ids: tuple[int, ...]  # of the given answer, which continues the question


def encode_item(item: Item, tokenizer: Tokenizer) -> EncodedItem:
    """The prompt of an item: an example, the documents with a line's end behind each, and the question."""
    from tiny_llm.documents.prompt import DocumentPrompt, encode_prompt

    documents = tuple(f"{text}\n" for text in item.documents)
    prompt = DocumentPrompt(SYSTEM, documents, f"Question: {item.question}\nAnswer:")
    answer_ids = tokenizer.encode(f" {item.answer}", control_tokens=False, start=False)
    return EncodedItem(item, encode_prompt(prompt, tokenizer), tuple(answer_ids))


def load_questions(path: Path = QUESTIONS) -> list[Item]:
    """The items of a question set.

    Raises:
        CourseError: the file can't be read, has no items, or one of them is not as it must be; the message says
            which one, counted from 1.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"can't read the questions in {path}: {error.strerror}") from None
    except ValueError as error:
        raise CourseError(f"the questions in {path} are not valid TOML: {error}") from None
    rows = data.get("items")
    if not isinstance(rows, list) or not rows:
        raise CourseError(f"there are no questions in {path}: each one is a table [[items]]")
    return [_item(row, f"question {number} in {path}") for number, row in enumerate(rows, start=1)]


def _item(row: Any, where: str) -> Item:
    names = [field.name for field in fields(Item)]
    if not isinstance(row, dict) or set(row) != set(names):
        raise CourseError(f"{where} must have these entries, and no others: {', '.join(names)}")
    if row["kind"] not in KINDS:
        raise CourseError(f"{where} has the kind {row['kind']!r}; the kinds are: {', '.join(KINDS)}")
    for name in ("documents", "accepted"):
        if not isinstance(row[name], list) or not row[name] or not all(map(_is_text, row[name])):
            raise CourseError(f"{where}: {name!r} must be a list of texts, none of them empty")
    for name in ("question", "answer"):
        if not _is_text(row[name]):
            raise CourseError(f"{where}: {name!r} must be a text that is not empty")
    item = Item(row["kind"], tuple(row["documents"]), row["question"], row["answer"], tuple(row["accepted"]))
    if not item.is_right(item.answer):
        raise CourseError(f"{where}: the answer {item.answer!r} has none of the accepted spellings")
    return item


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
