"""Reset puts stubs back, keeps a copy, and touches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import SHAPES, learner_text, make_course, solve, write
from typer import Exit

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.learner.catch_up import catch_up
from coursekit.learner.reset import reset
from coursekit.learner.state import State
from coursekit.lessons.outline import stubbed
from coursekit.paths import Course


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    return make_course(tmp_path)


def copies(course: Course) -> list[bytes]:
    return [path.read_bytes() for path in sorted((course.state / "backups").rglob("*.py"))]


def test_a_day_goes_back_to_the_starter(course, capsys):
    untouched = learner_text(course, "shapes.py")
    solve(course, "1.1")
    reset(week=1, day=1)
    out = capsys.readouterr().out
    assert learner_text(course, "shapes.py") == untouched
    assert "src/tiny_llm/shapes.py\n  1.1.1  Area" in out
    assert "pdm run test 1.1" in out


def test_one_task_goes_back_and_the_others_stay(course):
    solve(course, "1.1", "1.2")
    reset(week=1, day=1, task=2)
    assert set(stubbed(learner_text(course, "shapes.py"))) == {"perimeter"}


def test_a_day_or_a_task_can_be_named_in_one_word(course, capsys):
    solve(course, "1.1", "1.2")
    reset("1.1.2")
    assert set(stubbed(learner_text(course, "shapes.py"))) == {"perimeter"}
    assert "Stubs are back in Week 1 Day 1 Task 2:" in capsys.readouterr().out
    reset("1.1")
    assert set(stubbed(learner_text(course, "shapes.py"))) == {"area", "perimeter"}


def test_without_a_day_it_explains_itself_and_changes_nothing(course, capsys):
    catch_up(to="1.2")
    solved = learner_text(course, "shapes.py").replace("size.width * size.height", "size.height")
    write(course.starter() / "shapes.py", solved)
    capsys.readouterr()
    with pytest.raises(Exit) as left:
        reset()
    assert left.value.exit_code == 2
    out = capsys.readouterr().out
    assert "pdm run reset 1.3.2            one task" in out
    assert "Days with code of yours: 1.1\nDays with borrowed code: 1.1\n" in out
    assert learner_text(course, "shapes.py") == solved


def test_on_request_only_what_is_borrowed_goes_back(course, capsys):
    mine = SHAPES.replace("size.width * size.height", "size.height * size.width")
    start, end = mine.index("def area"), mine.index("def perimeter")
    text = learner_text(course, "shapes.py")
    text = text[: text.index("def area")] + mine[start:end] + text[text.index("def perimeter") :]
    write(course.starter() / "shapes.py", text)
    catch_up(to="1.2")
    reset("1.1", borrowed=True)
    assert learner_text(course, "shapes.py") == text
    assert State.load(course).borrowed["tiny_llm"] == {}
    capsys.readouterr()
    reset("1.1", borrowed=True)
    assert "Nothing to put back: Day 1.1 holds nothing borrowed." in capsys.readouterr().out


def test_the_learners_own_lines_stay_byte_for_byte(course):
    before = "# my notes\r\nimport os\t\r\nSize = tuple\r\n\r\ndef helper( x ) : return x   \r\n\r\n"
    after = "\r\n\r\n# never finished\r\nif os.name == 'nt' : pass"
    mine = "def area(size, extra=None):\r\n\treturn helper(size)  # mine\r\n\t# still mine"
    rest = SHAPES[SHAPES.index("def perimeter") :].rstrip("\n").replace("\n", "\r\n")
    write(course.starter() / "shapes.py", f"{before}{mine}{after}\r\n{rest}")
    reset(week=1, day=1, task=1)
    text = learner_text(course, "shapes.py")
    assert text.startswith(before + "def area(size: Size) -> float:\r\n")
    assert text.endswith(f'raise NotImplementedError("Week 1 Day 1 Task 1: Area"){after}\r\n{rest}')


def test_a_copy_of_the_file_is_kept(course, capsys):
    solve(course, "1.1")
    write(course.starter() / "shapes.py", SHAPES + "# mine\r\n")
    reset(week=1, day=1)
    assert copies(course) == [(SHAPES + "# mine\r\n").encode()]
    folder = capsys.readouterr().out.partition("Your code as it was:")[2].split()[0]
    assert (course.root / folder / "src/tiny_llm/shapes.py").is_file()


def test_stubs_only_means_nothing_to_do_and_no_copy(course, capsys):
    before = learner_text(course, "shapes.py")
    reset(week=1, day=1)
    assert "Nothing to put back" in capsys.readouterr().out
    assert learner_text(course, "shapes.py") == before
    assert not (course.state / "backups").exists()


def test_the_tasks_results_are_forgotten_and_other_records_kept(course):
    solve(course, "1.1")
    state = State.load(course)
    for task in ("1.1.1", "1.1.2"):
        state.record("tiny_llm", task, "passed", 5)
    state.hints["1.1.1"] = 2
    state.save()
    reset(week=1, day=1, task=1)
    state = State.load(course)
    assert state.result("tiny_llm", "1.1.1") is None
    assert state.result("tiny_llm", "1.1.2") is not None
    assert state.hints == {"1.1.1": 2}


def test_a_function_that_was_deleted_comes_back_in_its_place(course, capsys):
    solve(course, "1.1", "1.2")
    text = learner_text(course, "shapes.py")
    start, end = text.index("def perimeter"), text.index("# Circles")
    write(course.starter() / "shapes.py", text[:start] + text[end:])
    reset(week=1, day=1, task=2)
    again = learner_text(course, "shapes.py")
    assert set(stubbed(again)) == {"perimeter"}
    assert again.index("def area") < again.index("def perimeter") < again.index("class Circle")
    assert "Was missing, is back: src/tiny_llm/shapes.py: perimeter" in capsys.readouterr().out


def test_a_file_that_was_deleted_comes_back_as_stubs(course, capsys):
    untouched = learner_text(course, "shapes.py")
    (course.starter() / "shapes.py").unlink()
    reset(week=1, day=1)
    assert learner_text(course, "shapes.py") == untouched
    assert "Was missing, is back: src/tiny_llm/shapes.py\n" in capsys.readouterr().out


def test_a_syntax_error_is_named_and_nothing_changes(course):
    write(course.starter() / "shapes.py", "def area(size):\n    return (\n")
    with pytest.raises(CourseError, match=r"src/tiny_llm/shapes\.py:2: syntax error"):
        reset(week=1, day=1)
    assert learner_text(course, "shapes.py") == "def area(size):\n    return (\n"
    assert not course.state.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"week": 1, "day": 9}, "there is no Day 1.9"),
        ({"name": "1.9"}, "there is no Day 1.9"),
        ({"name": "1.1.3"}, "Day 1.1 has no task 3"),
        ({"name": "1.1", "task": 2}, "name the day once: 1.1, or --week and --day"),
        ({"task": 2}, "Name it: pdm run reset 1.3"),
        ({"week": 1, "day": 1, "task": 3}, "Day 1.1 has no task 3; it has: 1.1.1 Area; 1.1.2 Perimeter"),
        ({"week": 1, "day": 1, "backend": Backend.MLX}, "tiny_llm_mlx has nothing of Day 1.1"),
    ],
)
def test_what_is_not_there_is_a_clear_error(course, arguments, says):
    with pytest.raises(CourseError, match=says.replace(".", r"\.")):
        reset(**arguments)


def test_the_second_package_is_reset_alone(course):
    solve(course, "2.1")
    solve(course, "2.1", package="tiny_llm_mlx")
    reset(week=2, day=1, backend=Backend.MLX)
    assert set(stubbed(learner_text(course, "counting.py", "tiny_llm_mlx"))) == {"count_up"}
    assert stubbed(learner_text(course, "counting.py")) == {}


def test_when_writing_fails_the_code_and_the_records_stay(course, monkeypatch):
    solve(course, "1.1")
    before = learner_text(course, "shapes.py")
    state = State.load(course)
    state.record("tiny_llm", "1.1.1", "passed", 10)
    state.save()
    write_bytes = Path.write_bytes

    def full_disk(path: Path, content: bytes) -> int:
        if path.parent == course.starter():
            raise OSError(28, "No space left on device", str(path))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(CourseError, match="No space left"):
        reset(week=1, day=1)
    assert learner_text(course, "shapes.py") == before
    assert State.load(course).result("tiny_llm", "1.1.1") is not None
