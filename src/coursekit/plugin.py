"""The pytest plugin of the course: which implementation is tested, the `lab` fixture, and the state of every task.

It is loaded with `-p coursekit.plugin`, before any test file is read and so before anything imports `tiny_llm`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from coursekit import lab as lab_module
from coursekit.backends import Backend, Device
from coursekit.errors import CourseError
from coursekit.lab import Lab
from coursekit.manifest import ManifestError, Task
from coursekit.paths import PACKAGES, ROOT_VARIABLE, Course
from coursekit.running.drawn import DrawnExamples
from coursekit.running.failures import Failure, describe
from coursekit.running.import_path import Impl, choose_implementation, choose_triton
from coursekit.running.journal import Journal, journal_of, open_faults
from coursekit.running.memory_limit import keep_to
from coursekit.running.places import Places
from coursekit.running.printed import printed, skip_reason
from coursekit.running.progress_line import ProgressLine, silence_terminal
from coursekit.running.results import Report, Result
from coursekit.running.shortcuts import SHORTCUTS_KEY, Shortcuts
from coursekit.running.task_of_test import TasksOfTests
from coursekit.running.time_limits import TimeLimits
from coursekit.running.titles import NamedParameters, sentence
from coursekit.running.ways_out import NoWayOut
from coursekit.task_state import TaskState
from coursekit.tracks import covers, track_refusal

TASK_KEY = pytest.StashKey[str]()
OTHER_TRACK = (
    "of the other track, which has functions of its own for this day: --backend mlx runs that of MLX"
)


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
    group.addoption("--package-folder", metavar="FOLDER", help="where its package lies, if not in the course")
    group.addoption("--coursekit-report", metavar="FILE", help="write the state of every task there, as JSON")
    group.addoption("--coursekit-memory", metavar="BYTES", type=int, help="what the tests may take")
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
        choose_implementation(Course.find(), options.impl, options.backend)
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
    faults = open_faults(config.option.coursekit_report)
    if config.option.device != Device.CPU:
        config.option.coursekit_memory = None  # what a GPU's driver maps counts too, and is not the code's
    if config.option.coursekit_memory:
        keep_to(config.option.coursekit_memory, faults)
    limits = TimeLimits(config, course, faults)
    tasks = TaskPlugin(config, course, lab, limits)
    others = (
        NoWayOut(tasks.places),
        Shortcuts(tasks.places, tasks.task_of),
        DrawnExamples(),
        NamedParameters(),
    )
    for plugin in (tasks, limits, *others):
        config.pluginmanager.register(plugin, f"coursekit-{type(plugin).__name__}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    lab_module.set_active(None)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The door to the implementation under test."""
    return lab_module.active()


