"""`pdm run steps`: the chapter's walkthrough, from a run of the real model, and what it shows of other runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs.steps import ChunkRow, StepRow, make_requests, make_table, parse_lengths, summary
from programs.steps import steps as run_command

WALKTHROUGH = """\
step      positions  q_len  kv_len  pages  packed  padded  efficiency
0     R1      0…127    128     128      8
      R2      0…127    128     128      8     256     256     100.0 %
1     R1    128…249    122     250     16
      R2    128…255    128     256     16     250     256      97.7 %
2     R2    256…299     44     300     19      44      48      91.7 %

3 steps · 550 tokens packed · 560 padded · efficiency 98.2 %
"""


def steps(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "programs", "steps", "--impl", "solution", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100"},
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return re.sub(" +$", "", done.stdout, flags=re.MULTILINE)


def test_two_prompts_in_chunks_give_the_walkthrough_of_the_chapter() -> None:
    assert steps("--lengths", "250,300", "--chunk", "128", "--budget", "256") == WALKTHROUGH


def test_prompts_with_common_tokens_compute_them_once() -> None:
    options = ("--common", "64", "--budget", "200", "--chunk", "200", "--max-tokens", "2", "--page-size", "8")
    lines = [line.split() for line in steps("--lengths", "70,75", *options).splitlines()]
    assert lines[0][:4] == ["step", "found", "positions", "q_len"]
    assert lines[1] == ["0", "R1", "0", "0…69", "70", "70", "9"]
    assert lines[2] == ["R2", "64", "64…74", "11", "75", "10", "81", "144", "56.2", "%"]
    assert lines[3] == ["1", "R1", "0", "70", "1", "71", "9"]
    assert lines[-1][-6:] == ["64", "tokens", "found", "in", "the", "tree"]


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    chunk = ChunkRow(request=64, found=8000, start=4000, q_len=4000, pages=1000)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(make_table([StepRow([chunk], 4000, 4000)], found=True))
    heading, row = capture.get().splitlines()
    assert heading.split()[-1] == "efficiency"
    assert row.split()[2:5] == ["8000", "4000…7999", "4000"]


def test_the_sums_go_over_all_steps() -> None:
    rows = [StepRow([ChunkRow(1, 0, 0, 3, 1)], 3, 4), StepRow([ChunkRow(1, 4, 7, 1, 2)], 1, 4)]
    assert summary(rows).strip() == (
        "2 steps · 4 tokens packed · 8 padded · efficiency 50.0 % · 4 tokens found in the tree"
    )
    assert summary(rows[:1]).strip() == "1 step · 3 tokens packed · 4 padded · efficiency 75.0 %"


def test_prompts_are_the_same_each_time_and_begin_with_the_common_tokens() -> None:
    config = SimpleNamespace(vocab_size=1000, max_positions=50)
    loaded: Any = SimpleNamespace(model=SimpleNamespace(config=config))
    first, second = (
        [request.prompt_ids for request in make_requests(loaded, [20, 30, 15], 15, 1)] for _ in range(2)
    )
    assert first == second
    assert [len(ids) for ids in first] == [20, 30, 15]
    assert first[0][:15] == first[1][:15] == first[2]
    assert first[0][15] != first[1][15]
    with pytest.raises(CourseError, match="at most 49 fit"):
        make_requests(loaded, [20, 51], 0, 1)


def test_the_shortest_prompt_may_be_common_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(impl: Impl) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("programs.steps.running", begin)
    with pytest.raises(KeyboardInterrupt):
        run_command(lengths="5,7", common=5)
    with pytest.raises(typer.BadParameter, match="the shortest of the prompts has 5 tokens"):
        run_command(lengths="5,7", common=6)


def test_lengths_are_numbers_with_commas_between_them() -> None:
    assert parse_lengths("250, 300") == [250, 300]


@pytest.mark.parametrize(
    "text", ["", "x", "0", "5,0", "-1", "1.5", "5,,6", "٣", ",".join(["1"] * 65), "1" * 9]
)
def test_other_lengths_are_refused(text: Any) -> None:
    with pytest.raises(typer.BadParameter):
        parse_lengths(text)
