"""`pdm run bench`: rounds, statistics, tables, JSON and picture, on made-up numbers and a tiny random model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from bench_runs import bench
from copies import make_copy
from rich.console import Console
from toy_model import tiny_model
from toy_ways import FittingTokenizer

from benchmarks import documents, host, preemption, serving, shares, sharing, stages, start, week_2, week_3
from benchmarks.command import BARS, LADDERS, all_cases, choose
from benchmarks.ladder import TOKENS_PER_SECOND, WORST_GAP, Bar, Ladder, Quantity, outcomes
from benchmarks.machine import busy, describe_machine, machine_line
from benchmarks.picture import draw
from benchmarks.report import document, print_report
from benchmarks.rounds import WARM_UP_TOKENS, Case, Record, Samples, run_rounds, spread
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course

if TYPE_CHECKING:
    from tiny_llm.request import Request

LADDER = Ladder("one", "One request", (TOKENS_PER_SECOND, WORST_GAP))
STUB = "Week 2 Day 5 Task 3: The kernel"


def case(name: str, log: list[tuple[str, int]], error: BaseException | None = None, at: int = 0) -> Case:
    """A case that writes down when it runs with how many tokens; from the `at`-th run on it raises `error`."""
    runs = 0

    def run(tokens: int) -> dict[str, float]:
        nonlocal runs
        runs += 1
        log.append((name, tokens))
        if error is not None and runs >= at:
            raise error
        return {"tokens_per_second": float(runs), "worst_gap": 0.5}

    return Case(name, "one", f"the {name}", run, tokens=10)


def measured(name: str, *speeds: float, gap: float = 0.25) -> Samples:
    runs = [{"tokens_per_second": speed, "worst_gap": gap} for speed in speeds]
    return Samples(Case(name, "one", f"the {name}", lambda tokens: {}, tokens=10), [*runs])


@pytest.fixture
def record() -> Record:
    return Record([measured("slow", 4, 2, 3), measured("fast", 30, 12, 15)], {"the lost": STUB})


def test_the_spread_is_what_the_middle_half_covers_as_a_share_of_the_median() -> None:
    assert spread([5, 1, 4, 2, 3]) == pytest.approx(2 / 3)
    assert spread([7]) == 0
    assert spread([0, 0, 0]) == 0


def test_cases_take_turns_after_a_warm_up_and_every_other_round_goes_backwards() -> None:
    log: list[tuple[str, int]] = []
    record = Record()
    announced = list(run_rounds([case(name, log) for name in "abc"], 2, record))
    assert log == [(name, WARM_UP_TOKENS) for name in "abc"] + [(name, 10) for name in "abccba"]
    assert len(announced) == len(log)
    assert announced[3] == "round 1 of 2: the a"
    assert [each.runs for each in record.samples] == [
        [{"tokens_per_second": speed, "worst_gap": 0.5} for speed in (2, 3)]
    ] * 3


def test_what_was_measured_before_ctrl_c_counts() -> None:
    log: list[tuple[str, int]] = []
    record = Record()
    broken = case("b", log, KeyboardInterrupt(), at=2)
    with pytest.raises(KeyboardInterrupt):
        list(run_rounds([case("a", log), broken], 3, record))
    assert [each.case.name for each in record.measured] == ["a"]


def test_a_case_whose_code_is_not_written_is_left_out_and_named() -> None:
    log: list[tuple[str, int]] = []
    record = Record()
    list(run_rounds([case("a", log), case("b", log, NotImplementedError(STUB))], 2, record))
    assert [each.case.name for each in record.measured] == ["a"]
    assert record.missing == {"the b": STUB}


@pytest.mark.parametrize("message", [STUB, "no such operation"])
def test_without_any_code_the_first_stub_is_raised_and_so_is_an_error_that_is_no_stub(message: str) -> None:
    with pytest.raises(NotImplementedError, match=message):
        list(run_rounds([case("a", [], NotImplementedError(message))], 2, Record()))


def test_a_bar_compares_medians_and_is_left_out_where_a_case_was_not_measured(record: Record) -> None:
    five = Bar("five times", "fast", "slow", TOKENS_PER_SECOND, 5.0)
    more = Bar("more than that", "fast", "slow", TOKENS_PER_SECOND, 5.1)
    lost = Bar("not measured", "lost", "slow", TOKENS_PER_SECOND, 1.0)
    found = outcomes([five, more, lost], record.measured)
    assert [(each.bar, each.ratio, each.met) for each in found] == [(five, 5.0, True), (more, 5.0, False)]


def test_the_table_shows_medians_ratios_and_spreads(record: Record) -> None:
    bar = Bar("five times", "fast", "slow", TOKENS_PER_SECOND, 5.0)
    console = Console(width=100)
    with console.capture() as capture:
        print_report(console, [LADDER], record, outcomes([bar], record.measured))
    lines = [line.split() for line in capture.get().splitlines() if line]
    assert ["the", "slow", "3.0", "1.00", "33%", "250"] in lines
    assert ["the", "fast", "15.0", "5.00", "60%", "250"] in lines
    assert ["✓", "five", "times:", "5.00", "×"] in lines
    assert f"left out: the lost: not written yet ({STUB})".split() in lines


def test_a_table_that_is_too_wide_keeps_all_of_its_columns(record: Record) -> None:
    names = [f"quantity {number}" for number in range(9)]
    wide = Ladder("one", "One", (TOKENS_PER_SECOND, *(Quantity("worst_gap", name) for name in names)))
    console = Console(width=60)
    with console.capture() as capture:
        print_report(console, [wide], record, [])
    headings = capture.get().splitlines()[1]
    assert all(name in headings for name in names)
    assert console.width == 60


def test_two_quantities_of_one_case_can_be_compared(record: Record) -> None:
    bar = Bar("tokens per gap", "fast", "fast", TOKENS_PER_SECOND, 60.0, WORST_GAP)
    (found,) = outcomes([bar], record.measured)
    assert (found.ratio, found.met) == (60.0, True)


def test_the_json_holds_every_run(record: Record) -> None:
    bar = Bar("five times", "fast", "slow", TOKENS_PER_SECOND, 5.0)
    made = document([LADDER], record, outcomes([bar], record.measured), machine={"cores": 2}, finished=False)
    read = json.loads(json.dumps(made))
    assert read["machine"] == {"cores": 2}
    assert read["finished"] is False
    assert read["missing"] == {"the lost": STUB}
    row = read["ladders"][0]["rows"][1]
    assert row["name"] == "fast"
    assert row["median"] == {"tokens_per_second": 15, "worst_gap": 0.25}
    assert row["spread"]["tokens_per_second"] == pytest.approx(0.6)
    assert [run["tokens_per_second"] for run in row["runs"]] == [30, 12, 15]
    assert read["bars"] == [{"text": "five times", "at_least": 5.0, "ratio": 5.0, "met": True}]


def test_the_picture_is_an_svg_and_leaves_out_ladders_without_rows(record: Record) -> None:
    pictures = [draw(ladders, record, "two cores") for ladders in ([LADDER], [LADDER, LADDERS[1]])]
    roots = [ElementTree.fromstring(picture) for picture in pictures]
    assert roots[0].tag == "{http://www.w3.org/2000/svg}svg"
    assert roots[0].get("height") == roots[1].get("height")


def test_the_machine_line_names_cores_threads_and_torch() -> None:
    machine = describe_machine()
    line = machine_line(machine)
    for part in (f"{machine['cores']} cores", f"{machine['threads']} threads", f"torch {machine['torch']}"):
        assert part in line
    assert busy({"load": 2.5})
    assert not busy({"load": 0.1})
    assert not busy({"load": None})


def test_only_takes_ladders_and_rows() -> None:
    known = all_cases(lambda name: pytest.fail(f"{name} was loaded"), range(1000))
    assert [each.name for each in choose(known, ["batch", "cached"])] == [
        "cached",
        "batch-1",
        "batch-5",
        "batch-16",
    ]
    assert choose(known, []) == known
    assert [each.name for each in choose(known, ["sharing"])] == [
        "plain-at-once",
        "trie-at-once",
        "plain-staggered",
        "trie-staggered",
    ], "a name that several ladders begin with is all of them"
    with pytest.raises(CourseError, match="no ladder or row 'warp'; there are: one \\(recompute, "):
        choose(known, ["warp"])


def test_every_case_belongs_to_a_ladder_and_every_bar_to_two_cases() -> None:
    known = all_cases(lambda name: pytest.fail(f"{name} was loaded"), range(1000))
    names = [each.name for each in known]
    assert len(set(names)) == len(names)
    assert {each.ladder for each in known} == {ladder.name for ladder in LADDERS}
    assert {name for bar in BARS for name in (bar.case, bar.other)} <= set(names)


def test_a_week_has_its_own_cases() -> None:
    weeks = [
        all_cases(lambda name: pytest.fail(f"{name} was loaded"), range(1000), week)
        for week in (2, 3, 4, None)
    ]
    second, third, fourth, all_names = ([each.name for each in chosen] for chosen in weeks)
    whole = all_names[len(second + third + fourth) :]
    assert all_names == second + third + fourth + whole
    assert whole == [case.name for case in stages.cases(lambda name: pytest.fail(f"{name} was loaded"), [])]
    assert "trie-staggered" in fourth
    assert "cached" in second
    assert "kernel-long-64" in third


def test_all_ladders_run_on_a_tiny_model_and_measure_what_they_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model()
    monkeypatch.setattr(week_2, "LONG_PROMPTS", (150, 90))  # long enough for several chunks of 32
    monkeypatch.setattr(week_3, "CONTEXTS", {"short": 20, "long": 50})
    monkeypatch.setattr(serving, "LONGEST", 60)
    monkeypatch.setattr(serving, "MEAN_PAUSE", 0.001)
    small_ladders_of_week_4(monkeypatch)
    monkeypatch.setattr(shares, "REQUESTS", 3)
    for module in (shares, stages):
        monkeypatch.setattr(module, "get_tokenizer", FittingTokenizer)
    monkeypatch.setattr(start, "command", lambda kind: [sys.executable, "-c", "print('first')"])
    half = tiny_model(D=32, dtype="bfloat16")
    text = [(7 * i + i * i) % 37 for i in range(150)]
    record = Record()
    get_model = dict.fromkeys(("bfloat16", "packed", "fast"), half).get
    chosen = [replace(each, tokens=6) for each in all_cases(lambda name: get_model(name, model), text)]
    list(run_rounds(chosen, 1, record))
    shown = {ladder.name: {each.name for each in ladder.quantities} for ladder in LADDERS}
    assert not record.missing
    for each in record.measured:
        assert shown[each.case.ladder] <= set(each.runs[0])
        assert all(value > 0 for name, value in each.runs[0].items() if name not in MAY_BE_NONE)
    assert {bar.case for bar in BARS} == {each.bar.case for each in outcomes(BARS, record.measured)}


MAY_BE_NONE = ("http", "padding", "reused", "preemptions", "kept", "kept_bytes", *start.PARTS)


def small_ladders_of_week_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they run on the tiny model, which has room for 200 tokens, and on the host in no time."""
    monkeypatch.setattr(sharing, "COMMON", 64)
    monkeypatch.setattr(preemption, "LONGEST", 60)
    monkeypatch.setattr(preemption, "MOST", 100)
    monkeypatch.setattr(preemption, "MEAN_PAUSE", 0.001)
    for name, value in (("SHORTEST", 20), ("LONGEST", 25), ("SYSTEM", 10), ("QUESTION", 5)):
        monkeypatch.setattr(documents, name, value)
    for name, value in (("PAGES", 300), ("REQUESTS", 6), ("PROMPT", 320), ("EVICTED", 5)):
        monkeypatch.setattr(host, name, value)


