"""How a confined command starts: what it is given, and which commands are refused."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confinement import EVERY, SMALL, run, start, usable

from coursekit.errors import CourseError
from grading.sandbox.isolation import Isolation
from grading.sandbox.limits import Limits, Rooms
from grading.sandbox.limits_only import LimitsOnly

every = pytest.mark.parametrize("kind", EVERY)


@every
def test_passed_pipes_carry_questions_and_answers(kind: type[Isolation], tmp_path: Path) -> None:
    read_in, ask = os.pipe()
    hear, write_in = os.pipe()
    code = f"import os; os.write({write_in}, os.read({read_in}, 100).upper())"
    with start(usable(kind), code, tmp_path / "scratch", pass_fds=[read_in, write_in]) as confined:
        os.close(write_in)
        os.write(ask, b"question")
        assert os.read(hear, 100) == b"QUESTION"
        assert os.read(hear, 100) == b""  # it has ended, and nothing else holds the pipe
        assert confined.wait(60)
    os.fstat(read_in)  # stays open here
    for end in (read_in, ask, hear):
        os.close(end)


@every
def test_other_open_files_of_the_grader_are_not_passed(kind: type[Isolation], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    code = """
import os
import sys
for number in range(3, 60):
    try:
        os.fstat(number)
    except OSError:
        continue
    print(number)
"""
    assert run(usable(kind), code, tmp_path / "scratch").output() == ""
    os.close(read)
    os.close(write)


@every
def test_the_environment_is_what_is_passed(
    kind: type[Isolation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    code = "import os; print(sorted((k, v) for k, v in os.environ.items() if k != 'LC_CTYPE'))"
    passed = {"OPEN": "ü = 2", "HOME": ""}
    confined = run(usable(kind), code, tmp_path / "scratch", environment=passed)
    assert confined.output() == "[('HOME', ''), ('OPEN', 'ü = 2')]\n"


@every
def test_it_runs_in_the_scratch_folder_and_may_write_there(kind: type[Isolation], tmp_path: Path) -> None:
    scratch = tmp_path / "a folder, ümlaut"
    code = "import os; os.mkdir('d'); open('d/f', 'w').write('x'); print(os.getcwd(), open('d/f').read())"
    assert run(usable(kind), code, scratch).output() == f"{scratch} x\n"


@every
def test_a_room_may_be_read_and_not_written_to(kind: type[Isolation], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("hello")
    (room := tmp_path / "a room").symlink_to(tmp_path / "real")
    code = """
import sys
print(open(sys.argv[1] + "/file").read())
try:
    open(sys.argv[1] + "/file", "a")
except OSError:
    print("refused")
"""
    said = run(usable(kind), code, tmp_path / "scratch", read=[room], arguments=[str(room)]).output()
    assert said == ("hello\n" if kind is LimitsOnly else "hello\nrefused\n")


@every
def test_a_scratch_folder_may_lie_in_a_room(kind: type[Isolation], tmp_path: Path) -> None:
    code = "open('f', 'w').write('x'); print('wrote')"
    assert run(usable(kind), code, tmp_path / "scratch", read=[tmp_path]).output() == "wrote\n"


@every
def test_a_command_that_does_not_exist_is_refused(kind: type[Isolation], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="can't start no-such-program: there is no such program"):
        usable(kind).start(["no-such-program"], Rooms((), tmp_path), SMALL, {})


@every
def test_a_program_that_cannot_run_is_refused(kind: type[Isolation], tmp_path: Path) -> None:
    (program := tmp_path / "program").write_bytes(b"\x7fELF, but not really")
    program.chmod(0o755)
    (tmp_path / "scratch").mkdir()
    with pytest.raises(CourseError, match=r"can't start .*program shut in: .*Exec format error"):
        usable(kind).start([str(program)], Rooms((program,), tmp_path / "scratch"), SMALL, {})


@every
def test_no_command_is_refused(kind: type[Isolation], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="there is no command to start"):
        usable(kind).start([], Rooms((), tmp_path), SMALL, {})


@every
def test_a_room_that_does_not_exist_is_refused(kind: type[Isolation], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"there is no .*nowhere for the confined process to read"):
        usable(kind).start([sys.executable], Rooms((tmp_path / "nowhere",), tmp_path), SMALL, {})


@every
def test_a_scratch_folder_that_is_none_is_refused(kind: type[Isolation], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CourseError, match=r"the scratch folder .*file is not a folder"):
        usable(kind).start([sys.executable], Rooms((), tmp_path / "file"), SMALL, {})


@pytest.mark.parametrize("name", list(Limits.__dataclass_fields__))
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_above_zero_is_refused(value: float, name: str) -> None:
    with pytest.raises(CourseError, match=f"the limit {name} is {value}; it has to be above 0"):
        replace(SMALL, **{name: value})  # type: ignore[arg-type]
