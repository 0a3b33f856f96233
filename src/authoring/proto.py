"""`pdm run proto`: the Python code of the gRPC service, made from its description."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

from rich.console import Console

from coursekit.errors import CourseError
from coursekit.paths import Course

PROTO = "tiny_llm/ragged/protocol/tiny_llm.proto"


def proto() -> None:
    """Make the reference's gRPC code anew from its .proto file; then run `pdm run starter`."""
    course = Course.find()
    make(course, course.root / "solutions")
    Console(highlight=False).print(f"made from solutions/{PROTO}; now run: pdm run starter")


def make(course: Course, out: Path) -> None:
    """Write the code below a folder.

    Raises:
        CourseError: the compiler is not installed, or doesn't accept the file.
    """
    if find_spec("grpc_tools") is None:
        raise CourseError("this needs grpcio-tools: `pdm install` brings it")
    source = course.root / "solutions"
    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    done = run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", *outputs, str(source / PROTO)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CourseError(f"protoc refuses {PROTO}: {done.stderr.strip()}")
