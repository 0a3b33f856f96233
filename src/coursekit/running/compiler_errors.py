"""What went wrong in a kernel, in two or three lines: what Numba and Triton say at length.

Numba's own message is a page long: which phase failed, then the cause, then candidates that it tried, then the line.
Triton's compiler wraps the cause once for every function around it, and shows their source. Its interpreter wraps it
too.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GIVEN = ("compiling.py", "compiling_triton.py")
PHASE = re.compile(r"Failed in \w+ mode pipeline \(step: .*\)|- Resolution failure for .* arguments:")
SPECIFIC = re.compile(r"^\s*\w*Error: (?!Failed in)(.+)$", re.MULTILINE)
SIGNATURE = re.compile(r"^\s*>>> (.+)$", re.MULTILINE)
MODULE = re.compile(r"Module\(<module '([\w.]+)' from '[^']*'>\)")
LITERAL = re.compile(r"Literal\[int\]\((-?\d+)\)")
UNKNOWN_NAME = re.compile(r"name '(\w+)' is not defined")
LINE = re.compile(r'^File "(?P<file>[^"]+)", line (?P<line>\d+):\n(?P<source>(?:.*\n)*?)\s*\^', re.MULTILINE)


def is_compiler_error(error: BaseException) -> bool:
    """Whether Numba or Triton raised it, for code that it can't compile."""
    return compiler(error) is not None


def compiler(error: BaseException) -> str | None:
    """Who can't compile the code: "Numba" or "Triton"; ``None`` for any other exception."""
    kinds = {(base.__module__, base.__name__) for base in type(error).__mro__}
    if any(module == "numba.core.errors" for module, _ in kinds):
        return "Numba"
    return "Triton" if ("triton.compiler.errors", "CompilationError") in kinds else None


def is_given(path: str | Path) -> bool:
    """Whether a file is given code that kernels call; what fails there was asked for elsewhere."""
    return Path(path).name in GIVEN


def out_of_interpreter(error: BaseException) -> list[BaseException]:
    """``error`` and, where Triton's interpreter raised it, what it wraps: from the outside inwards."""
    links = [error]
    while type(links[-1]).__name__ == "InterpreterError" and links[-1].__cause__ is not None:
        links.append(links[-1].__cause__)
    return links


def cause(error: BaseException) -> str:
    """The reason, in one line: "Unknown attribute 'zeros' of type Module(torch)"."""
    if compiler(error) == "Triton":
        return _triton_cause(error)
    lines = [line for line in str(error).strip().splitlines() if line and not PHASE.match(line)]
    text = lines[0] if lines else type(error).__name__
    if text.startswith("No implementation of function"):
        reason, signature = SPECIFIC.search(str(error)), SIGNATURE.search(str(error))
        if reason is not None:
            text = reason[1]
        elif signature is not None:
            text = f"no such call is known to Numba: {signature[1]}"
    return LITERAL.sub(r"\1", MODULE.sub(r"Module(\1)", text)).strip()


def place(error: BaseException) -> tuple[Path, int, str] | None:
    """File, line and text of what can't be compiled; ``None`` where the compiler doesn't say."""
    if compiler(error) == "Triton":
        return _triton_place(error)
    found = LINE.search(str(error))
    if found is None:
        return _numba_location(error)
    source = found["source"].splitlines()
    return Path(found["file"]).resolve(), int(found["line"]), source[-1].strip() if source else ""


def _numba_location(error: BaseException) -> tuple[Path, int, str] | None:
    """Where Numba was, if its message doesn't say: at the name that it doesn't know, or above it in the function."""
    location = getattr(error, "loc", None)
    if location is None or not Path(location.filename).is_file():
        return None
    lines = linecache.getlines(location.filename)
    unknown = UNKNOWN_NAME.search(str(error))
    first = location.line - 1
    if unknown is not None:
        named = (i for i in range(first, len(lines)) if re.search(rf"\b{unknown[1]}\b", lines[i]))
        first = next(named, first)
    return Path(location.filename).resolve(), first + 1, lines[first].strip()


def _triton_cause(error: BaseException) -> str:
    """The innermost reason; Triton's own words where there are some."""
    links = list(_wrapped(error))
    last = [link for link in links if compiler(link) == "Triton"][-1]
    inner = links[-1]
    text = str(inner) if inner is not last else getattr(last, "error_message", None) or ""
    return text.strip().partition("\n")[0] or type(inner).__name__


def _triton_place(error: BaseException) -> tuple[Path, int, str] | None:
    """The innermost line that isn't given code; of a function Triton knows only the source."""
    links = [link for link in _wrapped(error) if hasattr(getattr(link, "node", None), "lineno")]
    places = [place for place in map(_place_of, links) if place is not None]
    own = [place for place in places if not is_given(place[0])]
    return (own or places)[-1] if places else None


def _place_of(error: Any) -> tuple[Path, int, str] | None:
    """Where the function stands whose source an exception of Triton's compiler has."""
    for function in _kernels():
        if function.src == error.src:
            line = error.node.lineno - 1
            path = Path(function.fn.__code__.co_filename).resolve()
            return path, function.def_file_line_number + line, error.src.splitlines()[line].strip()
    return None


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """From the outside inwards."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _kernels() -> Iterator[Any]:
    """Every function of an imported module that Triton compiles."""
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if type(value).__name__ == "JITFunction":
                yield value
