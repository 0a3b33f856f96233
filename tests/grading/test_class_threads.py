"""Submissions that are graded at the same time share the cores, and find the compiled modules of libraries."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fake_judges
import pytest
from class_folders import COUNTING, as_folder
from confinement import EVERY, run, usable
from courses import make_course

from coursekit.machine import THREAD_VARIABLES
from grading.remote_lab import worker_variables
from grading.running import machine
from grading.running.asking import Asked, run_grade
from grading.running.machine import threads_of_each
from grading.sandbox.bytecode import bytecode_places, bytecode_variables
from grading.sandbox.isolation import Isolation


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing about threads, on a machine with 16 cores."""
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)


@pytest.mark.parametrize(("at_once", "threads"), [(1, 16), (3, 5), (8, 2), (9, 2), (64, 2)])
def test_the_cores_are_shared_among_those_at_work(unset: None, at_once: int, threads: int) -> None:
    assert threads_of_each(at_once) == dict.fromkeys(THREAD_VARIABLES, str(threads))


def test_what_the_environment_says_about_threads_stays(unset: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "11")
    assert threads_of_each(4) == dict.fromkeys(THREAD_VARIABLES, "4") | {"OMP_NUM_THREADS": "11"}


@pytest.mark.parametrize(("gigabytes", "jobs"), [(20, 3), (64, 8)])
def test_a_system_that_tells_only_all_of_its_memory_may_use_half_of_it(
    unset: None, gigabytes: int, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 999999999 kB\n", encoding="ascii")  # as before Linux 3.14
    monkeypatch.setattr(machine, "MEMORY_FILE", file)
    told = {"SC_PHYS_PAGES": gigabytes << 18, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sysconf", told.__getitem__, raising=False)
    assert machine.default_jobs() == jobs


def test_a_judge_and_its_worker_are_told_how_many_threads_they_may_have(
    tmp_path: Path, unset: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace").mkdir()
    monkeypatch.setenv("GRADE_TRACE", str(tmp_path / "trace"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    as_folder(tmp_path / "class" / "ann", {"src/tiny_llm/counting.py": COUNTING})
    asked = Asked(tmp_path / "class", seed="hush", jobs=1)
    run_grade(make_course(tmp_path / "course"), asked, fake_judges.by_threads, lambda marks, out: None)
    (trace,) = (tmp_path / "trace").glob("threads-*")
    told = dict(line.split("=") for line in trace.read_text(encoding="utf-8").splitlines())
    assert told["OMP_NUM_THREADS"] == "3"
    assert set(told) == set(THREAD_VARIABLES)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert told.items() <= worker_variables(tmp_path, tmp_path).items()
    assert not {"GRADE_TRACE", "PWD"} & worker_variables(tmp_path, tmp_path).keys()


def test_compiled_modules_beside_their_sources_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    assert bytecode_variables() == {}
    assert bytecode_places([Path("/")]) == ()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of compiled modules: of the environment, of a course's tool, and of its tests."""
    prefix = tmp_path / "bytecode"
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    for folder in (Path(sys.prefix, "lib"), tmp_path / "course" / "tool", tmp_path / "course" / "tests"):
        inside = prefix.joinpath(*folder.parts[1:])
        inside.mkdir(parents=True)
        (inside / "module.pyc").write_text(f"of {folder.name}", encoding="utf-8")
    return prefix


@pytest.mark.parametrize("kind", EVERY[:2])
def test_only_compiled_modules_of_libraries_and_of_the_tool_can_be_read(
    kind: type[Isolation], tmp_path: Path, kept: Path
) -> None:
    tool = tmp_path / "course" / "tool"
    places = bytecode_places([tool])
    code = f"""
import sys
from pathlib import Path
for place in {[str(folder) for folder in (Path(sys.prefix, "lib"), tool, tool.with_name("tests"))]!r}:
    try:
        print(Path(sys.argv[1], *Path(place).parts[1:], "module.pyc").read_text())
    except OSError:
        print("nothing")
"""
    arguments = bytecode_variables().values()
    confined = run(usable(kind), code, tmp_path / "scratch", read=places, arguments=arguments)
    assert confined.output().splitlines() == ["of lib", "of tool", "nothing"]
