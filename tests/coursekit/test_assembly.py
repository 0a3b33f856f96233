"""The learner's package as the reference gives it: which bodies are stubs, and what stays byte for byte."""

from __future__ import annotations

import pytest
from courses import COUNTING, LESSONS, SHAPES, make_course, write, write_solution

from coursekit.editing.assembly import assemble, generate
from coursekit.lessons.outline import stubbed
from coursekit.manifest import FunctionRef, load_manifest


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path)


def test_every_task_function_is_a_stub_and_nothing_else_differs(course):
    text = generate(course, "tiny_llm", load_manifest(course))["shapes.py"].decode()
    assert stubbed(text) == {
        "area": "Week 1 Day 1 Task 1: Area",
        "perimeter": "Week 1 Day 1 Task 2: Perimeter",
        "Circle.area": "Week 1 Day 2 Task 1: A circle",
        "Circle.__call__": "Week 1 Day 2 Task 1: A circle",
    }
    gone = set(SHAPES.splitlines()) - set(text.splitlines())
    assert gone == {
        "    # width times height",
        "    return size.width * size.height  # metres squared",
        "    return 2 * (size.width + size.height)",
        "        return TURN / 2 * square(self.radius)",
        "        x = self.radius * math.cos(angle)",
        "        y = self.radius * math.sin(angle)",
        "        return x, y",
    }


def test_given_files_come_byte_for_byte(course):
    (course.solution() / "data").mkdir()
    (course.solution() / "data" / "table.bin").write_bytes(b"\x00\xff\r\n")
    write_solution(course, "given.py", "x = 1\r\ny = 2")
    contents = generate(course, "tiny_llm", load_manifest(course))
    assert contents["data/table.bin"] == b"\x00\xff\r\n"
    assert contents["given.py"] == b"x = 1\r\ny = 2"


def test_what_python_and_editors_leave_behind_is_left_out(course):
    write_solution(course, "__pycache__/shapes.cpython-311.pyc", "x")
    write_solution(course, ".shapes.py.swp", "x")
    assert set(generate(course, "tiny_llm", load_manifest(course))) == {
        "__init__.py",
        "counting.py",
        "shapes.py",
    }


def test_the_second_package_has_stubs_only_for_what_it_defines(course):
    contents = generate(course, "tiny_llm_mlx", load_manifest(course))
    assert set(contents) == {"__init__.py", "counting.py"}
    assert stubbed(contents["counting.py"].decode()) == {"count_up": "Week 2 Day 1 Task 1: Counting up"}


def test_assemble_keeps_the_solved_functions(course):
    solved = {FunctionRef("shapes.py", "area"), FunctionRef("counting.py", "count_up")}
    contents = assemble(course, load_manifest(course), "tiny_llm", solved)
    assert set(stubbed(contents["shapes.py"].decode())) == {"perimeter", "Circle.area", "Circle.__call__"}
    assert set(stubbed(contents["counting.py"].decode())) == {"total"}


def test_assembling_everything_gives_the_reference(course):
    manifest = load_manifest(course)
    refs = {ref for lesson in manifest.lessons for ref in lesson.functions}
    contents = assemble(course, manifest, "tiny_llm", refs)
    assert contents["shapes.py"].decode() == SHAPES
    assert contents["counting.py"].decode() == COUNTING


def test_titles_with_quotes_make_stubs_that_python_reads(course):
    text = LESSONS["week_1/day_1"].replace('title = "Area"', "title = 'The \"area\" of × \\ things'")
    write(course.lessons / "week_1/day_1/lesson.toml", text)
    contents = generate(course, "tiny_llm", load_manifest(course))
    assert stubbed(contents["shapes.py"].decode())["area"] == 'Week 1 Day 1 Task 1: The "area" of × \\ things'
