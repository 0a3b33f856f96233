"""Registers as types of Numba, and how a function gets a compiled form that works on them (Day 4.7, given code).

`compiled_vectors.py` and `compiled_tiles.py` use this; kernels use what is defined in `vectors.py` and `tiles.py`.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, lower_builtin, models, overload, register_model, type_callable

from tiny_llm.fast.vectors import LANES

INT, FLOAT = ir.IntType(32), ir.FloatType()
INTS, FLOATS = ir.VectorType(INT, LANES), ir.VectorType(FLOAT, LANES)


class Register(types.Type):
    """A register with lanes of one kind, or a tile: R of them."""

    def __init__(self, lanes: ir.VectorType, rows: int = 0) -> None:
        """R is ``rows``; 0 stands for a single register."""
        self.lanes = lanes
        self.rows = rows
        super().__init__(name=f"{lanes.element}x{LANES}" + (f"x{rows}" if rows else ""))


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Register) -> None:
        super().__init__(manager, kind, ir.ArrayType(kind.lanes, kind.rows) if kind.rows else kind.lanes)


def _with_operators(kind: Register, instructions: dict[Any, str]) -> Register:
    """The same type; operators between two of its registers become instructions."""

    def tie(symbol: Any, name: str) -> None:
        @intrinsic
        def instruction(typing: Any, a: Any, b: Any) -> Any:
            return kind(a, b), lambda context, builder, signature, values: getattr(builder, name)(*values)

        @overload(symbol)
        def of_registers(a, b):
            if a == kind and b == kind:
                return lambda a, b: instruction(a, b)  # type: ignore[call-arg]
            return None

    for symbol, name in instructions.items():
        tie(symbol, name)
    return kind


Ints = Register(INTS)
Floats = _with_operators(
    Register(FLOATS),
    {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"},
)


class Memory:
    """An array in the code that is being made."""

    def __init__(self, builder: ir.IRBuilder, data: ir.Value, dtype: types.Type) -> None:
        self.builder = builder
        self.data = data
        self.dtype = dtype

    def pointer(self, at: ir.Value, what: ir.Type) -> ir.Value:
        """Where an element lies, as a pointer to a value of another type."""
        return self.builder.bitcast(self.builder.gep(self.data, [at]), what.as_pointer())

    def load(self, at: ir.Value, what: ir.Type) -> ir.Value:
        """What lies at an element and behind it, as a value of another type."""
        loaded = self.builder.load(self.pointer(at, what))
        loaded.align = 1
        return loaded

    def store(self, at: ir.Value, value: ir.Value) -> None:
        """Write a value of any type to an element and behind it."""
        self.builder.store(value, self.pointer(at, value.type)).align = 1


class Argument(NamedTuple):
    """What an argument must be, and what the function that makes the code gets for it."""

    what: str
    fits: Callable[[Any], bool]  # its type
    convert: Callable[[Any, ir.IRBuilder, Any, Any], Any]  # context, builder, type, value


def _register(what: str, kind: Register) -> Argument:
    return Argument(what, lambda each: each == kind, lambda context, builder, each, value: value)


def _tile(what: str, lanes: ir.VectorType) -> Argument:
    def rows(context: Any, builder: ir.IRBuilder, kind: Register, value: ir.Value) -> list[ir.Value]:
        return [builder.extract_value(value, row) for row in range(kind.rows)]

    return Argument(
        what, lambda each: isinstance(each, Register) and each.lanes == lanes and each.rows > 0, rows
    )


def _cast(what: str, allowed: type, target: types.Type) -> Argument:
    def cast(context: Any, builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
        return context.cast(builder, value, kind, target)

    return Argument(what, lambda each: isinstance(each, allowed), cast)


def array_of(what: str, *dtypes: types.Type, written: bool = False) -> Argument:
    """An array in one piece of one of some dtypes; it comes as :class:`Memory`."""

    def fits(kind: Any) -> bool:
        in_one_piece = isinstance(kind, types.Array) and kind.layout in "CF" and kind.dtype in dtypes
        return in_one_piece and (kind.mutable or not written)

    def memory(context: Any, builder: ir.IRBuilder, kind: types.Array, value: ir.Value) -> Memory:
        return Memory(builder, context.make_array(kind)(context, builder, value).data, kind.dtype)

    return Argument(f"an array of {what} in one piece{' that can be written to' * written}", fits, memory)


FLOATS_GIVEN, INTS_GIVEN = _register("16 float32", Floats), _register("16 int32", Ints)
FLOAT_ROWS, INT_ROWS = _tile("a tile of float32", FLOATS), _tile("a tile of int32", INTS)
INDEX = _cast("a whole number", types.Integer, types.intp)
COUNT = _cast("a whole number", types.Integer, types.int32)
NUMBER = _cast("a number", types.Number, types.float32)
ROWS = Argument(
    "a constant number of rows",
    lambda each: isinstance(each, types.IntegerLiteral) and each.literal_value > 0,
    lambda context, builder, kind, value: kind.literal_value,
)

Result = types.Type | Callable[..., types.Type]


def compiled(definition: Callable[..., Any], *arguments: Argument, result: Result) -> Callable[..., Any]:
    """The decorated function makes the LLVM code that kernels get for a call of another function.

    Numba's `overload` would do it, too, with a function more around each: this compiles faster.

    Args:
        definition: the function that kernels call.
        arguments: what its arguments must be.
        result: the type of its result, or a function that gives it for the types of the arguments.
    """
    names = list(inspect.signature(definition).parameters)

    def type_of(*kinds: Any) -> types.Type:
        for name, kind, argument in zip(names, kinds, arguments, strict=True):
            if not argument.fits(kind):
                raise TypingError(f"{definition.__name__}: `{name}` must be {argument.what}, not {kind}")
        return result if isinstance(result, types.Type) else result(*kinds)

    def tie(make: Callable[..., Any]) -> Callable[..., Any]:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
            given = zip(arguments, signature.args, values, strict=True)
            made = make(
                builder, *(each.convert(context, builder, kind, value) for each, kind, value in given)
            )
            return _as_value(context, builder, made)

        # Numba asks for the names of the arguments.
        type_of.__signature__ = inspect.signature(definition)  # type: ignore[attr-defined]
        type_callable(definition)(lambda context: type_of)
        lower_builtin(definition, types.VarArg(types.Any))(code)
        return make

    return tie


def _as_value(context: Any, builder: ir.IRBuilder, made: Any) -> ir.Value:
    """What a function of `compiled` gives: nothing, a value, or a list of them, which is a tile."""
    if made is None:
        return context.get_dummy_value()
    if not isinstance(made, list):
        return made
    tile = ir.Constant(ir.ArrayType(made[0].type, len(made)), ir.Undefined)
    for row, value in enumerate(made):
        tile = builder.insert_value(tile, value, row)
    return tile
