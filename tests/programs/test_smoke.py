"""Running the stages: those that are there, those that aren't, and those that are wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from coursekit.editing.source import stub
from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs import stage as stage_module
from programs.golden import GoldenPrompt, Parting
from programs.implementation import require_written
from programs.seats import Observe
from programs.smoke import make_ladder, run_stage, run_stages
from programs.stages import GRPC, STAGES, Limits, Stage, find_stages

ENGINE: Any = SimpleNamespace(tokenizer=SimpleNamespace(end_ids=()))
GOLDEN = [GoldenPrompt("one", [1, 2], [5, 6, 7], [1.0] * 3), GoldenPrompt("other", [3], [8], [1.0])]
ANSWERS = {(1, 2): [5, 6, 7], (3,): [8]}


def answering(answers: Mapping[tuple[int, ...], list[int]]) -> Any:
    """A stage that gives each prompt its answer."""

    def run(loaded: Any, requests: Sequence[Any], limits: Limits, observe: Observe) -> None:
        assert [request.max_tokens for request in requests] == [3, 1]
        for request in requests:
            request.token_ids += answers[tuple(request.prompt_ids)]

    return run


right = answering(ANSWERS)


def failing(message: str) -> Any:
    """A stage that fails with a NotImplementedError."""

    def run(*arguments: Any) -> None:
        raise NotImplementedError(message)

    return run


unwritten = failing("Week 2 Day 6 Task 4: Static batching")
broken = failing("operator not implemented for this dtype")


def stage(name: str, run: Any) -> Stage:
    return Stage("S9", name, (9, 9), "as a test wants it", run)


def test_stages_without_code_are_left_out_and_named() -> None:
    three = [stage("a", right), stage("b", unwritten), stage("c", right)]
    runs, missing = run_stages(ENGINE, three, GOLDEN)
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
    run = run_stage(ENGINE, stage("a", answering({**ANSWERS, (3,): [4]})), GOLDEN)
    assert run.partings == [(GOLDEN[1], Parting(0, expected=8, actual=4))]


def test_a_stage_that_gives_a_request_no_token_parts_from_the_golden_ones() -> None:
    run = run_stage(ENGINE, stage("a", answering({**ANSWERS, (3,): []})), GOLDEN)
    assert run.partings == [(GOLDEN[1], Parting(0, expected=8, actual=None))]


def ladder(count: int) -> list[str]:
    """The lines of the ladder of some stages."""
    runs, _ = run_stages(ENGINE, [stage(name, right) for name in "abc"[:count]], GOLDEN)
    console = Console(width=100)
    with console.capture() as capture:
        console.print(make_ladder(runs))
    return capture.get().splitlines()


def test_stages_are_compared_with_the_first_one_and_a_single_stage_with_nothing() -> None:
    compared, single = ladder(2), ladder(1)
    assert compared[0].split() == ["stage", "tokens/s", "×", "first", "tokens"]
    assert re.search(r"^S9 +a +[\d.]+ +1\.00  the same", compared[1])
    assert single[0].split() == ["stage", "tokens/s", "tokens"]
    assert re.search(r"^S9 +a +[\d.]+  the same", single[1])


def test_a_stage_that_may_not_run_is_left_out_like_one_without_code() -> None:
    def require(each: Stage) -> None:
        if each.name == "b":
            unwritten()

    runs, missing = run_stages(ENGINE, [stage("a", right), stage("b", right)], GOLDEN, require=require)
    assert [run.stage.name for run in runs] == ["a"]
    assert [each.name for each in missing] == ["b"]


def test_the_kernel_is_compiled_for_the_stages_that_may_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(stage_module, "warm_up", lambda name, model: compiled.append(name))
    loaded: Any = SimpleNamespace(model=None)
    for each in STAGES:
        each.prepare(loaded, Limits(1, 1, "cpu"))
    chosen = [each.name for each in STAGES if each.attention == "auto"]
    assert chosen == ["kernel", "ragged", "grpc", "extend", "preempt", "documents", "served"]
    assert compiled == ["cpu"] * len(chosen)


def test_the_other_ways_to_the_engine_of_a_stage_are_compared_but_not_timed() -> None:
    other = answering({**ANSWERS, (3,): [4]})
    two_ways = replace(stage("a", right), others=(("same", right), ("other", other)))
    run = run_stage(ENGINE, two_ways, GOLDEN)
    assert run.partings == [(GOLDEN[1], Parting(0, expected=8, actual=4))]
    assert (run.tokens, run.golden, run.prompts) == (4, 12, 6)


def test_a_day_with_stubs_stops_a_program_that_would_run_it_in_threads(tmp_path: Path) -> None:
    course = Course.find()
    require_written(course, Impl.SOLUTION, GRPC.day)
    shutil.copytree(course.root / "lessons", tmp_path / "lessons")
    for name in ("solutions", "src"):
        shutil.copytree(course.root / "solutions", tmp_path / name)
    written = Course(tmp_path)
    require_written(written, Impl.LEARNER, GRPC.day)
    file = written.starter() / "ragged" / "batcher.py"
    file.write_text(
        stub(file.read_text("utf-8"), {"Batcher.wait_for_work": "Week 3 Day 7 Task 3: The loop"}, file.name),
        "utf-8",
    )
    with pytest.raises(NotImplementedError, match="Week 3 Day 7 Task 3: The loop"):
        require_written(written, Impl.LEARNER, GRPC.day)
    require_written(written, Impl.LEARNER, (3, 6))
    require_written(written, Impl.LEARNER, (4, 6))
    with pytest.raises(NotImplementedError, match="Week 3 Day 7 Task 3: The loop"):
        require_written(written, Impl.LEARNER, (4, 6), needed=True)


def test_the_stages_come_in_the_order_of_their_days_and_have_names_of_their_own() -> None:
    assert [each.number for each in STAGES] == [
        "S0",
        "S1",
        "S2",
        "S3",
        "S4",
        "S5",
        "S6",
        "S6",
        "S7",
        "S8",
        "S9",
        "S10",
    ]
    assert [each.day for each in STAGES] == sorted(each.day for each in STAGES)
    assert len({each.name for each in STAGES}) == len(STAGES)
    assert [(each.number, each.day) for each in find_stages("grpc")] == [("S6", (3, 7))]
    assert [(each.number, each.day) for each in find_stages("served")] == [("S10", (4, 6))]
    assert find_stages(None) == STAGES
    with pytest.raises(CourseError, match="no stage 'warp'; there are: recompute, cached, batched"):
        find_stages("warp")
