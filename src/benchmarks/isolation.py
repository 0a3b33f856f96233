"""What isolation costs: the same questions, with documents that see one another and with documents that don't (4.4).

A way to answer is a function that generates. Both numbers come from it: the greedy answer, and how likely the given
answer is this way, by a sampler that forces the answer's tokens and notes their probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.questions import EncodedItem, Item
from coursekit.errors import CourseError
from coursekit.running.stubs import reached_stub
from programs.document_cores import generate_on_document_pages
from programs.loaded import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.documents.prompt import Segments
    from tiny_llm.generate import Sample
    from tiny_llm.model import Transformer

NAME = "isolation"
MAX_TOKENS = 24

TEMPERATURE, SCALE = 0.7, 0.8
"""Of the remedy: the best of a few pairs on other questions than those of the set."""


@dataclass(frozen=True)
class Prompt:
    """What a way of answering gets."""

    segments: Segments
    max_chunk_len: int  # as long as the longest document of the question set


@dataclass(frozen=True)
class Way:
    """A way of answering a question about documents."""

    name: str
    label: str
    generate: Callable[[Transformer, Prompt, int, Collection[int], Sample], Iterable[int]]
    """Called with the model, the prompt, max_tokens, end_ids and sample; gives the new tokens one by one."""


def _full(
    model: Transformer, prompt: Prompt, max_tokens: int, end_ids: Collection[int], sample: Sample
) -> Iterator[int]:
    """All segments as one ordinary prompt."""
    from tiny_llm.generate import generate

    return generate(model, prompt.segments.token_ids, max_tokens, end_ids, sample)


def _shared(
    model: Transformer, prompt: Prompt, max_tokens: int, end_ids: Collection[int], sample: Sample
) -> Iterator[int]:
    from tiny_llm.documents.oracle import generate_documents

    return generate_documents(model, prompt.segments, max_tokens, end_ids, sample)


def _offset(
    model: Transformer, prompt: Prompt, max_tokens: int, end_ids: Collection[int], sample: Sample
) -> Iterator[int]:
    from tiny_llm.documents.oracle import generate_documents

    return generate_documents(
        model, prompt.segments, max_tokens, end_ids, sample, "offset", prompt.max_chunk_len
    )


def _remedied(
    model: Transformer, prompt: Prompt, max_tokens: int, end_ids: Collection[int], sample: Sample
) -> Iterator[int]:
    """The isolated documents on pages, weighed by Day 4.5's remedy."""
    from tiny_llm.documents.attention import Remedy

    remedy = Remedy(TEMPERATURE, SCALE)
    return generate_on_document_pages(model, prompt.segments, max_tokens, end_ids, sample, remedy)


WAYS = (
    Way("full", "full attention", _full),
    Way("shared", "isolated, shared", _shared),
    Way("offset", "isolated, offset", _offset),
    Way("remedy", "shared, remedied", _remedied),
)
"""The others are compared with the first."""


@dataclass(frozen=True)
class Answered:
    """What one way made of one question."""

    text: str
    right: bool
    nll: float  # of all tokens of the given answer together, natural logarithm
    tokens: int  # how many these are


@dataclass
class Row:
    """One question and what each way made of it, by the way's name."""

    item: Item
    answers: dict[str, Answered] = field(default_factory=dict)


@dataclass
class Findings:
    """What was measured so far, and what had to be left out."""

    ways: list[Way]
    rows: list[Row] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # a way's label -> which stub it reached

    @property
    def complete(self) -> list[Row]:
        """The questions that all ways have answered: only these can be compared."""
        names = {way.name for way in self.ways}
        return [row for row in self.rows if row.answers and names <= set(row.answers)]


def longest_document(items: Sequence[EncodedItem]) -> int:
    """In tokens; at least 1, so that positions can be counted in it."""
    return max((len(each) for item in items for each in item.segments.documents), default=1) or 1


def check_room(loaded: LoadedModel, items: Sequence[EncodedItem], max_chunk_len: int) -> None:
    """Refuse a question set that some way has no room for, before anything is measured.

    Raises:
        CourseError: it names the question, counted from 1.
    """
    limit = loaded.model.config.max_positions
    for number, each in enumerate(items, start=1):
        segments = each.segments
        stretched = (
            len(segments.system) + len(segments.documents) * max_chunk_len + len(segments.question)
        )  # `offset` leaves gaps, and so needs at least as many positions as a prompt without
        if stretched + max(MAX_TOKENS, len(each.answer_ids)) > limit:
            raise CourseError(
                f"question {number} with its {len(segments.documents)} documents of up to {max_chunk_len} tokens "
                f"needs {stretched} positions, and the answer some more; this model has {limit}"
            )


def measure(
    loaded: LoadedModel, items: Sequence[EncodedItem], max_chunk_len: int, findings: Findings
) -> Iterator[str]:
    """Let each way answer each question, question after question. A way whose code is not written is left out.

    Args:
        loaded: the model.
        items: the questions.
        max_chunk_len: for :class:`Prompt`.
        findings: filled while it goes on: what is in it counts even if the iteration is broken off.

    Yields:
        before each question, what comes next.

    Raises:
        NotImplementedError: the code of none of the ways is there; the first one's.
    """
    first_stub: NotImplementedError | None = None
    for each in items:
        yield each.item.question
        row = Row(each.item)
        findings.rows.append(row)
        prompt = Prompt(each.segments, max_chunk_len)
        for way in list(findings.ways):
            try:
                row.answers[way.name] = answer(loaded, way, prompt, each)
            except NotImplementedError as error:
                stub = reached_stub(error)
                if stub is None:
                    raise
                first_stub = first_stub or error
                findings.ways.remove(way)
                findings.missing[way.label] = stub.message
        if not findings.ways and first_stub is not None:
            raise first_stub


def answer(loaded: LoadedModel, way: Way, prompt: Prompt, each: EncodedItem) -> Answered:
    """One question in one way: the likelihood of the given answer, then a greedy one."""
    forced = Forced(each.answer_ids)
    for _ in way.generate(loaded.model, prompt, len(each.answer_ids), (), forced):
        pass
    text = answer_line(loaded, way, prompt)
    return Answered(text, each.item.is_right(text), forced.nll, len(each.answer_ids))


def answer_line(loaded: LoadedModel, way: Way, prompt: Prompt) -> str:
    """The greedy answer, up to the end of its line: behind it the model goes on with a question of its own."""
    from tiny_llm.generate import greedy

    tokenizer, ids, text = loaded.tokenizer, [], ""
    for token in way.generate(loaded.model, prompt, MAX_TOKENS, tokenizer.end_ids, greedy):
        ids.append(token)
        text = tokenizer.decode(ids)
        if "\n" in text:
            break
    return text.partition("\n")[0].strip()


class Forced:
    """A sampler that takes given tokens, and adds up their negative log-likelihood."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        """Start with the first of them."""
        self._left = list(reversed(token_ids))
        self.nll = 0.0

    def __call__(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """The next of the tokens; logits [V]."""
        token = self._left.pop()
        self.nll -= float(logits.float().log_softmax(dim=-1)[token])
        return token
