"""Simple mutations of a function, generated: an operator changed, an argument left out, a statement deleted."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

from coursekit.lessons.outline import functions, parse

_Operator = tuple[type, Callable[[cst.CSTNode], Iterable[cst.CSTNode]]]


@dataclass(frozen=True)
class Mutation:
    """One change of one place.

    line: of the file, from 1, where the changed place begins.
    before, after: the place's text.
    content: the whole file with the change in it.
    """

    line: int
    before: str
    after: str
    content: str


def mutations(source: str, qualname: str, name: str = "the file") -> Iterator[Mutation]:
    """The mutations of one function's body, in the order of its lines. Docstring, signature and types stay.

    Messages of exceptions stay, too: few tests hold their every word, and few should.

    Raises:
        CourseError: the text is not Python.
        KeyError: it has no such function.
    """
    first, last = _body(functions(parse(source, name))[qualname][-1])
    wrapper = MetadataWrapper(cst.parse_module(source))
    positions = wrapper.resolve(PositionProvider)
    seen = {source}
    for node in _mutable(wrapper.module):
        position = positions[node].start if node in positions else None
        if position is None or not first <= position.line <= last:
            continue
        for changed in _changes(node):
            content = cst.ensure_type(wrapper.module.deep_replace(node, changed), cst.Module).code
            if content in seen or not _is_python(content):
                continue
            seen.add(content)
            before, after = (wrapper.module.code_for_node(one).strip() for one in (node, changed))
            yield Mutation(position.line, before, after, content)


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """The first and the last line of a function's statements behind its docstring."""
    statements = function.body
    if ast.get_docstring(function, clean=False) is not None:
        statements = statements[1:]
    last = function.end_lineno or function.lineno
    return (statements[0].lineno if statements else last + 1), last


def _mutable(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all below it, without types and what an exception is raised with."""
    yield node
    for child in node.children:
        if isinstance(child, cst.Annotation | cst.Raise):
            continue
        yield from _mutable(child)


def _changes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    operators: list[_Operator] = [*mutation_operators, *OWN_OPERATORS]
    for kind, operator in operators:
        if isinstance(node, kind):
            yield from operator(node)


def _without_statement(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Nothing in a statement's place."""
    if not (isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.Pass)):
        yield cst.SimpleStatementLine([cst.Pass()])


def _without_method(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`x` for `x.clone()`, and for other calls of a method without arguments."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        yield node.func.value


def _body_alone(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`except Exception:` or nothing for what must happen on every way out: the body without its `finally`."""
    if isinstance(node, cst.Try) and node.finalbody is not None and node.handlers:
        yield node.with_changes(finalbody=None)


# What the library lacks, and learners do: to forget a line, a copy, a conversion.
OWN_OPERATORS: list[_Operator] = [
    (cst.SimpleStatementLine, _without_statement),
    (cst.If, _without_statement),
    (cst.Call, _without_method),
    (cst.Try, _body_alone),
]


def _is_python(content: str) -> bool:
    try:
        compile(content, "mutated", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
