"""What a reference says about the object that it stands for."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

from grading.link import derived

CLASS, ERROR_CLASS, ARRAY, FUNCTION, METHOD, OBJECT = (
    "class",
    "error class",
    "array",
    "function",
    "method",
    "object",
)
ATTRIBUTE = "attribute"
"""The kind of a reference to the attribute `name` of an object of the other side."""


def kind_of(value: Any) -> str:
    """What a reference says about an object."""
    if isinstance(value, type):
        return ERROR_CLASS if issubclass(value, BaseException) else CLASS
    if isinstance(value, FunctionType):
        return FUNCTION
    if isinstance(value, MethodType):
        return METHOD
    number = vars(type(value)).get(derived.NUMBER)
    if number is not None:
        return f"{derived.KIND}{number}"
    return ARRAY if type(value).__module__ in ("torch", "mlx.core") and hasattr(value, "dtype") else OBJECT