def test_documents_on_pages_save_at_least_four_fifths_of_what_shared_prefixes_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "BUDGET", 1024)  # fewer steps
    model, text = tiny_model(max_positions=3400), [(7 * i + i * i) % 37 for i in range(1500)]
    alone, prefixes, pages = (
        case.run(documents.TOKENS) for case in documents.cases(lambda name: model, text)
    )
    prompts = documents.make_prompts(text, documents.QUESTIONS)
    everything = sum(len(each.token_ids) for each in prompts)
    once = len(prompts[0].system) + sum(len(each) for each in {d for p in prompts for d in p.documents})
    tails = sum(len(each.question) + 16 * len(each.documents) for each in prompts)
    assert alone["computed"] == everything
    assert once < pages["computed"] <= once + tails, (
        "each document once, and each question a page of it at most"
    )
    assert prefixes["computed"] >= 5 * pages["computed"]
    assert pages["kept"] < prefixes["kept"]
    assert alone["kept"] == 0


@pytest.mark.parametrize("arrival", sharing.ARRIVALS)
def test_shared_pages_save_at_least_85_percent_of_the_prompt_tokens(arrival: str) -> None:
    model = tiny_model(max_positions=700)
    text = [(7 * i + i * i) % 37 for i in range(150)]
    rows = {case.name: case for case in sharing.cases(lambda name: model, text)}
    plain, trie = (rows[f"{way}-{arrival}"].run(sharing.TOKENS) for way in ("plain", "trie"))
    assert plain["reused"] == 0
    prompts = [visit.request.prompt_ids for visit in sharing.make_visits(text, sharing.REQUESTS, 1)]
    assert plain["computed"] == sum(map(len, prompts)), "each token of each prompt, and none of the outputs"
    assert trie["computed"] + trie["reused"] == plain["computed"]
    assert trie["computed"] <= 0.15 * plain["computed"]


