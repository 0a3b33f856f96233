"""Decode steps on fixed memory (Day 4.7): in Triton's interpreter, and as CUDA graphs where there is a GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from fast_models import small_model

from tiny_llm.engine.limits import Limits
from tiny_llm.engine.make_batch import make_batch
from tiny_llm.engine_core import generate_all
from tiny_llm.fast import cuda
from tiny_llm.fast.cuda import RecordedModel, accelerate_on_cuda, record
from tiny_llm.fast.forms import load_form
from tiny_llm.loading.errors import WeightsError
from tiny_llm.model import Transformer
from tiny_llm.paged.allocator import NULL_PAGE
from tiny_llm.request import Request

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton exists for Linux only, and is not installed here",
)
COMPILES = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
needs_gpu = pytest.mark.skipif(
    not COMPILES,
    reason="CUDA graphs need a CUDA device, and the option --device cuda, with which Triton compiles",
)
needs_interpreter = pytest.mark.skipif(
    COMPILES,
    reason="Triton compiles for the CUDA device here, and this model is on the CPU: leave out --device cuda",
)
FAMILY = "three, and norms of the heads"
PROMPTS = [[7, 3, 9], list(range(1, 24)), [5, 6, 7, 8, 9, 10], [2]]
COUNTS = [3, 5, 2, 4]


@pytest.fixture(autouse=True)
def on_fixed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, too, what is played back leaves its result in the same memory each time, as a CUDA graph does."""

    def record_here(run: Callable[[], torch.Tensor], device: torch.device) -> Callable[[], torch.Tensor]:
        play, memory = record(run, device), list[torch.Tensor]()

        def into_memory() -> torch.Tensor:
            result = play()
            if not memory:
                memory.append(torch.empty_like(result))
            return memory[0].copy_(result)

        return into_memory if device.type == "cpu" else play

    monkeypatch.setattr(cuda, "record", record_here)


def float_model() -> Transformer:
    """Two layers of random floats."""
    return small_model(FAMILY, torch.float32)


def engine(model: Transformer, seats: int = 4) -> Any:
    return make_batch(model, Limits(seats, 16, 8, 64), "triton")


def outputs(
    model: Transformer, prompts: Sequence[Sequence[int]] = PROMPTS, seats: int = 4
) -> list[list[int]]:
    requests = [Request(ids, count) for ids, count in zip(prompts, COUNTS, strict=False)]
    return generate_all(engine(model, seats), requests)


@needs_interpreter
def test_the_tokens_are_those_of_the_model_itself_while_requests_come_and_go() -> None:
    """Four, three, two and one request: three rows run on memory for four, the last a request's before."""
    model = float_model()
    recorded = RecordedModel(model)
    assert outputs(recorded) == outputs(model)
    assert {rows for rows, _ in recorded.recordings} == {1, 2, 4}


@needs_interpreter
def test_the_numbers_are_those_of_the_model_itself_but_for_the_last_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_steps(RecordedModel(float_model()), PROMPTS)


def check_steps(recorded: RecordedModel, prompts: Sequence[Sequence[int]]) -> None:
    plain, actual = steps_of(float_model(), prompts), steps_of(recorded, prompts)
    torch.testing.assert_close(actual, plain, rtol=1e-4, atol=1e-5)


def steps_of(model: Transformer, prompts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """What the model gave in each step. No copies: what a step gives must outlive the steps after it."""
    core, seen = engine(model), list[torch.Tensor]()
    hidden = model.hidden

    def noted(*given: Any) -> torch.Tensor:
        seen.append(hidden(*given))
        return seen[-1]

    model.hidden = noted  # type: ignore[method-assign,assignment]
    generate_all(core, [Request(ids, count) for ids, count in zip(prompts, COUNTS, strict=False)])
    model.hidden = hidden  # type: ignore[method-assign]
    return seen


@needs_interpreter
def test_rows_that_belong_to_no_request_leave_all_pages_but_the_null_page_as_they_are() -> None:
    core = engine(RecordedModel(float_model()))
    requests = [Request(ids, 2) for ids in PROMPTS]
    for request in requests:
        core.push(request)
    core.step()
    before = core.runner.pool.keys.clone()
    core.abort(requests[:3])
    core.step()  # one row of one
    core.push(Request([11], 3))
    core.step()
    changed = (core.runner.pool.keys != before).any(dim=(0, 2, 3, 4)).nonzero().flatten().tolist()
    written = [page for page in changed if page != NULL_PAGE]
    assert len(written) <= 2, f"two requests have one page each, and pages {written} were written"


def test_prompts_and_other_ways_to_attend_run_as_before() -> None:
    model = float_model()
    recorded = RecordedModel(model)
    tokens = torch.tensor([PROMPTS[1]])
    assert torch.equal(recorded(tokens, slice(0, 23)), model(tokens, slice(0, 23)))
    requests = [Request(ids, 3) for ids in PROMPTS]
    generate_all(make_batch(recorded, Limits(4, 16, 8, 64), "reference"), requests)
    assert not recorded.recordings


@needs_interpreter
def test_another_engine_on_the_same_model_has_recordings_of_its_own() -> None:
    recorded = RecordedModel(float_model())
    check_steps(recorded, PROMPTS)
    check_steps(recorded, [[*reversed(ids), 17] for ids in PROMPTS])  # not on the pages of the engine before


@needs_interpreter
def test_a_past_of_several_parts_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiny_llm.kernels.paged_attention_triton.PART", 64)
    check_steps(RecordedModel(float_model()), [[(7 * i + i * i) % 80 for i in range(1, 100)], [4, 5]])


@needs_interpreter
def test_the_model_itself_goes_on_as_before() -> None:
    model = float_model()
    names = set(vars(model))
    outputs(RecordedModel(model))
    assert set(vars(model)) == names


def test_elsewhere_nothing_is_recorded_and_the_run_is_the_run_itself() -> None:
    def run() -> torch.Tensor:
        return torch.zeros(1)

    assert record(run, torch.device("cpu")) is run


def test_a_model_on_the_cpu_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"on the device cpu, and .* on CUDA devices only$"):
        accelerate_on_cuda(float_model())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_cuda_device_loading_is_refused_in_one_line() -> None:
    with pytest.raises(WeightsError, match="cuda") as refused:
        load_form("smollm2-135m", "bfloat16", "cuda")
    assert "\n" not in str(refused.value)


def test_8_bits_on_a_cuda_device_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"8-bit.* on the CPU.*; on cuda choose True, float32 or bfloat16$"):
        load_form("smollm2-135m", "8-bit", "cuda")


@needs_gpu
@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_cuda_graphs_give_the_same_as_the_operations_one_by_one(form: str) -> None:
    fast, attention = load_form("smollm2-135m", form, "cuda")
    assert isinstance(fast, RecordedModel)
    plain = Transformer.__new__(Transformer)
    vars(plain).update({name: vars(fast)[name] for name in vars(fast) if name not in ("_pool", "recordings")})
    prompts = [list(range(300, 300 + 40 * i)) for i in range(1, 5)]
    limits = Limits(4, 128, 16, 256)
    answers = []
    for model in (plain, fast):
        requests = [Request(ids, 12 + i) for i, ids in enumerate(prompts)]
        answers.append(generate_all(make_batch(model, limits, attention), requests))
    same = sum(one == other for one, other in zip(*answers, strict=True))
    assert same == len(prompts) if form == "float32" else same >= 1
    assert fast.recordings
