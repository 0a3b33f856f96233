"""Steps of a model recorded: torch's operations and Numba's kernels on one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.profiling.kinds import kind_of_kernel, kind_of_torch
from benchmarks.profiling.spans import ATTENTION, PROFILE, SAMPLING, Operation, Piece, Region, divide
from benchmarks.profiling.watching import KernelWatch, Regions, replaced
from benchmarks.profiling.work import Work, pass_of

if TYPE_CHECKING:
    from tiny_llm.model import Transformer

ANCHOR = "anchor of the profile"
"""An operation that both clocks know: torch's recording has a clock of its own."""


@dataclass(frozen=True)
class Mark:
    """The moment between two steps, in nanoseconds."""

    end: int  # of the step before
    start: int  # of the next one


@dataclass(frozen=True)
class RecordedStep:
    """A step and what it consisted of."""

    pieces: list[Piece]
    work: Work


class Recorder:
    """Records the steps of an engine, whose model it watches. One thread runs all."""

    def __init__(self, model: Transformer, opening: bool = True) -> None:
        """Nothing is recorded yet.

        Args:
            model: an object of its own, see :func:`benchmarks.watched_steps.own_copy`.
            opening: whether fused kernels are run part by part.
        """
        self.kernels = KernelWatch()
        self.kernels.opening = opening
        self._model: Any = model
        self._regions = Regions()
        self._marks: list[Mark] = []
        self._ran: list[tuple[str, int, Any]] = []  # runs of the model and of the head, and when
        self._stack = ExitStack()
        self._watched: set[type] = set()
        self._profile: Any = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs, the model, its caches and the kernels are watched."""
        with ExitStack() as self._stack:
            self._watched = set()
            hidden, logits = self._model.hidden, self._model.logits
            self._stack.enter_context(self.kernels.watching())
            self._stack.enter_context(replaced(self._model, "hidden", self._noted_hidden(hidden)))
            self._stack.enter_context(replaced(self._model, "logits", self._noted_logits(logits)))
            yield

    def sampling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; what it does counts as sampling."""
        return self._regions.around(SAMPLING, function)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While the block runs, torch's operations are recorded, too; :meth:`mark` first, and after each step."""
        from torch.profiler import ProfilerActivity, profile

        self.kernels.reset()
        self._regions.noted, self._marks, self._ran = [], [], []
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as self._profile:
            yield

    def mark(self) -> None:
        """A step has ended, and the next one begins."""
        from torch.profiler import record_function

        end = time.perf_counter_ns()
        with record_function(ANCHOR):
            pass
        self._marks.append(Mark(end, time.perf_counter_ns()))

    def _noted_hidden(self, hidden: Callable[..., Any]) -> Callable[..., Any]:
        def call(tokens: Any, positions: Any, caches: Any = None) -> Any:
            self._watch_caches(caches)
            meta = getattr(caches[0], "meta", None) if caches else None
            self._ran.append(("hidden", time.perf_counter_ns(), (tokens.shape, positions, meta)))
            return hidden(tokens, positions, caches)

        return call

    def _noted_logits(self, logits: Callable[..., Any]) -> Callable[..., Any]:
        def call(hidden: Any) -> Any:
            self._ran.append(("logits", time.perf_counter_ns(), hidden.numel() // hidden.shape[-1]))
            return logits(hidden)

        return call

    def _watch_caches(self, caches: Any) -> None:
        """What a cache does when it attends counts as attention, however it does it."""
        from tiny_llm.kv_cache import NoCache

        for kind in {type(each) for each in caches or ()} or {NoCache}:
            if kind not in self._watched:
                self._watched.add(kind)
                attend = self._regions.around(ATTENTION, kind.attend)
                self._stack.enter_context(replaced(kind, "attend", attend))

    def steps(self) -> list[RecordedStep]:
        """All steps between two marks."""
        operations = [*self._torch_operations(), *self._kernel_calls()]
        opened = [Region(PROFILE, start * 1e-9, end * 1e-9) for start, end in self.kernels.opened]
        regions = [
            Region(kind, start * 1e-9, end * 1e-9) for kind, start, end in self._regions.noted
        ] + opened
        made = []
        for before, after in zip(self._marks, self._marks[1:], strict=False):
            start, end = before.start * 1e-9, after.end * 1e-9
            mine = [each for each in operations if start <= each.start < end]
            around = [each for each in regions if each.start < end and each.end > start]
            made.append(RecordedStep(divide(mine, around, start, end), self._work(before.start, after.end)))
        return made

    def _work(self, start: int, end: int) -> Work:
        ran = [(what, value) for what, when, value in self._ran if start <= when < end]
        passes = [pass_of(*value) for what, value in ran if what == "hidden"]
        return Work(passes, [value for what, value in ran if what == "logits"])

    def _kernel_calls(self) -> Iterator[Operation]:
        calling = self.kernels.calling_seconds()
        for each in self.kernels.calls:
            kind = kind_of_kernel(each.module, each.name)
            name = f"{each.module.removeprefix('tiny_llm.')}.{each.name}"
            seconds = calling[each.kernel]
            yield Operation(name, kind, each.start * 1e-9, each.end * 1e-9, each.detail, seconds)

    def _torch_operations(self) -> Iterator[Operation]:
        """Torch's outermost operations, on the clock of the marks."""
        events = self._profile.events()
        anchors = [each for each in events if each.name == ANCHOR]
        offset = _offset([(each.time_range.start, each.time_range.end) for each in anchors], self._marks)
        for each in events:
            if "::" in each.name and each.cpu_parent is None:
                start, end = (
                    1e-6 * moment - offset for moment in (each.time_range.start, each.time_range.end)
                )
                yield Operation(each.name, kind_of_torch(each.name), start, end, _shapes(each.input_shapes))


def _offset(anchors: list[tuple[float, float]], marks: list[Mark]) -> float:
    """How many seconds torch's clock is ahead: each anchor lies between the two moments of its mark.

    Args:
        anchors: start and end, in microseconds of torch's clock.
        marks: as many.
    """
    most = min(1e-6 * start - mark.end * 1e-9 for (start, _), mark in zip(anchors, marks, strict=True))
    least = max(1e-6 * end - mark.start * 1e-9 for (_, end), mark in zip(anchors, marks, strict=True))
    return (least + most) / 2


def _shapes(shapes: Any) -> str:
    """The shapes of those inputs that have one: 32×576, 576×960."""
    return ", ".join("×".join(str(size) for size in each) for each in (shapes or []) if each)