def test_prompts_of_the_sharing_ladder_have_exactly_the_common_tokens_in_common() -> None:
    prompts = [visit.request.prompt_ids for visit in sharing.make_visits(range(150), sharing.REQUESTS, 1)]
    assert len({tuple(ids[: sharing.COMMON]) for ids in prompts}) == 1
    assert len({ids[sharing.COMMON] for ids in prompts}) == len(prompts)
    own = [len(ids) - sharing.COMMON for ids in prompts]
    assert sharing.SHORTEST <= min(own) < max(own) <= sharing.LONGEST


@pytest.mark.parametrize(("pause", "pushed"), [(0, [0, 0, 0]), (4, [0, 4, 8])])
def test_requests_of_the_sharing_ladder_come_every_few_steps(pause: int, pushed: list[int]) -> None:
    visits = sharing.make_visits(range(150), 3, 1)
    core = CountingCore()
    for visit in visits:
        visit.timing.started = 0.0
    assert sharing.drive(core, visits, pause) == 2 * 3 * 5, "two tokens per request and step"  # type: ignore[arg-type]
    assert core.pushed == pushed
    assert all(visit.timing.started > 0 for visit in visits), "each waits from the moment when it is pushed"


class CountingCore:
    """An engine that computes two tokens of each request per step, five steps long; it notes when requests come."""

    def __init__(self) -> None:
        self.steps = 0
        self.pushed = list[int]()
        self.left: dict[Request, int] = {}

    @property
    def requests(self) -> list[Request]:
        return list(self.left)

    def push(self, request: Request) -> None:
        self.pushed.append(self.steps)
        self.left[request] = 5

    def step(self) -> SimpleNamespace:
        issued = [(request, 2) for request in self.left]
        self.left = {request: left - 1 for request, left in self.left.items() if left > 1}
        self.steps += 1
        return SimpleNamespace(issued=issued)


