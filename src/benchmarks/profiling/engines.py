"""Engines that are brought to steps which are all alike: decodes of some requests, or chunks of prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.profiling.recording import Recorder
from benchmarks.profiling.watching import replaced
from coursekit.errors import CourseError
from programs.cores import PAGE_SIZE, choose_for, paged_batch, ragged_batch_for
from programs.document_cores import document_batch_for
from programs.extend_cores import extend_batch_for
from programs.loaded import LoadedModel
from programs.stage import Limits, Stage

if TYPE_CHECKING:
    from tiny_llm.engine_core import EngineCore
    from tiny_llm.model import Transformer
    from tiny_llm.request import Request

FAST, SERVED = "fast", "served"
BUDGET = 512
"""Tokens of a step while the prompts are computed."""
ONE_AT_A_TIME = ("recompute", "cached")
"""Stages that run one request after the other."""

Make = Callable[["Transformer", "Sequence[Request]", int], "EngineCore"]
"""Called with a model, all requests, and how many tokens a step brings at most."""


def _served(attention: str, model: Transformer, requests: Sequence[Request], budget: int) -> EngineCore:
    from tiny_llm.engine.limits import Limits as EngineLimits
    from tiny_llm.engine.make_batch import make_batch

    pages = sum(-(-(each.prompt_len + each.max_tokens) // PAGE_SIZE) for each in requests)
    return make_batch(model, EngineLimits(len(requests), pages, PAGE_SIZE, budget), attention)


CORES: dict[str, Make] = {
    "paged": lambda model, requests, budget: paged_batch(
        model, requests, choose_for("reference", model), len(requests), budget
    ),
    "kernel": lambda model, requests, budget: paged_batch(
        model, requests, choose_for("auto", model), len(requests), budget
    ),
    "ragged": lambda model, requests, budget: ragged_batch_for(model, requests, len(requests), budget),
    "extend": lambda model, requests, budget: extend_batch_for(model, requests, len(requests), budget),
    "documents": lambda model, requests, budget: document_batch_for(model, requests, len(requests), budget),
    SERVED: lambda model, requests, budget: _served("auto", model, requests, budget),
    FAST: lambda model, requests, budget: _served("tiled", model, requests, budget),
}
"""The engines that run a step when they are told to, by the names of their stages."""


def require_profiled(stage: Stage, prefill: int) -> None:
    """Refuse what the profile can't drive.

    Raises:
        CourseError: the message says what to choose instead.
    """
    if stage.name in CORES:
        return
    if stage.name in ("grpc", "preempt"):
        raise CourseError(
            f"the profile doesn't run the stage {stage.name!r}: its steps are those of "
            f"{'ragged' if stage.name == 'grpc' else 'extend'}"
        )
    if prefill:
        raise CourseError(
            f"--prefill is for engines on pages, not for the stage {stage.name!r}: leave it out"
        )


def make_requests(
    recorder: Recorder, text: Sequence[int], count: int, prompt: int, max_tokens: int
) -> list[Request]:
    """Greedy requests, each with other tokens of a text, which no token ends."""
    from tiny_llm.generate import greedy
    from tiny_llm.request import Request

    around = [*text] * (2 + (count + prompt) // len(text))
    return [
        Request(around[7 * start % len(text) :][:prompt], max_tokens, sample=recorder.sampling(greedy))
        for start in range(count)
    ]


def decoding(
    name: str, model: Transformer, requests: Sequence[Request], recorder: Recorder
) -> Iterator[None]:
    """Steps of an engine on pages in which each request brings one token; what comes before them is run at once."""
    core: Any = CORES[name](model, requests, max(BUDGET, len(requests)))
    with _sampling(core, recorder):
        for request in requests:
            core.push(request)
        while min(each.num_generated for each in requests) < 2:
            core.step()
        while core.requests:
            core.step()
            yield


def steps_before(requests: int, prompt: int) -> int:
    """How many tokens the first request may generate while the prompts of the others are computed.

    Decodes come first, and leave half of a step for prompts, or one token at least.
    """
    return requests * prompt // max(1, BUDGET // 2)


def prefilling(
    name: str, model: Transformer, requests: Sequence[Request], recorder: Recorder
) -> Iterator[None]:
    """Steps of an engine on pages, each of which computes one request's whole prompt and its only token."""
    core: Any = CORES[name](model, requests, requests[0].prompt_len)
    with _sampling(core, recorder):
        for request in requests:
            core.push(request)
            core.step()
            yield


def _sampling(core: Any, recorder: Recorder) -> Any:
    """The engine's own way to choose the tokens of a step counts as sampling."""
    owner = core if hasattr(core, "sample") else core.runner
    return replaced(owner, "sample", recorder.sampling(owner.sample))


class Enough(Exception):
    """Raised in a stage that would run on."""


def run_stage(
    stage: Stage, loaded: LoadedModel, requests: Sequence[Request], at_step: Callable[[], bool]
) -> None:
    """Run a stage without pages; a step begins where it runs the model on a token of each request.

    Args:
        at_step: called before each such step; false ends the run.

    Raises:
        CourseError: the run came to its end before that.
    """
    model: Any = loaded.model
    hidden = model.hidden

    def counted(tokens: Any, positions: Any, caches: Any = None) -> Any:
        decode = stage.name == "recompute" or tuple(tokens.shape) == (len(requests), 1)
        if decode and not at_step():
            raise Enough
        return hidden(tokens, positions, caches)

    with replaced(model, "hidden", counted):
        try:
            stage.run(loaded, requests, Limits(len(requests), BUDGET), lambda seen: None)
        except Enough:
            return
    raise CourseError(f"the stage {stage.name!r} came to its end after too few steps")
