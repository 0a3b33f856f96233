"""The golden tokens, and what "the same tokens" means."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from coursekit.errors import CourseError
from coursekit.paths import Course

if TYPE_CHECKING:
    from tiny_llm.documents.prompt import Segments

NEAR_TIE = 1e-4
"""Two candidates whose logits are closer than this are equally right: float32 rounding may prefer either."""


@dataclass(frozen=True)
class GoldenPrompt:
    """One prompt and what an independent implementation answers to it."""

    prompt: str
    prompt_ids: list[int]
    token_ids: list[int]
    gaps: list[float]  # at each step, the logit of the best candidate minus that of the second

    def continued(self, count: int) -> list[int]:
        """The ids of the prompt with its first golden tokens."""
        return [*self.prompt_ids, *self.token_ids[:count]]


@dataclass(frozen=True)
class GoldenDocuments:
    """One prompt with documents that don't see one another, and what an independent implementation answers to it."""

    prompt: str  # its name
    chat: bool
    strategy: str
    max_chunk_len: int | None
    system: str
    documents: list[str]
    question: str
    system_ids: list[int]
    document_ids: list[list[int]]
    question_ids: list[int]
    token_ids: list[int]
    gaps: list[float]  # as for a GoldenPrompt

    @property
    def segments(self) -> Segments:
        """The token ids as the engine takes them."""
        from tiny_llm.documents.prompt import Segments

        documents = tuple(map(tuple, self.document_ids))
        return Segments(tuple(self.system_ids), documents, tuple(self.question_ids))

    def continued(self, count: int) -> Self:
        """The prompt with its first golden tokens behind the question."""
        return replace(self, question_ids=[*self.question_ids, *self.token_ids[:count]])


Row = TypeVar("Row")
Prompt = TypeVar("Prompt", covariant=True)


class Golden(Protocol[Prompt]):
    """A prompt with golden tokens, whatever a stage takes as a prompt."""

    @property
    def token_ids(self) -> list[int]: ...

    @property
    def gaps(self) -> list[float]: ...

    def continued(self, count: int) -> Prompt: ...


@dataclass(frozen=True)
class Parting:
    """Where a stage left the golden tokens."""

    index: int
    expected: int
    actual: int | None  # None: the stage ended early


def load_golden(course: Course, model: str = "smollm2-135m") -> list[GoldenPrompt]:
    """The golden prompts of a model.

    Raises:
        CourseError: the file is missing or damaged.
    """

    def read(row: dict[str, Any]) -> GoldenPrompt:
        return GoldenPrompt(row["prompt"], row["prompt_ids"], row["token_ids"], row["gaps"])

    return _load(course, model, read)


def load_golden_documents(course: Course, model: str = "smollm2-135m") -> list[GoldenDocuments]:
    """The golden prompts with documents of a model; errors as for :func:`load_golden`."""

    def read(row: dict[str, Any]) -> GoldenDocuments:
        return GoldenDocuments(prompt=row.pop("name"), **row)

    return _load(course, f"{model}-documents", read)


def _load(course: Course, name: str, read: Callable[[dict[str, Any]], Row]) -> list[Row]:
    path = course.tests / "golden" / f"{name}.json"
    remake = "make it again with: python tests/golden/make_golden.py"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return [read(row) for row in data["prompts"]]
    except FileNotFoundError:
        raise CourseError(f"the golden tokens are missing ({path}); {remake}") from None
    except (ValueError, KeyError, TypeError):
        raise CourseError(f"the golden tokens are damaged ({path}); {remake}") from None


def find_partings(
    golden: Sequence[Golden[Prompt]],
    generate: Callable[[list[Prompt], list[int]], Sequence[Sequence[int]]],
) -> list[Parting | None]:
    """Compare a stage's greedy tokens with the golden ones.

    At a near tie either candidate is accepted, and the prompt is run again from the golden tokens up to there,
    together with the others that need it.

    Args:
        golden: the prompts and their tokens.
        generate: the stage; called with all the prompts first. It gets what ``continued`` gives for each of them, and
            how many new tokens each may get, and returns these tokens.

    Returns:
        For each prompt the first difference that rounding does not explain, or None.
    """
    partings: list[Parting | None] = [None] * len(golden)
    done = dict.fromkeys(range(len(golden)), 0)  # prompts to run -> how many golden tokens they start from
    while done:
        prompts = [golden[row].continued(start) for row, start in done.items()]
        wanted = [golden[row].token_ids[start:] for row, start in done.items()]
        outputs = generate(prompts, [len(tokens) for tokens in wanted])
        again: dict[int, int] = {}
        for (row, start), tokens, output in zip(done.items(), wanted, outputs, strict=True):
            same = _common_prefix(output, tokens)
            if same == len(tokens):
                continue
            if same == len(output) or golden[row].gaps[start + same] >= NEAR_TIE:
                actual = output[same] if same < len(output) else None
                partings[row] = Parting(start + same, tokens[same], actual)
            elif same + 1 < len(tokens):
                again[row] = start + same + 1
        done = again
    return partings


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens agree before the first that doesn't."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
