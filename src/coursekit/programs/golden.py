"""The golden tokens, and what "the same tokens" means."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coursekit.errors import CourseError
from coursekit.paths import Course

NEAR_TIE = 1e-4
"""Two candidates whose logits are closer than this are equally right: float32 rounding may prefer either."""


@dataclass(frozen=True)
class GoldenPrompt:
    """One prompt and what an independent implementation answers to it."""

    prompt: str
    prompt_ids: list[int]
    token_ids: list[int]
    gaps: list[float]  # at each step, the logit of the best candidate minus that of the second


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
    path = course.tests / "golden" / f"{model}.json"
    remake = "make it again with: python tests/golden/make_golden.py"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return [
            GoldenPrompt(row["prompt"], row["prompt_ids"], row["token_ids"], row["gaps"])
            for row in data["prompts"]
        ]
    except FileNotFoundError:
        raise CourseError(f"the golden tokens are missing ({path}); {remake}") from None
    except (ValueError, KeyError, TypeError):
        raise CourseError(f"the golden tokens are damaged ({path}); {remake}") from None


def find_parting(golden: GoldenPrompt, generate: Callable[[Sequence[int], int], list[int]]) -> Parting | None:
    """Compare a stage's greedy tokens with the golden ones.

    At a near tie either candidate is accepted, and the stage goes on from the golden tokens.

    Args:
        golden: the prompt and its tokens.
        generate: maps prompt ids and a number of tokens to at most that many new ids.

    Returns:
        The first difference that rounding does not explain, or None.
    """
    done = 0
    while done < len(golden.token_ids):
        wanted = golden.token_ids[done:]
        tokens = generate([*golden.prompt_ids, *golden.token_ids[:done]], len(wanted))
        same = _common_prefix(tokens, wanted)
        index = done + same
        if index == len(golden.token_ids):
            return None
        if same == len(tokens) or golden.gaps[index] >= NEAR_TIE:
            actual = tokens[same] if same < len(tokens) else None
            return Parting(index, golden.token_ids[index], actual)
        done = index + 1
    return None


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens agree before the first that doesn't."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
