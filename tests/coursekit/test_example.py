"""`pdm run example` runs a chapter's blocks with the learner's code, and says which block fails and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import make_course, solve, write
from runs import change, course_command

from coursekit.book.blocks import Block, needed_for
from coursekit.paths import Course

CHAPTER = """# Day 1.1: Rectangles

```python
from tiny_llm.shapes import Size, area

size = Size(2, 3)
```

Words.

```python
# how large it is

print("area", area(size))
left_out = 1
```

```output
area 6
```

```python
print("by itself")
```
"""


@pytest.fixture
def course(tmp_path: Path) -> Course:
    course = make_course(tmp_path)
    write(course.book / "src/week_1/day_1.md", CHAPTER)
    return course


def numbers(*codes: str) -> list[int]:
    """The blocks that the last of these is run with."""
    blocks = [Block(number, code, 1, None) for number, code in enumerate(codes, 1)]
    return [block.number for block in needed_for(len(blocks), blocks)]


def test_every_block_runs_in_order_with_its_number_its_first_lines_and_its_output(course):
    solve(course, "1.1")
    ran = course_command(course, "example", "1.1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == (
        "Block 1  (book/src/week_1/day_1.md:4)\n"
        "  from tiny_llm.shapes import Size, area\n"
        "  size = Size(2, 3)\n\n"
        "Block 2  (book/src/week_1/day_1.md:12)\n"
        "  # how large it is\n"
        '  print("area", area(size))\n'
        "  left_out = 1\n"
        "area 6\n\n"
        "Block 3  (book/src/week_1/day_1.md:23)\n"
        '  print("by itself")\n'
        "by itself\n\n"
    )


def test_one_block_brings_those_that_it_builds_on_and_shows_only_itself(course):
    solve(course, "1.1")
    ran = course_command(course, "example", "1.1", "2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "area 6" in ran.stdout
    assert "Block 1" not in ran.stdout
    assert "Block 3" not in ran.stdout


def test_a_block_that_builds_on_nothing_runs_though_the_code_before_it_is_not_written(course):
    assert course_command(course, "example", "1.1", "3").returncode == 0


def test_the_reference_runs_on_request(course):
    ran = course_command(course, "example", "1.1", "--impl", "solution")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "area 6" in ran.stdout


def test_an_output_unlike_the_books_is_shown_beside_it(course):
    solve(course, "1.1")
    change(course, "return size.width * size.height  # metres squared", "return 7")
    ran = course_command(course, "example", "1.1")
    assert "area 7\n\nThe book shows something else:\narea 6\n" in ran.stdout


def test_an_error_names_the_block_the_chapters_line_and_the_learners_and_ends_with_one(course):
    solve(course, "1.1")
    change(course, "return size.width * size.height  # metres squared", "return size.depth")
    ran = course_command(course, "example", "1.1")
    assert ran.returncode == 1
    assert (
        'Block 2 fails at book/src/week_1/day_1.md:14: print("area", area(size))\n'
        "  AttributeError: 'Size' object has no attribute 'depth'\n" in ran.stdout
    )
    assert ", in area\n" in ran.stdout
    assert "src/tiny_llm/shapes.py:" in ran.stdout
    assert "Block 3" not in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr


def test_a_stub_names_its_task_and_the_commands_for_it(course):
    ran = course_command(course, "example", "1.1")
    assert ran.returncode == 1
    assert "Block 2 fails at book/src/week_1/day_1.md:14" in ran.stdout
    assert "Task 1.1.1 is not written yet: Area" in ran.stdout
    assert "pdm run test 1.1.1" in ran.stdout
    assert "pdm run hint 1.1.1" in ran.stdout
    assert "pdm run example 1.1 2 --impl solution" in ran.stdout


def test_code_that_ends_the_program_is_a_failure_of_its_block(course):
    solve(course, "1.1")
    change(course, "return size.width * size.height  # metres squared", "raise SystemExit(0)")
    ran = course_command(course, "example", "1.1")
    assert ran.returncode == 1
    assert "Block 2 fails" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["1.9"], "there is no Day 1.9"),
        (["1.2"], "the chapter of Day 1.2 is not there: book/src/week_1/day_2.md"),
        (["2.1"], "the chapter of Day 2.1 has no blocks of Python"),
        (["1.1", "4"], "the chapter of Day 1.1 has 3 blocks of Python"),
    ],
)
def test_what_is_not_there_is_one_line_and_code_two(course, arguments, says):
    write(course.book / "src/week_2/day_1.md", "# Day 2.1: Counting\n")
    ran = course_command(course, "example", *arguments)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert says in ran.stderr


def test_a_block_needs_the_imports_and_values_that_it_uses():
    assert numbers("import os", "a = 1", "b = 2", "print(os.name, b)") == [1, 3, 4]


def test_a_block_needs_what_those_blocks_need_in_turn():
    assert numbers("import math", "a = math.pi", "b = a", "print(b)") == [1, 2, 3, 4]


def test_a_block_that_works_on_a_value_on_the_way_is_needed():
    assert numbers("cache = []", "cache.append(1)", "other = 1", "print(cache)") == [1, 2, 4]


def test_two_blocks_that_use_one_import_do_not_need_each_other():
    assert numbers("import torch", "torch.tensor(1)", "print(torch.ones(1))") == [1, 3]
