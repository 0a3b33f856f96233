"""`pdm run bench stages`: one ladder from the first stage to the fast engine, its table and its picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from picture_edges import cut_off
from rich.console import Console
from toy_model import tiny_model
from toy_ways import FittingTokenizer

from benchmarks import models, stages
from benchmarks.climbs import draw_climbs, scale
from benchmarks.command import all_cases, choose
from benchmarks.keeping import keep, require_places
from benchmarks.ladder import TOKENS_PER_SECOND, Ladder
from benchmarks.report import print_report
from benchmarks.rounds import Case, Record, Samples
from benchmarks.stages import MANY, SINGLE, TOKENS, Step, Workload, steps
from coursekit.errors import CourseError
from coursekit.paths import Course
from programs.stages import STAGES

if TYPE_CHECKING:
    from tiny_llm.request import Request

TEXT = [(7 * i + i * i) % 37 for i in range(150)]
CLIMB = Ladder("climb", "From row to row", (TOKENS_PER_SECOND,), climbs=True)
FLAT = Ladder("flat", "Side by side", (TOKENS_PER_SECOND,))


def record(**speeds: Sequence[float]) -> Record:
    """A record with a row for each speed, whose ladder is the argument's name."""
    return Record(
        [
            Samples(
                Case(f"{ladder}-{number}", ladder, f"row {number}", lambda tokens: {}, tokens=10),
                [{"tokens_per_second": speed}],
            )
            for ladder, values in speeds.items()
            for number, speed in enumerate(values)
        ]
    )


def test_every_stage_is_a_step_and_the_fast_engine_is_the_last() -> None:
    labels = [step.label for step in steps()]
    numbers = [label.split()[0] for label in labels if not label.endswith("(4.7)")]
    assert list(dict.fromkeys(numbers)) == list(dict.fromkeys(stage.number for stage in STAGES))
    assert [step.form for step in steps()][-4:] == ["bfloat16", "packed", "fast", "fast"]
    assert "tiles" in labels[-1]


def test_the_packed_step_has_the_plain_model_in_bfloat16_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = tiny_model(E=64, D=32, F=96, V=48, dtype="bfloat16"), []

    def load_model(source: str, **how: Any) -> Any:
        asked.append(how["dtype"])
        return SimpleNamespace(model=model)

    monkeypatch.setattr(models, "load", load_model)
    packed = models.make_models(Console())("packed")
    assert ([type(block).__name__ for block in packed.blocks], asked) == (["FloatBlock"], ["bfloat16"])
    assert packed.embedding.weight.dtype == model.embedding.weight.dtype


def test_each_workload_has_every_step_in_the_same_order() -> None:
    made = list(stages.cases(lambda name: pytest.fail(f"{name} was loaded"), TEXT))
    names = [step.name for step in steps()]
    assert [case.name for case in made] == [f"{name}-{work}" for work in ("single", "many") for name in names]
    assert {case.ladder for case in made} == {ladder.name for ladder in stages.LADDERS}


def test_the_ladder_is_chosen_by_its_name_or_one_workload_of_it() -> None:
    known = all_cases(lambda name: pytest.fail(f"{name} was loaded"), range(1000))
    assert len(choose(known, ["stages"])) == 2 * len(list(steps()))
    assert {case.ladder for case in choose(known, ["stages-many"])} == {"stages-many"}


@pytest.mark.parametrize("workload", [SINGLE, MANY], ids=lambda workload: workload.name)
def test_no_two_requests_of_a_workload_begin_alike(workload: Workload) -> None:
    prompts = [tuple(each.prompt_ids) for each in workload.make(range(1000), TOKENS)]
    assert len(prompts) == workload.requests
    assert len({prompt[0] for prompt in prompts}) == len(prompts), "else pages could be shared"


def test_the_requests_are_the_same_each_time_and_few_in_a_run_to_warm_up() -> None:
    first, second = ([each.token_ids for each in MANY.make(range(1000), TOKENS)] for _ in range(2))
    assert first == second
    assert len(MANY.make(range(1000), 2)) == 4


