"""What "the same tokens" means: `programs.golden`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from coursekit.errors import CourseError
from coursekit.paths import Course
from programs.golden import (
    NEAR_TIE,
    GoldenDocuments,
    GoldenPrompt,
    Parting,
    find_partings,
    load_golden,
    load_golden_documents,
)

Load = Callable[[Course], Sequence[GoldenPrompt | GoldenDocuments]]

PROMPT = [7, 3]
TOKENS = [5, 6, 8, 2]


def golden(gaps: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> GoldenPrompt:
    return GoldenPrompt("a prompt", PROMPT, TOKENS, list(gaps))


class Scripted:
    """A stage that answers each prompt as it was told to, and remembers how many tokens each could have."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]]) -> None:
        self.answers = answers
        self.asked: list[list[int]] = []

    def __call__(self, prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        self.asked.append(max_tokens)
        return [self.answers[tuple(prompt)] for prompt in prompts]


def find_parting(prompt: GoldenPrompt, stage: Scripted) -> Parting | None:
    """Where the stage parts from one prompt's tokens."""
    [parting] = find_partings([prompt], stage)
    return parting


def test_equal_tokens_have_no_parting() -> None:
    assert find_parting(golden(), Scripted({(7, 3): TOKENS})) is None


def test_the_first_different_token_is_named() -> None:
    assert find_parting(golden(), Scripted({(7, 3): [5, 9, 8, 1]})) == Parting(1, expected=6, actual=9)


def test_a_stage_that_ends_early_is_named() -> None:
    assert find_parting(golden(), Scripted({(7, 3): [5, 6]})) == Parting(2, expected=8, actual=None)


def test_a_stage_that_gives_no_token_at_a_near_tie_still_ends_early() -> None:
    tie = golden((1.0, 1.0, NEAR_TIE / 2, 1.0))
    assert find_parting(tie, Scripted({(7, 3): [5, 6]})) == Parting(2, expected=8, actual=None)


def test_a_near_tie_accepts_either_token_and_goes_on_along_the_golden_ones() -> None:
    stage = Scripted({(7, 3): [5, 9, 1, 1], (7, 3, 5, 6): [8, 2]})
    assert find_parting(golden((1.0, NEAR_TIE / 2, 1.0, 1.0)), stage) is None
    assert stage.asked == [[4], [2]]


def test_a_gap_of_just_the_bound_is_no_tie() -> None:
    stage = Scripted({(7, 3): [5, 9, 8, 2]})
    assert find_parting(golden((1.0, NEAR_TIE, 1.0, 1.0)), stage) == Parting(1, expected=6, actual=9)


def test_a_difference_after_a_near_tie_is_found() -> None:
    stage = Scripted({(7, 3): [9, 1, 1, 1], (7, 3, 5): [6, 8, 4]})
    assert find_parting(golden((0.0, 1.0, 1.0, 1.0)), stage) == Parting(3, expected=2, actual=4)


def test_a_near_tie_at_the_last_token_ends_the_comparison() -> None:
    stage = Scripted({(7, 3): [5, 6, 8, 9]})
    assert find_parting(golden((1.0, 1.0, 1.0, 0.0)), stage) is None
    assert stage.asked == [[4]]


def test_all_prompts_run_together_and_only_those_at_a_near_tie_again() -> None:
    prompts = [
        GoldenPrompt("equal", [1], [5, 6], [1.0, 1.0]),
        GoldenPrompt("near tie, twice", [2], [5, 6, 8], [0.0, 0.0, 1.0]),
        GoldenPrompt("differs", [3], [5, 6], [1.0, 1.0]),
        GoldenPrompt("near tie, then differs", [4], [5, 6], [0.0, 1.0]),
    ]
    stage = Scripted(
        {
            (1,): [5, 6],
            (2,): [9, 9, 9],
            (3,): [5, 9],
            (4,): [9, 9],
            (2, 5): [9, 9],
            (4, 5): [7],
            (2, 5, 6): [8],
        }
    )
    expected = [None, None, Parting(1, expected=6, actual=9), Parting(1, expected=6, actual=7)]
    assert find_partings(prompts, stage) == expected
    assert stage.asked == [[2, 3, 2, 2], [2, 1], [1]]


def test_a_prompt_with_documents_goes_on_behind_its_question() -> None:
    row = GoldenDocuments(
        prompt="a name",
        chat=False,
        strategy="shared",
        max_chunk_len=None,
        system="",
        documents=["", ""],
        question="",
        system_ids=[4],
        document_ids=[[], [7]],
        question_ids=[3],
        token_ids=[5, 6, 8],
        gaps=[0.0, 1.0, 1.0],
    )
    asked: list[list[int]] = []

    def generate(prompts: list[GoldenDocuments], max_tokens: list[int]) -> list[list[int]]:
        [prompt] = prompts
        assert (prompt.system_ids, prompt.document_ids) == ([4], [[], [7]])
        asked.append(prompt.question_ids)
        return [[9, 9, 9]] if len(asked) == 1 else [[6, 8]]

    assert find_partings([row], generate) == [None]
    assert asked == [[3], [3, 5]]


@pytest.mark.parametrize("load", [load_golden, load_golden_documents])
def test_the_committed_files_have_a_gap_for_every_token(load: Load) -> None:
    prompts = load(Course.find())
    assert len(prompts) >= 5
    for prompt in prompts:
        assert len(prompt.gaps) == len(prompt.token_ids) > 0
        assert min(prompt.gaps) >= 0


@pytest.mark.parametrize(
    ("load", "name"),
    [(load_golden, "smollm2-135m.json"), (load_golden_documents, "smollm2-135m-documents.json")],
)
@pytest.mark.parametrize(
    ("text", "word"), [(None, "missing"), ("{", "damaged"), ('{"prompts": [{}]}', "damaged")]
)
def test_a_missing_or_damaged_file_says_how_to_make_it_again(
    tmp_path: Path, load: Load, name: str, text: str | None, word: str
) -> None:
    folder = tmp_path / "tests" / "golden"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(CourseError, match=rf"{word}.*make_golden\.py"):
        load(Course(tmp_path))
