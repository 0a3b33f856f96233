"""What Numba says when it can't compile a function, in two or three lines.

Its own message is a page long: which phase failed, then the cause, then candidates that it tried, then the line.
"""

from __future__ import annotations

import re
from pathlib import Path

PHASE = re.compile(r"Failed in \w+ mode pipeline \(step: .*\)")
SPECIFIC = re.compile(r"^\s*\w*Error: (?!Failed in)(.+)$", re.MULTILINE)
SIGNATURE = re.compile(r"^\s*>>> (.+)$", re.MULTILINE)
MODULE = re.compile(r"Module\(<module '([\w.]+)' from '[^']*'>\)")
LITERAL = re.compile(r"Literal\[int\]\((-?\d+)\)")
LINE = re.compile(r'^File "(?P<file>[^"]+)", line (?P<line>\d+):\n(?P<source>(?:.*\n)*?)\s*\^', re.MULTILINE)


def is_compiler_error(error: BaseException) -> bool:
    """Whether Numba raised it, for code that it can't compile."""
    return any(base.__module__ == "numba.core.errors" for base in type(error).__mro__)


def cause(error: BaseException) -> str:
    """The reason, in one line: "Unknown attribute 'zeros' of type Module(torch)"."""
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
    """File, line and text of what can't be compiled; ``None`` where Numba doesn't say."""
    found = LINE.search(str(error))
    if found is None:
        return None
    source = found["source"].splitlines()
    return Path(found["file"]).resolve(), int(found["line"]), source[-1].strip() if source else ""
