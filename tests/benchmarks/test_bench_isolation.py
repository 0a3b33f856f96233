"""`pdm run bench isolation` as its user meets it, and what it prints and keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_runs import bench
from copies import make_copy
from rich.console import Console
from toy_ways import GOOD, item, scripted, toy_loaded

from benchmarks import isolation_command
from benchmarks.isolation import Way
from benchmarks.isolation_command import bench_isolation
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course

Bench = Callable[..., tuple[str, dict[str, Any] | None]]


@pytest.fixture
def bench_on_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Runs the bench on four questions with scripted ways; gives what it printed, and what it kept."""
    loaded = toy_loaded()
    monkeypatch.setattr(isolation_command, "load", lambda *args, **options: loaded)
    monkeypatch.setattr(isolation_command, "load_questions", lambda path: [item()] * 4)

    def bench_ways(*ways: Way, quick: bool = False) -> tuple[str, dict[str, Any] | None]:
        monkeypatch.setattr(isolation_command, "WAYS", ways)
        console, target = Console(width=100), tmp_path / "kept.json"
        machine = {"system": "", "machine": "", "cores": 2, "vector": "", "torch": "", "threads": 1}
        about = {"model": "toy", "machine": machine, "quick": quick}
        with console.capture() as capture:
            try:
                bench_isolation(Course(tmp_path), about, target, None, console, Console(stderr=True))
            except KeyboardInterrupt:
                console.print("interrupted")
        return capture.get(), json.loads(target.read_text()) if target.exists() else None

    return bench_ways


def test_what_is_measured_is_kept_answer_by_answer(bench_on_toy: Bench) -> None:
    text, kept = bench_on_toy(scripted("sure", " a fox", 0.9), scripted("cat", " a cat"))
    assert "kept in kept.json" in text
    assert kept is not None
    assert kept["finished"] is True
    assert kept["scores"]["all"]["cat"] == {
        "items": 4,
        "right": 0,
        "perplexity": pytest.approx(12, abs=0.01),
    }
    assert [each["sure"]["text"] for each in kept["questions"]] == ["a fox"] * 4
    assert kept["comparisons"][0]["only_other"] == 4


def test_ctrl_c_keeps_the_questions_that_all_ways_have_answered(bench_on_toy: Bench) -> None:
    text, kept = bench_on_toy(
        scripted("sure", " a fox"), scripted("cat", " a cat", error=KeyboardInterrupt(), at=3)
    )
    assert text.endswith("interrupted\n")
    assert kept is not None
    assert kept["finished"] is False
    assert kept["scores"]["all"]["sure"]["items"] == 2


def test_ctrl_c_before_the_first_question_is_answered_keeps_and_prints_nothing(bench_on_toy: Bench) -> None:
    text, kept = bench_on_toy(scripted("cat", " a cat", error=KeyboardInterrupt()))
    assert text == "interrupted\n"
    assert kept is None


def test_quick_asks_every_third_question(bench_on_toy: Bench) -> None:
    _, kept = bench_on_toy(scripted("sure", " a fox"), quick=True)
    assert kept is not None
    assert kept["scores"]["all"]["sure"]["items"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("isolation", "serving"), "isolation is measured alone"),
        (("isolation", "--week", "2"), "isolation is measured alone, and belongs to Week 4"),
        (("serving", "--questions", "mine.toml"), "--questions is for isolation"),
        (("isolation", "--questions", "none.toml"), "can't read the questions in none.toml: No such file"),
        (("isolation", "--out", "mine.svg"), "it must be a file whose name ends in .json"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = bench(*arguments, "--impl", "solution")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_bench_answers_questions_of_a_file_with_the_course_s_model(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.toml", tmp_path / "new" / "kept.json"
    mine.write_text(GOOD)
    done = bench("isolation", "--impl", "solution", "--questions", str(mine), "--out", str(out))
    assert done.returncode == 0, done.stderr
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert kept["finished"]
    assert list(kept["ways"]) == ["full", "shared", "offset", "remedy"]
    assert kept["questions"][0]["full"]["nll"] == pytest.approx(
        kept["questions"][0]["shared"]["nll"], abs=1e-3
    )
    assert "one document" in done.stdout


def test_on_unwritten_code_bench_says_which_day_comes_first(tmp_path: Path) -> None:
    make_copy(tmp_path, load_manifest(Course.find()))
    done = bench("isolation", **{ROOT_VARIABLE: str(tmp_path)})
    assert done.returncode == 2
    assert "pdm run test 1.1" in done.stderr
    assert done.stdout == ""
