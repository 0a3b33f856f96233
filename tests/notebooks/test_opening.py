"""`pdm run lab`: which day, which copy, and how JupyterLab is started and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from courses import make_course, solve, write

from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.import_path import Impl
from notebooks import opening
from notebooks.copies import notebook_of
from notebooks.opening import choose_day, lab, run_to_end
from notebooks.settings import IMPL

PATIENCE = 60.0


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    course = make_course(tmp_path)
    monkeypatch.setenv(ROOT_VARIABLE, str(course.root))
    for lesson in load_manifest(course).lessons:
        write(notebook_of(lesson), json.dumps({"cells": [], "metadata": {}}))
    return course


class Started:
    """Stands for JupyterLab: keeps what it was started with."""

    def __call__(self, command: list[str], environment: dict[str, str]) -> int:
        self.command, self.environment = command, environment
        return 7


@pytest.fixture(autouse=True)
def ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "is_root", lambda: False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    monkeypatch.setattr(opening, "run_to_end", started)
    return started


def opened(day: str | None = None, impl: Impl = Impl.LEARNER, **options: object) -> int:
    asked = {"fresh": False, "browser": True, "port": None, **options}
    with pytest.raises(typer.Exit) as left:
        lab(day, impl, **asked)  # type: ignore[arg-type]
    return left.value.exit_code


def test_a_day_that_is_named_is_opened_as_a_copy(course, started, capsys):
    assert opened("1.2") == 7
    assert started.command == [
        sys.executable,
        "-m",
        "jupyterlab",
        "--log-level=WARN",
        f"--ServerApp.root_dir={course.root / 'play'}",
        "--LabApp.default_url=/lab/tree/week_1_day_2.ipynb",
    ]
    assert started.environment[IMPL] == "learner"
    assert started.environment[ROOT_VARIABLE] == str(course.root)
    assert started.environment.keys() >= os.environ.keys() - {IMPL}
    assert capsys.readouterr().out == "Day 1.2, Circles: play/week_1_day_2.ipynb (a fresh copy)\n"


def test_the_day_is_told_on_one_line_as_its_lesson_writes_it(course, started, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    path = load_manifest(course).lesson("1.2").path
    write(path, path.read_text().replace('"Circles"', '"Circles [b] and rings"'))
    opened("1.2")
    said = "Day 1.2, Circles [b] and rings: play/week_1_day_2.ipynb (a fresh copy)\n"
    assert capsys.readouterr().out == said


def test_options_reach_jupyterlab(course, started):
    opened("1.1", Impl.SOLUTION, browser=False, port=9123)
    assert started.command[6:] == ["--no-browser", "--port=9123", "--ServerApp.port_retries=0"]
    assert started.environment[IMPL] == "solution"


def test_root_is_let_in_as_in_a_container(course, started, monkeypatch):
    monkeypatch.setattr(opening, "is_root", lambda: True)
    opened("1.1")
    assert started.command[6:] == ["--allow-root"]


def test_fresh_makes_a_new_copy(course, started):
    opened("1.1")
    copy = course.root / "play" / "week_1_day_1.ipynb"
    copy.write_text('{"cells": [1], "metadata": {}}')
    opened("1.1", fresh=True)
    assert json.loads(copy.read_text())["cells"] == []
    assert json.loads(copy.with_stem("week_1_day_1-1").read_text())["cells"] == [1]


def test_without_a_day_it_is_the_one_that_the_learner_is_on(course):
    manifest = load_manifest(course)
    assert choose_day(course, manifest, None).name == "1.1"
    solve(course, "1.1")
    assert choose_day(course, manifest, None).name == "1.2"
    solve(course, "1.2", "2.1")
    assert choose_day(course, manifest, None).name == "2.1"


def test_a_day_that_is_not_there_is_refused_before_anything_is_made(course, started):
    with pytest.raises(CourseError, match=r"7\.7"):
        lab("7.7")
    assert not (course.root / "play").exists()


def test_without_jupyterlab_it_says_how_to_get_it(course, started, monkeypatch):
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match="JupyterLab is not installed: `pdm install` brings it"):
        lab("1.1", fresh=False)
    assert not (course.root / "play").exists()


def test_the_programs_exit_code_is_ours():
    assert run_to_end([sys.executable, "-c", "raise SystemExit(5)"], dict(os.environ)) == 5


def test_the_program_gets_the_environment_that_it_is_given():
    program = "import os\nraise SystemExit(int(os.environ['CODE']))"
    assert run_to_end([sys.executable, "-c", program], {**os.environ, "CODE": "9"}) == 9


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX systems")
def test_a_program_that_is_killed_gives_the_code_that_shells_give():
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    assert run_to_end([sys.executable, "-c", program], dict(os.environ)) == 128 + signal.SIGKILL


ASKS_TWICE = """import signal, sys, time
times = []
def count(number, frame):
    times.append(number)
    print("asked", flush=True)
    if len(times) == 2:
        sys.exit(3)
signal.signal(signal.SIGINT, count)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
RUNS_IT = """import os, sys
from notebooks.opening import run_to_end
raise SystemExit(run_to_end([sys.executable, "-c", sys.argv[1]], dict(os.environ)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX systems")
def test_ctrl_c_is_the_programs_to_answer():
    with subprocess.Popen(
        [sys.executable, "-c", RUNS_IT, ASKS_TWICE], stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout.readline() == "asked\n"
        assert process.wait(PATIENCE) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX systems")
def test_the_program_ends_when_we_are_terminated():
    program = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", RUNS_IT, program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        end = time.monotonic() + PATIENCE
        while _runs(child) and time.monotonic() < end:
            time.sleep(0.05)
        assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
