"""`--fast`: the same answer from each program that has it, and what it says where it can't run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import httpx
import pytest
from copies import make_copy
from test_options import NEEDED, faults, results
from test_programs import run
from test_serve import LIMIT, ask, needs_signals, read_until, serving
from test_serve_http import CHAT, serving_http, url_of

from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import ROOT_VARIABLE, Course

QUESTION = "What is the capital of France?"  # the first prompt of batch-main
TOKENS = "8"
FAST = ("--impl", "solution", "--fast", "--max-tokens", TOKENS)
PROGRAMS = ("main", "batch-main", "chat", "serve", "ask-documents", "window")


@pytest.fixture(scope="module")
def answer() -> str:
    """What `main` says to the question, within so few tokens."""
    done = run("main", *FAST, "--prompt", QUESTION)
    assert done.returncode == 0, done.stderr
    said = re.search(rf"37 prompt \+ {TOKENS} output tokens .* model (\d+) MB", done.stderr)
    assert said is not None, done.stderr
    assert 90 < int(said[1]) < 120, "memory counts more than once, or the weights are there twice"
    return done.stdout.strip()


@pytest.mark.parametrize("stage", [(), ("--stage", "served")], ids=str)
def test_batch_main_gives_the_answer_of_main_beside_others(answer: str, stage: tuple[str, ...]) -> None:
    done = run("batch-main", *FAST, *stage)
    assert done.returncode == 0, done.stderr
    assert f"1. {QUESTION}\n{answer}" in done.stdout
    assert "16 of 16 answered" in done.stderr


def test_chat_gives_the_answer(answer: str) -> None:
    done = run("chat", *FAST, text=f"{QUESTION}\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == answer


@needs_signals
def test_a_server_gives_the_answer_over_grpc_and_over_http(answer: str) -> None:
    with serving("--fast") as server:
        port = read_until(server.stderr, r"serving on 127\.0\.0\.1:(\d+)")
        done = ask(port, QUESTION, "--max-tokens", TOKENS)
        assert done.stdout.strip() == answer, done.stderr
    with serving_http("--fast") as server:
        body = {**CHAT, "temperature": 0, "max_tokens": int(TOKENS)}
        reply = httpx.post(f"{url_of(server)}/v1/chat/completions", json=body, timeout=LIMIT).json()
        assert reply["choices"][0]["message"]["content"].strip() == answer


def test_ask_documents_answers_on_pages(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("The orchard behind the mill has forty pear trees. They were planted in 1968.")
    questions = ("How many pear trees are in the orchard?", "When were the pear trees planted?")
    done = run("ask-documents", *questions, "--document", str(note), *FAST)
    assert done.returncode == 0, done.stderr
    assert re.search(r"[1-9]\d* found", done.stderr.splitlines()[1]), "the second question found no pages"


GIVEN = (
    "--dtype=float32",
    "--dtype=bfloat16",
    "--device=cuda",
    "--matmul=plain",
    "--matmul=auto",
    "--attention=cpu",
)
OWN = ("main --cache=full", "main --cache=none", "ask-documents --oracle")
FITTING = (*(f"{name} --device=cpu" for name in ("main", "serve", "serve --http", "window")), "main --bits=4")
ALL_FIT = "main --cache=paged --attention=auto --bits=4 --device=cpu"


def lines_of(commands: list[str]) -> list[list[str]]:
    return [
        [name, *NEEDED.get(name, []), "--impl=solution", "--fast", *rest]
        for name, *rest in (command.split() for command in commands)
    ]


def test_an_option_that_says_something_else_is_one_line_that_names_it() -> None:
    lacking = {"serve": ("--matmul",), "ask-documents": ("--dtype", "--device", "--matmul", "--attention")}
    given = [
        f"{name} {option}"
        for name in PROGRAMS
        for option in GIVEN
        if not option.startswith(lacking.get(name, ("-none",)))
    ]
    commands = [*given, *OWN]
    assert len(commands) == 31
    found = list(results(lines_of(commands)))
    assert faults(found, may_be_taken=False) == []
    for command, (_, _, _, error) in zip(commands, found, strict=True):
        assert f"leave out {command.split()[-1].replace('=', ' ')}\n" in error


def test_a_stage_that_does_not_run_on_pages_by_any_way_to_attend_is_refused_with_those_that_do() -> None:
    found = list(results(lines_of([f"batch-main --stage={name}" for name in ("cached", "paged")])))
    assert faults(found, may_be_taken=False) == []
    for _, _, _, error in found:
        assert "choose one of: served, documents, preempt, extend, ragged, kernel\n" in error


def test_options_that_say_the_same_may_stand_beside_it() -> None:
    found = list(results(lines_of([*PROGRAMS, *FITTING, ALL_FIT, "batch-main --stage=ragged"])))
    assert [(line, code) for line, code, _, _ in found if code != "taken"] == []


def test_before_day_4_7_one_line_names_the_task_that_comes_next(tmp_path: Path) -> None:
    lessons = load_manifest(Course.find()).lessons
    last = Manifest(tuple(lesson for lesson in lessons if (lesson.week, lesson.day) == (4, 7)))
    root = make_copy(tmp_path, last)
    for command in (("main", "--prompt", "x"), ("chat",), ("batch-main",), ("serve",)):
        done = run(*command, "--fast", **{ROOT_VARIABLE: str(root)})
        assert done.returncode == 2
        assert "Week 4 Day 7 Task 1" in done.stderr
        assert done.stderr.count("\n") == 1
    shutil.rmtree(root / "src/tiny_llm/fast")
    done = run("main", "--prompt", "x", "--fast", **{ROOT_VARIABLE: str(root)})
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: your code has no fast engine (tiny_llm.fast, Day 4.7); look at: --impl solution\n"
    )
