"""Steps of an engine: first timed as they are, then recorded."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.profiling.engines import CORES, decoding, make_requests, prefilling, run_stage, steps_before
from benchmarks.profiling.recording import RecordedStep, Recorder
from benchmarks.profiling.spans import median_of
from benchmarks.profiling.work import Cost, Sizes, costs
from benchmarks.watched_steps import own_copy
from coursekit.errors import CourseError
from programs.loaded import LoadedModel
from programs.stage import Stage

if TYPE_CHECKING:
    from tiny_llm.model import Transformer

WARM_UP = 3
"""Steps before those that are timed, and before those that are recorded: kernels are compiled in them."""


@dataclass(frozen=True)
class Profiled:
    """Steps of one kind."""

    name: str  # decode or prefill
    title: str
    steps: list[RecordedStep]
    plain: float  # seconds of a step that nobody looks at, the median
    opened: tuple[str, ...]  # kernels that were run part by part
    sizes: Sizes

    @property
    def shown(self) -> RecordedStep:
        """The step that takes the median of their times."""
        return self.steps[median_of([each.pieces for each in self.steps])]

    def costs(self) -> dict[str, Cost]:
        """What the shown step has to do, by kind."""
        return costs(self.sizes, self.shown.work)


def steps_needed(steps: int) -> int:
    """How many steps it takes to time so many, and to record as many."""
    return 2 * (WARM_UP + steps) + 1


def measuring(recorder: Recorder, steps: int, plain: list[float]) -> Iterator[None]:
    """Each time that it yields, a step is to be run.

    Args:
        recorder: what is to be recorded with.
        steps: how many steps are timed, and how many recorded.
        plain: gets the seconds of those that are timed.
    """
    for _ in range(WARM_UP):
        yield
    for _ in range(steps):
        start = time.perf_counter()
        yield
        plain.append(time.perf_counter() - start)
    with recorder.watching():
        for _ in range(WARM_UP):
            yield
        with recorder.recording():
            recorder.mark()
            for _ in range(steps):
                yield
                recorder.mark()


def profile_decodes(
    stage: Stage, name: str, loaded: LoadedModel, text: Sequence[int], requests: int, prompt: int, steps: int
) -> Profiled:
    """Steps in which each of some requests brings one token.

    Args:
        stage: what runs the requests, where ``name`` isn't one of :data:`CORES`.
        name: the engine.
        text: token ids to cut the prompts from.
        prompt: how many tokens each prompt has.
    """
    model = own_copy(loaded.model)
    recorder, plain = Recorder(model), list[float]()
    room = prompt + steps_before(requests, prompt) + steps_needed(steps) + 4
    _require_positions(loaded, room)
    made = make_requests(recorder, text, requests, prompt, room - prompt)
    under_way = measuring(recorder, steps, plain)
    if name in CORES:
        _drive(under_way, decoding(name, model, made, recorder))
    else:
        run_stage(stage, LoadedModel(model, loaded.tokenizer), made, _asker(under_way))
    what = "1 request" if requests == 1 else f"{requests} requests"
    return _profiled("decode", f"a step of {what}, a token each", recorder, plain, model)


def profile_prefill(name: str, loaded: LoadedModel, text: Sequence[int], tokens: int, steps: int) -> Profiled:
    """Steps that compute a prompt of so many tokens, alone, and its first token."""
    model = own_copy(loaded.model)
    recorder, plain = Recorder(model), list[float]()
    _require_positions(loaded, tokens + 1)
    made = make_requests(recorder, text, steps_needed(steps), tokens, 1)
    _drive(measuring(recorder, steps, plain), prefilling(name, model, made, recorder))
    return _profiled("prefill", f"a step of a prompt's {tokens} tokens", recorder, plain, model)


def _require_positions(loaded: LoadedModel, needed: int) -> None:
    most = loaded.model.config.max_positions
    if needed > most:
        raise CourseError(f"the requests would come to {needed} tokens; this model has {most} positions")


def _drive(under_way: Iterator[None], engine: Iterator[None]) -> None:
    for _ in under_way:
        next(engine)


def _asker(under_way: Iterator[None]) -> Callable[[], bool]:
    """Goes on with what is measured, and says whether another step is wanted."""
    done = object()
    return lambda: next(under_way, done) is not done


def _profiled(name: str, title: str, recorder: Recorder, plain: list[float], model: Transformer) -> Profiled:
    opened = tuple(sorted(recorder.kernels.names))
    return Profiled(name, title, recorder.steps(), statistics.median(plain), opened, Sizes.of(model))