@pytest.mark.parametrize(("computed", "met"), [(149, True), (151, False)])
def test_the_bar_of_the_sharing_ladder_is_85_percent(computed: int, met: bool) -> None:
    for name in sharing.ARRIVALS:
        samples = [
            Samples(Case(f"{way}-{name}", "one", way, lambda tokens: {}, tokens=10), [{"computed": count}])
            for way, count in (("plain", 1000), ("trie", computed))
        ]
        assert [each.met for each in outcomes(sharing.BARS, samples)] == [met]


def test_on_few_pages_only_preemption_preempts_and_every_way_generates_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model()
    small_ladders_of_week_4(monkeypatch)
    text = [(7 * i + i * i) % 37 for i in range(150)]
    monkeypatch.setattr(preemption, "MEAN_PAUSE", 1e-9)  # all at once: else the clock decides who competes
    rows = {case.name: case.run(24) for case in preemption.cases(lambda name: model, text)}
    fewest = preemption.POOLS[0]
    assert rows[f"preempt-{fewest}"]["preemptions"] > 0
    assert rows[f"reserve-{fewest}"]["preemptions"] == rows[f"banker-{fewest}"]["preemptions"] == 0
    computed = {name: values["computed"] for name, values in rows.items()}
    assert computed[f"reserve-{fewest}"] == computed[f"banker-{fewest}"] < computed[f"preempt-{fewest}"]


