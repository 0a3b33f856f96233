"""Every Python block of the book runs on the reference and prints what the book shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from books import make_book

from authoring.book.blocks import block_problems, chapters_with_python, run_page
from coursekit.book.markdown import Page
from coursekit.paths import Course

CHAPTERS = chapters_with_python(Course.find())


@pytest.fixture(scope="session")
def problems() -> dict[Path, str]:
    """The blocks of all chapters run in one process, so that torch is imported once."""
    return block_problems(Course.find(), CHAPTERS)


def test_the_book_has_python_in_it():
    assert CHAPTERS


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.relative_to(path.parents[1]).as_posix())
def test_the_python_of_a_chapter_runs_and_prints_what_is_shown(chapter, problems):
    assert chapter not in problems, problems[chapter]


def run(*blocks: str) -> str | None:
    return run_page(Page("p.md", "\n".join(blocks)))


def python(code: str) -> str:
    return f"```python\n{code}\n```\n"


def output(text: str) -> str:
    return f"```output\n{text}\n```\n"


def test_blocks_of_a_chapter_share_their_names():
    assert run(python("a = 2"), "words\n", python("print(a + 1)"), output("3")) is None


def test_two_chapters_do_not_share_names(tmp_path):
    course = make_book(tmp_path, day_3=python("a = 1"), notation=python("print(a)"))
    problems = block_problems(course)
    assert [path.name for path in problems] == ["notation.md"]
    assert "NameError" in problems[course.book / "src" / "notation.md"]


def test_another_output_than_shown_is_a_problem_that_shows_both():
    problem = run("# T\n", python("print(1 + 1)"), output("3"))
    assert problem is not None
    assert "p.md:4" in problem
    assert "printed:\n2" in problem
    assert "the book:\n3" in problem


def test_spaces_at_line_ends_do_not_count_but_others_do():
    assert run(python("print('a ')\nprint()"), output("a")) is None
    assert run(python("print(' a')"), output("a")) is not None


def test_a_block_that_raises_is_a_problem_with_the_line_of_the_chapter():
    problem = run("words\n", python("x = 1\nassert x == 2, 'no'"))
    assert problem is not None
    assert "AssertionError: no" in problem
    assert 'File "p.md", line 5' in problem


def test_an_output_block_after_other_text_is_not_compared():
    assert run(python("print(1)"), "words\n", output("2")) is None


def test_a_block_that_ends_python_is_a_problem(tmp_path):
    course = make_book(tmp_path, day_3=python("import os; os._exit(3)"))
    assert list(block_problems(course)) == [course.book / "src" / "week_1" / "day_3.md"]


def test_blocks_run_on_the_reference_of_the_course(tmp_path):
    course = make_book(
        tmp_path, day_3=python("import tiny_llm; print(tiny_llm.WHO)") + output("the reference")
    )
    package = course.solution()
    package.mkdir()
    (package / "__init__.py").write_text('WHO = "the reference"\n', encoding="utf-8")
    assert block_problems(course) == {}


def test_files_that_blocks_write_do_not_land_in_the_course(tmp_path):
    course = make_book(tmp_path, day_3=python("open('left-over.txt', 'w').close()"))
    assert block_problems(course) == {}
    assert not list(tmp_path.rglob("left-over.txt"))
    assert not Path("left-over.txt").exists()
