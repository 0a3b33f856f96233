"""Grades classes on clusters of real processes on this machine, with a judge that runs nothing, and the real one."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import fake_judges
import pytest
from class_folders import COUNTING, as_folder, as_tar, as_zip
from clusters import Cluster, cluster_of, unused_address
from confinement import no_isolation
from courses import make_course
from fake_judges import by_stubs
from runs import environment

from coursekit.errors import CourseError
from coursekit.paths import Course
from grading.cluster.address import on_cluster
from grading.judging import judge as real_judge
from grading.marks import Marks, read_marks
from grading.running.asking import GRADER_FAILED, Asked, run_grade
from grading.running.kept import Kept
from grading.running.rules import Judge

pytest.importorskip("distributed", reason="the package distributed isn't installed: pdm install -G cluster")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be a worker: it has the isolation"),
    pytest.mark.timeout(400),  # several processes that import for seconds each, on a machine that may be busy
]

PATIENCE = 120.0  # seconds
FAKE = Path(fake_judges.__file__).with_name("grade_with_fake.py")
THEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what all tests share, since a cluster takes many seconds to start."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def course(base: Path) -> Course:
    return make_course(base / "course")


@pytest.fixture(scope="module")
def shared(base: Path, course: Course) -> Iterator[Cluster]:
    with cluster_of(base / "shared", course, "w1", "w2", GRADE_TRACE=str(base / "trace")) as cluster:
        yield cluster


@pytest.fixture
def trace(base: Path) -> Iterator[Path]:
    """Where the judges leave their traces; at the end none of them is left, whatever happened."""
    folder = base / "trace"
    folder.mkdir()
    yield folder
    for pid in judges(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A class of four; dan's is refused."""
    folder = as_folder(tmp_path / "class", {"ann/src/tiny_llm/counting.py": COUNTING})
    as_zip(folder / "bob.zip", {"counting.py": b"def total(last):\n    return 3\n"})
    as_folder(folder / "cleo", {"src/tiny_llm/counting.py": COUNTING + b"x = 1\n"})
    as_tar(folder / "dan.tar.gz", {"../counting.py": b""})
    return folder


class Reports:
    """Keeps what the writer of reports gets."""

    def __init__(self) -> None:
        self.marks: dict[str, Marks] = {}

    def __call__(self, marks: Sequence[Marks], out: Path) -> None:
        self.marks = {each.student.id: each for each in marks}

    @property
    def earned(self) -> dict[str, int]:
        return {name: sum(day.earned for day in marks.days) for name, marks in self.marks.items()}

    @property
    def failures(self) -> dict[str, str]:
        return {name: marks.notes[-1] for name, marks in self.marks.items() if "failed" in marks.refusal}


def grade(
    course: Course, folder: Path, scheduler: str | None, judge: Judge = by_stubs, **options: object
) -> tuple[int, Reports]:
    reports = Reports()
    asked = Asked(folder, **{"seed": "xyzzy", **options})  # type: ignore[arg-type]
    elsewhere = None if scheduler is None else functools.partial(on_cluster, scheduler)
    return run_grade(course, asked, judge, reports, elsewhere), reports


def calls(trace: Path) -> int:
    """How many submissions have been judged since the last look."""
    found = list(trace.glob("call-*"))
    for path in found:
        path.unlink()
    return len(found)


def judges(trace: Path) -> list[int]:
    """The processes of judges that have waited, with their children, or paused."""
    waited = [pid for path in trace.glob("waiting-*") for pid in numbers(path)]
    return waited + [numbers(path)[0] for path in trace.glob("pausing-*")]


def numbers(path: Path) -> list[int]:
    return [int(word) for word in path.read_text(encoding="utf-8").split()]


def wait_until(trace: Path, pattern: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(list(trace.glob(pattern))) < count:
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.05)


