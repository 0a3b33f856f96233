"""What a Python file defines, read quickly and without running it: functions, stubs, names.

Only the standard library's parser is used here, so that `hint` and `progress` answer at once.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from coursekit.errors import CourseError

Function = ast.FunctionDef | ast.AsyncFunctionDef

BYTE_ORDER_MARK = "\ufeff"
STUB_MESSAGE = re.compile(r"Week (\d+) Day (\d+) Task (\d+): (.+)", re.DOTALL)


def read_source(path: Path, name: str) -> str:
    """The text of a UTF-8 file, line ends as they stand.

    Raises:
        CourseError: the file can't be read, or is not UTF-8; `name` is what the message calls it.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CourseError(f"{name} is not UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise CourseError(f"can't read {name}: {error.strerror}") from error


def parse(source: str, name: str) -> ast.Module:
    """Parse a file's text.

    Raises:
        CourseError: the text is not Python; the message names file and line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.removeprefix(BYTE_ORDER_MARK))
    except SyntaxError as error:
        raise CourseError(
            f"{name}:{error.lineno or 1}: syntax error: {error.msg}; mend that line first"
        ) from error
    except ValueError as error:
        raise CourseError(f"{name}: {error}; mend the file first") from error


def functions(tree: ast.Module) -> dict[str, list[Function]]:
    """Every function and method by its dotted name; more than one node where a name is defined again.

    Functions inside functions are nobody's task and are left out. Those under `if`, `try` or `with` are in.
    """
    found: dict[str, list[Function]] = {}
    for qualname, node in _definitions(tree.body, ""):
        if not isinstance(node, ast.ClassDef):
            found.setdefault(qualname, []).append(node)
    return found


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Every class by its dotted name; the last one where a name is defined again."""
    return {name: node for name, node in _definitions(tree.body, "") if isinstance(node, ast.ClassDef)}


def stubbed(source: str, name: str = "the file") -> dict[str, str]:
    """The functions that are stubs, each with its message.

    A stub's body is an optional docstring and `raise NotImplementedError("Week 1 Day 3 Task 2: …")`.
    Where a function is defined again, the last definition counts, as it does for Python.
    """
    messages = {
        qualname: stub_message(nodes[-1]) for qualname, nodes in functions(parse(source, name)).items()
    }
    return {qualname: message for qualname, message in messages.items() if message is not None}


def fingerprint(node: Function) -> str:
    """A hash of what a function does: the same whatever its comments, layout and docstring."""
    copy = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(copy, Function)
    if ast.get_docstring(copy, clean=False) is not None:
        copy.body = copy.body[1:] or [ast.Pass()]
    return sha256(ast.unparse(copy).encode()).hexdigest()


def bound_names(statement: ast.stmt) -> set[str]:
    """The names that a statement binds where it stands: definitions, imports, assignments, also under `if`."""
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in statement.names}
    names = {node.id for node in _walk_scope(statement) if isinstance(node, ast.Name) and _is_stored(node)}
    inner = [node for node in _walk_scope(statement) if isinstance(node, ast.stmt) and node is not statement]
    return names.union(*(bound_names(node) for node in inner))


def module_names(tree: ast.Module) -> dict[str, ast.stmt]:
    """The names that a module binds at its top level, each with the first statement that binds it."""
    names: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in bound_names(statement):
            names.setdefault(name, statement)
    return names


def used_names(node: ast.AST) -> set[str]:
    """The names that a piece of code reads and may take from its module: locals may be among them."""
    read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not _is_stored(part)}
    return read - set(dir(builtins))


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for statement in body:
        if isinstance(statement, Function):
            yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield prefix + statement.name, statement
            yield from _definitions(statement.body, f"{prefix}{statement.name}.")
        else:
            for inner in _inner_blocks(statement):
                yield from _definitions(inner, prefix)


def _inner_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body


def _walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and what lies in it, without entering another scope."""
    yield node
    if isinstance(node, Function | ast.ClassDef | ast.Lambda | ast.comprehension):
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk_scope(child)


def _is_stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def stub_message(node: Function) -> str | None:
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    match body:
        case [
            ast.Raise(
                exc=ast.Call(func=ast.Name(id="NotImplementedError"), args=[ast.Constant(value=str(message))])
            )
        ]:
            return message if STUB_MESSAGE.fullmatch(message) else None
    return None
