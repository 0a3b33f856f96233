"""`pdm run bench peers`: workloads, engines that do well and badly, the tables, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench_runs import bench
from picture_edges import cut_off
from rich.console import Console
from toy_engine import toy

from benchmarks.peers.catalogue import Peer, load_peers
from benchmarks.peers.engine_process import EngineCommand, Measured
from benchmarks.peers.measuring import Engine, Rounds, Start, Turn, best_peer, document, ratio, take_turns
from benchmarks.peers.picture import draw_peers
from benchmarks.peers.report import print_peers
from benchmarks.peers.workloads import WORKLOADS, Workload, choose_workloads
from coursekit.errors import CourseError

SMALL = Workload("chat", "all short", 3, (2, 5), (3, 6))
PROMPT = Workload("prefill", "one prompt", 1, (40, 40), (1, 1), counts_prompts=True)


def rounds(count: int = 1, limit: float = 30.0, workloads: Sequence[Workload] = (SMALL,)) -> Rounds:
    return Rounds(workloads, count, limit, seed=5, quick=False)


def engine(name: str, first: float | None = 0.5, **speeds: Sequence[float]) -> Engine:
    """An engine with made-up figures."""
    made = Engine(name, f"the {name}", EngineCommand([], {}), starts=[Start(4.0, 150_000_000)])
    for workload, values in speeds.items():
        made.turns[workload] = [Turn(speed, Measured(1.0, first, 200_000_000)) for speed in values]
    return made


def printed(engines: Sequence[Engine], workloads: Sequence[Workload], missing: Sequence[Peer] = ()) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        print_peers(console, engines, rounds(workloads=workloads), "own", missing)
    return capture.get()


# The workloads.


def test_the_seed_decides_the_requests_and_no_prompt_of_a_turn_begins_like_one_of_another() -> None:
    for workload in WORKLOADS.values():
        first, again, other = (workload.make(7, turn) for turn in ("round 1", "round 1", "round 2"))
        assert first == again != workload.make(8, "round 1")
        assert {tuple(each.prompt[:2]) for each in first}.isdisjoint(tuple(each.prompt[:2]) for each in other)
        lengths = [[(len(each.prompt), each.max_tokens) for each in made] for made in (first, other)]
        assert lengths[0] == lengths[1], "the turns differ in tokens, not in work"


def test_requests_have_the_lengths_of_their_workload() -> None:
    chat = WORKLOADS["chat"].make(0, "round 1")
    assert len(chat) == 32
    assert all(20 <= len(each.prompt) <= 120 and 16 <= each.max_tokens <= 128 for each in chat)
    assert [len(each.prompt) for each in WORKLOADS["prefill"].make(0, "round 1")] == [2048]
    assert all(len(each.prompt) + each.max_tokens <= WORKLOADS["mixed"].room for each in chat)
    assert len(WORKLOADS["chat"].make(0, "round 1", quick=True)) == 8


def test_prompts_of_shared_have_exactly_the_common_tokens_in_common() -> None:
    prompts = [each.prompt for each in WORKLOADS["shared"].make(0, "round 1")]
    assert len({tuple(prompt[:512]) for prompt in prompts}) == 1
    assert len({prompt[512] for prompt in prompts}) > 28
    assert {len(prompt) - 512 for prompt in prompts} <= set(range(20, 61))


def test_a_warm_up_has_as_many_requests_short_ones_but_a_measured_prompt_whole() -> None:
    for workload in WORKLOADS.values():
        warm_up = workload.warm_up(0)
        assert len(warm_up) == workload.requests
        longest = 2048 if workload.counts_prompts else 64
        assert max(len(each.prompt) for each in warm_up) <= longest
        assert max(each.max_tokens for each in warm_up) <= 4
    assert len(WORKLOADS["prefill"].warm_up(0)[0].prompt) == 2048


def test_a_workload_is_described_with_the_requests_that_come() -> None:
    chat = WORKLOADS["chat"]
    assert chat.described(quick=False) == "chat: 32 requests, short prompts, output tokens"
    assert chat.described(quick=True) == "chat: 8 requests, short prompts, output tokens"


def test_only_chooses_columns_in_the_order_of_the_table() -> None:
    assert [each.name for each in choose_workloads("shared, single")] == ["single", "shared"]
    assert choose_workloads(None) == list(WORKLOADS.values())
    with pytest.raises(CourseError, match="--only names 'fast'; there are: single, chat, "):
        choose_workloads("chat,fast")


# The engines.


def test_engines_take_turns_and_every_other_round_goes_backwards() -> None:
    engines = [toy("own"), toy("peer")]
    said = list(take_turns(engines, rounds(2, workloads=(SMALL, PROMPT))))
    starts = [line for line in said if line.endswith("starting")]
    assert starts == [
        "round 1 of 2: own, starting",
        "round 1 of 2: peer, starting",
        "round 2 of 2: peer, starting",
        "round 2 of 2: own, starting",
    ]
    assert len(said) == 2 * 2 * (1 + 2)
    for each in engines:
        assert {name: len(turns) for name, turns in each.turns.items()} == {"chat": 2, "prefill": 2}
        assert len(each.starts) == 2
        assert each.failed is None


def test_the_speed_is_output_tokens_per_second_and_prompt_tokens_where_prompts_are_measured() -> None:
    made = toy("own", seconds=0.05)
    list(take_turns([made], rounds(workloads=(SMALL, PROMPT))))
    chat, prefill = made.turns["chat"][0], made.turns["prefill"][0]
    outputs = sum(each.max_tokens for each in SMALL.make(5, "round 1"))
    assert chat.speed == pytest.approx(outputs / chat.measured.seconds)
    assert prefill.speed == pytest.approx(40 / prefill.measured.seconds)
    assert chat.measured.seconds >= 0.05
    assert 0.05 <= (chat.measured.first or 0.0) <= chat.measured.seconds


def test_an_engine_that_does_not_stream_has_no_first_token() -> None:
    made = toy("own", streams=False)
    list(take_turns([made], rounds()))
    assert made.speed("chat") is not None
    assert made.first("chat") is None


MEGABYTES = 80


def test_the_memory_is_the_peak_of_the_workload_and_of_all_the_engine_s_processes() -> None:
    plain, child = toy("own"), toy("own", child=MEGABYTES)
    list(take_turns([plain], rounds()))
    list(take_turns([child], rounds(workloads=(SMALL, PROMPT))))
    few, many, after = plain.memory("chat"), child.memory("chat"), child.memory("prefill")
    assert few is not None
    assert many is not None
    assert after is not None
    assert 1e6 < few < 60e6
    if sys.platform == "linux":
        assert many - few > MEGABYTES * 0.9e6
        assert many - after > MEGABYTES * 0.9e6, "the process was there for the workload before"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no start", "it has ended with exit code 1\n    loading no start\n    no such model"),
        ("dies", "it has ended with exit code 7\n    loading dies\n    out of memory"),
        ("garbage", "it said what is no answer: 'Segmentation fault, or so'\n    loading garbage"),
        ("too few tokens", r"it gave \d tokens for request 1, which asks for \d"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="the toy finds its pipe by means that Windows has not")
def test_an_engine_that_fails_says_why_with_its_last_words_and_the_others_go_on(
    fault: str, reason: str
) -> None:
    engines = [toy("own"), toy("bad", fault), toy("good")]
    list(take_turns(engines, rounds(2)))
    own, bad, good = engines
    assert re.match(reason, bad.failed or "")
    assert "chat" not in bad.turns
    assert (len(own.turns["chat"]), len(good.turns["chat"])) == (2, 2)
    assert (own.failed, good.failed) == (None, None)


@pytest.mark.parametrize("fault", ["hangs", "never ready"])
def test_an_engine_that_takes_too_long_is_ended_and_reported(tmp_path: Path, fault: str) -> None:
    note = tmp_path / "processes"
    made = toy("bad", fault, note=str(note))
    list(take_turns([made], rounds(limit=2)))
    assert (made.failed or "").startswith("it took longer than 2 s\n    loading")
    assert gone(int(note.read_text()))


def test_breaking_off_ends_the_engine_and_keeps_what_it_has_measured(tmp_path: Path) -> None:
    note = tmp_path / "processes"
    made = toy("own", note=str(note))
    steps = take_turns([made], rounds(workloads=(SMALL, PROMPT)))
    assert next(line for line in steps if "prefill" in line)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert list(made.turns) == ["chat"]
    assert gone(int(note.read_text()))


def gone(process: int) -> bool:
    """Whether no such process is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


