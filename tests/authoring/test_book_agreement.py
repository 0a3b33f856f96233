"""What holds between book, lessons, commands and files: on small books with one fault each, and on the real one."""

from __future__ import annotations

import pytest
from books import CHAPTER, MANIFEST, PAGES, make_book

from authoring.book.agreement import book_problems
from authoring.book.commands import find_commands
from coursekit.book.markdown import Page
from coursekit.manifest import load_manifest
from coursekit.paths import Course


def test_the_book_and_the_readme_have_no_fault():
    course = Course.find()
    assert book_problems(course, load_manifest(course)) == []


def test_a_small_book_without_fault_has_no_problems(tmp_path):
    assert book_problems(make_book(tmp_path), MANIFEST) == []


FAULTS = {
    "a task without a box": (CHAPTER.replace("{{#task 1.3.2}}", ""), "1.3.2}} stands there 0 times"),
    "a task with two boxes": (CHAPTER + "\n{{#task 1.3.2}}\n", "1.3.2}} stands there 2 times"),
    "a box of another day": (CHAPTER + "\n{{#task 1.4.1}}\n", "1.4.1}} is not of Day 1.3"),
    "no day box": (CHAPTER.replace("{{#day 1.3}}", ""), "day 1.3}} stands there 0 times"),
    "another title": (CHAPTER.replace(": Masks", ": Masques"), "not 'Day 1.3: Masks'"),
    "a link to a page that is not there": (CHAPTER + "\n[x](day_9.md)\n", "day_9.md, which is not there"),
    "a link to a heading that is not there": (CHAPTER + "\n[x](../notation.md#shapes)\n", "no such heading"),
    "an anchor of the page itself": (CHAPTER + "\n[x](#nowhere)\n", "no such heading"),
    "an image that is not there": (CHAPTER + "\n![x](../figures/no.svg)\n", "no.svg, which is not there"),
    "an html link": (CHAPTER + '\n<a href="gone.md">x</a>\n', "gone.md, which is not there"),
    "python that would not be run": (CHAPTER + "\n```py\nx\n```\n", "a block of 'py'"),
    "python that is to be passed over": (
        CHAPTER + "\n```python,ignore\nx\n```\n",
        "a language and nothing else",
    ),
    "a block without language": (CHAPTER + "\n```\nx\n```\n", "a block of 'no language'"),
    "output of nothing": (CHAPTER + "\nwords\n\n```output\n3\n```\n", "must follow right after"),
    "a command that is not there": (CHAPTER + "\nType `pdm run tests`.\n", "no command 'tests'"),
    "an option that is not there": (CHAPTER + "\n```sh\npdm run book --bild\n```\n", "--bild"),
    "a value of the wrong type": (CHAPTER + "\n```sh\npdm run book --port many\n```\n", "many"),
    "a command in a console": (CHAPTER + "\n```console\n$ pdm run bok\nout\n```\n", "no command 'bok'"),
    "the second of two commands": (
        CHAPTER + "\n```sh\npdm install && pdm run bok\n```\n",
        "no command 'bok'",
    ),
    "a script that is not there": (
        CHAPTER + "\n`pdm run python book/figures/no.py`\n",
        "no file book/figures/no.py",
    ),
    "an open quote": (CHAPTER + "\n`pdm run main --prompt 'x`\n", "quotation"),
}


@pytest.mark.parametrize(("chapter", "problem"), FAULTS.values(), ids=FAULTS.keys())
def test_one_fault_in_a_chapter_is_the_one_problem_found(tmp_path, chapter, problem):
    problems = book_problems(make_book(tmp_path, day_3=chapter), MANIFEST)
    assert len(problems) == 1
    assert problem in problems[0]
    assert "week_1/day_3.md" in problems[0]


def test_a_page_that_the_summary_leaves_out_is_a_problem(tmp_path):
    course = make_book(tmp_path)
    (course.book / "src" / "lost.md").write_text("# Lost\n", encoding="utf-8")
    assert book_problems(course, MANIFEST) == ["book/src/lost.md: not in SUMMARY.md"]