def test_only_ragged_batches_run_no_row_of_the_model_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    monkeypatch.setattr(serving, "LONGEST", 60)
    monkeypatch.setattr(serving, "MEAN_PAUSE", 0.0001)
    text = [(7 * i + i * i) % 37 for i in range(150)]
    padding = {case.name: case.run(12)["padding"] for case in serving.cases(lambda name: model, text)}
    assert padding["ragged"] == 0
    assert 0 < padding["static"] < 1
    assert 0 < padding["continuous"] < 1


def test_bench_prints_a_ladder_and_keeps_it(tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "mine.json"
    done = bench("batch-1", "--impl", "solution", "--quick", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^one +[\d.]+ +1.00 +0%", done.stdout, re.MULTILINE)
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert kept["finished"]
    assert [row["name"] for ladder in kept["ladders"] for row in ladder["rows"]] == ["batch-1"]
    assert out.with_suffix(".svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send to another process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_bench_with_what_is_measured_so_far(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "mine.json"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks", "bench", "match", "evict", "--impl", "solution"),
            *("--repeats", "100", "--out", str(out)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100"},
    )
    assert process.stderr is not None
    said = next(line for line in process.stderr if line.startswith("round 2"))
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, said + errors
    assert re.search(r"^match a prompt of 8,000 tokens +[\d.]+", output, re.MULTILINE)
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert not kept["finished"]
    assert [row["name"] for ladder in kept["ladders"] for row in ladder["rows"]] == ["match", "evict"]
    assert "Traceback" not in errors


def test_a_ladder_that_is_not_there_is_one_line_and_exit_code_2() -> None:
    done = bench("warp", "--impl", "solution")
    assert done.returncode == 2
    assert "there is no ladder or row 'warp'; there are: one (" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("a folder.json", "can't write {}: it is a folder"),
        ("a file/mine.json", "can't write {}: {parent} is not a folder"),
        ("mine.svg", "--out is {!r}; it must be a file whose name ends in .json"),
    ],
)
def test_a_place_that_can_not_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, out: str, message: str
) -> None:
    (tmp_path / "a folder.json").mkdir()
    (tmp_path / "a file").touch()
    target = tmp_path / out
    done = bench("batch-1", "--impl", "solution", "--quick", "--out", str(target))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {message.format(str(target), parent=target.parent)}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file", "a folder.json"]


def test_on_unwritten_code_bench_says_which_day_comes_first(tmp_path: Path) -> None:
    make_copy(tmp_path, load_manifest(Course.find()))
    done = bench(**{ROOT_VARIABLE: str(tmp_path)})
    assert done.returncode == 2
    assert "pdm run test 1.1" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
