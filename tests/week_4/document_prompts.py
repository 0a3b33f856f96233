"""Document prompts of given lengths, and what holds for them, said token by token."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

SYSTEM, QUESTION = -1, -2
MOST = 1000  # tokens of a prompt


class Lengths(NamedTuple):
    """How many tokens each segment has."""

    system: int
    documents: tuple[int, ...]
    question: int

    def __str__(self) -> str:
        documents = ", ".join(map(str, self.documents)) or "none"
        return f"system prompt of {self.system} tokens, documents: {documents}, question of {self.question}"


SEED = Lengths(10, (10, 10, 10), 9)
HAND = Lengths(2, (3, 0, 1), 2)
SOME = (
    SEED,
    HAND,
    Lengths(1, (1, 1, 1), 1),
    Lengths(0, (2, 3), 1),
    Lengths(3, (), 4),
    Lengths(3, (0, 0), 2),
    Lengths(4, (2,), 3),
    Lengths(3, (5, 2, 4), 0),
    Lengths(2, (1, 4, 2, 5, 3), 6),
    Lengths(0, (), 2),
    Lengths(0, (), 0),
)
any_lengths = st.builds(
    Lengths, st.integers(0, 5), st.lists(st.integers(0, 6), max_size=5).map(tuple), st.integers(0, 5)
)


def token_id(place: int) -> int:
    """The id of token number ``place``: no two are equal, and a later one may have a smaller id."""
    return place * 389 % MOST


def ids_by_document(lengths: Lengths) -> list[tuple[int, ...]]:
    """The ids of each document."""
    starts = [lengths.system + sum(lengths.documents[:i]) for i in range(len(lengths.documents))]
    return [
        tuple(map(token_id, range(start, start + count)))
        for start, count in zip(starts, lengths.documents, strict=True)
    ]


def telling(found: Any, suspects: dict[str, Any]) -> dict[str, Any]:
    """The suspects, or none where more than two give what was found: then they tell nothing."""
    return suspects if sum(given == found for given in suspects.values()) <= 2 else {}


def segments_of(lab: Any, lengths: Lengths, equal: bool = False) -> Any:
    """Segments of these lengths. No two tokens are equal; or all are."""
    numbers = iter([7] * MOST if equal else map(token_id, range(MOST)))
    system, *documents, question = (
        tuple(next(numbers) for _ in range(count))
        for count in (lengths.system, *lengths.documents, lengths.question)
    )
    return lab.documents.prompt.Segments(system, tuple(documents), question)


def ids_of(lengths: Lengths, more: int = 0) -> list[int]:
    """The segment of each token; ``more`` tokens were generated and belong to the question."""
    ids = [SYSTEM for _ in range(lengths.system)]
    for number, count in enumerate(lengths.documents):
        for _ in range(count):
            ids.append(number)
    return ids + [QUESTION for _ in range(lengths.question + more)]


def starts_of(lengths: Lengths, stride: int | None = None) -> tuple[list[int], int]:
    """The first positions of the documents and of the question: ``shared``, or ``offset`` by ``stride``."""
    starts, longest = [], 0
    for number, count in enumerate(lengths.documents):
        starts.append(lengths.system + (0 if stride is None else number * stride))
        longest = max(longest, count)
    used = longest if stride is None else len(lengths.documents) * stride
    return starts, lengths.system + used


def positions_of(lengths: Lengths, stride: int | None = None, more: int = 0) -> list[int]:
    """The position of each token."""
    starts, question = starts_of(lengths, stride)
    return laid_out(lengths, starts, question, more)


def laid_out(lengths: Lengths, starts: list[int], question: int, more: int = 0) -> list[int]:
    """The position of each token, where documents and question start at these positions."""
    positions = list(range(lengths.system))
    for start, count in zip(starts, lengths.documents, strict=True):
        for place in range(count):
            positions.append(start + place)
    return positions + [question + place for place in range(lengths.question + more)]


def sees_of(lengths: Lengths, more: int = 0) -> np.ndarray:
    """Which token (row) sees which (column): bool [L, L], from the rules one by one."""
    ids = ids_of(lengths, more)
    sees = np.zeros((len(ids), len(ids)), dtype=bool)
    for query, own in enumerate(ids):
        for key, other in enumerate(ids):
            if key > query:
                continue
            for allowed in (SYSTEM, own):
                if other == allowed:
                    sees[query, key] = True
            if own == QUESTION:
                sees[query, key] = True
    return sees


def additive(sees: np.ndarray) -> np.ndarray:
    """The mask: 0 where a token sees another, −inf elsewhere."""
    return np.where(sees, 0.0, -np.inf)


def mistaken_masks(lengths: Lengths) -> dict[str, np.ndarray]:
    """The masks that the usual mistakes give."""
    right, ids = sees_of(lengths), np.array(ids_of(lengths), dtype=np.int64)
    past = np.tri(len(ids), dtype=bool)
    query, key = ids[:, None], ids[None]
    documents, question, system = query >= 0, query == QUESTION, (query == SYSTEM) & (key == SYSTEM)
    kinds = (key == SYSTEM) | question | (query == key)
    wrong = {
        "documents see the documents before them: this is the plain causal mask": past,
        "a document doesn't see the system prompt": right & ~(documents & (key == SYSTEM)),
        "a token of the question doesn't see the documents": right & ~(question & (key >= 0)),
        "a token of the question sees the question alone": right & (~question | (key == QUESTION)),
        "a token sees tokens behind it: the causal rule is missing": kinds,
        "a token sees the next one, too: off by one": kinds & np.tri(len(ids), k=1, dtype=bool),
        "a token sees itself and what is behind it, not before it: the wrong triangle": kinds & past.T,
        "0 and −inf are exchanged": ~right,
        "a token doesn't see itself": right & ~np.eye(len(ids), dtype=bool),
        "within a document, a token sees the whole document": right | (documents & (query == key)),
        "a token of the question sees tokens behind it": right | question,
        "a token of the system prompt sees tokens behind it": right | system,
        "tokens of the system prompt and of the question see those behind them": right | system | question,
        "each segment sees itself alone": right & (query == key),
    }
    return {mistake: additive(mask) for mistake, mask in wrong.items()}


def brief(lengths: Lengths) -> str:
    """These lengths in a test's name."""
    return f"{lengths.system}+({'+'.join(map(str, lengths.documents))})+{lengths.question}"


def whose(lengths: Lengths, token: int) -> str:
    """Token number so and so, in words."""
    segment = [*ids_of(lengths), *[QUESTION] * (token + 1)][token]
    if token >= len(ids_of(lengths)):
        return f"token {token}, which was generated"
    names = {SYSTEM: "the system prompt", QUESTION: "the question"}
    return f"token {token}, of {names.get(segment, f'document {segment + 1}')}"
