"""The pytest plugin of the grader: the learner's code runs in a worker, a fresh one for each task."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.runner import runtestprotocol

from coursekit import lab as lab_module
from coursekit.manifest import Task
from coursekit.paths import PACKAGES, Course
from coursekit.plugin import TASK_KEY, TaskPlugin
from coursekit.running.early_ends import CodeEnded, CodeLeft, TimedOut
from coursekit.running.shortcuts import SHORTCUTS_KEY
from grading.drawing import draw_anew
from grading.link.errors import LeftByCode
from grading.remote_lab import RemoteLab
from grading.sandbox.choosing import by_name


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("grading", "the grader")
    group.addoption("--isolation", metavar="NAME", help="what shuts the worker in")
    group.addoption("--draw", metavar="FILE", help="holds the secret from which inputs are drawn")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any test file is read: draw anew, and keep the learner's code out of this process."""
    options = early_config.known_args_namespace
    secret = Path(options.draw).read_text(encoding="utf-8") if options.draw else ""
    if secret:
        draw_anew(secret)
    sys.meta_path.insert(0, KeptOut())


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    course, option = Course.find(), config.option
    scratch = tempfile.TemporaryDirectory(prefix="tiny-llm-beside-")
    config.add_cleanup(scratch.cleanup)
    beside = Path(scratch.name)
    copy_beside(course.tests, beside)
    folders = (Path(option.package_folder).resolve(), beside)
    lab = RemoteLab(course, option.backend, option.device, folders, by_name(option.isolation))
    lab_module.set_active(lab)
    tasks = config.pluginmanager.get_plugin("coursekit-TaskPlugin")
    assert isinstance(tasks, TaskPlugin)
    config.pluginmanager.register(Workers(lab, tasks.task_of))
    config.pluginmanager.register(FixturesOfTasks())


class KeptOut:
    """A finder of modules that refuses the learner's packages: in this process they would be the course's own."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in PACKAGES:
            raise ImportError(f"{name} is imported by the tests themselves: they must reach it through `lab`")
        return None


def copy_beside(tests: Path, folder: Path) -> None:
    """Copy what runs beside the learner's code, and nothing else of the tests: `week_3/beside_….py`."""
    for file in tests.glob("week_*/beside_*.py"):
        package = folder / file.parent.name
        package.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, package)


class Workers:
    """Starts a worker for each task, and says what has become of it where a test fails for that."""

    def __init__(self, lab: RemoteLab, task_of: Callable[[pytest.Item], Task | None]) -> None:
        self._lab, self._task_of = lab, task_of
        self._task: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Bring the tests of each task together, in the order of the first ones."""
        order: dict[str | None, int] = {}
        for item in items:
            order.setdefault(_task(item), len(order))
        items.sort(key=lambda item: order[_task(item)])

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of the time limit of the test
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        if _task(item) != self._task or self._lab.gone:
            found = self._task_of(item)
            self._lab.start(found.shortcuts if found is not None else ())
            self._task = _task(item)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield from self._told()
        finally:
            item.stash[SHORTCUTS_KEY] = self._lab.forbidden_calls()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        yield from self._told()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        yield from self._told()

    def pytest_unconfigure(self) -> None:
        self._lab.stop()

    def _told(self) -> Generator[None, None, None]:
        try:
            yield
        except LeftByCode as error:
            left = SystemExit() if error.ends_program else error
            raise CodeLeft from left.with_traceback(error.__traceback__)
        except TimedOut:
            self._lab.stop()  # in the middle of a call
            raise
        except BaseException as error:
            if self._lab.gone:
                raise CodeEnded(f"the process in which your code runs {self._lab.why_ended()}") from error
            raise


class FixturesOfTasks:
    """Ends all fixtures with the last test of a task, whatever their scope: they hold objects of its worker."""

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if nextitem is None or _task(nextitem) == _task(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=None)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _task(item: pytest.Item) -> str | None:
    return item.stash.get(TASK_KEY, None)
