"""A function as a row of tokens that stay the same when variables are renamed, and comments or the layout change."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from coursekit.lessons.outline import Function

_BUILTINS = frozenset(dir(builtins))
_SKIPPED = (ast.expr_context,)
_SKIPPED_FIELDS = ("annotation", "returns", "decorator_list", "type_comment", "type_params")


@dataclass(frozen=True)
class Token:
    """What stands on a line; lines are those of the file."""

    text: str
    line: int


def tokens(function: Function) -> list[Token]:
    """The nodes of a function's body, from left to right, each as its kind and what a learner can't choose freely.

    Kept are the names of attributes, of builtins, of keyword arguments and of modules, and of a literal its type.
    Names of variables, docstrings and annotations are left out.
    """
    bound = _bound(function)
    found, line = [], function.lineno
    for node in _nodes(function):
        line = getattr(node, "lineno", line)
        found.append(Token(_text(node, bound), line))
    return found


def _nodes(function: Function) -> Iterator[ast.AST]:
    """In the order of the text; without recursion, since a submission may be nested as deeply as it likes."""
    waiting: list[ast.AST] = list(reversed(_body(function)))
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(_children(node))))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED_FIELDS:
            continue
        if name == "body" and isinstance(node, Function):
            value = _body(node)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and not isinstance(each, _SKIPPED):
                yield each


def _body(function: Function) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def _bound(function: Function) -> set[str]:
    """The names that the function gives a meaning of its own."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, Function | ast.ClassDef) and node is not function:
            names.add(node.name)
    return names


def _text(node: ast.AST, bound: set[str]) -> str:
    kind = type(node).__name__
    match node:
        case ast.Attribute(attr=name):
            return f"{kind} {name}"
        case ast.Name(id=name) if name in _BUILTINS and name not in bound:
            return f"{kind} {name}"
        case ast.keyword(arg=str(name)) if name not in bound:
            return f"{kind} {name}"
        case ast.Constant(value=value):
            return f"{kind} {type(value).__name__}"
        case ast.alias(name=name):
            return f"{kind} {name}"
        case ast.ImportFrom(module=str(name)):
            return f"{kind} {name}"
    return kind
