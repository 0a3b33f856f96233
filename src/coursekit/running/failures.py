"""What an exception in a test means to the learner: the task's state, and a few plain words with file and line."""

from __future__ import annotations

import linecache
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from coursekit.checking.comparison import CheckFailed
from coursekit.running import compiler_errors
from coursekit.running.early_ends import CodeInterrupted, CodeLeft, StubReached, TimedOut
from coursekit.running.memory_limit import GROWS, is_out_of_memory, shown
from coursekit.running.stubs import Stub, chain, reached_stub
from coursekit.task_state import TaskState

LONGEST_MESSAGE = 300
LONGEST_ASSERT = 6
TRANSPOSED = re.compile(r"\.T\b")
# How torch and MLX refuse a product of arrays of three or more axes; of matrices they speak in other words.
SHAPES_OF_BATCHES = re.compile(
    r"size of tensor a .* must match|first two dimensions of batch2|\[matmul\] .*\(\d+(,\d+){2,}\)\.?$"
)

# What None means depends on whose line it met: a test never passes on an argument that was left out.
NONE_IN_A_TEST = "a value is None here: is a `return` missing?"
NONE_IN_LEARNERS_CODE = (
    "a value is None here: an optional argument that was not given (test it with `is None`), "
    "or a function of yours without `return`"
)
NEITHER_TRUE_NOR_FALSE = (
    "an array is neither true nor false: to ask whether an argument was given, test it with `is None`"
)
ALL_AXES_TURNED = "`.T` turns all axes round; `.mT` swaps the last two"

OTHER_ARGUMENTS = "this call and the function that it calls don't agree on the arguments"
ARGUMENTS = r"takes .*positional arguments? but|(unexpected|invalid) keyword argument"

# Exceptions that say little to a beginner: type, a pattern of the message, what it means.
MEANINGS = (
    ("RuntimeError", r"Boolean value of Tensor .* ambiguous", NEITHER_TRUE_NOR_FALSE),
    ("ValueError", r"truth value of an array|Only length-1 arrays can be converted", NEITHER_TRUE_NOR_FALSE),
    (
        "AttributeError",
        r"module '\S+' has no attribute '(\w+)'",
        r"\1 is gone: was it renamed, moved or deleted?",
    ),
    ("UnboundLocalError", r"variable '(\w+)'", r"\1 is used before anything was assigned to it"),
    (
        "NameError",
        r"name '(\w+)' is not defined",
        r"\1 is neither imported nor assigned: a slip of the keyboard?",
    ),
    (
        "TypeError",
        r"unexpected keyword argument '(\w+)'",
        r"keep the signature of the starter: \1 is part of it",
    ),
    ("TypeError", ARGUMENTS, "keep the signature of the starter"),
    ("AssertionError", r"", "an assert in your own code does not hold"),
    ("RecursionError", r"", "a function calls itself without end"),
    (
        "ModuleNotFoundError",
        r"named '([\w.]+)'",
        r"there is no module \1: is the file there, and its name right?",
    ),
    (
        "RuntimeError",
        r"size of tensor a \((\d+)\) must match .* b \((\d+)\)",
        r"sizes \1 and \2 meet on one axis",
    ),
    (
        "TypeError",
        r"torch\.return_types\.(max|min)\b",
        r"\1 along an axis gives values and indices: a\1 gives values",
    ),
    (
        "RuntimeError",
        r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)",
        r"the array has \2 numbers, and these sizes make another product: \1",
    ),
    (
        "RuntimeError",
        r"mat1 and mat2 shapes cannot be multiplied",
        "a matrix product whose inner sizes differ",
    ),
    (
        "RuntimeError",
        r"[Ee]xpected all tensors to be on the same device",
        "an array was made on another device",
    ),
    (
        "RuntimeError",
        r"view size is not compatible",
        "after a transpose the numbers are not in a row: use reshape",
    ),
)


@dataclass(frozen=True)
class Failure:
    """How a test failed: a state, what to tell the learner, and the line of the test that was reached."""

    state: TaskState
    message: str
    stub: Stub | None = None
    line: int | None = None
    ends_task: bool = False
    """Whether the task's other tests are not worth running: each would take as long, or as much memory."""


@dataclass(frozen=True)
class Places:
    """Where things lie: the course's root, and the folders of the implementation under test."""

    root: Path
    packages: tuple[Path, ...]

    def is_learners(self, filename: str) -> bool:
        return any(Path(filename).is_relative_to(package) for package in self.packages)

    def is_test(self, filename: str) -> bool:
        return Path(filename).is_relative_to(self.root / "tests")

    def shown(self, filename: str) -> str:
        """A path as the learner would type it, from the course's root."""
        path = Path(filename)
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.name


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
    if failed or (isinstance(error, AssertionError) and _raised_by_test(frames, places, interpreted)):
        return Failure(TaskState.WRONG, "\n".join(_assertion(error, frames, places)), line=line)
    lines = [_first_words(error), *_place(error, frames, places), *_meaning(error, frames, places)]
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


def _meaning(error: BaseException, frames: traceback.StackSummary, places: Places) -> list[str]:
    reached = [f for f in frames if places.is_learners(f.filename) or places.is_test(f.filename)]
    learners = bool(reached) and places.is_learners(reached[-1].filename)
    if isinstance(error, (AttributeError, TypeError)) and "NoneType" in str(error):
        return [f"  {NONE_IN_LEARNERS_CODE if learners else NONE_IN_A_TEST}"]
    if learners and SHAPES_OF_BATCHES.search(str(error)) and TRANSPOSED.search(reached[-1].line or ""):
        return [f"  {ALL_AXES_TURNED}"]
    # Only where a test calls is the signature known to be the learner's to keep.
    if learners and isinstance(error, TypeError) and re.search(ARGUMENTS, str(error)):
        return [f"  {OTHER_ARGUMENTS}"]
    if isinstance(error, AssertionError) and frames and not places.is_learners(frames[-1].filename):
        return []  # Triton's own, on its way through the learner's kernel
    for kind, pattern, meaning in MEANINGS:
        match = re.search(pattern, str(error))
        if match and any(base.__name__ == kind for base in type(error).__mro__):
            return [f"  {match.expand(meaning)}"]
    return []
