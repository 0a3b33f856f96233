"""The committed gRPC code is what the compiler makes of the .proto file."""

from __future__ import annotations

from pathlib import Path

import pytest

from authoring.proto import PROTO, make
from coursekit.errors import CourseError
from coursekit.paths import Course


def test_the_committed_code_is_what_the_proto_file_gives(tmp_path):
    """The versions of the tools are in it, too: those of pdm.lock."""
    course = Course.find()
    make(course, tmp_path)
    folder = Path(PROTO).parent
    made = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / folder).iterdir()}
    assert sorted(made) == ["tiny_llm_pb2.py", "tiny_llm_pb2.pyi", "tiny_llm_pb2_grpc.py"]
    for name, text in made.items():
        committed = (course.root / "solutions" / folder / name).read_text(encoding="utf-8")
        assert committed == text, f"{name} is out of date: run `pdm run proto`, then `pdm run starter`"


def test_what_is_no_proto_file_is_refused_with_its_line(tmp_path):
    course = Course.find()
    broken = Course(tmp_path)
    path = tmp_path / "solutions" / PROTO
    path.parent.mkdir(parents=True)
    path.write_text(
        (course.root / "solutions" / PROTO).read_text(encoding="utf-8") + "service {}\n", encoding="utf-8"
    )
    with pytest.raises(CourseError, match=r"tiny_llm\.proto:\d+"):
        make(broken, tmp_path)
