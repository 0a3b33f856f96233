"""How the submissions of a class are given to workers, and what becomes of each: on a cluster that is only played."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from class_folders import COUNTING
from courses import make_course
from fake_judges import by_stubs
from played_cluster import (
    ADDRESS,
    SUBMITTED,
    Played,
    Run,
    ends_well,
    good,
    graded_marks,
    jobs_of_three,
    rules_for,
)

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from grading.cluster import dispatch
from grading.cluster.address import on_cluster
from grading.cluster.link import Lost, Worker
from grading.cluster.parcel import Days, Graded
from grading.marks import Marks, Student, marks_to_json
from grading.running.children import FAILED
from grading.running.fingerprints import course_fingerprint
from grading.running.one import failed_marks
from grading.running.rules import Job, Rules, Surveyed
from grading.submissions.entries import Entry


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    return rules_for(make_course(tmp_path_factory.mktemp("dispatch") / "course"))


@pytest.fixture
def jobs(rules: Rules, tmp_path: Path) -> list[Job]:
    return jobs_of_three(rules, tmp_path)


def test_each_worker_gets_one_and_marks_get_their_learner_back(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one", "two")
    link.events = itertools.repeat(ends_well(link, rules))
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"ann": 0, "bob": 0, "cleo": 0}
    assert link.most == 2
    assert set(link.given) == {"one", "two"}
    for name, marks in run.marks.items():
        assert (marks.student, marks.submission) == (Student(name, name.title()), name)
        assert (marks.notes, marks.seconds, marks.isolation) == (("own",), 7.0, "theirs")
        assert marks.submitted == SUBMITTED
    assert run.said == []


def test_at_once_and_the_threads_of_a_worker_bound_how_many_are_at_work(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    for threads, at_once, most in ((1, 99, 1), (3, 99, 3), (3, 2, 2), (3, 1, 1)):
        link = Played("one")
        link.there["one"] = Worker("one", "", threads)
        link.events = itertools.repeat(ends_well(link, rules))
        run = Run(link, jobs, monkeypatch, at_once)
        assert (link.most, list(run.codes.values())) == (most, [0, 0, 0])


def test_the_parcel_names_no_learner_and_shows_no_secret(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    parcels = []

    def ends() -> None:
        parcels.append(link.at_work[0].parcel)
        link.end(good(link, rules))

    link.events = itertools.repeat(ends)
    Run(link, jobs[:1], monkeypatch)
    (parcel,) = parcels
    assert parcel is not None
    assert parcel.seed == "xyzzy"
    assert parcel.files == {"tiny_llm/counting.py": COUNTING + b"ann = 1\n"}
    assert "xyzzy" not in repr(parcel)
    assert "ann" not in repr(parcel)
    assert "Ann" not in str(vars(parcel))


def test_a_worker_that_can_not_grade_ends_the_run_before_it_begins(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer, told in (
        ("another", "its course is another one"),
        (CourseError("no course here"), "no course here"),
        (ModuleNotFoundError("No module named 'grading'"), "No module named 'grading'"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ):
        link = Played("one", "two")
        link.answers["two"] = answer
        with pytest.raises(
            CourseError, match=f"^the worker two can't grade: {told}; start it, and the scheduler"
        ):
            Run(link, jobs, monkeypatch)
        assert link.given == []


def test_one_that_comes_later_is_left_out_or_joins_in(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.answers["stale"] = "another"

    def come() -> None:
        link.there |= {name: Worker(name, f"name of {name}", 1) for name in ("stale", "fresh")}

    def nothing() -> None:
        pass

    link.events = itertools.chain(
        [come, nothing, nothing, nothing, nothing], itertools.repeat(ends_well(link, rules))
    )
    run = Run(link, jobs, monkeypatch)
    assert list(run.codes.values()) == [0, 0, 0]
    assert "fresh" in link.given
    assert "stale" not in link.given
    (said,) = run.said
    assert said.startswith("the worker stale (name of stale) can't grade: its course is another one")
    assert said.endswith("It is left out")


def test_the_first_worker_is_waited_for_visibly_and_not_for_ever(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played()
    with pytest.raises(
        CourseError, match=f"^no worker is at {ADDRESS}: start one with `pdm run dask worker {ADDRESS}"
    ):
        Run(link, jobs, monkeypatch)
    assert dispatch.WAIT_SECONDS < link.now < dispatch.WAIT_SECONDS + 5
    link = Played()
    arrive = lambda: link.there.update(one=Worker("one", "", 3))  # noqa: E731
    nothing = lambda: None  # noqa: E731
    link.events = itertools.chain([nothing, arrive, nothing], itertools.repeat(ends_well(link, rules)))
    run = Run(link, jobs, monkeypatch)
    assert run.said == [f"no worker is at {ADDRESS} yet: waiting for one, at most 300 s"]
    assert list(run.codes.values()) == [0, 0, 0]


def test_a_worker_that_does_not_answer_is_named(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    link = Played("one", "busy")
    link.answers["busy"] = None
    with pytest.raises(CourseError, match=r"^the worker busy doesn't answer"):
        Run(link, jobs, monkeypatch)
    assert link.given == []


def test_where_no_worker_is_left_one_is_waited_for_and_then_the_rest_is_for_the_next_run(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.events = iter([ends_well(link, rules), lambda: link.lose("one")])
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"ann": 0, "bob": FAILED, "cleo": FAILED}
    assert "the worker one has ended" in run.said[0]
    assert run.said[1] == f"no worker is at {ADDRESS} any more: waiting for one, at most 300 s"
    assert run.said[2].endswith("what is not graded yet is left for the next run")
    for name in ("bob", "cleo"):
        assert run.marks[name].notes[-1].startswith(f"the grader failed: no worker is at {ADDRESS}")
        assert (run.marks[name].course, run.marks[name].draw) == ("", "")


def test_a_submission_over_which_three_workers_end_is_given_up(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("w0")
    count = itertools.count(1)

    def happen() -> None:
        if not link.at_work:
            return
        (task,) = link.at_work
        if task.parcel is not None and b"ann" in task.parcel.files["tiny_llm/counting.py"]:
            link.lose(task.worker)
            new = f"w{next(count)}"
            link.there[new] = Worker(new, "", 1)
        else:
            link.end(good(link, rules))

    link.events = itertools.repeat(happen)
    run = Run(link, jobs, monkeypatch)
    assert list(run.codes.items()) == [("bob", 0), ("cleo", 0), ("ann", FAILED)]  # the others go first
    assert next(count) == 4
    assert (
        run.marks["ann"].notes[-1] == "the grader failed: 3 workers have ended while they were at work on it"
    )
    assert len(link.dropped) == 3


def test_a_task_that_is_lost_while_its_worker_is_there_is_done_again(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.events = itertools.chain([lambda: link.end(Lost())], itertools.repeat(ends_well(link, rules)))
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"bob": 0, "cleo": 0, "ann": 0}


def test_what_a_worker_sends_is_looked_at(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(answer: object) -> Marks:
        link = Played("one")
        link.events = itertools.repeat(lambda: link.end(answer(link) if callable(answer) else answer))
        run = Run(link, jobs[:1], monkeypatch)
        assert run.codes == {"ann": FAILED}
        assert run.marks["ann"].student == Student("ann", "Ann")
        return run.marks["ann"]

    def failed(link: Played) -> Graded:
        job = replace(jobs[0], surveyed=Surveyed(Entry(Path("submission")), Student("")))
        return Graded(FAILED, marks_to_json(failed_marks(job, "out of luck")))

    def other(field: str) -> Callable[[Played], Graded]:
        def answer(link: Played) -> Graded:
            parcel = link.at_work[0].parcel
            assert parcel is not None
            return Graded(0, marks_to_json(replace(graded_marks(rules, parcel), **{field: "0"})))  # type: ignore[arg-type]

        return answer

    for strange in (None, "marks", Graded(0, b"[]"), Graded(0, b"\xff")):
        assert (
            sent(strange).notes[-1] == "the grader failed: the worker one has sent something else than marks"
        )
    for field in ("content", "course", "draw"):
        assert "has graded something else than it was sent" in sent(other(field)).notes[-1]
    assert sent(failed).notes == ("own", "the grader failed: out of luck, at the worker one")
    assert sent(CourseError("no xyzzy")).notes[-1] == "the grader failed: no …, at the worker one"
    unforeseen = sent(ZeroDivisionError("oh")).notes[-1]
    assert unforeseen.startswith("the grader failed: ZeroDivisionError: oh (played_cluster.py:")


def test_a_submission_that_has_become_bad_is_refused_and_the_rest_is_graded(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    (jobs[1].surveyed.entry.path / "tiny_llm/counting.py").unlink()
    link = Played("one")
    link.events = itertools.repeat(ends_well(link, rules))
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"ann": 0, "bob": 0, "cleo": 0}
    assert run.marks["bob"].refusal == "it holds no file of tiny_llm that counts"
    assert len(link.given) == 2


def test_when_the_scheduler_goes_before_anything_is_given_out_nothing_is_written(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.answers["one"] = None
    link.events = iter([link.leave])
    with pytest.raises(CourseError, match=f"^the scheduler at {ADDRESS} has gone: start it again"):
        Run(link, jobs, monkeypatch)
    assert not jobs[0].target.exists()


def test_when_the_scheduler_goes_in_the_middle_each_submission_is_graded_or_left_for_the_next_run(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one", "two")

    def end_and_leave() -> None:
        link.end(good(link, rules))
        link.give = lambda *_: link.leave() or link._check()  # type: ignore[assignment,func-returns-value,method-assign]

    link.events = iter([end_and_leave])
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"ann": 0, "bob": FAILED, "cleo": FAILED}
    assert run.said == [
        f"the scheduler at {ADDRESS} has gone: what is not graded yet is left for the next run"
    ]
    assert run.marks["bob"].notes[-1] == f"the grader failed: the scheduler at {ADDRESS} has gone"


def test_no_job_needs_no_cluster() -> None:
    assert list(dispatch.dispatch("tcp://127.0.0.1:1", print, [], by_stubs, 1, lambda: None)) == []


@pytest.mark.parametrize(
    "address", ["", "here", "threads", "tcp://here", "ftp://here:1", "here:1:2", "a b:1", "/f:1"]
)
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(CourseError, match="is no address: it looks like tcp://"):
        on_cluster(address, print)


@pytest.mark.parametrize("address", ["here:1", "tcp://10.0.0.5:8786", "tls://a-b.c:8786", "tcp://[::1]:8786"])
def test_addresses_are_taken_and_are_of_tcp_where_they_say_nothing_else(address: str) -> None:
    found = on_cluster(address, print)
    assert isinstance(found, functools.partial)
    assert found.args == (address if "//" in address else f"tcp://{address}", print)


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        CourseError, match="needs the package distributed: `pdm install -G cluster` installs it"
    ):
        on_cluster("here:1", print)


def test_a_checkout_without_one_of_the_days_is_told(rules: Rules) -> None:
    course = rules.course
    manifest = load_manifest(course)
    days = Days(("1.1", "2.1"), Backend.TORCH)
    chosen = [lesson for lesson in manifest.lessons if lesson.name in days.names]
    assert days.fingerprint(course) == course_fingerprint(course, chosen, Backend.TORCH)
    with pytest.raises(CourseError, match=r"there is no Day 9\.9 in its checkout"):
        Days(("1.1", "9.9"), Backend.TORCH).fingerprint(course)
