"""`pdm run new-day`: which files it writes; nothing is half-written, and nothing is overwritten."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import nbformat
import pytest
import typer
from courses import write
from new_days import ROOT, SUMMARY, TARGETS, everything, make_small, modules, summary

from authoring.book.commands import Command, KnownCommands
from authoring.new_day import new_day
from authoring.notebooks.comparing import cells_differ
from authoring.notebooks.making import make_notebook
from authoring.starter import starter
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.import_path import Impl
from notebooks.copies import notebook_of
from notebooks.session import WHO


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_small(tmp_path)


def test_a_day_of_a_week_stands_behind_the_last_one_and_a_new_week_gets_a_heading(course: Course) -> None:
    new_day("2.2", "Beams")
    new_day("1.3", "Squares")
    new_day("3.1", "Solids")
    assert summary(course) == SUMMARY.replace(
        "- [1.2 Circles](week_1/day_2.md)\n",
        "- [1.2 Circles](week_1/day_2.md)\n- [1.3 Squares](week_1/day_3.md)\n",
    ).replace(
        "- [2.1 Counting](week_2/day_1.md)\n",
        "- [2.1 Counting](week_2/day_1.md)\n- [2.2 Beams](week_2/day_2.md)\n\n"
        "# Week 3\n\n- [3.1 Solids](week_3/day_1.md)\n",
    )
    names = [line.strip(" ,") for line in modules(course).splitlines()[3:8]]
    assert names == ["beams", "counting", "shapes", "solids", "squares"]
    found = [(lesson.name, lesson.title, lesson.chapter) for lesson in load_manifest(course).lessons]
    assert found[2] == ("1.3", "Squares", "week_1/day_3.md")
    assert [name for name, _, _ in found] == ["1.1", "1.2", "1.3", "2.1", "2.2", "3.1"]


def test_the_starter_says_what_the_lesson_says(course: Course) -> None:
    new_day("2.2", "Beams")
    (task, other) = load_manifest(course).lesson("2.2").tasks
    text = (course.starter() / "beams.py").read_text(encoding="utf-8")
    for one in (task, other):
        assert text.count(f'raise NotImplementedError("{one.stub_message}")') == 1
    with pytest.raises(typer.Exit) as caught:
        starter(check=True)
    assert caught.value.exit_code == 0


def test_the_notebook_is_made_from_its_text_and_has_the_outputs_of_a_run(course: Course) -> None:
    new_day("2.2", "Beams")
    lesson = load_manifest(course).lesson("2.2")
    book = nbformat.reads(notebook_of(lesson).read_text(encoding="utf-8"), as_version=4)
    nbformat.validate(book)
    assert not cells_differ(make_notebook(lesson), book)
    code = [cell for cell in book.cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [1, 2, 3]
    said = [[(output["name"], output["text"]) for output in cell["outputs"]] for cell in code]
    assert said == [[("stdout", f"{WHO[Impl.SOLUTION]}\n")], [], [("stdout", "[2.0, 3.0, 2.0, 2.0]\n")]]


def test_the_reference_can_be_changed_and_the_starter_generated_before_anything_is_committed(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    starter()
    new_day("2.2", "Beams")
    path = course.solution() / "beams.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n\nBEAMS = 4\n", encoding="utf-8")
    starter()
    assert (course.starter() / "beams.py").read_text(encoding="utf-8").endswith("BEAMS = 4\n")
    path = course.solution() / "shapes.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n\nBEAMS = 4\n", encoding="utf-8")
    starter()  # what was generated before the new day came is still known as generated
    assert (course.starter() / "shapes.py").read_text(encoding="utf-8").endswith("BEAMS = 4\n")


def test_it_names_every_file_and_then_commands_that_exist(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(course)
    new_day("3.1", "Solids")
    out = capsys.readouterr().out
    new = {name for name, content in everything(course).items() if content is not None and name not in before}
    assert out.startswith("Day 3.1, Solids: written\n")
    for name in new - {".course/starter.json"} | {"book/src/SUMMARY.md", "src/coursekit/lab_modules.py"}:
        assert f"  {name}\n" in out
    assert ".course" not in out
    lines = [line.strip() for line in out.splitlines() if line.strip().startswith("pdm run ")]
    assert lines == [
        "pdm run test 3.1 --impl solution",
        "pdm run check --only agreement,starter,order,mutants,notebooks --day 3.1",
    ]
    shutil.copy(ROOT / "pyproject.toml", course.root)
    known = KnownCommands(course, load_manifest(course))
    assert [known.problem(Command(line, 1)) for line in lines] == [None, None]


def test_a_dry_run_names_the_same_files_and_writes_none(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(course)
    new_day("3.1", "Solids", dry_run=True)
    dry = capsys.readouterr().out
    assert everything(course) == before
    new_day("3.1", "Solids")
    wet = capsys.readouterr().out
    assert dry.splitlines()[0] == "Day 3.1, Solids: would be written"
    assert dry.splitlines()[1:] == wet.split("\n\n")[0].splitlines()[1:]


def test_the_first_day_of_a_course_without_any_has_no_place_in_its_contents(course: Course) -> None:
    for folder in (course.lessons, course.tests):
        shutil.rmtree(folder)
        folder.mkdir()
    with pytest.raises(CourseError, match=r"can be: 1\.1$"):
        new_day("2.1", "Beams")
    with pytest.raises(CourseError, match="no entry of any day"):
        new_day("1.1", "Beams")


@pytest.mark.parametrize("target", [name for name in TARGETS if not name.startswith("solutions")])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_that_is_there_is_never_overwritten(course: Course, target: str, kind: str) -> None:
    path = course.root / target
    if target.endswith("lesson.toml"):  # a lesson would be a day that is there; a link to nowhere is none
        kind = "link"
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        path.write_text("mine\n", encoding="utf-8")
    else:
        path.symlink_to("nowhere")
    before = everything(course)
    with pytest.raises(CourseError, match=f"there is {target} already"):
        new_day("2.2", "Beams")
    assert everything(course) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError], ids=lambda error: error.__name__)
@pytest.mark.parametrize("step", range(len(TARGETS) + 4))
def test_whatever_stops_it_leaves_all_as_it_was(
    course: Course, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], step: int
) -> None:
    """Ten files are moved into their places, one after the other; each of the moves may be stopped."""
    before, move = everything(course), os.replace
    moved: list[Path] = []

    def stopped(source: Path, target: Path) -> None:
        if len(moved) == step:
            moved.append(target)
            raise error
        moved.append(target)
        move(source, target)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises((error, CourseError)):
        new_day("3.1", "Beams")
    assert everything(course) == before
    assert len(moved) > step


def test_a_command_that_is_terminated_leaves_all_as_it_was(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, move = everything(course), os.replace

    def terminated(source: Path, target: Path) -> None:
        move(source, target)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "replace", terminated)
    with pytest.raises(SystemExit) as caught:
        new_day("3.1", "Beams")
    assert caught.value.code == 128 + signal.SIGTERM
    assert everything(course) == before


def test_a_folder_of_the_instructors_own_stays(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    write(course.lessons / "week_3" / "notes.txt", "mine\n")
    before = everything(course)

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CourseError, match="No space left on device"):
        new_day("3.1", "Beams")
    assert everything(course) == before


def test_files_with_the_line_ends_of_windows_keep_them(course: Course) -> None:
    for path in (course.book / "src/SUMMARY.md", course.root / "src/coursekit/lab_modules.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    new_day("3.1", "Beams")
    for text in (summary(course), modules(course)):
        assert text.count("\n") == text.count("\r\n")
        assert "\r\r" not in text
    assert "\r\n\r\n# Week 3\r\n\r\n- [3.1 Beams](week_3/day_1.md)\r\n" in summary(course)
    assert "            beams,\r\n            counting,\r\n" in modules(course)


@pytest.mark.parametrize("file", ["book/src/SUMMARY.md", "src/coursekit/lab_modules.py"])
@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_a_file_in_which_the_day_has_no_place_is_named(
    course: Course, file: str, content: bytes | None
) -> None:
    path = course.root / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    before = everything(course)
    with pytest.raises(CourseError, match=file):
        new_day("2.2", "Beams")
    assert everything(course) == before