def test_a_summary_with_another_title_is_a_problem(tmp_path):
    summary = PAGES["SUMMARY.md"].replace("1.3 Masks", "1.3 Masques")
    (problem,) = book_problems(make_book(tmp_path, SUMMARY=summary), MANIFEST)
    assert "no entry [1.3 Masks](week_1/day_3.md)" in problem


def test_a_day_without_a_chapter_is_a_problem(tmp_path):
    course = make_book(
        tmp_path, SUMMARY="# Summary\n\n[Notation](notation.md)\n\n[1.3 Masks](week_1/day_3.md)\n"
    )
    (course.book / "src" / "week_1" / "day_3.md").unlink()
    assert any("Day 1.3 names this chapter" in problem for problem in book_problems(course, MANIFEST))


def test_a_box_on_a_page_that_is_no_chapter_is_a_problem(tmp_path):
    notation = PAGES["notation.md"] + "\n{{#task 1.3.1}}\n"
    assert book_problems(make_book(tmp_path, notation=notation), MANIFEST) == [
        "book/src/notation.md: has boxes but is no day's chapter"
    ]


def test_the_readme_is_held_to_its_commands_and_links_too(tmp_path):
    readme = "# A course\n\n[no](book/no.md)\n\n```sh\npdm run nothing   # does nothing\n```\n"
    problems = book_problems(make_book(tmp_path, README=readme), MANIFEST)
    assert [problem.split(":")[0] for problem in problems] == ["README.md", "README.md"]


@pytest.mark.parametrize(
    "command", ["pdm run book --build", "pdm run book --port 4000", "pdm run book --help"]
)
def test_good_commands_pass(tmp_path, command):
    chapter = CHAPTER + f"\n```sh\n{command}   # a comment\n```\n\nInline: `{command}`.\n"
    assert book_problems(make_book(tmp_path, day_3=chapter), MANIFEST) == []


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("pdm run test --week 1 --day 4", "1.4"),
        ("pdm run test --week 2", "2"),
        ("pdm run test --week 1 --day 3 -- -k task_7", "1.3.7"),
        ("pdm run test 1.4", "1.4"),
        ("pdm run test 1.3.7 --all", "1.3.7"),
        ("pdm run hint 1.3.9", "1.3.9"),
        ("pdm run reset --week 1 --day 3 --task 4", "1.3.4"),
        ("pdm run catch-up --to 3.3", "3.3"),
    ],
)
def test_a_day_or_task_that_is_not_there_is_a_problem(tmp_path, command, missing):
    (problem,) = book_problems(make_book(tmp_path, day_3=CHAPTER + f"\n`{command}`\n"), MANIFEST)
    assert problem.endswith(f"there is no week, day or task {missing}")


@pytest.mark.parametrize(
    "command",
    [
        "pdm run test --week 1 --day 3",
        "pdm run test --week 1",
        "pdm run test --week 1 --day 3 -- -k task_2",
        "pdm run test 1.3",
        "pdm run test 1.3.2 -k causal",
        "pdm run hint 1.3.2",
        "pdm run reset --week 1 --day 3 --task 2",
        "pdm run catch-up --to 1.3",
    ],
)
def test_days_and_tasks_that_are_there_pass(tmp_path, command):
    assert book_problems(make_book(tmp_path, day_3=CHAPTER + f"\n`{command}`\n"), MANIFEST) == []


def test_commands_are_found_over_continued_lines_and_after_prompts():
    page = Page(
        "p.md",
        "```console\n$ pdm run main \\\n    --raw\npdm run not-typed\n```\n\n`pdm run a`, <code>pdm run b</code>\n",
    )
    assert [(command.line, command.text) for command in find_commands(page)] == [
        (2, "pdm run main --raw"),
        (7, "pdm run a"),
        (7, "pdm run b"),
    ]


def test_a_picture_without_script_and_a_script_without_picture_are_problems(tmp_path):
    course = make_book(tmp_path)
    (course.book / "figures" / "week_1_day_4.py").write_text('"""None."""\n', encoding="utf-8")
    (course.book / "src" / "figures" / "stray.svg").write_text("<svg/>\n", encoding="utf-8")
    problems = book_problems(course, MANIFEST)
    assert [problem.split(":")[0] for problem in problems] == [
        "book/figures/week_1_day_4.py",
        "book/src/figures/stray.svg",
    ]
