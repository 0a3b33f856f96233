"""Changes single functions of a Python file and leaves every other byte as it was.

The standard parser says where a function stands; libcst writes the new function; the text around it is
copied, never printed anew. So the surroundings may hold anything: tabs, CRLF, odd spacing, no final newline.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from coursekit.editing.makers import Make, make_commented, make_stub
from coursekit.errors import CourseError
from coursekit.lessons.outline import BYTE_ORDER_MARK, Function, functions, parse, stubbed

__all__ = [
    "end_of_statement",
    "function_source",
    "indentation",
    "newline_of",
    "render",
    "replace_function",
    "stub",
    "stubbed",
]

INDENT = "    "
# As Python counts lines; str.splitlines also splits at form feeds and Unicode separators.
_NEWLINE = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True)
class Place:
    """Where a function stands in its file's text, and the layout it has there."""

    start: int
    end: int
    prefix: str
    indent: str


def stub(source: str, messages: Mapping[str, str], name: str = "the file") -> str:
    """Replace the bodies of functions by their docstring and `raise NotImplementedError(message)`.

    Decorators, signature and docstring stay as they are, and so does the rest of the file.

    Args:
        source: the file's text.
        messages: the dotted name of each function to change, with its message.
        name: what error messages call the file.

    Raises:
        CourseError: the text is not Python, or lacks one of the functions.
    """
    return _rewrite(
        source, {qualname: (source, make_stub(message)) for qualname, message in messages.items()}, name
    )


def replace_function(
    source: str, qualname: str, donor_source: str, name: str = "the file", comment: str | None = None
) -> str:
    """Put the donor's whole function (decorators, signature, docstring, body) where the source has its own.

    A `comment` ("# borrowed") becomes the first line after its docstring.

    Raises:
        CourseError: either text is not Python, or lacks the function.
    """
    make = (lambda node: node) if comment is None else make_commented(comment)
    return _rewrite(source, {qualname: (donor_source, make)}, name)


def function_source(source: str, qualname: str, name: str = "the file") -> str:
    """The text of a function as it stands, from its first decorator to the last line of its body.

    Raises:
        CourseError: the text is not Python, or lacks the function.
    """
    place = _place(source, _find(source, qualname, name))
    return source[place.start : place.end]


def newline_of(source: str) -> str:
    """The line end that a text uses first; "\\n" where it has none."""
    match = _NEWLINE.search(source)
    return match[0] if match else "\n"


def end_of_statement(source: str, node: ast.stmt) -> int:
    """The offset just after a statement's last line, its comments included, before the line end."""
    lines = _lines(source)
    last = _last_line(lines, node)
    return sum(map(len, lines[:last])) + len(lines[last].rstrip("\r\n"))


def indentation(source: str, node: ast.stmt) -> str:
    """What stands in front of a statement on its first line."""
    line = _lines(source)[node.lineno - 1]
    return line[: _column(line)].rpartition("\f")[2]


def render(donor_source: str, qualname: str, prefix: str, newline: str) -> str:
    """A function of the donor as text to stand behind `prefix`, without a final newline."""
    return _render(_donor_node(donor_source, qualname), prefix, INDENT, newline)


def _rewrite(source: str, changes: Mapping[str, tuple[str, Make]], name: str) -> str:
    newline = newline_of(source)
    edits = []
    for qualname, (donor_source, make) in changes.items():
        place = _place(source, _find(source, qualname, name))
        node = make(_donor_node(donor_source, qualname))
        edits.append((place, _render(node, place.prefix, place.indent, newline)))
    # From the end of the file to its beginning, so that the places before stay true.
    for place, text in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
        source = source[: place.start] + text + source[place.end :]
    return source


def _find(source: str, qualname: str, name: str) -> Function:
    """The definition that counts: the last one."""
    found = functions(parse(source, name)).get(qualname)
    if not found:
        raise CourseError(f"{name} has no function {qualname}")
    return found[-1]


def _place(source: str, node: Function) -> Place:
    lines = _lines(source)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    prefix = re.match(r"\ufeff?[ \t\f]*", lines[first])
    assert prefix is not None
    start = sum(map(len, lines[:first])) + prefix.end()
    end = end_of_statement(source, node)
    outer = prefix[0].lstrip(BYTE_ORDER_MARK).rpartition("\f")[2]
    return Place(start, end, outer, _indent(lines, node, outer))


def _last_line(lines: list[str], node: ast.stmt) -> int:
    """The index of a statement's last line; comments below it that are indented deeper belong to it."""
    assert node.end_lineno is not None
    last = node.end_lineno - 1
    for number in range(node.end_lineno, len(lines)):
        line = lines[number].strip()
        if line and not (line.startswith("#") and _column(lines[number]) > node.col_offset):
            break
        if line:
            last = number
    return last


def _indent(lines: list[str], node: Function, outer: str) -> str:
    """What the body's lines have in front of them beyond the function's own."""
    line = lines[node.body[0].lineno - 1]
    inner = line[: _column(line)]
    return inner[len(outer) :] if inner.startswith(outer) and inner != outer else INDENT


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" \t\f"))


def _lines(source: str) -> list[str]:
    return _LINE.findall(source) or [""]


def _donor_node(source: str, qualname: str) -> cst.FunctionDef:
    finder = _Finder(qualname)
    _module(_NEWLINE.sub("\n", source.removeprefix(BYTE_ORDER_MARK))).visit(finder)
    if finder.found is None:
        raise CourseError(f"the reference has no function {qualname}")
    return finder.found


@lru_cache(maxsize=64)
def _module(text: str) -> cst.Module:
    return cst.parse_module(text)


class _Finder(cst.CSTVisitor):
    """Keeps the last definition of one dotted name."""

    def __init__(self, qualname: str) -> None:
        self.found: cst.FunctionDef | None = None
        self._wanted = qualname
        self._path: list[str] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._path.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._path.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        if ".".join([*self._path, node.name.value]) == self._wanted:
            self.found = node
        return False


def _render(node: cst.FunctionDef, prefix: str, indent: str, newline: str) -> str:
    body = node.body.with_changes(footer=()) if isinstance(node.body, cst.IndentedBlock) else node.body
    bare: cst.BaseCompoundStatement = node.with_changes(body=body, leading_lines=())
    if prefix:
        # libcst indents what stands in a block, and knows to leave the insides of strings alone.
        bare = cst.If(cst.Name("_"), cst.IndentedBlock([bare], indent=prefix))
    code = cst.Module([bare], default_indent=indent).code
    if prefix:
        code = code.removeprefix(f"if _:\n{prefix}")
    return code.removesuffix("\n").replace("\n", newline)