@pytest.mark.parametrize("name", [step.name for step in steps() if step.form == "float32"])
def test_every_stage_gives_each_request_all_of_its_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the model's text would end earlier: every token of the toy tokenizer ends one."""
    monkeypatch.setattr(stages, "get_tokenizer", EndingTokenizer)
    clock = itertools.count()  # a second passes between two looks at it
    monkeypatch.setattr(stages, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    (step,) = (step for step in steps() if step.name == name)
    requests = MANY.make(TEXT, 4)
    assert step.answer(tiny_model(), requests) == sum(each.max_tokens for each in requests)


class EndingTokenizer(FittingTokenizer):
    """A tokenizer each of whose tokens ends a text."""

    end_ids = tuple(range(37))


def test_what_is_answered_one_by_one_is_measured_on_a_turn_of_all_lengths() -> None:
    asked = list[list[int]]()

    def answer(model: Any, requests: Sequence[Request]) -> float:
        asked.append([each.prompt_len for each in requests])
        return 1

    for one_by_one in (True, False):
        stages._run(
            Step("a", "a", "float32", answer, one_by_one), MANY, lambda name: tiny_model(), TEXT, TOKENS
        )
    assert asked[0] == list(MANY.prompts)
    assert len(asked[1]) == MANY.requests


def test_a_ladder_that_climbs_shows_the_gain_over_the_row_before_and_over_the_first() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        print_report(console, [CLIMB, FLAT], record(climb=(4, 8, 4), flat=(4, 8, 4)), [])
    lines = [line.split() for line in capture.get().splitlines() if line]
    assert lines[1] == ["tokens/s", "×", "before", "×", "first", "spread"]
    assert lines[2:5] == [
        ["row", "0", "4.0", "1.00", "1.00", "0%"],
        ["row", "1", "8.0", "2.00", "2.00", "0%"],
        ["row", "2", "4.0", "0.50", "1.00", "0%"],
    ]
    assert lines[-1] == ["row", "2", "4.0", "1.00", "0%"], "another ladder has one ratio"


@pytest.mark.parametrize(
    ("values", "expected"),
    [([9.1, 541], (1, 541)), ([0.4, 30], (0.1, 30)), ([2, 3], (1, 10)), ([0, 0], (1, 10))],
)
def test_bars_begin_at_one_or_the_next_lower_power_of_ten(
    values: Sequence[float], expected: tuple[float, float]
) -> None:
    assert scale(values) == pytest.approx(expected)


def test_the_picture_of_a_climb_is_an_svg_no_wider_than_a_phone_shows_it() -> None:
    picture = draw_climbs([CLIMB, FLAT], record(climb=(0.5, 12, 900)), "two cores · torch 2 · 2 threads")
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.get("width", "").removesuffix("pt")) < 350
    empty = draw_climbs([CLIMB], record(climb=(0, 0)), "a row without a token")
    assert ElementTree.fromstring(empty).tag == root.tag


def test_no_text_of_the_climb_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = cut_off(monkeypatch)
    made = []
    for ladder in stages.LADDERS:
        for step, speed in zip(steps(), itertools.cycle([9.0, 1436.2]), strict=False):
            case = Case(step.name, ladder.name, step.label, lambda tokens: {}, tokens=10)
            made.append(Samples(case, [{"tokens_per_second": speed}]))
    draw_climbs(
        stages.LADDERS,
        Record(made),
        "Linux x86_64 · 2 cores · AVX512 + bfloat16 · torch 2.15.0+cu132 · 2 threads",
    )
    assert beyond == []


@pytest.mark.parametrize(
    ("ladders", "expected"),
    [
        ({"climb": (1, 2)}, {"mine.svg": 331}),
        ({"flat": (1, 2)}, {"mine.svg": 518}),
        ({"climb": (1, 2), "flat": (1, 2)}, {"mine.svg": 518, "mine-climb.svg": 331}),
    ],
    ids=["a climb alone", "no climb", "both"],
)
def test_a_climb_has_a_picture_of_its_own(
    ladders: dict[str, Sequence[float]], expected: dict[str, int], tmp_path: Path
) -> None:
    machine: dict[str, Any] = dict.fromkeys(("system", "machine", "cores", "vector", "torch", "threads"), "?")
    console = Console(width=80)
    with console.capture() as capture:
        target = tmp_path / "mine.json"
        keep(console, Course.find(), target, record(**ladders), [FLAT, CLIMB], [], {"machine": machine})
    assert {path.name for path in tmp_path.iterdir()} == {"mine.json", *expected}
    for name, width in expected.items():
        root = ElementTree.fromstring((tmp_path / name).read_bytes())
        assert round(float(root.get("width", "").removesuffix("pt"))) == width
        assert name in capture.get()


def test_a_place_where_the_climb_could_not_be_drawn_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine-climb.svg").mkdir()
    with pytest.raises(CourseError, match=r"mine-climb\.svg: it is a folder"):
        require_places(tmp_path / "mine.json")
