"""`pdm run ask-documents` as its user meets it: in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from copies import make_copy

from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course

COMMAND = [sys.executable, "-m", "programs", "ask-documents"]
COUNTS = re.compile(
    r"prompt of (\d+) tokens · (\d+) computed, (\d+) found · (\d+) output tokens · first after [\d.]+ s"
)
PEARS = "How many pear trees are in the orchard?"


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100", **variables}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, encoding="utf-8", env=environment, timeout=100
    )


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "note 2.md").write_text(
        "The orchard behind the mill has forty pear trees. They were planted in 1968."
    )
    (folder / "note 10.txt").write_text("The baker of the village is called Brandt. He bakes on Saturdays.")
    return folder


def test_a_second_question_finds_the_documents_of_the_first_one(notes: Path) -> None:
    ask = ("--impl", "solution", "--document", str(notes), "--max-tokens", "20")
    done = run(*ask, PEARS, "Who is the baker?")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"{PEARS}\n  The orchard behind the mill has 40 pear trees.\n"
        "Who is the baker?\n  The baker of the village is called Brandt.\n"
    )
    first, second = (tuple(map(int, each)) for each in COUNTS.findall(done.stderr))
    assert second[1] < first[1] / 2, "most of the second prompt was computed for the first one"
    assert second[2] > first[2]
    assert min(first[3], second[3]) > 5


def test_the_oracle_gives_the_same_answer_and_computes_the_whole_prompt(notes: Path) -> None:
    ask = ("--impl", "solution", "--document", str(notes), "--max-tokens", "20", PEARS)
    pages, oracle = run(*ask), run(*ask, "--oracle")
    assert pages.returncode == oracle.returncode == 0, oracle.stderr
    assert pages.stdout == oracle.stdout == "The orchard behind the mill has 40 pear trees.\n"
    counts = COUNTS.search(oracle.stderr)
    assert counts is not None
    assert counts[1] == counts[2]
    assert counts[3] == "0"


def test_raw_segments_at_offsets_and_a_document_that_loses_its_end(notes: Path) -> None:
    way = ("--strategy", "offset", "--max-chunk-len", "8", "--truncate", "--raw", "--system", "Notes.\n")
    documents = ("--document", str(notes / "note 2.md"), "--document", str(notes / "note 10.txt"))
    ask = ("--impl", "solution", *way, *documents, "--max-tokens", "3", "The notes say that")
    pages, oracle = run(*ask), run(*ask, "--oracle")
    assert pages.returncode == oracle.returncode == 0, pages.stderr
    assert pages.stdout == oracle.stdout
    counts = COUNTS.search(oracle.stderr)
    assert counts is not None
    assert counts[1] == str(3 + 2 * 8 + 4), "system text, two documents of 8 tokens, and the question"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--document", "none.txt", "Why?"), "there is no file or folder none.txt"),
        (("Why?",), "Missing option '--document'"),
        (("--document", "{}"), "Missing argument 'questions'"),
        (("--document", "{}", " "), "the question is empty"),
        (("--document", "{}", "Why?", "--truncate"), "--strategy offset and --truncate need --max-chunk-len"),
        (("--document", "{}", "Why?", "--strategy", "offset"), "--strategy offset and --truncate need"),
        (("--document", "{}", "Why?", "--strategy", "far"), "Invalid value for '--strategy'"),
        (
            ("--document", "{}", "Why?", "--max-chunk-len", "10"),
            "or let it be truncated (it is {}/note 2.md; see --truncate)",
        ),
        (
            ("--document", "{}", "Why?", "--strategy", "offset", "--max-chunk-len", "9000"),
            "the last one that fits this model is 8190",
        ),
        (
            ("--document", "{}", "Why?", "--strategy", "offset", "--max-chunk-len", "9000", "--oracle"),
            "at most 8191 fit this model",
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    notes: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run("--impl", "solution", *(each.format(notes) for each in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert message.format(notes) in done.stderr
    assert done.stderr.count("\n") == 1


def test_on_unwritten_code_the_program_says_which_day_comes_first(notes: Path, tmp_path: Path) -> None:
    course = make_copy(tmp_path / "untouched", load_manifest(Course.find()))
    done = run("--document", str(notes), "Why?", **{ROOT_VARIABLE: str(course)})
    assert (done.returncode, done.stdout) == (2, "")
    assert "pdm run test 1.1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to another process")
def test_ctrl_c_stops_the_answer_with_the_counts_so_far(notes: Path) -> None:
    ask = [
        "--impl",
        "solution",
        "--document",
        str(notes),
        "--raw",
        "--max-tokens",
        "2000",
        "Once upon a time",
    ]
    process = subprocess.Popen(
        [*COMMAND, *ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert COUNTS.search(errors)
    assert "Traceback" not in errors