def wait_for_end(processes: Sequence[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not all(is_gone(pid) for pid in processes):
        assert time.monotonic() < deadline, f"{processes} are left"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def start(course: Course, *arguments: object) -> subprocess.Popen[str]:
    """The command in a process of its own, as a terminal starts it."""
    variables = environment(course) | {"TINY_LLM_SEED": "xyzzy"}
    variables["PYTHONPATH"] += os.pathsep + str(FAKE.parent)
    return subprocess.Popen(
        [sys.executable, str(FAKE), "grade", *map(str, arguments)],
        cwd=course.root,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, out, err


def timeless(marks: Marks) -> Marks:
    return replace(marks, graded=THEN, seconds=0.0)


def test_a_cluster_gives_the_marks_of_one_machine_and_what_either_has_graded_is_kept(
    course: Course, folder: Path, trace: Path, shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, word in (("e1", b"FAILS"), ("e2", b"DIES")):
        as_folder(folder / name, {"tiny_llm/counting.py": b"# " + word})
    code, there = grade(course, folder, shared.address)
    assert code == GRADER_FAILED
    assert there.earned == {"ann": 25, "bob": 15, "cleo": 25, "dan": 0, "e1": 0, "e2": 0}
    assert there.failures["e1"].startswith("the grader failed: ZeroDivisionError: no such … (fake_judges.py:")
    assert there.failures["e2"].startswith(
        "the grader failed: its process was killed by signal 9, at the worker"
    )
    kept = Kept(folder.with_name("class-grades"))
    assert read_marks(kept.target("bob.zip")) == there.marks["bob"]
    assert calls(trace) == 5
    assert all("xyzzy" not in shared.said(name) for name in shared.processes)

    monkeypatch.setenv("GRADE_TRACE", str(trace))
    _, here = grade(course, folder, None)
    assert calls(trace) == 2  # only what had failed
    assert here.marks["ann"] == there.marks["ann"]
    as_folder(folder / "ann", {"src/tiny_llm/counting.py": b"# new\n"})
    _, there = grade(course, folder, shared.address, jobs=1)
    assert calls(trace) == 3
    assert there.earned["ann"] == 0
    assert there.marks["cleo"] == here.marks["cleo"]
    _, here = grade(course, folder, None, out=folder.with_name("anew"))
    for name in ("ann", "bob", "cleo", "dan"):
        assert timeless(here.marks[name]) == timeless(there.marks[name])


def test_a_worker_with_another_course_is_refused_by_name_before_anything_is_graded(
    course: Course, folder: Path, trace: Path, tmp_path: Path, shared: Cluster
) -> None:
    other = make_course(tmp_path / "other")
    (other.tests / "week_2/test_day_1.py").write_text("# easier\n", encoding="utf-8")
    shared.add_worker("stale", "--no-nanny", course=other)
    shared.wait_for_workers("stale")
    told = r"the worker tcp://[0-9.:]+ \(stale\) can't grade: its course is another one"
    with pytest.raises(CourseError, match=told):
        grade(course, folder, shared.address)
    shared.stop_worker("stale")
    assert calls(trace) == 0


def test_the_work_of_a_worker_that_is_killed_is_done_by_another(
    course: Course, trace: Path, tmp_path: Path, shared: Cluster
) -> None:
    files = {f"{name}/tiny_llm/counting.py": COUNTING + b"# PAUSES\n" for name in "abcd"}
    folder = as_folder(tmp_path / "class", files)
    process = start(course, folder, "--scheduler", shared.address)
    wait_until(trace, "pausing-*", 2)
    judge, worker = numbers(next(trace.glob("pausing-*")))
    os.kill(worker, signal.SIGKILL)
    wait_for_end([judge])  # what the worker had started has ended with it
    (trace / "go").touch()
    code, out, err = ended(process)
    assert code == 0, err
    assert "4 graded" in out
    assert "has ended: what it was at work on is graded by another" in err
    marks = [read_marks(path) for path in (tmp_path / "class-grades/marks").glob("*.json")]
    assert [each.earned for each in marks] == [25] * 4


def test_a_submission_that_kills_every_worker_is_given_up_and_the_rest_is_graded(
    course: Course, folder: Path, trace: Path, shared: Cluster
) -> None:
    as_folder(folder / "a_killer", {"tiny_llm/counting.py": b"# KILLS"})
    code, reports = grade(course, folder, shared.address)
    assert code == GRADER_FAILED
    assert reports.earned == {"a_killer": 0, "ann": 25, "bob": 15, "cleo": 25, "dan": 0}
    assert reports.failures == {
        "a_killer": "the grader failed: 3 workers have ended while they were at work on it"
    }
    assert len(list(trace.glob("killing-*"))) == 3
    wait_for_end(judges(trace))


@pytest.fixture
def waiting_class(tmp_path: Path) -> Path:
    """One submission that is graded at once, and two whose grading doesn't end."""
    folder = as_folder(tmp_path / "class", {"a/tiny_llm/counting.py": COUNTING})
    as_folder(folder / "w1", {"tiny_llm/counting.py": b"# WAITS 1"})
    as_folder(folder / "w2", {"tiny_llm/counting.py": b"# WAITS 2"})
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_when_the_grader_ends_so_do_the_judges_at_the_workers_and_the_next_run_goes_on(
    number: signal.Signals, code: int, course: Course, waiting_class: Path, trace: Path, shared: Cluster
) -> None:
    out = waiting_class.with_name("class-grades")
    process = start(course, waiting_class, "--scheduler", shared.address)
    wait_until(trace, "waiting-*", 2)
    wait_until(out / "marks", "a-*.json", 1)
    process.send_signal(number)
    left, _, err = ended(process)
    assert left == code
    assert "Traceback" not in err
    wait_for_end(judges(trace))
    assert len(list(trace.glob("interrupted-*"))) == 2  # the judges could put things in order
    assert [path.name[:2] for path in (out / "marks").glob("*.json")] == ["a-"]
    calls(trace)
    for name in ("w1", "w2"):
        as_folder(waiting_class / name, {"tiny_llm/counting.py": COUNTING})
    assert ended(start(course, waiting_class, "--scheduler", shared.address))[0] == 0
    assert calls(trace) == 2


def test_a_scheduler_that_goes_away_leaves_the_rest_for_the_next_run(
    course: Course, waiting_class: Path, trace: Path, tmp_path: Path
) -> None:
    out = waiting_class.with_name("class-grades")
    with cluster_of(tmp_path / "cluster", course, "w1", "w2", GRADE_TRACE=str(trace)) as cluster:
        process = start(course, waiting_class, "--scheduler", cluster.address)
        wait_until(trace, "waiting-*", 2)
        wait_until(out / "marks", "a-*.json", 1)
        cluster.processes["scheduler"].kill()
        code, printed, err = ended(process)
        wait_for_end(judges(trace))
    gone = f"the scheduler at {cluster.address} has gone"
    assert code == GRADER_FAILED
    assert "1 graded, 2 not graded, because the grader failed" in printed
    assert f"{gone}: what is not graded yet is left for the next run" in err
    assert "Traceback" not in err
    marks = {path.name[:2]: read_marks(path) for path in (out / "marks").glob("*.json")}
    assert marks["w1"].notes == (f"the grader failed: {gone}",)
    assert marks["a-"].refusal == ""
    for name in ("w1", "w2"):
        as_folder(waiting_class / name, {"tiny_llm/counting.py": COUNTING})
    code, reports = grade(course, waiting_class, None)
    assert (code, set(reports.earned.values())) == (0, {25})


def test_a_scheduler_that_is_not_there_is_told_and_nothing_is_graded(
    course: Course, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grading.cluster.link.CONNECT_SECONDS", 1.0)
    address = unused_address()
    with pytest.raises(CourseError, match=f"can't reach a scheduler at {address}: .*dask scheduler"):
        grade(course, folder, address)
    as_folder(folder / "eve", {"tiny_llm/counting.py": b"# new"})
    with pytest.raises(CourseError, match="can't reach a scheduler"):
        grade(course, folder, address.removeprefix("tcp://"))
    kept = Kept(folder.with_name("class-grades"))
    assert [path.name[:4] for path in kept.marks.glob("*.json")] == ["dan-"]  # it is refused before
    assert not kept.work.exists()


@pytest.mark.skipif(bool(no_isolation()), reason=no_isolation())
def test_the_real_judge_at_the_workers(course: Course, tmp_path: Path, shared: Cluster) -> None:
    folder = as_folder(tmp_path / "class", {"ann/tiny_llm/counting.py": COUNTING})
    as_folder(
        folder / "bob", {"tiny_llm/counting.py": COUNTING.replace(b"return 0", b"return sum(count_up(last))")}
    )
    code, reports = grade(course, folder, shared.address, judge=real_judge, week=2)
    assert code == 0
    assert reports.earned == {"ann": 10, "bob": 25}
    assert reports.marks["ann"].isolation
