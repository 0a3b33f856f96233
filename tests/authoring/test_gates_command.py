"""`pdm run check` as a command: which gates run, what it says, its exit code, and how it stops."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from courses import write
from gate_courses import make_gated_course, plant

from authoring.gates import GATES, choose, prove
from coursekit.errors import CourseError
from coursekit.paths import ROOT_VARIABLE, Course

LOOP = "import os\n    open({file!r}, 'w').write(str(os.getpid()))\n    while True:\n        pass"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_gated_course(tmp_path)


def test_all_gates_run_when_none_is_named():
    assert choose(None, None) == list(GATES)


def test_gates_can_be_chosen_and_left_out():
    assert choose("mutants, order", None) == ["order", "mutants"]
    assert choose(None, "reference,lint") == [
        "agreement",
        "starter",
        "order",
        "mutants",
        "mlx",
        "grading",
        "notebooks",
    ]
    assert choose("order,lint", "lint") == ["order"]


@pytest.mark.parametrize(("only", "leave_out"), [("mutant", None), (None, "ordre"), ("order", "order")])
def test_a_name_that_is_no_gate_or_a_choice_of_none_is_refused(only, leave_out):
    with pytest.raises(CourseError, match="gate"):
        choose(only, leave_out)


def test_gates_that_pass_end_with_a_table_and_no_error(course, capsys):
    prove(only="order,starter")
    output = capsys.readouterr().out
    assert re.search(r"^starter +passed +.*5 tasks not started +[\d.]+$", output, re.M)
    assert re.search(r"^order +passed +3 days \(torch\) +[\d.]+$", output, re.M)
    assert output.rstrip().endswith("2 of 2 gates passed")


def test_a_gate_that_fails_does_not_keep_the_next_from_running(course, capsys):
    (course.starter() / "counting.py").unlink()
    with pytest.raises(typer.Exit) as left:
        prove(only="order,starter")
    assert left.value.exit_code == 1
    output = capsys.readouterr().out
    assert "problem: src/tiny_llm/counting.py is missing" in output
    assert output.rstrip().endswith("1 of 2 gates passed; failed: starter")


def test_a_manifest_that_cannot_be_read_fails_the_gates_that_need_it(course, capsys):
    write(course.lessons / "week_1/day_1/lesson.toml", "title = 3\n")
    with pytest.raises(typer.Exit) as left:
        prove(only="agreement,order")
    assert left.value.exit_code == 1
    output = capsys.readouterr().out
    assert "problem: lessons/week_1/day_1/lesson.toml:1: title must be text" in output
    assert "failed: agreement, order" in output


def test_a_day_that_is_not_there_is_refused(course):
    with pytest.raises(CourseError, match=r"no Day 1.9"):
        prove(only="order", day="1.9")


def test_gates_run_where_the_name_of_the_temporary_folder_is_too_long_for_a_socket(course, tmp_path):
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "authoring", "check", "--only", "order", "--day", "1.1"],
        env={**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)},
        cwd=course.root,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_children_and_removes_their_folders(course, tmp_path, number, code):
    pid_file, temporary = tmp_path / "pid", tmp_path / "tmp"
    temporary.mkdir()
    loop = LOOP.format(file=str(pid_file))
    plant(
        course, "week_1/day_1", "task_1", "goes round", "shapes.py", "return size.width * size.height", loop
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "authoring", "check", "--only", "mutants", "--day", "1.1"],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=course.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    child = _wait_for_pid(pid_file, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert list(temporary.iterdir()) == []


def _wait_for_pid(file: Path, process: subprocess.Popen) -> int:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[1]
        if file.is_file() and (text := file.read_text(encoding="utf-8")):
            return int(text)
        time.sleep(0.05)
    raise AssertionError("the mutant did not start within 90 seconds")
