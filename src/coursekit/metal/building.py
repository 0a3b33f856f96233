"""Compiles the program around a kernel, and says what the compiler refused, with the kernel's own line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

from coursekit.metal.program import HEADER_NAME, HERE, SOURCE_NAME

COMPILERS = ("clang++", "g++", "c++")
OPTIONS = (
    "-std=c++20",
    "-O1",
    "-w",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
)
# A variable that is used before it has a value holds huge numbers, not what happens to lie there.
PATTERN = "-ftrivial-auto-var-init=pattern"
SECONDS = 60.0
"""For the compiler, on a busy machine."""


class KernelError(RuntimeError):
    """The kernel can't be compiled, or it did what a kernel may not do; the message says which."""


@cache
def compiler() -> str | None:
    """The C++ compiler of this machine: the one that ``CXX`` names, or the first of the usual ones."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else list(COMPILERS)
    return next((path for name in names if (path := shutil.which(name))), None)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where this process keeps its compiled kernels; removed at its end."""
    return tempfile.TemporaryDirectory(prefix="coursekit-metal-", ignore_cleanup_errors=True)


def build(name: str, program: str, header: str, source: str) -> Path:
    """The compiled program; it is compiled once per process.

    Args:
        name: the kernel's, for messages.
        program: all of the C++.
        header: what of it is the learner's, to show the line that a message is about.
        source: likewise.

    Raises:
        KernelError: there is no compiler, or it refuses the program.
    """
    path = compiler()
    if path is None:
        raise KernelError(f"there is no C++ compiler here: install {' or '.join(COMPILERS[:2])}")
    place = Path(_folder().name) / sha256(program.encode()).hexdigest()[:24]
    if place.is_file():
        return place
    text = place.with_suffix(".cpp")
    text.write_text(program, encoding="utf-8")
    command = [path, *OPTIONS, *_pattern(path), f"-I{HERE}", str(text), "-o", str(place)]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=_english()
        )
    except subprocess.TimeoutExpired as error:
        raise KernelError(f"the compiler did not end within {SECONDS:.0f} s on the kernel {name}") from error
    if ran.returncode:
        raise KernelError(f"the kernel {name} can't be compiled: {_refusal(ran.stderr, header, source)}")
    return place


@cache
def _pattern(path: str) -> tuple[str, ...]:
    """The option, where the compiler is new enough to have it."""
    command = [path, PATTERN, "-E", "-x", "c++", os.devnull]
    known = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    return (PATTERN,) if known else ()


def _english() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _refusal(output: str, header: str, source: str) -> str:
    """The compiler's first error, and the line that it is about."""
    match = re.search(
        r"^(?P<file>[^\n:]+):(?P<line>\d+)(:\d+)?: (fatal )?error: (?P<message>.+)$", output, re.M
    )
    if match is None:
        return output.strip() or "the compiler gives no reason"
    parts = {SOURCE_NAME: source, HEADER_NAME: header}
    file, number, message = match["file"], int(match["line"]), match["message"]
    if file not in parts:
        return f"{message}, found behind the end of {SOURCE_NAME}: is a bracket or a semicolon missing in it?"
    lines = parts[file].splitlines()
    shown = lines[number - 1].strip() if number <= len(lines) else "its end"
    return f"{message}, in line {number} of {file}: {shown}"
