"""Puts back what a learner's file has lost, so that the course's functions find their place and their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from copy import copy

from coursekit.editing.source import end_of_statement, indentation, newline_of, render
from coursekit.errors import CourseError
from coursekit.lessons.outline import (
    BYTE_ORDER_MARK,
    bound_names,
    classes,
    functions,
    module_names,
    parse,
    used_names,
)

Repaired = tuple[str, list[str]]


def add_function(source: str, qualname: str, starter: str, name: str) -> Repaired:
    """Add a function that was deleted or renamed, as the starter has it, and its class where that is gone too.

    It comes after the nearest of its neighbours in the starter that the source still has.

    Args:
        source: the learner's text.
        qualname: the function's dotted name.
        starter: the text of the same file in the starter.
        name: what error messages call the file.

    Returns:
        The text, and the names that were added: none where the function is there.

    Raises:
        CourseError: the text is not Python, or the name stands for something else now, say an import.
    """
    tree = parse(source, name)
    if qualname in functions(tree):
        return source, []
    outer, _, own = qualname.rpartition(".")
    owner = classes(tree).get(outer)
    if owner is not None:
        return _add_method(source, owner, qualname, starter, name), [qualname]
    top = (outer or own).split(".")[0]
    if taken := module_names(tree).get(top):
        raise CourseError(
            f"{name}:{taken.lineno}: {top} is not what the course means by it: rename or remove that"
        )
    return add_names(source, {top}, starter, name)


def add_names(source: str, names: set[str], starter: str, name: str) -> Repaired:
    """Add those of `names` that the starter's file binds at its top level and the source doesn't.

    They are imports, constants, given functions and classes; what they need in turn is added as well.

    Returns:
        The text, and the names that were added.
    """
    model = parse(starter, "the starter")
    binders = module_names(model)
    added: list[str] = []
    waiting = sorted(names & binders.keys())
    while waiting:
        wanted = waiting.pop()
        tree = parse(source, name)
        if wanted in module_names(tree):
            continue
        binder = binders[wanted]
        source = _insert(
            source, tree, _anchor(model.body, binder, tree.body), _text_of(starter, binder, wanted)
        )
        added.append(wanted)
        waiting += sorted(used_names(binder) & binders.keys())
    return source, added


def _add_method(source: str, owner: ast.ClassDef, qualname: str, starter: str, name: str) -> str:
    if owner.body[0].lineno == owner.lineno:
        raise CourseError(
            f"{name}:{owner.lineno}: put the body of class {owner.name} on lines of its own first"
        )
    outer, _, own = qualname.rpartition(".")
    siblings = classes(parse(starter, "the starter"))[outer].body
    binder = next(statement for statement in siblings if own in bound_names(statement))
    anchor = _anchor(siblings, binder, owner.body) or owner.body[-1]
    prefix, newline = indentation(source, owner.body[0]), newline_of(source)
    end = end_of_statement(source, anchor)
    return source[:end] + 2 * newline + prefix + render(starter, qualname, prefix, newline) + source[end:]


def _anchor(model: Sequence[ast.stmt], binder: ast.stmt, body: Sequence[ast.stmt]) -> ast.stmt | None:
    """The statement of `body` to add behind: the nearest before `binder` in the model that `body` has as well."""
    for before in reversed(model[: model.index(binder)]):
        for statement in body:
            if bound_names(before) & bound_names(statement):
                return statement
    return None


def _insert(source: str, tree: ast.Module, anchor: ast.stmt | None, text: str) -> str:
    newline = newline_of(source)
    text = re.sub(r"\r\n|\r|\n", newline, text)
    anchor = anchor or _last_import(tree)
    if anchor is None:
        start = len(source) - len(source.removeprefix(BYTE_ORDER_MARK))
        return source[:start] + text + newline + source[start:]
    is_import = text.startswith(("import ", "from ")) and isinstance(anchor, ast.Import | ast.ImportFrom)
    end = end_of_statement(source, anchor)
    return source[:end] + newline * (1 if is_import else 3) + text + source[end:]


def _last_import(tree: ast.Module) -> ast.stmt | None:
    """The last import, or the docstring that comes before any."""
    imports = [statement for statement in tree.body if isinstance(statement, ast.Import | ast.ImportFrom)]
    if imports:
        return imports[-1]
    return tree.body[0] if ast.get_docstring(tree, clean=False) is not None else None


def _text_of(starter: str, binder: ast.stmt, wanted: str) -> str:
    """The statement's text; of an import only the part that binds the name."""
    if isinstance(binder, ast.Import | ast.ImportFrom):
        part = copy(binder)
        part.names = [alias for alias in binder.names if (alias.asname or alias.name.split(".")[0]) == wanted]
        return ast.unparse(part)
    first = min([binder.lineno, *(decorator.lineno for decorator in getattr(binder, "decorator_list", []))])
    lines = re.sub(r"\r\n|\r", "\n", starter).split("\n")
    return "\n".join(lines[first - 1 : binder.end_lineno])
