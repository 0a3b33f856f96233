"""What `pdm run profile` counts for what; its times are not looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from toy_model import tiny_model
from toy_ways import FittingTokenizer

from benchmarks.profiling import engines
from benchmarks.profiling.kinds import kind_of_kernel, kind_of_torch
from benchmarks.profiling.machine_limits import MachineLimits
from benchmarks.profiling.measuring import Profiled, profile_decodes, profile_prefill
from benchmarks.profiling.pictures import draw_roofline, draw_timeline
from benchmarks.profiling.recording import Mark, _offset
from benchmarks.profiling.spans import (
    ATTENTION,
    HOST,
    KINDS,
    MATMUL,
    PROFILE,
    SAMPLING,
    SMALL,
    Operation,
    Piece,
    Region,
    closed_up,
    divide,
    median_of,
    seconds_of,
    totals,
)
from benchmarks.profiling.trace import trace
from benchmarks.profiling.verdicts import verdicts
from benchmarks.profiling.watching import KernelWatch, replaced
from benchmarks.profiling.work import Cost, Pass, Sizes, Work, costs, stored_bytes
from programs.loaded import LoadedModel
from programs.stages import find_stages

LIMITS = MachineLimits(10.0, {"float32": 100.0, "8 bits": 400.0})


def kinds(pieces: list[Piece]) -> list[tuple[str, float, float]]:
    return [(each.kind, each.start, each.end) for each in pieces]


def test_nested_operations_are_counted_once_and_the_gaps_are_the_hosts() -> None:
    operations = [
        Operation("linear", MATMUL, 2, 6),
        Operation("t", SMALL, 2, 3),
        Operation("mm", MATMUL, 3, 6),
        Operation("add", SMALL, 7, 8),
    ]
    pieces = divide(operations, [], 1, 10)
    assert kinds(pieces) == [(HOST, 1, 2), (MATMUL, 2, 6), (HOST, 6, 7), (SMALL, 7, 8), (HOST, 8, 10)]
    assert seconds_of(pieces) == 9


def test_regions_decide_what_operations_and_gaps_count_for() -> None:
    operations = [
        Operation("mm", MATMUL, 1, 2),
        Operation("mm", MATMUL, 5, 6),
        Operation("argmax", SMALL, 6, 7),
    ]
    regions = [Region(ATTENTION, 0.5, 3), Region(SAMPLING, 4, 9)]
    assert kinds(divide(operations, regions, 0, 10)) == [
        *((HOST, 0, 0.5), (HOST, 0.5, 1), (ATTENTION, 1, 2), (HOST, 2, 3), (HOST, 3, 4)),
        *((SAMPLING, 4, 5), (MATMUL, 5, 6), (SAMPLING, 6, 7), (SAMPLING, 7, 9), (HOST, 9, 10)),
    ]


def test_the_calls_of_a_kernels_parts_are_the_profiles_and_no_part_of_the_step() -> None:
    operations = [Operation("k", MATMUL, 1, 4, calling=1), Operation("k", MATMUL, 6, 8, calling=0.5)]
    pieces = divide(operations, [Region(PROFILE, 5, 9)], 0, 10)
    assert kinds(pieces) == [
        *((HOST, 0, 1), (HOST, 1, 2), (MATMUL, 2, 4), (HOST, 4, 5), (PROFILE, 5, 6)),
        *((PROFILE, 6, 6.5), (MATMUL, 6.5, 8), (PROFILE, 8, 9), (HOST, 9, 10)),
    ]
    moved = closed_up(pieces)
    assert moved[-1].end == seconds_of(pieces) == 10 - seconds_of(pieces, PROFILE) == 7.5
    assert all(one.end == other.start for one, other in pairwise(moved))
    assert [(each.calls, each.seconds) for each in totals(pieces)] == [(2, 3.5)]


def test_operations_at_the_edges_of_a_step_are_cut() -> None:
    operations = [Operation("a", SMALL, 0, 3), Operation("b", SMALL, 8, 12), Operation("c", SMALL, 12, 13)]
    assert kinds(divide(operations, [], 2, 10)) == [(SMALL, 2, 3), (HOST, 3, 8), (SMALL, 8, 10)]


def test_the_median_step_is_shown() -> None:
    steps = [[Piece(HOST, "", 0, length)] for length in (5, 1, 3, 9)]
    assert median_of(steps) == 2
    assert median_of(steps[:3]) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("aten::linear", MATMUL), ("aten::bmm", MATMUL), ("aten::_int_mm", MATMUL)),
        *(("aten::scaled_dot_product_attention", ATTENTION), ("aten::mul", SMALL), ("aten::mean", SMALL)),
    ],
)
def test_the_kind_of_an_operation_of_torch(name: str, kind: str) -> None:
    assert kind_of_torch(name) == kind


@pytest.mark.parametrize(
    ("module", "name", "kind"),
    [
        ("tiny_llm.fast.multiply", "multiply", MATMUL),
        ("tiny_llm.kernels.quantized_matmul_cpu", "some_rows", MATMUL),
        ("tiny_llm.fast.tiled_attention", "deal", ATTENTION),
        ("tiny_llm.fast.block8", "write", ATTENTION),
        ("tiny_llm.fast.block8", "attend_pages", ATTENTION),
        ("tiny_llm.fast.block8", "put_bias", SMALL),
        ("tiny_llm.fast.small", "normalize", SMALL),
    ],
)
def test_the_kind_of_a_kernel(module: str, name: str, kind: str) -> None:
    assert kind_of_kernel(module, name) == kind


def test_a_token_sees_itself_and_those_before_it() -> None:
    assert Pass((1,), (101,)).seen == 101
    assert Pass((3,), (3,)).seen == 1 + 2 + 3
    assert Pass((2, 1), (6, 4)).seen == (5 + 6) + 4


SIZES = Sizes(2, E=4, H=2, Hkv=1, D=2, F=3, V=10, block_bytes=1000, head_bytes=50, activation=4, cached=2)


def test_what_a_step_costs_counted_by_hand() -> None:
    found = costs(SIZES, Work([Pass((2, 1), (6, 4))], [2]))
    weights = 4 * 8 + 4 * 4 + 4 * 6 + 3 * 4  # qkv, out, gate_up, down
    rows_in_and_out = 4 + 8 + 4 + 4 + 4 + 6 + 3 + 4
    assert found[MATMUL].operations == 2 * 3 * weights * 2 + 2 * 2 * 4 * 10
    assert found[MATMUL].bytes == 1000 + 2 * 3 * rows_in_and_out * 4 + 50 + 2 * (4 * 4 + 10 * 4)
    assert found[ATTENTION].operations == 2 * 4 * 2 * 2 * 15, "2 layers, 15 pairs, 2 heads of 2 numbers"
    read_and_written = 2 * (6 + 4 + 3) * 1 * 2 * 2
    assert found[ATTENTION].bytes == 2 * (read_and_written + 2 * 3 * 4 * 4)
    assert found[SMALL].operations == 3 * (2 * (8 * 4 + 3 * 6 + 5 * 3 + 2 * 4) + 4 * 4)
    assert found[SAMPLING] == Cost(20, 80)


def test_the_bytes_of_weights_are_those_that_are_stored() -> None:
    class Holder:
        def __init__(self) -> None:
            self.codes = (np.zeros(7, np.uint8), np.zeros(3, np.float16), 5)
            self.name = "some"

    assert stored_bytes(Holder()) == 13


def test_a_verdict_names_what_limits() -> None:
    pieces = [
        Piece(MATMUL, "", 0, 2),
        Piece(ATTENTION, "", 2, 3),
        Piece(SMALL, "", 3, 4),
        Piece(HOST, "", 4, 5),
    ]
    work = {MATMUL: Cost(400, 2), ATTENTION: Cost(10, 8), SMALL: Cost(1, 1), SAMPLING: Cost(1, 1)}
    lines = [each.line() for each in verdicts(pieces, work, LIMITS, "8 bits")]
    assert lines[0].startswith("matmul: 50 % of what 8 bits arithmetic gives")
    assert lines[0].endswith("limited by arithmetic")
    assert lines[1].startswith("attention: 80 % of what memory gives")
    assert lines[1].endswith("limited by memory")
    assert lines[2].endswith("limited by neither: latencies, calls, caches")
    assert len(lines) == 3, "no time was spent on sampling, and the host has no such number"


def test_the_two_clocks_meet_at_the_anchors() -> None:
    marks = [Mark(end=1000, start=9000), Mark(end=101_000, start=104_000)]
    assert _offset([(5003.0, 5007.0), (5102.0, 5103.0)], marks) == pytest.approx(5e-3, abs=2e-6)


class Broken(Exception):
    pass


def test_what_was_replaced_is_as_it_was_even_after_an_error() -> None:
    class Base:
        def attend(self) -> str:
            return "base"

    class Child(Base):
        pass

    def fail() -> None:
        with replaced(Child, "attend", lambda self: "other"):
            assert Child().attend() == "other"
            raise Broken

    with pytest.raises(Broken):
        fail()
    assert "attend" not in vars(Child)
    assert Child().attend() == "base"


def test_kernels_are_watched_only_while_the_block_runs() -> None:
    from numba.core.dispatcher import Dispatcher

    def fail() -> None:
        with KernelWatch().watching():
            assert "__call__" in vars(Dispatcher)
            raise Broken

    with pytest.raises(Broken):
        fail()
    assert "__call__" not in vars(Dispatcher)


def loaded(fast: bool = False) -> LoadedModel:
    tokenizer: Any = FittingTokenizer()
    if not fast:
        return LoadedModel(tiny_model(), tokenizer)
    from tiny_llm.fast.accelerate import accelerate

    return LoadedModel(accelerate(quantized_model()), tokenizer)


def quantized_model() -> Any:
    """A layer of weights in 4 bits, of sizes that registers hold."""
    from tiny_llm.quantize import QuantizedLinear, quantize

    model = tiny_model(E=64, H=2, D=32, F=64, V=48)
    block = model.blocks[0]
    for owner, name in (
        *((block.attention, "qkv"), (block.attention, "out")),
        *((block.mlp, "gate_up"), (block.mlp, "down")),
    ):
        weight = quantize(getattr(owner, name).weight)
        setattr(owner, name, QuantizedLinear(weight))
    return model


TEXT = list(range(30))


def profile_of(name: str, requests: int) -> Profiled:
    stage = find_stages("served" if name == "fast" else name)[0]
    return profile_decodes(stage, name, loaded(name == "fast"), TEXT, requests, 20, 3)


def check(profiled: Profiled) -> None:
    assert len(profiled.steps) == 3
    for step in profiled.steps:
        assert all(one.end == other.start for one, other in pairwise(step.pieces))
        whole = seconds_of(step.pieces) + seconds_of(step.pieces, PROFILE)
        assert whole == pytest.approx(step.pieces[-1].end - step.pieces[0].start)
        assert {MATMUL, ATTENTION, SMALL, SAMPLING, HOST} <= {each.kind for each in step.pieces}
    found = {"decode": verdicts(profiled.shown.pieces, profiled.costs(), LIMITS, "float32")}
    events = json.loads(json.dumps(trace([profiled], made="now")))["traceEvents"]
    spans = [each for each in events if each["ph"] == "X"]
    assert len(spans) == sum(len(step.pieces) for step in profiled.steps)
    assert all(each["ts"] >= 0 and each["dur"] >= 0 and each["cat"] in (*KINDS, PROFILE) for each in spans)
    for picture in (draw_timeline([profiled], "a machine"), draw_roofline(found, LIMITS, "a machine")):
        assert b"</svg>" in picture


@pytest.mark.parametrize("name", ["paged", "ragged", "extend", "documents", "served"])
def test_engines_on_pages_are_profiled(name: str) -> None:
    profiled = profile_of(name, requests=3)
    check(profiled)
    assert profiled.opened == ()
    assert [each.q_lens for each in profiled.shown.work.passes] == [(1, 1, 1)]
    assert profiled.shown.work.head_rows == [3]


@pytest.mark.parametrize("name", ["paged", "served"])
def test_no_request_ends_before_the_last_recorded_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUDGET", 8)  # the first request generates long before the last one
    profiled = profile_of(name, requests=4)
    assert [step.work.head_rows for step in profiled.steps] == [[4]] * 3


@pytest.mark.parametrize(("name", "requests"), [("cached", 1), ("batched", 2), ("continuous", 2)])
def test_stages_without_pages_are_profiled(name: str, requests: int) -> None:
    profiled = profile_of(name, requests)
    assert len(profiled.steps) == 3
    assert profiled.shown.work.tokens == requests
    assert {MATMUL, ATTENTION, SMALL, HOST} <= {each.kind for each in profiled.shown.pieces}


def test_the_fast_engine_is_seen_part_by_part() -> None:
    profiled = profile_of("fast", requests=2)
    check(profiled)
    assert profiled.opened == ("after_attention", "attend_pages", "before_attention", "block_on_pages")
    names = {each.name: each.calls for each in totals(profiled.shown.pieces)}
    assert names["fast.tiled_attention.attend"] == 1
    assert names["fast.small.normalize"] == 2
    assert seconds_of(profiled.shown.pieces, PROFILE) > 0


def test_a_prompt_is_one_step() -> None:
    profiled = profile_prefill("ragged", loaded(), TEXT, 17, 3)
    check(profiled)
    assert [(each.q_lens, each.kv_lens) for each in profiled.shown.work.passes] == [((17,), (17,))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "fastest"], "there is no stage 'fastest'"),
        (["--stage", "grpc"], "its steps are those of ragged"),
        (["--stage", "cached", "--prefill", "64"], "--prefill is for engines on pages"),
        (["--out", "x.svg"], "must be a file whose name ends in .json"),
    ],
)
def test_what_can_not_be_profiled_is_refused_in_a_line(arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "profile", "--impl", "solution", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100"},
        timeout=100,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
