"""The learner's records survive, and damage costs nothing but themselves."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread

import pytest
from courses import COUNTING, make_course, write
from filelock import FileLock

from coursekit.errors import CourseError
from coursekit.learner import state as state_module
from coursekit.learner.copies import save_copies
from coursekit.learner.state import State
from coursekit.lessons.outline import fingerprint, functions, parse
from coursekit.manifest import FunctionRef
from coursekit.paths import Course
from coursekit.task_state import TaskState

TOTAL = FunctionRef("counting.py", "total")


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def mark(source: str) -> str:
    return fingerprint(functions(parse(source, "counting.py"))["total"][-1])


def test_without_a_file_nothing_is_recorded(course):
    state = State.load(course)
    assert (state.results, state.hints, state.borrowed) == ({}, {}, {})
    assert state.latest_package() == "tiny_llm"
    assert not course.state.exists()


def test_what_is_saved_is_read_back(course):
    state = State.load(course)
    state.record("tiny_llm", "1.1.1", "passed", 10)
    state.record("tiny_llm_mlx", "2.1.1", "wrong", 0)
    state.hints["1.1.1"] = 2
    state.borrow("tiny_llm", TOTAL, COUNTING)
    state.towards["tiny_llm"] = "2.1"
    state.save()
    again = State.load(course)
    assert again == state
    result = again.result("tiny_llm", "1.1.1")
    assert result is not None
    assert (result.state, result.points) == ("passed", 10)
    assert result.when.endswith("+00:00")
    assert again.result("tiny_llm", "2.1.1") is None


def test_records_from_before_a_day_was_caught_up_to_are_read(course):
    write(
        course.state / "progress.json", '{"schema": 1, "results": {}, "hints": {"1.1.1": 2}, "borrowed": {}}'
    )
    state = State.load(course)
    assert (state.hints, state.towards) == ({"1.1.1": 2}, {})


def test_an_unknown_state_is_refused(course):
    with pytest.raises(ValueError, match="perfect"):
        State.load(course).record("tiny_llm", "1.1.1", "perfect", 10)


def test_the_latest_package_is_the_one_tested_last(course):
    state = State.load(course)
    state.record("tiny_llm", "1.1.1", "passed", 10)
    result = state.results["tiny_llm"]["1.1.1"]
    later = type(result)(TaskState.WRONG, 0, "9999-01-01T00:00:00+00:00")
    state.results["tiny_llm_mlx"] = {"2.1.1": later}
    assert state.latest_package() == "tiny_llm_mlx"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"schema": "1"}',
        b'{"schema": 1}',
        b'{"schema": 1, "results": [], "hints": {}, "borrowed": {}}',
        b'{"schema": 1, "results": {"tiny_llm": {"1.1.1": {"state": "good", "points": 1, "when": ""}}}, '
        b'"hints": {}, "borrowed": {}}',
        b'{"schema": 1, "results": {"tiny_llm": {"1.1.1": {"state": "passed"}}}, "hints": {}, "borrowed": {}}',
        b'{"schema": 1, "results": {}, "hints": {"1.1.1": "two"}, "borrowed": {}}',
        b'{"schema": 1, "results": {}, "hints": {}, "borrowed": {"tiny_llm": 3}}',
        b'{"schema": 1, "results": {}, "hints": {"1.1.1": 1e999}, "borrowed": {}}',
        b'{"schema": 1, "results": {}, "hints": {"1.1.1": -7}, "borrowed": {}}',
        b'{"schema": ' + b"9" * 5000 + b', "results": {}, "hints": {}, "borrowed": {}}',
        b"[" * 200_000,
    ],
)
def test_a_damaged_file_is_moved_aside_and_new_records_begin(course, content, capsys):
    course.state.mkdir()
    (course.state / "progress.json").write_bytes(content)
    state = State.load(course)
    assert (state.results, state.hints, state.borrowed) == ({}, {}, {})
    assert (course.state / "progress.json.damaged").read_bytes() == content
    assert not (course.state / "progress.json").exists()
    assert "progress.json.damaged" in capsys.readouterr().err


def test_damaged_records_that_cannot_be_moved_aside_stop_nothing(course, monkeypatch, capsys):
    write(course.state / "progress.json", "{")

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(state_module.os, "replace", refuse)
    assert State.load(course).hints == {}
    assert "are damaged, and can't be moved aside: Permission denied" in capsys.readouterr().err


def test_a_full_disk_names_the_file_that_could_not_be_written(course, monkeypatch):
    def full_disk(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(CourseError, match=r"can't write .*progress\.json: No space left"):
        State.load(course).save()


def test_two_changes_at_once_lose_nothing(course):
    """The second change waits for the first, and reads what that has written."""
    entered, second_waits = Event(), Event()

    def change_second() -> None:
        entered.wait()
        second_waits.set()
        with State.changing(course) as state:
            state.hints["2.1.1"] = 1

    thread = Thread(target=change_second)
    thread.start()
    with State.changing(course) as state:
        entered.set()
        second_waits.wait()
        state.hints["1.1.1"] = 1
    thread.join()
    assert State.load(course).hints == {"1.1.1": 1, "2.1.1": 1}


def test_a_change_that_fails_is_not_written_and_lets_the_next_one_in(course):
    with pytest.raises(ZeroDivisionError), State.changing(course) as state:
        state.hints["1.1.1"] = 1 // 0
    with State.changing(course) as state:
        assert state.hints == {}


def test_records_that_another_command_holds_are_a_clear_error(course, monkeypatch):
    monkeypatch.setattr(state_module, "LOCK_SECONDS", 0.01)
    course.state.mkdir()
    with (
        FileLock(course.state / "progress.lock"),
        pytest.raises(CourseError, match="another command has held"),
        State.changing(course),
    ):
        pass


def test_a_second_damaged_file_does_not_replace_the_first(course):
    for content in ("first", "second"):
        write(course.state / "progress.json", content)
        State.load(course)
    assert (course.state / "progress.json.damaged").read_text() == "first"
    assert (course.state / "progress.json.damaged-2").read_text() == "second"


def test_records_of_a_newer_course_are_left_alone(course):
    text = json.dumps({"schema": 99, "more": True})
    write(course.state / "progress.json", text)
    with pytest.raises(CourseError, match="newer version"):
        State.load(course)
    assert (course.state / "progress.json").read_text() == text


def test_a_failed_save_keeps_the_old_records(course, monkeypatch):
    state = State.load(course)
    state.hints["1.1.1"] = 1
    state.save()

    def full_disk(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    state.hints["1.1.1"] = 2
    with pytest.raises(CourseError, match="No space left"):
        state.save()
    assert State.load(course).hints == {"1.1.1": 1}
    assert [path.name for path in course.state.iterdir()] == ["progress.json"]


def test_borrowed_code_counts_as_borrowed_until_it_is_rewritten(course):
    state = State.load(course)
    state.borrow("tiny_llm", TOTAL, COUNTING)
    reworded = COUNTING.replace('"""Their sum."""', '"""Sum!"""\n    # a comment').replace(
        "sum(count_up(last))", "sum( count_up(last) )"
    )
    rewritten = COUNTING.replace("return sum(count_up(last))", "return last * (last + 1) // 2")
    assert state.is_borrowed("tiny_llm", TOTAL, mark(COUNTING))
    assert state.is_borrowed("tiny_llm", TOTAL, mark(reworded))
    assert not state.is_borrowed("tiny_llm", TOTAL, mark(rewritten))
    assert not state.is_borrowed("tiny_llm_mlx", TOTAL, mark(COUNTING))


def test_forgetting_a_task_leaves_the_others(course):
    state = State.load(course)
    for task in ("2.1.1", "2.1.2"):
        state.record("tiny_llm", task, "passed", 10)
    state.borrow("tiny_llm", TOTAL, COUNTING)
    state.forget("tiny_llm", "2.1.2", [TOTAL])
    assert state.result("tiny_llm", "2.1.1") is not None
    assert state.result("tiny_llm", "2.1.2") is None
    assert not state.is_borrowed("tiny_llm", TOTAL, mark(COUNTING))


def test_copies_keep_their_paths_and_never_meet(course):
    path = course.starter() / "shapes.py"
    path.write_bytes(b"mine\r\n")
    folders = [
        save_copies(course, [path, course.starter() / "gone.py"], "a test", State.load(course))
        for _ in range(3)
    ]
    assert len(set(folders)) == 3
    for folder in folders:
        assert folder is not None
        assert folder.parent == course.state / "backups"
        assert [p.relative_to(folder).as_posix() for p in folder.rglob("*.py")] == ["src/tiny_llm/shapes.py"]
        assert (folder / "src/tiny_llm/shapes.py").read_bytes() == b"mine\r\n"


def test_nothing_to_copy_makes_no_folder(course):
    assert save_copies(course, [course.starter() / "gone.py"], "a test", State.load(course)) is None
    assert not course.state.exists()


def test_a_file_in_the_place_of_the_records_folder_is_a_clear_error(course):
    write(course.state, "in the way")
    with pytest.raises(CourseError, match=r"\.course"):
        save_copies(course, [course.starter() / "shapes.py"], "a test", State(course.state))
