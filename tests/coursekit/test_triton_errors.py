"""What a learner is told when a Triton kernel fails, in the interpreter or in the compiler."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton exists for Linux only")
import triton.language as tl  # noqa: E402 (it is there)
from triton.runtime.interpreter import InterpretedFunction  # noqa: E402

from coursekit.check import CheckFailed  # noqa: E402
from coursekit.lab import active  # noqa: E402
from coursekit.running import compiler_errors  # noqa: E402
from coursekit.running.failures import describe  # noqa: E402
from coursekit.running.places import Places  # noqa: E402

HERE = Path(__file__).resolve()
LEARNERS = Places(HERE.parents[2], (HERE.parent,))
TESTS = Places(HERE.parents[2], ())


@triton.jit
def misspelt(x):
    return x + offset  # type: ignore[name-defined]  # noqa: F821


@triton.jit
def wrong_shapes(x):
    return x[:, None] + tl.arange(0, 8)[None, :] + tl.zeros((4, 4), tl.float32)


@triton.jit
def no_such_axis(x):
    return tl.sum(x, axis=3)


@triton.jit
def of_nothing(x):
    return None * x


@triton.jit
def asserts(x):
    assert x is None
    return x


def refused(x):
    raise CheckFailed("the tile has the wrong shape")


@triton.jit
def outer(inner: tl.constexpr, out: Any, SIZE: tl.constexpr) -> None:
    places = tl.arange(0, SIZE)
    tl.store(out + places, inner(tl.load(out + places)))


def failure_of(function: Any, places: Places = LEARNERS) -> Any:
    if not isinstance(outer, InterpretedFunction):
        pytest.skip("Triton compiles here; this is about its interpreter")
    with pytest.raises(triton.InterpreterError) as caught:
        outer[(1,)](function, active().array([0.0] * 8), 8)
    return describe(caught.value, places)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (misspelt, "NameError: name 'offset' is not defined"),
        (wrong_shapes, "ValueError: "),
        (no_such_axis, "Error: "),
        (of_nothing, "AttributeError: 'NoneType' object has no attribute"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_the_interpreter_shows_the_cause_and_the_learners_line(function, says):
    failure = failure_of(function)
    first, where, line = failure.message.splitlines()[:3]
    assert failure.state == "crashed"
    assert says in first
    assert "InterpreterError" not in failure.message
    number = inspect.getsourcelines(function.fn)[1] + 2
    assert where.strip() == f"tests/coursekit/{HERE.name}:{number}, in {function.fn.__name__}"
    assert line.strip().startswith("return ")


def test_an_assert_of_the_learners_own_in_a_kernel_is_a_crash():
    failure = failure_of(asserts)
    assert failure.state == "crashed"
    assert "an assert in your own code does not hold" in failure.message


def test_what_a_check_finds_while_a_kernel_runs_is_wrong_and_not_a_crash():
    failure = failure_of(refused, TESTS)
    assert failure.state == "wrong"
    assert failure.message.startswith("the tile has the wrong shape")


def test_a_name_that_is_not_there_is_explained():
    assert "a slip of the keyboard?" in failure_of(misspelt).message


def compiled(function: Any) -> Any:
    """A function as Triton's compiler keeps it; here the interpreter has it."""
    from triton.runtime.jit import JITFunction

    return JITFunction(function.fn)


def test_the_compiler_shows_its_cause_and_the_learners_line(monkeypatch):
    from triton.compiler.errors import CompilationError

    inner = compiled(misspelt)
    monkeypatch.setitem(globals(), "compiled_later", inner)
    node = ast.parse(inner.src).body[0].body[0]
    error = CompilationError("def outer():\n    pass\n", node, None)
    error.__cause__ = CompilationError(inner.src, node, "NameError('offset is not defined')")
    assert compiler_errors.compiler(error) == "Triton"
    first, where, line = describe(error, LEARNERS).message.splitlines()[:3]
    assert first == "CompilationError: Triton can't compile this: NameError('offset is not defined')"
    assert where.strip() == f"tests/coursekit/{HERE.name}:{inspect.getsourcelines(misspelt.fn)[1] + 2}"
    assert line.strip().startswith("return x + offset")


@triton.jit
def inner_sizes_differ(x):
    return tl.dot(x[:, None] + tl.zeros((8, 16), tl.float32), tl.zeros((32, 16), tl.float32))


def test_an_assert_of_tritons_is_not_taken_for_the_learners():
    failure = failure_of(inner_sizes_differ)
    assert failure.state == "crashed"
    assert "tl.dot(" in failure.message
    assert "your own code" not in failure.message
