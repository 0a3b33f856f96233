"""Workers that come and go, and answers that are late or never come: on a cluster that is only played."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from courses import make_course
from played_cluster import ADDRESS, Played, Run, Task, ends_well, good, jobs_of_three, rules_for
from rich.console import Console

from coursekit.errors import CourseError
from grading.cluster import dispatch
from grading.cluster.address import on_cluster
from grading.cluster.link import Gone, Lost, Worker
from grading.running.asking import Asked, prepare
from grading.running.children import FAILED
from grading.running.rules import Job, Rules
from grading.submissions.reading import HandedIn


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    return rules_for(make_course(tmp_path_factory.mktemp("comings") / "course"))


@pytest.fixture
def jobs(rules: Rules, tmp_path: Path) -> list[Job]:
    return jobs_of_three(rules, tmp_path)


def nothing() -> None:
    """An event in which none happens."""


@pytest.mark.parametrize("bare", [False, True])
def test_a_worker_is_told_whether_it_may_do_without_isolation(
    bare: bool, rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.events = iter([lambda: told.append(link.at_work[0].parcel), ends_well(link, rules)])
    told: list[object] = []
    Run(link, [replace(jobs[0], rules=replace(rules, without_isolation=bare))], monkeypatch)
    assert [getattr(parcel, "without_isolation", None) for parcel in told] == [bare]


def test_the_worker_that_is_the_least_busy_gets_the_next_one(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played()
    link.there = {name: Worker(name, "", 2) for name in ("one", "two")}
    link.events = itertools.repeat(ends_well(link, rules))
    Run(link, jobs, monkeypatch, at_once=2)
    assert set(link.given[:2]) == {"one", "two"}


def test_progress_is_shown_while_workers_are_waited_for_and_while_they_work(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    ticks: list[float] = []
    link.answers["one"] = None
    with monkeypatch.context() as patched:
        patched.setattr(Run, "tick", lambda _: ticks.append(link.now))
        with pytest.raises(CourseError, match="doesn't answer"):
            Run(link, jobs, patched)
    assert len(ticks) >= dispatch.WAIT_SECONDS
    link = Played("one")
    link.events = itertools.chain([nothing] * 20, itertools.repeat(ends_well(link, rules)))
    assert Run(link, jobs, monkeypatch).ticks >= 20


def test_a_submission_that_can_not_be_read_any_more_is_left_for_the_next_run(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = dispatch.read_submission

    def refusing(entry: object, layouts: object) -> HandedIn:
        if entry == jobs[0].surveyed.entry:
            raise CourseError("git has gone")
        return read(entry, layouts)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch, "read_submission", refusing)
    link = Played("one")
    link.events = itertools.repeat(ends_well(link, rules))
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"ann": FAILED, "bob": 0, "cleo": 0}
    assert run.marks["ann"].notes[-1] == "the grader failed: git has gone"


def test_a_worker_that_leaves_after_a_long_time_is_waited_for_as_long_as_one_that_leaves_at_once(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    come = lambda: link.there.update(two=Worker("two", "", 1))  # noqa: E731
    long = int(dispatch.WAIT_SECONDS) + 10
    link.events = itertools.chain(
        [nothing] * long,
        [lambda: link.lose("one"), *[nothing] * 10, come, nothing, nothing],
        itertools.repeat(ends_well(link, rules)),
    )
    run = Run(link, jobs, monkeypatch)
    assert list(run.codes.values()) == [0, 0, 0]
    assert [line.split(" any more")[0] for line in run.said[1:]] == [f"no worker is at {ADDRESS}"]


def test_a_worker_that_was_left_out_is_asked_again_when_it_was_started_again(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.answers["two"] = "another"

    def come() -> None:
        link.there["two"] = Worker("two", "", 1)

    def mend() -> None:
        link.answers["two"] = link.course

    leave = lambda: link.lose("two")  # noqa: E731
    events: list[Callable[[], None]] = [come, nothing, nothing, leave, nothing, mend, come, nothing, nothing]
    link.events = itertools.chain(events, itertools.repeat(ends_well(link, rules)))
    run = Run(link, jobs, monkeypatch)
    assert [line.split(": ")[0] for line in run.said] == ["the worker two can't grade"]
    assert "two" in link.given


def test_a_worker_that_goes_before_it_answers_is_not_waited_for(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one", "busy")
    link.answers["busy"] = None
    link.events = itertools.chain([lambda: link.lose("busy")], itertools.repeat(ends_well(link, rules)))
    assert list(Run(link, jobs, monkeypatch).codes.values()) == [0, 0, 0]
    assert [task.worker for task in link.dropped] == ["busy"]


def test_a_worker_whose_answer_is_lost_is_asked_again(
    rules: Rules, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.answers["one"] = Lost()
    waited = link.wait

    def wait(seconds: float) -> Task | None:
        task = waited(seconds)
        link.answers.clear()
        return task

    monkeypatch.setattr(link, "wait", wait)
    link.events = itertools.repeat(ends_well(link, rules))
    assert list(Run(link, jobs, monkeypatch).codes.values()) == [0, 0, 0]


def test_a_scheduler_that_goes_while_a_worker_answers_is_no_fault_of_the_worker(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")
    link.answers["one"] = Gone()
    with pytest.raises(CourseError, match=f"^the scheduler at {ADDRESS} has gone: start it again"):
        Run(link, jobs, monkeypatch)


def test_a_scheduler_that_goes_while_marks_are_on_their_way_is_named(
    jobs: list[Job], rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Played("one")

    def end_and_leave() -> None:
        link.end(good(link, rules))
        monkeypatch.setattr(link, "result", lambda task: link.leave() or link.workers())  # type: ignore[func-returns-value]

    link.events = iter([ends_well(link, rules), end_and_leave])
    run = Run(link, jobs, monkeypatch)
    assert run.codes == {"ann": 0, "bob": FAILED, "cleo": FAILED}
    for name in ("bob", "cleo"):
        assert run.marks[name].notes[-1] == f"the grader failed: the scheduler at {ADDRESS} has gone"


@pytest.mark.parametrize(("given", "at_once"), [(None, sys.maxsize), (3, 3)])
def test_the_workers_say_how_many_they_take_unless_the_command_does(
    given: int | None, at_once: int, rules: Rules, jobs: list[Job]
) -> None:
    folder = jobs[0].surveyed.entry.path.parent
    asked = Asked(folder, seed="xyzzy", jobs=given)
    run = prepare(rules.course, asked, Console(stderr=True), lambda say: on_cluster("here:1", say))
    assert run.jobs == at_once
