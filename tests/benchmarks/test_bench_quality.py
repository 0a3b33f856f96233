"""`pdm run bench quality` as its user meets it: on a tiny model, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bench_runs import bench
from copies import make_copy
from toy_model import tiny_model

from benchmarks.__main__ import COMMANDS
from benchmarks.quality import command, forms, pieces
from benchmarks.quality.forms import Form, Load, Predict
from coursekit.cli import execute
from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from programs import loaded

WORDS = 37  # of the tiny model
TEXT = "the cat sat on the mat and the dog ran"
Run = Callable[..., tuple[int, str, str]]


def as_it_is(load: Load) -> Predict:
    model = load()

    def predict(ids: Any) -> Iterator[torch.Tensor]:
        yield model.hidden(torch.tensor([list(ids)]), slice(0, len(ids)))[0] @ model.embedding.weight.T

    return predict


def turned_over(load: Load) -> Predict:
    """The least likely token is the most likely one."""
    predict = as_it_is(load)
    return lambda ids: (-rows for rows in predict(ids))


def broken_off(load: Load) -> Predict:
    raise KeyboardInterrupt


def not_written(load: Load) -> Predict:
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")


SAME, OTHER = Form("same", "the same", as_it_is), Form("other", "turned over", turned_over)
STOPPED, STUB = Form("stopped", "broken off", broken_off), Form("stub", "a stub", not_written)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "kept.json"


@pytest.fixture
def run(target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command on a tiny model with some forms; gives the exit code, and what it printed."""
    letters: Any = SimpleNamespace(encode=lambda text, control_tokens: [ord(each) % WORDS for each in text])
    model = tiny_model(V=WORDS, max_positions=2000)
    # The modules that other tests have imported stay as they are.
    monkeypatch.setattr(loaded, "choose_implementation", lambda course, impl, backend: None)
    monkeypatch.setattr(command, "read_pieces", lambda tokenizer, path: pieces.read_pieces(letters, path))
    monkeypatch.setattr(command, "load", lambda *arguments, **how: SimpleNamespace(model=model))
    monkeypatch.setattr(command, "BASE", Form("float32", "float32", as_it_is))
    monkeypatch.setenv("COLUMNS", "120")

    def run_with(*forms: Form, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        monkeypatch.setattr(command, "FORMS", forms)
        code = execute(COMMANDS, ["bench", "quality", "--impl=solution", f"--out={target}", *options])
        out, err = capsys.readouterr()
        return code, out, err

    return run_with


@pytest.fixture
def text(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "mine.txt"
    path.write_text(TEXT)
    return ("--text", str(path))


def test_the_forms_are_compared_and_kept_as_json(run: Run, target: Path, text: tuple[str, ...]) -> None:
    code, out, _ = run(SAME, OTHER, options=text)
    assert code == 0
    assert f"Predicting {len(TEXT) - 1} tokens" in out
    assert "✓ the same: perplexity within 1% of float32's: +0.00%" in out
    assert "✓ the same: float32's greedy token at 97% of the positions, at least: 100.0%" in out
    assert "✗ turned over: float32's greedy token at 97% of the positions, at least: 0.0%" in out
    assert f"kept in {target}" in out
    kept = json.loads(target.read_text())
    assert (kept["bench"], kept["impl"], kept["finished"]) == ("quality", "solution", True)
    assert (kept["quick"], kept["text"], kept["missing"]) == (False, text[1], {})
    assert kept["positions"] == len(TEXT) - 1
    same, other = kept["forms"]
    assert (same["name"], same["perplexity"], same["change"], same["same"]) == (
        "same",
        kept["perplexity"],
        0,
        1,
    )
    assert (same["lead"], same["met"]) == (None, {"perplexity": True, "same": True})
    assert other["same"] == 0
    assert other["lead"] > 0
    assert other["met"] == {"perplexity": False, "same": False}


def test_without_a_text_those_of_the_course_are_predicted_and_quick_takes_the_beginning_of_each(
    run: Run, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SHORT", 20)
    code, out, _ = run(SAME, options=("--quick",))
    kept = json.loads(target.read_text())
    lengths = [len(path.read_text(encoding="utf-8")) for path in pieces.TEXTS.glob("*.txt")]
    count = sum(-(-length // pieces.LONGEST) for length in lengths)
    assert len(lengths) == 5
    assert (code, kept["positions"], kept["quick"], kept["text"]) == (0, count * 19, True, None)
    assert "the same" in out
    assert "✓" not in out, "the bars are for all of the texts"


def test_a_form_that_is_not_written_is_left_out_with_its_task(
    run: Run, target: Path, text: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = SimpleNamespace(message="Week 4 Day 7 Task 3: The multiplication")
    monkeypatch.setattr("benchmarks.quality.measuring.reached_stub", lambda error: stub)
    code, out, _ = run(STUB, SAME, options=text)
    assert code == 0
    assert f"left out: a stub: not written yet ({stub.message})" in out
    kept = json.loads(target.read_text())
    assert kept["missing"] == {"a stub": stub.message}
    assert [form["name"] for form in kept["forms"]] == ["same"]


def test_ctrl_c_keeps_the_forms_that_are_complete(run: Run, target: Path, text: tuple[str, ...]) -> None:
    code, out, err = run(SAME, STOPPED, OTHER, options=text)
    assert code == 130
    assert "Traceback" not in err
    assert f"kept in {target}" in out
    kept = json.loads(target.read_text())
    assert kept["finished"] is False
    assert [form["name"] for form in kept["forms"]] == ["same"]


def test_ctrl_c_before_a_form_is_complete_keeps_and_prints_nothing(
    run: Run, target: Path, text: tuple[str, ...]
) -> None:
    code, out, _ = run(STOPPED, SAME, options=text)
    assert (code, out, target.exists()) == (130, "", False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't read the text in {path}: No such file or directory"),
        (b"\xff\xfe", "can't read the text in {path}: it isn't UTF-8"),
        (b"", "the text in {path} is too short: there is nothing in it to predict"),
        (b"x", "the text in {path} is too short: there is nothing in it to predict"),
    ],
    ids=["missing", "no text", "empty", "one token"],
)
def test_a_text_that_can_not_be_predicted_is_one_line_and_exit_code_2(
    run: Run, target: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "other.txt"
    if content is not None:
        path.write_bytes(content)
    code, out, err = run(SAME, options=("--text", str(path)))
    assert (code, out, err) == (2, "", f"error: {message.format(path=path)}\n")
    assert not target.exists()


@pytest.mark.parametrize("name", ["kept.txt", "kept.svg", "no/such/folder.json/x"])
def test_a_file_that_is_no_json_is_refused_before_anything_is_measured(
    run: Run, name: str, tmp_path: Path
) -> None:
    code, out, err = run(STOPPED, options=(f"--out={tmp_path / name}",))
    assert (code, out) == (2, "")
    assert "it must be a file whose name ends in .json" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_text_longer_than_a_piece_is_predicted_in_pieces(run: Run, target: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("ab" * pieces.LONGEST)
    assert run(SAME, options=("--text", str(path)))[0] == 0
    assert json.loads(target.read_text())["positions"] == 2 * (pieces.LONGEST - 1)


def test_the_packed_form_is_packed_in_bfloat16_and_predicts_as_the_plain_one_does() -> None:
    model, asked = tiny_model(E=64, D=32, F=96, V=48, dtype="bfloat16"), []

    def load_model(**how: Any) -> Any:
        asked.append(how)
        return model

    form = next(form for form in forms.FORMS if form.name == "packed-pages")
    ids = [(5 * i) % 48 for i in range(70)]
    ours, plain = (torch.cat(list(rows)) for rows in (form.make(load_model)(ids), forms.whole(model, ids)))
    assert asked == [{"dtype": "bfloat16"}]
    assert not torch.equal(ours, plain)
    assert float((ours - plain).norm() / plain.norm()) < 0.05


def test_before_the_model_is_written_one_line_names_the_task_that_comes_first(tmp_path: Path) -> None:
    lessons = load_manifest(Course.find()).lessons
    week_1 = Manifest(tuple(lesson for lesson in lessons if lesson.week == 1))
    root = make_copy(tmp_path, week_1)
    done = bench("quality", "--quick", **{ROOT_VARIABLE: str(root)})
    assert done.returncode == 2
    assert "Test it with: pdm run test 1.1.1" in done.stderr
    assert (done.stdout, (root / ".course" / "bench" / "quality.json").exists()) == ("", False)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send to another process")
def test_sigterm_ends_it_with_its_exit_code(target: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "bench", "quality", "--impl", "solution", "--out", str(target)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert process.stderr is not None
    assert "float32" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not target.exists()
