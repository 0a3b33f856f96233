"""A toy model, and ways to answer that follow a script."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from toy_model import tiny_model

from benchmarks.isolation import Findings, Prompt, Way, measure
from benchmarks.questions import EncodedItem, Item, encode_item
from programs.loaded import LoadedModel

if TYPE_CHECKING:
    from tiny_llm.generate import Sample

STUB = "Week 4 Day 4 Task 4: The oracle"
LETTERS = " \n.:?abcdefghijklmnopqrstuvwxyzNQSAWT"  # 37, as the tiny model has

GOOD = """[[items]]
kind = "one"
documents = ["A fox ran."]
question = "Who ran?"
answer = "A fox"
accepted = ["fox"]
"""
"""A question set of one question, as a file."""


class LetterTokenizer:
    """A token a letter; every other character is the token of "?"."""

    end_ids: tuple[int, ...] = (LETTERS.index("T"),)

    def encode(self, text: str, control_tokens: bool = True, start: bool = True) -> list[int]:
        return [LETTERS.index(letter if letter in LETTERS else "?") for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(LETTERS[token] for token in ids)


class FittingTokenizer(LetterTokenizer):
    """The same for an engine, which asks whether it belongs to the model, and for its server."""

    longest_token = 1

    def check_fits(self, vocab_size: int) -> None:
        assert vocab_size == len(LETTERS)


def toy_loaded() -> LoadedModel:
    """A tiny model with a token a letter."""
    tokenizer: Any = LetterTokenizer()
    return LoadedModel(tiny_model(max_positions=400), tokenizer)


def item(
    *documents: str, kind: str = "one", answer: str = "a fox", accepted: tuple[str, ...] = ("fox",)
) -> Item:
    return Item(kind, documents or ("a fox ran",), "who ran?", answer, accepted)


def encoded(loaded: LoadedModel, *items: Item) -> list[EncodedItem]:
    return [encode_item(each, loaded.tokenizer) for each in items]


def scripted(
    name: str, text: str, probability: float = 0.5, error: BaseException | None = None, at: int = 1
) -> Way:
    """A way that goes through one text, each of whose letters it gives this probability, whatever the sampler takes.

    From the `at`-th question on it raises `error`.
    """
    import torch

    runs = 0

    def generate(
        model: object, prompt: Prompt, max_tokens: int, end_ids: Collection[int], sample: Sample
    ) -> Iterator[int]:
        nonlocal runs
        runs += 1
        if error is not None and runs > 2 * (at - 1):
            raise error
        for token in LetterTokenizer().encode(text)[:max_tokens]:
            logits = torch.full((len(LETTERS),), math.log((1 - probability) / (len(LETTERS) - 1)))
            logits[token] = math.log(probability)
            yield sample(logits, [])

    return Way(name, f"the {name}", generate)


def run(loaded: LoadedModel, ways: Sequence[Way], *items: Item) -> Findings:
    findings = Findings(list(ways))
    list(measure(loaded, encoded(loaded, *items), 20, findings))
    return findings
