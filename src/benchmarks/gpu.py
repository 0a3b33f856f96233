"""The served engine on a CUDA device: as it is, in bfloat16, and with decode steps that are played back (Day 4.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.ladder import TOKENS_PER_SECOND, Ladder
from benchmarks.rounds import Case
from benchmarks.stages import FAST_DAY, MANY, Step, by_engine, cases_of
from benchmarks.week_2 import GetModel
from coursekit.errors import CourseError
from programs.stages import SERVED

LADDERS = (
    Ladder("cuda-single", "On the GPU: one request", (TOKENS_PER_SECOND,), climbs=True),
    Ladder("cuda-many", f"On the GPU: {MANY.requests} requests", (TOKENS_PER_SECOND,), climbs=True),
)
BESIDE = (
    "To set beside it, on the same GPU: vLLM, which plays its decode steps back, too: vllm bench throughput "
    "--model HuggingFaceTB/SmolLM2-135M-Instruct --dtype bfloat16 --input-len 36 --output-len 30 --num-prompts 32"
)
"""What else to measure: as many requests, of the same mean lengths."""


def steps() -> Iterator[Step]:
    """From Day 4.6's engine to the one that plays steps back; all attend by Day 3.4's kernel."""
    served = partial(by_engine, "triton", SERVED.day, warm_up=True)
    recorded = partial(by_engine, "triton", FAST_DAY, warm_up=True)
    yield Step("cuda", "S10 on the GPU (4.6)", "float32", served)
    yield Step("cuda-bfloat16", "the same in bfloat16", "bfloat16", served)
    yield Step("cuda-recorded", "its steps played back (4.7)", "recorded", recorded)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Every step, as :func:`cases_of` makes them.

    Args:
        model: called when a case runs; gives models on the device, and "recorded" in bfloat16.
        text: token ids to cut the prompts from.
    """
    return cases_of(steps, "cuda", model, text)


def gpu_name() -> str:
    """The name of the device.

    Raises:
        CourseError: there is none; the message says what would be measured.
    """
    import torch

    if not torch.cuda.is_available():
        raise CourseError(
            "--device cuda needs an NVIDIA GPU that torch can use, and there is none. With one, this measures the "
            f"engine of Day 4.6 in float32 and bfloat16, and with Day 4.7's recorded steps. {BESIDE}"
        )
    return torch.cuda.get_device_name()
