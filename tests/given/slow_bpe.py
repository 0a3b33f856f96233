"""Byte-level byte-pair encoding in plain Python: slow, short, and independent of the library that the course uses.

The rules that cut a text into words are those that llama.cpp and the models' papers describe.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import regex  # type: ignore[import-untyped]  # a dependency of transformers

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_MODERN = (
    rf"(?:(?i){_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|DIGITS| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {
    "gpt-2": _GPT2,
    "smollm": _GPT2,
    "qwen2": _MODERN.replace("DIGITS", r"\p{N}"),
    "llama-bpe": _MODERN.replace("DIGITS", r"\p{N}{1,3}"),
}


def byte_letters() -> dict[int, str]:
    """The printable letter that byte-level vocabularies write for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


LETTERS = byte_letters()


def encode(
    text: str, rule: str, tokens: Sequence[str], merges: Sequence[str], added: dict[str, int]
) -> list[int]:
    """The ids of a text. `added` are the tokens that are found in the text before it is cut into words."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
    pattern = "|".join(regex.escape(token) for token in sorted(added, key=len, reverse=True)) or "(?!)"
    ids: list[int] = []
    for piece in regex.split(f"({pattern})", text):
        if piece in added:
            ids.append(added[piece])
            continue
        for word in split_words(piece, rule):
            letters = "".join(LETTERS[byte] for byte in word.encode())
            if (
                rule == "llama-bpe" and letters in vocabulary
            ):  # this rule takes whole words before any merging
                ids.append(vocabulary[letters])
            else:
                ids += [vocabulary[part] for part in merge(list(letters), ranks)]
    return ids


def split_words(text: str, rule: str) -> list[str]:
    """The words inside which letters are merged."""
    if rule == "qwen2":
        text = unicodedata.normalize("NFC", text)
    pieces = regex.findall(r"\p{N}|\P{N}+", text) if rule == "smollm" else [text]
    return [word for piece in pieces for word in regex.findall(WORDS[rule], piece)]


def merge(parts: list[str], ranks: dict[tuple[str, ...], int]) -> list[str]:
    """Join the pair of lowest rank wherever it stands, until no pair has a rank."""
    while len(parts) > 1:
        best = min(pairwise(parts), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        joined: list[str] = []
        for part in parts:
            if joined and (joined[-1], part) == best:
                joined[-1] += part
            else:
                joined.append(part)
        parts = joined
    return parts