# Tables, picture and JSON.


@pytest.fixture
def engines() -> list[Engine]:
    return [
        engine("own", chat=[90, 100, 200], prefill=[300]),
        engine("slow", chat=[40, 50, 10], prefill=[400], first=None),
        engine("fast", chat=[75, 80, 85]),
    ]


def test_the_ratio_is_the_own_median_over_the_best_other_one(engines: list[Engine]) -> None:
    assert best_peer(engines, "own", "chat") == 80
    assert ratio(engines, "own", "chat") == 1.25
    assert ratio(engines, "own", "prefill") == 0.75
    assert ratio(engines, "own", "mixed") is None
    assert ratio(engines[:1], "own", "chat") is None, "there is no other"
    assert ratio(engines[1:], "own", "chat") is None, "the own one was not measured"


def test_the_table_marks_the_best_of_each_column_and_ends_with_the_ratios(engines: list[Engine]) -> None:
    lines = [line.split() for line in printed(engines, [SMALL, PROMPT]).splitlines()]
    assert ["the", "own", "100*", "300"] in lines
    assert ["the", "slow", "40", "400*"] in lines
    assert ["the", "fast", "80", "–"] in lines
    assert ["this", "course's,", "×", "best", "peer", "1.25", "0.75"] in lines
    assert ["the", "slow", "–", "–"] in lines, "its seconds to the first token"
    assert ["the", "own", "200*", "200*"] in lines, "its megabytes"
    assert ["the", "fast", "4.0", "150"] in lines, "its seconds and megabytes until it was ready"


