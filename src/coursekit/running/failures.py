"""What an exception in a test means to the learner: the task's state, and a few plain words with file and line."""

from __future__ import annotations

import linecache
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from coursekit.checking.comparison import CheckFailed
from coursekit.running import compiler_errors
from coursekit.running.early_ends import CodeEnded, CodeInterrupted, CodeLeft, StubReached, TimedOut
from coursekit.running.meanings import meaning
from coursekit.running.memory_limit import GROWS, is_out_of_memory, shown
from coursekit.running.named_values import named_values
from coursekit.running.places import Places
from coursekit.running.stubs import Stub, chain, reached_stub
from coursekit.task_state import TaskState

LONGEST_MESSAGE = 300
LONGEST_ASSERT = 6


@dataclass(frozen=True)
class Failure:
    """How a test failed: a state, what to tell the learner, and the line of the test that was reached."""

    state: TaskState
    message: str
    stub: Stub | None = None
    line: int | None = None
    ends_task: bool = False
    """Whether the task's other tests are not worth running: each would take as long, or as much memory."""


def describe(
    error: BaseException, places: Places, test: Path | None = None, memory: int | None = None
) -> Failure:
    """Say what ``error``, raised in a test of the file ``test``, means; ``memory`` is the bytes that it may take."""
    if isinstance(error, CodeLeft | CodeInterrupted | StubReached) and error.__cause__ is not None:
        left, error = isinstance(error, CodeLeft), error.__cause__
        frames = traceback.extract_tb(error.__traceback__)
        if left:
            return Failure(TaskState.WRONG, "\n".join([_way_out(error), *_place(error, frames, places)]))
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if Path(frame.filename) == test), None)
    stub = reached_stub(error)
    if stub is not None:
        return Failure(TaskState.NOT_STARTED, "", stub, line)
    links = compiler_errors.out_of_interpreter(error)
    interpreted, error = len(links) > 1, links[-1]
    frames = traceback.StackSummary.from_list(
        [f for link in links for f in traceback.extract_tb(link.__traceback__)]
    )
    failed = isinstance(error, pytest.fail.Exception)  # how pytest.raises says that nothing was raised
    # Hypothesis, interrupted while it draws an example again, complains of the drawing instead.
    timed_out = next((link for link in chain(error) if isinstance(link, TimedOut)), None)
    if timed_out is not None:
        lines = [f"ran longer than {timed_out.args[0]:g} s and was stopped: is there a loop that never ends?"]
        message = "\n".join(lines + _place(error, frames, places))
        return Failure(TaskState.CRASHED, message, line=line, ends_task=True)
    ended = next((link for link in chain(error) if isinstance(link, CodeEnded)), None)
    if ended is not None:
        return Failure(TaskState.CRASHED, str(ended), line=line, ends_task=True)
    if failed or (isinstance(error, AssertionError) and _raised_by_test(frames, places, interpreted)):
        return Failure(TaskState.WRONG, "\n".join(_assertion(error, frames, places)), line=line)
    named = [] if interpreted else named_values(error, places)
    lines = [_first_words(error), *_place(error, frames, places), *named, *meaning(error, frames, places)]
    if is_out_of_memory(error) and memory is not None:
        message = "\n".join([*lines, f"  the tests may take {shown(memory)} of memory: {GROWS}"])
        return Failure(TaskState.CRASHED, message, line=line, ends_task=True)
    return Failure(TaskState.CRASHED, "\n".join(lines), line=line)


def _way_out(error: BaseException) -> str:
    if isinstance(error, SystemExit | pytest.exit.Exception):
        return "your code ended the program (sys.exit, pytest.exit): let it return, or raise an exception"
    return (
        "your code skipped the test (pytest.skip, SkipTest or the like), which only the tests themselves may do: "
        "what is not written yet keeps the starter's `raise NotImplementedError(…)`"
    )


def _raised_by_test(frames: traceback.StackSummary, places: Places, interpreted: bool) -> bool:
    """Whether a test or one of the course's checks says that something is wrong.

    Not the learner's own asserts, nor those of Triton's interpreter, which stands between the two.
    """
    if not frames:
        return True
    last = frames[-1].filename
    return not places.is_learners(last) and (places.is_test(last) or not interpreted)


def _assertion(error: BaseException, frames: traceback.StackSummary, places: Places) -> list[str]:
    text = str(error).strip()
    cause = error.__cause__
    if isinstance(error, CheckFailed):
        return [text, *(_place(cause, traceback.extract_tb(cause.__traceback__), places) if cause else [])]
    # pytest explains a bare assert with lines on where each value came from; the first words say enough.
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("+ ", "Use -v"))
    ]
    source = next((frame.line for frame in reversed(frames) if places.is_test(frame.filename)), None)
    return [*lines[:LONGEST_ASSERT], *([f"  in: {source}"] if source else [])]


def _first_words(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, SyntaxError):
        text = error.msg
    if isinstance(error, BaseExceptionGroup):
        inner = next(link for link in chain(error) if not isinstance(link, BaseExceptionGroup))
        return _first_words(inner)
    if compiler_errors.is_compiler_error(error):
        text = f"{compiler_errors.compiler(error)} can't compile this: {compiler_errors.cause(error)}"
    text = text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException, frames: traceback.StackSummary, places: Places) -> list[str]:
    """The line of the learner's code that failed, or the test's own where none was reached."""
    if isinstance(error, SyntaxError) and error.filename:
        line = (error.text or linecache.getline(error.filename, error.lineno or 0)).strip()
        return [f"  {places.shown(error.filename)}:{error.lineno}", *([f"    {line}"] if line else [])]
    compiled = compiler_errors.place(error) if compiler_errors.is_compiler_error(error) else None
    if compiled is not None and places.is_learners(str(compiled[0])):
        return [f"  {places.shown(str(compiled[0]))}:{compiled[1]}", f"    {compiled[2]}"]
    mine = [frame for frame in frames if places.is_learners(frame.filename)]
    if mine:
        frame = ([frame for frame in mine if not compiler_errors.is_given(frame.filename)] or mine)[-1]
        function = "" if frame.name == "<module>" else f", in {frame.name}"
        return [f"  {places.shown(frame.filename)}:{frame.lineno}{function}", f"    {frame.line}"]
    tests = [frame for frame in frames if places.is_test(frame.filename)]
    if not tests:
        return []
    frame = tests[-1]
    return [f"  where the test calls it, {places.shown(frame.filename)}:{frame.lineno}", f"    {frame.line}"]
