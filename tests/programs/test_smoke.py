"""Running the stages: those that are there, those that aren't, and those that are wrong."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coursekit.editing.source import stub
from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs.golden import GoldenPrompt, Parting
from programs.implementation import require_written
from programs.smoke import run_stage, run_stages
from programs.stages import SERVED, SERVED_DAY, STAGES, Stage, find_stages

ENGINE: Any = SimpleNamespace()
GOLDEN = [GoldenPrompt("one", [1, 2], [5, 6, 7], [1.0] * 3), GoldenPrompt("other", [3], [8], [1.0])]
ANSWERS = {(1, 2): [5, 6, 7], (3,): [8]}


def right(engine: Any, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int]) -> list[list[int]]:
    assert list(max_tokens) == [3, 1]
    return [ANSWERS[tuple(prompt)] for prompt in prompts]


def unwritten(engine: Any, prompts: Any, max_tokens: Any) -> list[list[int]]:
    raise NotImplementedError("Week 2 Day 6 Task 4: Static batching")


def broken(engine: Any, prompts: Any, max_tokens: Any) -> list[list[int]]:
    raise NotImplementedError("operator not implemented for this dtype")


def stage(name: str, generate: Any) -> Stage:
    return Stage("S9", name, "9.9", generate)


def test_stages_without_code_are_left_out_and_named() -> None:
    stages = [stage("a", right), stage("b", unwritten), stage("c", right)]
    runs, missing = run_stages(ENGINE, stages, GOLDEN)
    assert [run.stage.name for run in runs] == ["a", "c"]
    assert [run.tokens for run in runs] == [4, 4]
    assert [each.name for each in missing] == ["b"]


def test_when_no_stage_has_its_code_the_first_stub_is_reported() -> None:
    with pytest.raises(NotImplementedError, match="Week 2 Day 6 Task 4"):
        run_stages(ENGINE, [stage("b", unwritten)], GOLDEN)


def test_an_error_that_is_no_stub_is_not_hidden() -> None:
    with pytest.raises(NotImplementedError, match="operator not implemented"):
        run_stages(ENGINE, [stage("a", right), stage("b", broken)], GOLDEN)


def test_a_parting_is_reported_with_its_prompt() -> None:
    run = run_stage(ENGINE, stage("a", lambda *_: [[5, 6, 7], [4]]), GOLDEN)
    assert run.partings == [(GOLDEN[1], Parting(0, expected=8, actual=4))]


def test_a_stage_that_loses_a_request_is_refused() -> None:
    with pytest.raises(CourseError, match="a gave 1 outputs for 2 prompts"):
        run_stage(ENGINE, stage("a", lambda *_: [[5, 6, 7]]), GOLDEN)


def test_a_day_with_stubs_stops_a_program_that_would_run_it_in_threads(tmp_path: Path) -> None:
    course = Course.find()
    require_written(course, Impl.SOLUTION, SERVED_DAY)
    shutil.copytree(course.root / "lessons", tmp_path / "lessons")
    for name in ("solutions", "src"):
        shutil.copytree(course.root / "solutions", tmp_path / name)
    written = Course(tmp_path)
    require_written(written, Impl.LEARNER, SERVED_DAY)
    file = written.starter() / "ragged" / "batcher.py"
    file.write_text(
        stub(file.read_text("utf-8"), {"Batcher.wait": "Week 3 Day 7 Task 3: The loop"}, file.name), "utf-8"
    )
    with pytest.raises(NotImplementedError, match="Week 3 Day 7 Task 3: The loop"):
        require_written(written, Impl.LEARNER, SERVED_DAY)
    require_written(written, Impl.LEARNER, (3, 6))


def test_the_stages_are_numbered_in_order_and_have_names_of_their_own() -> None:
    assert [each.number for each in STAGES] == [f"S{i}" for i in range(len(STAGES))]
    assert len({each.name for each in (*STAGES, SERVED)}) == len(STAGES) + 1
    assert find_stages("served") == (SERVED,)