def test_without_another_engine_there_is_neither_a_mark_nor_a_ratio(engines: list[Engine]) -> None:
    text = printed(engines[:1], [SMALL])
    assert "100*" not in text
    assert "best peer" not in text


def test_what_failed_and_what_is_not_installed_is_named_with_the_command_that_installs_it(
    engines: list[Engine],
) -> None:
    engines[1].failed = "it took longer than 2 s\n    [loading]"
    peer = Peer("warp", "Warp", "8-bit", Path("warp.py"), ("warp==1.5", "more==2"))
    text = printed(engines, [SMALL], [peer])
    assert "failed: the slow: it took longer than 2 s\n    [loading]\n" in text
    assert "not installed: Warp 1.5, 8-bit; to have it: pdm run bench peers --with warp\n" in text


def test_the_json_holds_every_turn(engines: list[Engine]) -> None:
    kept = json.loads(json.dumps(document(engines, rounds(workloads=(SMALL, PROMPT)), "own")))
    assert kept["workloads"] == {
        "chat": "chat: 3 requests, all short, output tokens",
        "prefill": "prefill: 1 request, one prompt, prompt tokens",
    }
    assert kept["ratios"] == {"chat": 1.25, "prefill": 0.75}
    own, slow, fast = kept["engines"]
    assert own["workloads"]["chat"]["tokens_per_second"] == 100
    assert [turn["tokens_per_second"] for turn in own["workloads"]["chat"]["turns"]] == [90, 100, 200]
    assert slow["workloads"]["chat"]["first"] is None
    assert list(fast["workloads"]) == ["chat"]


def test_the_picture_is_an_svg_and_leaves_out_workloads_that_were_not_measured(engines: list[Engine]) -> None:
    mixed = WORKLOADS["mixed"]
    pictures = [
        draw_peers(engines, rounds(workloads=chosen), "own", "two cores")
        for chosen in ([SMALL], [SMALL, mixed])
    ]
    roots = [ElementTree.fromstring(picture) for picture in pictures]
    assert roots[0].tag == "{http://www.w3.org/2000/svg}svg"
    assert roots[0].get("height") == roots[1].get("height")


def test_no_text_of_the_picture_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = cut_off(monkeypatch)
    labels = {"own": "this course's, fast", "other": "transformers 5.19.0, static batches, bfloat16"}
    fastest: Any = {name: [12_345.0 if WORKLOADS[name].counts_prompts else 1234.0] for name in WORKLOADS}
    made = [replace(engine(name, **fastest), label=label) for name, label in labels.items()]
    draw_peers(made, rounds(workloads=list(WORKLOADS.values())), "own", "two cores")
    assert beyond == []


# The command.


DRIVER = """
import sys
from benchmarks.__main__ import COMMANDS
from benchmarks.peers import command
from coursekit.cli import run
from toy_engine import toy

note = sys.argv.pop()
command.make_engines = lambda *_: [
    toy("tiny-llm", note=note), toy("bad", "dies", note=note), toy("slow", seconds=1.0, note=note)
]
run(COMMANDS)
"""
"""Runs the command on toys."""


def start_toys(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    arguments = ["bench", "peers", "--impl", "solution", "--out", str(tmp_path / "mine.json"), *options]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments, str(tmp_path / "processes")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={
            **os.environ,
            "COLUMNS": "140",
            "TINY_LLM_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
        },
    )


def test_bench_peers_prints_the_table_and_keeps_it_with_the_picture(tmp_path: Path) -> None:
    process = start_toys(tmp_path, "--quick", "--only", "chat,prefill")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert re.search(r"^the tiny-llm +[\d,]+\* +[\d,]+\*$", output, re.MULTILINE)
    assert "failed: the bad: it has ended with exit code 7\n    loading dies\n    out of memory\n" in output
    for name, peer in load_peers().items():
        assert f"not installed: {peer.label}; to have it: pdm run bench peers --with {name}\n" in output
    kept = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
    assert (kept["finished"], kept["rounds"], kept["missing"]) == (True, 1, list(load_peers()))
    assert list(kept["ratios"]) == ["chat", "prefill"]
    assert (tmp_path / "mine.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send to another process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_bench_peers_with_all_its_processes_and_keeps_what_is_measured(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start_toys(tmp_path, "--only", "single,chat")
    assert process.stderr is not None
    said = next(line for line in process.stderr if "round 1 of 3: slow, chat" in line)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, said + errors
    assert re.search(r"^the slow +[\d,]+ +– *$", output, re.MULTILINE)
    kept = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
    assert not kept["finished"]
    processes = [int(line) for line in (tmp_path / "processes").read_text().split()]
    assert len(processes) == 3
    assert eventually(lambda: all(gone(each) for each in processes))
    assert "Traceback" not in errors


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--with", "warp"], "--with names 'warp'; there are: transformers, openvino"),
        (["--only", "fast"], "--only names 'fast'; there are: single, chat"),
        (["--out", "mine.svg"], "--out is 'mine.svg'"),
    ],
)
def test_what_does_not_fit_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = bench("peers", "--impl", "solution", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