class TaskPlugin:
    """Maps tests to tasks, and turns how they ended into a report."""

    def __init__(self, config: pytest.Config, course: Course, lab: Lab, limits: TimeLimits) -> None:
        option = config.option
        self._course = course
        self._lab = lab
        self._tasks = TasksOfTests(course, lab.package)
        folder = (course.solution if option.impl == Impl.SOLUTION else course.starter)().parent
        if option.package_folder:
            folder = Path(option.package_folder).resolve()
        self.places = Places(course.root, tuple(folder / package for package in PACKAGES))
        self._report = Report(option.impl, option.backend, option.device)
        self._report_file = Path(option.coursekit_report).resolve() if option.coursekit_report else None
        self._journal = Journal(journal_of(self._report_file)) if self._report_file else None
        self._limits = limits
        self._memory = option.coursekit_memory
        self._failures: dict[str, Failure] = {}
        self._ended: set[str | None] = set()  # tasks of which no further test is worth its time
        self._progress = ProgressLine() if option.coursekit_quiet else None
        self._current: Result | None = None
        if option.coursekit_quiet:
            silence_terminal(config)

    @pytest.hookimpl(tryfirst=True)  # before -k takes tests away: a task has all the tests that are there
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        with _usage_errors():
            others = {path for path in {item.path for item in items} if self._tasks.is_of_other_track(path)}
            tasks = {item: self._find_task(item) for item in items if item.path not in others}
        for item in items:
            if item.path in others:
                item.add_marker(pytest.mark.skip(reason=OTHER_TRACK))
        for item, task in tasks.items():
            if task is not None:
                item.stash[TASK_KEY] = task.name
                self._report.planned[task.name] = self._report.planned.get(task.name, 0) + 1
                self._skip_uncovered(item, task)
                self._limits.set_limit(item, task)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._report.deselected += len(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report.errors.append({"where": report.nodeid, "message": report.longreprtext})

    def pytest_collection_finish(self) -> None:
        if self._journal is not None:
            self._journal.begin(self._report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if self._journal is not None:
            self._journal.start(self._result(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.stash.get(TASK_KEY, None) in self._ended:
            pytest.skip("not run: another test of its task did not end, or used up the memory")
        if item.get_closest_marker("gpu") and self._lab.device == Device.CPU:
            pytest.skip("needs a GPU: run with --device cuda (or mps) on a machine that has one")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            self._describe(item, call.excinfo.value)
        result = self._result(item, report)
        # The call's outcome, and a teardown that fails, replace what came before.
        if report.when != "teardown" or result.state not in (TaskState.PASSED, TaskState.SKIPPED):
            self._current = result
        return report

    def pytest_runtest_logfinish(self) -> None:
        # A test that Ctrl-C stopped never comes here: it counts as not run.
        if self._current is None:
            return
        self._report.add(self._current)
        if self._journal is not None:
            self._journal.add(self._current)
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
        if self._report_file is not None:
            self._report.write(self._report_file)
        if self._journal is not None:
            self._journal.close()

    def _describe(self, item: pytest.Item, error: BaseException) -> None:
        failure = describe(error, self.places, item.path, self._memory)
        self._failures.setdefault(item.nodeid, failure)
        if failure.ends_task and TASK_KEY in item.stash:
            self._ended.add(item.stash[TASK_KEY])
            traceback.clear_frames(error.__traceback__)  # they may hold all the memory that there is

    def _result(self, item: pytest.Item, report: pytest.TestReport | None = None) -> Result:
        """How a test ended; without a report what is known before it starts."""
        task = item.stash.get(TASK_KEY, None)
        state, message, needs = TaskState.PASSED, "", ""
        failure = self._failures.get(item.nodeid)
        if report is not None and report.skipped:
            state, message = TaskState.SKIPPED, skip_reason(report)
        elif failure is not None:
            state, message = failure.state, failure.message
            if failure.stub is not None and failure.stub.task != task:
                needs = f"{failure.stub.task} {failure.stub.title}"
        elif report is not None and report.failed:
            state, message = TaskState.CRASHED, report.longreprtext
        file, first_line, _ = item.location
        line = failure.line if failure is not None and failure.line is not None else (first_line or 0) + 1
        where = f"{file}:{line}".replace(os.sep, "/")
        bad = report is not None and state in (TaskState.CRASHED, TaskState.WRONG)
        shown = printed(report) if report is not None and bad else ""
        seconds = report.duration if report is not None else 0.0
        shortcuts = item.stash.get(SHORTCUTS_KEY, ())
        return Result(
            item.nodeid, task, sentence(item.name), state, seconds, message, where, needs, shown, shortcuts
        )

    def task_of(self, item: pytest.Item) -> Task | None:
        """The task of a test that was collected."""
        name = item.stash.get(TASK_KEY, None)
        return None if name is None else self._tasks.manifest.task(name)

    def _find_task(self, item: pytest.Item) -> Task | None:
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


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn the course's errors into pytest's: one line, exit code 4."""
    try:
        yield
    except CourseError as error:
        raise pytest.UsageError(str(error)) from error
