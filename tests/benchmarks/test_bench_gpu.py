"""`pdm run bench --device cuda`: what it would measure, and what it says where there is no GPU."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bench_runs import bench
from rich.console import Console
from toy_model import tiny_model
from toy_ways import FittingTokenizer

from benchmarks import command, gpu, models, stages
from benchmarks.__main__ import COMMANDS
from benchmarks.machine import describe_machine, machine_line
from benchmarks.stages import Step
from coursekit.cli import execute
from programs import loaded

TEXT = [(7 * i + i * i) % 37 for i in range(150)]


def test_each_workload_has_every_step_up_to_the_one_that_plays_back() -> None:
    made = list(gpu.cases(lambda name: pytest.fail(f"{name} was loaded"), TEXT))
    names = ["cuda", "cuda-bfloat16", "cuda-recorded"]
    assert [case.name for case in made] == [f"{name}-{work}" for work in ("single", "many") for name in names]
    assert list(dict.fromkeys(case.ladder for case in made)) == [ladder.name for ladder in gpu.LADDERS]
    assert [step.form for step in gpu.steps()] == ["float32", "bfloat16", "recorded"]


def test_the_engine_is_measured_after_others_that_leave_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_llm.engine.llm import LLM

    runs: list[tuple[Any, list[list[int]], int]] = []
    whole = LLM.run_all

    def noted(self: Any, prompts: Any, params: Any) -> Any:
        outputs = whole(self, prompts, params)
        runs.append((self, [list(each) for each in prompts], sum(each.cached_tokens for each in outputs)))
        return outputs

    monkeypatch.setattr(LLM, "run_all", noted)
    monkeypatch.setattr(stages, "get_tokenizer", FittingTokenizer)
    requests = stages.MANY.make(TEXT, 2)
    speed = stages.by_engine("auto", (4, 6), tiny_model(), requests, warm_up=True)
    (before, others, _), (engine, prompts, kept) = runs
    assert before is engine
    assert prompts == [list(each.prompt_ids) for each in requests]
    assert [sorted(each) for each in others] == [sorted(each) for each in prompts], "as much work"
    assert (kept, speed > 0) == (0, True)


def test_models_are_loaded_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def load_model(source: str, **how: Any) -> Any:
        asked.append(how)
        return SimpleNamespace(model="a model")

    monkeypatch.setattr(models, "load", load_model)
    assert models.make_models(Console(), "cuda")("bfloat16") == "a model"
    assert (asked[0]["device"], asked[0]["dtype"]) == ("cuda", "bfloat16")


def test_the_line_about_the_machine_names_the_gpu() -> None:
    machine = describe_machine()
    assert machine_line(machine | {"gpu": "GPU X"}) == f"{machine_line(machine)} · GPU X"


def test_the_command_measures_its_ladder_alone_and_says_what_to_set_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a tiny model on the CPU: a GPU isn't needed to see what goes where."""
    step = Step("cuda", "the engine", "float32", partial(stages.by_engine, "auto", (4, 6), warm_up=True))
    monkeypatch.setattr(gpu, "gpu_name", lambda: "GPU X")
    monkeypatch.setattr(gpu, "steps", lambda: iter([step]))
    monkeypatch.setattr(models, "load", lambda source, **how: SimpleNamespace(model=tiny_model()))
    monkeypatch.setattr(stages, "get_tokenizer", FittingTokenizer)
    monkeypatch.setattr(command, "_text", lambda: TEXT)
    # The modules that other tests have imported stay as they are.
    monkeypatch.setattr(loaded, "choose_implementation", lambda course, impl, backend: None)
    monkeypatch.setenv("COLUMNS", "120")
    target = tmp_path / "kept.json"
    assert execute(COMMANDS, ["bench", "--device", "cuda", "--quick", "--out", str(target)]) == 0
    printed = capsys.readouterr().out
    kept = json.loads(target.read_text(encoding="utf-8"))
    assert [ladder["name"] for ladder in kept["ladders"]] == ["cuda-single", "cuda-many"]
    assert kept["machine"]["gpu"] == "GPU X"
    assert "· GPU X" in printed
    assert printed.endswith(f"{gpu.BESIDE}\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_one_line_says_what_would_be_measured_and_beside_what(tmp_path: Path) -> None:
    done = bench("--device", "cuda", "--impl", "solution", "--out", str(tmp_path / "kept.json"))
    assert done.returncode == 2
    assert "needs an NVIDIA GPU that torch can use, and there is none" in done.stderr
    assert "vllm bench throughput" in done.stderr
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--week", "3"), "leave out --week, --http and isolation"),
        (("serving", "--http"), "leave out --week, --http and isolation"),
        (("isolation",), "leave out --week, --http and isolation"),
    ],
)
def test_what_is_no_ladder_of_the_gpu_is_refused(options: tuple[str, ...], message: str) -> None:
    done = bench(*options, "--device", "cuda", "--impl", "solution")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_device_that_is_not_measured_is_refused() -> None:
    done = bench("--device", "mps", "--impl", "solution")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--device mps isn't measured: choose cpu, or cuda" in done.stderr
