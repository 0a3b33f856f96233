"""The pytest plugin of the course: which implementation is tested, the `lab` fixture, and the state of every task.

It is loaded with `-p coursekit.plugin`, before any test file is read and so before anything imports `tiny_llm`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coursekit import lab as lab_module
from coursekit.backends import Backend, Device
from coursekit.errors import CourseError
from coursekit.lab import Lab
from coursekit.manifest import ManifestError, Task
from coursekit.paths import PACKAGES, ROOT_VARIABLE, Course
from coursekit.running.failures import Failure, Places, describe
from coursekit.running.import_path import Impl, choose_implementation, choose_triton
from coursekit.running.printed import printed
from coursekit.running.progress_line import ProgressLine
from coursekit.running.results import Report, Result, sentence
from coursekit.running.task_of_test import TasksOfTests
from coursekit.task_state import TaskState
from coursekit.tracks import covers, track_refusal

TASK_KEY = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coursekit", "the course")
    group.addoption("--impl", choices=list(Impl), default=Impl.LEARNER, help="whose code is tested")
    group.addoption(
        "--backend", choices=list(Backend), default=Backend.TORCH, help="the framework of its arrays"
    )
    group.addoption("--device", choices=list(Device), default=Device.CPU, help="where arrays are put")
    group.addoption(
        "--tiny-llm-root", metavar="FOLDER", help="the course's folder, if not the one around you"
    )
    group.addoption("--coursekit-report", metavar="FILE", help="write the state of every task there, as JSON")
    group.addoption(
        "--coursekit-quiet", action="store_true", help="one mark a test instead of pytest's output"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Choose the implementation before the first conftest or test file can import it."""
    options = early_config.known_args_namespace
    if options.tiny_llm_root:
        os.environ[ROOT_VARIABLE] = str(Path(options.tiny_llm_root).resolve())
    with _usage_errors():
        choose_implementation(Course.find(), options.impl)
    choose_triton(options.device)


@pytest.hookimpl(trylast=True)  # after pytest has made the reporter that a quiet run replaces
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "gpu: runs only with --device cuda or --device mps; costs no points without"
    )
    with _usage_errors():
        course = Course.find()
        lab = Lab(config.option.backend, config.option.device, course)
    lab_module.set_active(lab)
    config.pluginmanager.register(TaskPlugin(config, course, lab), "coursekit-tasks")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    lab_module.set_active(None)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The door to the implementation under test."""
    return lab_module.active()


class TaskPlugin:
    """Maps tests to tasks, and turns how they ended into a report."""

    def __init__(self, config: pytest.Config, course: Course, lab: Lab) -> None:
        option = config.option
        self._course = course
        self._lab = lab
        self._tasks = TasksOfTests(course)
        folder = course.solution if option.impl == Impl.SOLUTION else course.starter
        self._places = Places(course.root, tuple(folder(package) for package in PACKAGES))
        self._report = Report(option.impl, option.backend, option.device)
        self._report_file = Path(option.coursekit_report).resolve() if option.coursekit_report else None
        self._failures: dict[str, Failure] = {}
        self._progress = ProgressLine() if option.coursekit_quiet else None
        self._current: Result | None = None
        self._task_running: str | None = None
        if option.coursekit_quiet:
            _silence_terminal(config)

    @pytest.hookimpl(tryfirst=True)  # before -k takes tests away: a task has all the tests that are there
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        with _usage_errors():
            tasks = {item: self._task_of(item) for item in items}
        for item, task in tasks.items():
            if task is not None:
                item.stash[TASK_KEY] = task.name
                self._report.planned[task.name] = self._report.planned.get(task.name, 0) + 1
                self._skip_uncovered(item, task)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._report.deselected += len(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report.errors.append({"where": report.nodeid, "message": report.longreprtext})

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.get_closest_marker("gpu") and self._lab.device == Device.CPU:
            pytest.skip("needs a GPU: run with --device cuda (or mps) on a machine that has one")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._report_file is not None:
            self._report_file.with_suffix(".running").write_text(nodeid, encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            self._failures.setdefault(item.nodeid, describe(call.excinfo.value, self._places, item.path))
        if call.when == "setup":
            self._start(item, report)
        else:
            self._update(item, report)
        return report

    def pytest_runtest_logfinish(self) -> None:
        # A test that Ctrl-C stopped never comes here: it counts as not run.
        if self._current is None:
            return
        self._report.add(self._current)
        if self._progress is not None:
            self._progress.add(self._current)
        self._current = None

    def pytest_keyboard_interrupt(self) -> None:
        self._report.interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._progress is not None:
            self._progress.end()
        self._report.finished = True
        self._write_report()
        if self._report_file is not None:
            self._report_file.with_suffix(".running").unlink(missing_ok=True)

    def _write_report(self) -> None:
        if self._report_file is not None:
            self._report.write(self._report_file)

    def _start(self, item: pytest.Item, report: pytest.TestReport) -> None:
        task = item.stash.get(TASK_KEY, None)
        if task != self._task_running:
            # A kernel may take Python down with it; what other tasks gave is on disk by then.
            self._task_running = task
            self._write_report()
        self._current = self._result(item, report)

    def _update(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Let the call's outcome, and a teardown that fails, replace what came before."""
        result = self._result(item, report)
        if report.when == "call" or result.state not in (TaskState.PASSED, TaskState.SKIPPED):
            self._current = result

    def _result(self, item: pytest.Item, report: pytest.TestReport) -> Result:
        task = item.stash.get(TASK_KEY, None)
        state, message, needs = TaskState.PASSED, "", ""
        failure = self._failures.get(item.nodeid)
        if report.skipped:
            state, message = TaskState.SKIPPED, _skip_reason(report)
        elif failure is not None:
            state, message = failure.state, failure.message
            if failure.stub is not None and failure.stub.task != task:
                needs = f"{failure.stub.task} {failure.stub.title}"
        elif report.failed:
            state, message = TaskState.CRASHED, report.longreprtext
        file, first_line, _ = item.location
        line = failure.line if failure is not None and failure.line is not None else (first_line or 0) + 1
        where = f"{file}:{line}".replace(os.sep, "/")
        shown = printed(report) if state in (TaskState.CRASHED, TaskState.WRONG) else ""
        return Result(
            item.nodeid, task, sentence(item.name), state, report.duration, message, where, needs, shown
        )

    def _task_of(self, item: pytest.Item) -> Task | None:
        try:
            return self._tasks.find(item.path, getattr(item, "originalname", item.name))
        except ManifestError:
            raise
        except CourseError as error:
            raise CourseError(f"{item.nodeid}: {error}") from error

    def _skip_uncovered(self, item: pytest.Item, task: Task) -> None:
        manifest = self._tasks.manifest
        if not covers(self._course, self._lab.package, manifest.lesson(f"{task.week}.{task.day}")):
            reason = track_refusal(self._course, self._lab.package, manifest)
            item.add_marker(pytest.mark.skip(reason=reason))


def _silence_terminal(config: pytest.Config) -> None:
    """Put a reporter that writes nowhere in the place of pytest's own; every option goes on working."""
    manager = config.pluginmanager
    manager.unregister(name="terminalreporter")
    nowhere: Any = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open for as long as pytest runs)
    config.add_cleanup(nowhere.close)
    manager.register(pytest.TerminalReporter(config, nowhere), "terminalreporter")


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn the course's errors into pytest's: one line, exit code 4."""
    try:
        yield
    except CourseError as error:
        raise pytest.UsageError(str(error)) from error
