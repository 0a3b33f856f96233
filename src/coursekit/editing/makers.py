"""What a function is made into: a stub, or itself with a comment."""

from __future__ import annotations

import json
from collections.abc import Callable

import libcst as cst

Make = Callable[[cst.FunctionDef], cst.FunctionDef]


def make_stub(message: str) -> Make:
    """Keep decorators, signature and docstring, and raise `NotImplementedError(message)`."""
    # A JSON string is a Python string too, and always in double quotes.
    failure = cst.parse_statement(f"raise NotImplementedError({json.dumps(message, ensure_ascii=False)})")

    def make(node: cst.FunctionDef) -> cst.FunctionDef:
        header = node.body.header if isinstance(node.body, cst.IndentedBlock) else cst.TrailingWhitespace()
        kept = [] if node.get_docstring(clean=False) is None else [_docstring(node.body.body[0])]
        return node.with_changes(body=cst.IndentedBlock([*kept, failure], header=header))

    return make


def make_commented(comment: str) -> Make:
    """Keep all of the function, and put the comment on the first line after the docstring."""
    line = cst.EmptyLine(comment=cst.Comment(comment))

    def make(node: cst.FunctionDef) -> cst.FunctionDef:
        if not isinstance(node.body, cst.IndentedBlock):
            return node  # `def f(): return 1` has no line to put it on
        statements = list(node.body.body)
        place = 1 if len(statements) > 1 and node.get_docstring(clean=False) is not None else 0
        first = statements[place]
        assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        statements[place] = first.with_changes(leading_lines=[line, *first.leading_lines])
        return node.with_changes(body=node.body.with_changes(body=statements))

    return make


def _docstring(first: cst.CSTNode) -> cst.SimpleStatementLine:
    """A function's first statement as a line of its own, without what a semicolon may put behind it."""
    if not isinstance(first, cst.SimpleStatementLine):
        return cst.SimpleStatementLine(
            [cst.ensure_type(first, cst.Expr).with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]
        )
    return first.with_changes(body=[first.body[0].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
