"""A prompt with documents: its parts as text, and as token ids (Day 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_llm.tokenizer import Tokenizer

SEPARATOR = " # # "
"""What stands between the segments of a prompt that is written as one string."""


@dataclass(frozen=True)
class DocumentPrompt:
    """A system prompt, documents that don't see one another, and a question about all of them.

    What stands in a document is text and nothing else: a separator in it separates nothing.
    """

    system: str
    documents: tuple[str, ...]
    question: str


@dataclass(frozen=True)
class Segments:
    """The token ids of a document prompt, segment by segment.

    A segment is the system prompt, a document or the question. Each was tokenized for itself: a document has the same
    ids in any company, and no id belongs to two segments.
    """

    system: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...]
    question: tuple[int, ...]

    @property
    def token_ids(self) -> list[int]:
        """All ids in their order: the system prompt, the documents, the question (given code)."""
        return [*self.system, *(token for document in self.documents for token in document), *self.question]


def split_prompt(text: str, separator: str = SEPARATOR) -> DocumentPrompt:
    """Split a prompt that is one string into its segments, as text, before anything is tokenized.

    Without a separator it is an ordinary prompt: a question alone, with an empty system prompt. With one separator it
    is a system prompt and a question. With more, each segment between the first and the last is a document. Two
    separators in a row have an empty document between them. Nothing is stripped.

    Args:
        text: the segments, with ``separator`` between them. Separators are found from the left, and don't overlap.
        separator: at least one character.

    Raises:
        ValueError: the separator is empty.
    """
    if not separator:
        raise ValueError("the separator is empty: it must have at least one character")
    first, *others = text.split(separator)
    if not others:
        return DocumentPrompt("", (), first)
    return DocumentPrompt(first, tuple(others[:-1]), others[-1])


def encode_prompt(
    prompt: DocumentPrompt, tokenizer: Tokenizer, max_chunk_len: int | None = None, truncate: bool = False
) -> Segments:
    """Tokenize each segment of a prompt for itself.

    Only the system prompt is encoded with the token that starts a text, also where it is empty; so a model that has
    such a token gets one in all. (The others are encoded with ``start=False``.) In a document, the spelling of a
    control token is letters like any other (``control_tokens=False``); in the system prompt and the question it is
    the control token. An empty document stays, with no tokens.

    Args:
        prompt: the text of each segment.
        tokenizer: the model's.
        max_chunk_len: how many tokens a document may have; None: any number.
        truncate: whether a longer document loses its end; else it is refused.

    Raises:
        ValueError: the question has no tokens, ``max_chunk_len`` is below 1, or a document is too long. Then the
            message says which one, counted from 1, how many tokens it has, and how many it may have.
    """
    question = tokenizer.encode(prompt.question, start=False)
    if not question:
        raise ValueError("the question is empty: the answer continues its last token")
    documents = encode_documents(prompt.documents, tokenizer, max_chunk_len, truncate)
    return Segments(tuple(tokenizer.encode(prompt.system)), documents, tuple(question))


def encode_documents(
    documents: Sequence[str], tokenizer: Tokenizer, max_chunk_len: int | None = None, truncate: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Tokenize each document for itself; arguments as for :func:`encode_prompt`.

    Raises:
        ValueError: ``max_chunk_len`` is below 1, or a document is too long, as :func:`encode_prompt` says.
    """
    if max_chunk_len is not None and max_chunk_len < 1:
        raise ValueError(f"max_chunk_len is {max_chunk_len}; a document must be allowed at least 1 token")
    encoded = [tuple(tokenizer.encode(each, control_tokens=False, start=False)) for each in documents]
    for number, document in enumerate(encoded, start=1):
        if max_chunk_len is not None and len(document) > max_chunk_len and not truncate:
            raise ValueError(
                f"document {number} has {len(document)} tokens, and max_chunk_len allows {max_chunk_len}: split it, "
                "allow more, or let it be truncated"
            )
    return tuple(document[:max_chunk_len] for document in encoded)


def encode_chat_prompt(
    prompt: DocumentPrompt, tokenizer: Tokenizer, max_chunk_len: int | None = None, truncate: bool = False
) -> Segments:
    """Tokenize a prompt as a conversation: the documents stand in the user's turn, before the question (given code).

    The system prompt and the question get what the model's chat template writes around them. No control token that
    is spelled out in the prompt is one.

    Args:
        prompt: the text of each segment. With an empty system prompt, the template decides what stands there.
        tokenizer: the model's.
        max_chunk_len: as for :func:`encode_prompt`; truncate likewise.

    Raises:
        ValueError: as for :func:`encode_prompt`; an empty question is allowed, since the template ends the turn.
        WeightsError: as for :meth:`Tokenizer.encode_chat_parts`.
    """
    messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
    before, after = tokenizer.encode_chat_parts([*messages, {"role": "user", "content": prompt.question}])
    documents = encode_documents(prompt.documents, tokenizer, max_chunk_len, truncate)
    return Segments(tuple(before), documents, tuple(after))
