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


Generate = Callable[[list[list[int]], list[int]], Sequence[Sequence[int]]]
"""The prompts' token ids, and how many tokens each gets at most, in; the new tokens of each prompt out."""


def find_partings(golden: Sequence[GoldenPrompt], generate: Generate) -> list[Parting | None]:
    """Compare a stage's greedy tokens with the golden ones.

    At a near tie either candidate is accepted, and the prompt is run again from the golden tokens up to there,
    together with the others that need it.

    Args:
        golden: the prompts and their tokens.
        generate: the stage; called with all the prompts first.

    Returns:
        For each prompt the first difference that rounding does not explain, or None.
    """
    partings: list[Parting | None] = [None] * len(golden)
    done = dict.fromkeys(range(len(golden)), 0)  # prompts to run -> how many golden tokens they start from
    while done:
        prompts = [[*golden[row].prompt_ids, *golden[row].token_ids[:start]] for row, start in done.items()]
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
