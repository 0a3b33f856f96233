"""`pdm run main`, `batch-main`, `smoke` and `doctor` as their users meet them: in a process of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from copies import make_copy

from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from programs.prompts import PROMPTS, SHORT
from tiny_llm.cache_folder import cache_folder

COMMAND = [sys.executable, "-m", "programs"]
SPEEDS = re.compile(r"(\d+) prompt \+ (\d+) output tokens · first after [\d.]+ s · [\d.]+ tokens/s")


PAGED = ("main", "--impl", "solution", "--prompt", "x", "--cache", "paged")


def run(*arguments: str, text: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with some text as its input, and with some variables set."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100", **variables},
        timeout=100,
    )


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course in which the learner has written nothing."""
    return make_copy(tmp_path_factory.mktemp("untouched"), load_manifest(Course.find()))


@pytest.fixture(scope="module")
def after_week_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course in which the learner has done the first week."""
    lessons = load_manifest(Course.find()).lessons
    later = Manifest(tuple(lesson for lesson in lessons if lesson.week > 1))
    return make_copy(tmp_path_factory.mktemp("after_week_1"), later)


def test_main_streams_the_answer_and_ends_with_the_speeds() -> None:
    done = run(
        "main", "--impl", "solution", "--prompt", "What is the capital of France?", "--max-tokens", "12"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The capital of France is Paris.\n"
    speeds = SPEEDS.search(done.stderr)
    assert speeds is not None
    assert speeds.groups() == ("37", "8")


def test_a_seed_draws_the_same_raw_continuation_twice() -> None:
    ask = ("main", "--impl", "solution", "--raw", "--prompt", "Once upon a", "--max-tokens", "5")
    draws = ("--temperature", "1.5", "--top-k", "50", "--seed", "11")
    first, second = run(*ask, *draws), run(*ask, *draws)
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert first.stdout.startswith("Once upon a")
    assert first.stdout != "Once upon a\n"


def test_with_mlx_the_answer_is_the_same() -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    ask = ("main", "--impl", "solution", "--prompt", "What is the capital of France?", "--max-tokens", "6")
    plain, mlx = run(*ask), run(*ask, "--backend", "mlx")
    assert mlx.returncode == 0, mlx.stderr
    assert mlx.stdout == plain.stdout != ""


@pytest.mark.parametrize("matmul", ["auto", "plain"])
def test_with_mlx_and_4_bits_the_answer_is_the_same(matmul: str) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    ask = ("main", "--impl", "solution", "--bits", "4", "--prompt", "Why is it blue?", "--max-tokens", "6")
    plain, mlx = run(*ask, "--matmul", "plain"), run(*ask, "--matmul", matmul, "--backend", "mlx")
    assert mlx.returncode == 0, mlx.stderr
    assert mlx.stdout == plain.stdout != ""
    assert "model 182 MB" in mlx.stderr


def test_a_repetition_penalty_changes_the_answer() -> None:
    ask = ("main", "--impl", "solution", "--raw", "--prompt", "One two one two one", "--max-tokens", "4")
    plain, penalized = run(*ask), run(*ask, "--repetition-penalty", "100")
    assert plain.returncode == penalized.returncode == 0, penalized.stderr
    assert plain.stdout.startswith("One two one two one")
    assert penalized.stdout.startswith("One two one two one")
    assert penalized.stdout != plain.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("main", "--impl", "solution", "--prompt", "x", "--top-p", "3"), "Invalid value for '--top-p'"),
        (("main", "--impl", "solution", "--prompt", "", "--raw"), "the prompt is empty"),
        (("main", "--impl", "solution", "--prompt", ""), "the prompt is empty"),
        (("main", "--impl", "solution", "--prompt", "x", "--bits", "8"), "in 4 bits, not in 8"),
        (("main", "--impl", "solution", "--prompt", "x", "--matmul", "kernel"), "ask for 4 bits too"),
        (("main", "--impl", "solution", "--prompt", "x", "--model", "no/such/model.gguf"), "no model at"),
        (("batch-main", "--impl", "solution", "--temperature", "-1"), "Invalid value for '--temperature'"),
        (
            ("batch-main", "--impl", "solution", "--stage", "warp"),
            "there is no stage 'warp'; there are: served, documents, preempt, extend, ragged, kernel",
        ),
        (
            (*PAGED, "--attention", "cpu", "--dtype", "float16"),
            "the cpu way to attend takes float32 and bfloat16 on the CPU, not float16",
        ),
        (
            (*PAGED, "--attention", "metal"),
            "there is no way 'metal' to attend; choose one of: auto, reference, cpu, triton, tiled",
        ),
        (
            ("main", "--impl", "solution", "--prompt", "x", "--backend", "mlx", "--cache", "paged"),
            "--backend mlx has no --cache paged: choose none or full",
        ),
        (
            ("main", "--prompt", "x", "--backend", "mlx", "--fast"),
            "--backend mlx has no --fast: leave it out",
        ),
        (
            ("main", "--prompt", "x", "--backend", "mlx", "--attention", "cpu"),
            "--backend mlx has no --attention: leave it out",
        ),
        (
            ("main", "--prompt", "x", "--backend", "mlx", "--matmul", "kernel"),
            "--backend mlx has no --matmul kernel: choose auto or plain",
        ),
        (
            ("main", "--impl", "solution", "--prompt", "x", "--backend", "mlx", "--matmul", "plain"),
            "'plain' is a way to multiply 4-bit weights: ask for 4 bits too, or leave it out",
        ),
        (
            ("main", "--prompt", "x", "--backend", "mlx", "--device", "cuda"),
            "--backend mlx runs with --device cpu",
        ),
        (
            ("smoke", "--backend", "mlx", "--stage", "served"),
            "the MLX track covers days 1.1–4.5",
        ),
        (
            ("smoke", "--impl", "solution", "--backend", "mlx", "--stage", "kernel", "--attention", "cpu"),
            "with MLX there is no way 'cpu' to attend; choose one of: auto, reference, metal, metal-tiles",
        ),
        (("smoke", "--stage", "warp"), "there is no stage 'warp'; there are: recompute, cached"),
        (
            ("main", "--impl", "solution", "--prompt", "x", "--cache", "fused", "--dtype", "float16"),
            "--cache fused runs on the CPU, in float32 or bfloat16, not in float16 on cpu: use --cache full",
        ),
        (
            ("steps", "--impl", "solution", "--lengths", "9000"),
            "the prompt has 9000 tokens; at most 8191 fit this model",
        ),
        (
            ("steps", "--lengths", "20,9", "--common", "12"),
            "--common is 12; the shortest of the prompts has 9",
        ),
        (("warp",), "there is no command 'warp'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    "command", [("main", "--prompt", "x"), ("chat",), ("batch-main",), ("smoke",), ("steps",)]
)
def test_on_unwritten_code_the_programs_say_which_day_comes_first(
    untouched: Path, command: tuple[str, ...]
) -> None:
    done = run(*command, **{ROOT_VARIABLE: str(untouched)})
    assert done.returncode == 2
    assert "pdm run test 1.1" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_learner_without_day_2_1_is_told_what_comes_next_and_what_runs_already(after_week_1: Path) -> None:
    ask = ("main", "--prompt", "What is the capital of France?", "--max-tokens", "3")
    done = run(*ask, **{ROOT_VARIABLE: str(after_week_1)})
    assert done.returncode == 2
    assert "First comes Week 2 Day 1 Task 1, Storage that grows." in done.stderr
    assert done.stderr.endswith("What you have runs with --cache none\n")
    done = run(*ask, "--cache", "none", **{ROOT_VARIABLE: str(after_week_1)})
    assert (done.returncode, done.stdout) == (0, "The capital of\n"), done.stderr


def test_before_day_1_6_nothing_is_said_of_an_option_that_would_not_help(untouched: Path) -> None:
    done = run("main", "--prompt", "x", **{ROOT_VARIABLE: str(untouched)})
    assert "--cache" not in done.stderr


def test_smoke_runs_the_stages_that_are_there_and_names_the_next_day(after_week_1: Path) -> None:
    done = run("smoke", **{ROOT_VARIABLE: str(after_week_1)})
    assert done.returncode == 0, done.stderr
    assert re.search(r"^S0 +recompute .* the same", done.stdout, re.MULTILINE)
    assert "S1 cached comes with Day 2.1. Next: Week 2 Day 1 Task 1, Storage that grows." in done.stdout
    assert not re.search(r"^S[1-9] +\w+ +[\d.]+ ", done.stdout, re.MULTILINE)


def test_smoke_explains_the_stub_of_a_stage_that_is_asked_for(after_week_1: Path) -> None:
    done = run("smoke", "--stage", "cached", **{ROOT_VARIABLE: str(after_week_1)})
    assert done.returncode == 2
    assert "Week 2 Day 1 Task 4: Generate with a cache" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "options", [("none",), ("fused",), ("paged",), ("paged", "--attention", "reference")], ids=" ".join
)
def test_every_kind_of_cache_gives_the_same_answer(options: tuple[str, ...]) -> None:
    ask = ("main", "--impl", "solution", "--prompt", "What is the capital of France?", "--max-tokens", "12")
    done = run(*ask, "--cache", *options)
    assert (done.returncode, done.stdout) == (0, "The capital of France is Paris.\n"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to another process")
def test_ctrl_c_stops_main_with_the_speeds_so_far() -> None:
    ask = ["main", "--impl", "solution", "--prompt", "Tell me a long story.", "--max-tokens", "2000"]
    process = subprocess.Popen(
        [*COMMAND, *ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert SPEEDS.search(errors)
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("stage", "last"),
    [
        ("continuous", "copied"),
        ("paged", "runs of the model"),
        ("kernel", "pages with tokens"),
        ("served", "tokens reused"),
    ],
)
def test_batch_main_answers_all_prompts_in_order_and_ends_with_the_times(stage: str, last: str) -> None:
    bounds = ("--max-tokens", "9", "--seats", "3", "--chunk", "200")
    done = run("batch-main", "--impl", "solution", "--stage", stage, *bounds)
    assert done.returncode == 0, done.stderr
    places = [
        done.stdout.index(f"{number}. {line.partition(chr(10))[0]}") for number, line in enumerate(PROMPTS, 1)
    ]
    assert places == sorted(places)
    assert "1. What is the capital of France?\nThe capital of France is Paris." in done.stdout
    assert re.search(rf"^requests +{len(PROMPTS)}", done.stdout, re.MULTILINE)
    for name in (
        "output tokens per second",
        "first token, mean",
        "first token, worst",
        "worst gap",
        last,
    ):
        assert re.search(rf"{name}.* \d[\d,.]*", done.stdout), name
    assert f"{len(PROMPTS)} of {len(PROMPTS)} answered" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_batch_main_prints_the_tree_of_pages_and_what_was_reused() -> None:
    system = "Answer in one short sentence, in plain words, and never make a list of anything at all."
    bounds = ("--max-tokens", "2", "--seats", "3", "--chunk", "400")
    done = run("batch-main", "--impl", "solution", "--stage", "extend", "--trie", "--system", system, *bounds)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^the tree: \d+ of \d+ pages of 16 tokens; 0 are held$", done.stdout, re.MULTILINE)
    assert re.search(r"^└── requests 1-16: .*: system Answer in one short", done.stdout, re.MULTILINE)
    assert re.search(r"^    └── request 16: ", done.stdout, re.MULTILINE)
    reused = re.search(r"^tokens reused +([\d,]+)", done.stdout, re.MULTILINE)
    assert reused is not None
    assert int(reused[1].replace(",", "")) >= 15 * 16, "all but the first request find the system message"
    assert "pages evicted" in done.stdout
    assert "preemptions" not in done.stdout


@pytest.mark.parametrize("option", ["--seats", "--chunk", "--max-tokens"])
def test_batch_main_refuses_a_bound_of_zero(option: str) -> None:
    done = run("batch-main", option, "0")
    assert done.returncode == 2
    assert option in done.stderr


def test_batch_main_before_week_2_answers_the_short_prompts_and_names_the_next_day(
    after_week_1: Path,
) -> None:
    done = run("batch-main", "--max-tokens", "2", **{ROOT_VARIABLE: str(after_week_1)})
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^requests +{len(SHORT)}", done.stdout, re.MULTILINE)
    assert "everything recomputed for each token" in done.stdout
    assert "pdm run test 2.1" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to another process")
@pytest.mark.parametrize("options", [(), ("--stage", "extend", "--trie")], ids=" ".join)
def test_ctrl_c_stops_batch_main_with_the_answers_so_far(options: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "batch-main", "--impl", "solution", "--max-tokens", "500", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "1 of 16 answered" in line:
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The capital of France is Paris." in output
    begun = [at for at, line in enumerate(PROMPTS, 1) if f"{at}. {line.partition(chr(10))[0]}" in output]
    assert begun == list(range(1, len(begun) + 1)), "an answer that has begun before another is lost"
    assert re.search(r"output tokens per second +[\d.]+", output)
    assert "Traceback" not in errors
    tree = re.search(r"^the tree: (\d+) of \d+ pages of 16 tokens; (\d+) are held$", output, re.MULTILINE)
    assert (tree is not None) == ("--trie" in options)
    if tree is not None:
        assert int(tree[1]) > 0, "the requests have left no page in the tree"
        assert tree[2] == "0", "a request that was stopped still holds pages"
        assert re.search(r"^[├└]── requests? [\d,… -]+: ", output, re.MULTILINE)
        assert "held by " not in output.replace("held by no request", "")


def diagnosis(cache: Path) -> str:
    """What the doctor prints, with a cache folder that holds nothing but the kernels compiled so far."""
    kernels = cache_folder() / "kernels"
    done = run("doctor", TINY_LLM_CACHE=str(cache), NUMBA_CACHE_DIR=str(kernels), COLUMNS="80")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_doctor_lists_what_it_looked_for(tmp_path: Path) -> None:
    found = diagnosis(tmp_path)
    for name in ("Python", "torch", "threads", "GPU", "Triton", "MLX", "model", "fast form"):
        assert re.search(rf"[✓–]\s+{name}\b", found), name


def test_the_doctor_shows_how_fast_each_form_is_and_measures_it_once(tmp_path: Path) -> None:
    first, again = diagnosis(tmp_path), diagnosis(tmp_path)
    chosen = re.search(r"fast form\s+(float32|bfloat16|8-bit): [\d.]+ times as fast as", first)
    assert chosen, first
    for found in (first, again):
        assert re.search(r"µs, rows/s +1 row +32 rows +512 rows", found)
        for form in ("float32", "bfloat16", "8-bit"):
            assert re.search(rf"\s{form}( +[\d,]+){{6}}\s", found), form
    assert again == first, "other figures: they were measured again"
    assert str(tmp_path) in "".join(first.split())
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_the_doctor_says_so_where_figures_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = diagnosis(tmp_path / "file" / "cache")
    assert re.search(r"–\s+fast form", found)
    assert "TINY_LLM_CACHE" in found


def test_help_lists_every_program() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("main", "chat", "batch-main", "serve", "ask", "ask-documents", "smoke", "steps", "doctor"):
        assert f"pdm run {name}" in done.stdout
