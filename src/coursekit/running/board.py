"""The board after a run: a line a task, the first thing to look at, the next command to type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rich.console import Console
from rich.text import Text

from coursekit.backends import Backend
from coursekit.learner.stubs_left import unwritten
from coursekit.manifest import Lesson, Manifest, Task
from coursekit.paths import Course
from coursekit.running.failing import first_failing, show_all, show_first
from coursekit.running.import_path import Impl
from coursekit.running.results import Report, TaskResult
from coursekit.running.screen import Screen
from coursekit.task_state import TaskState
from coursekit.track_files import home
from coursekit.tracks import covers, name_days

# State -> (symbol, symbol where the terminal has no Unicode, colour).
LOOKS = {
    TaskState.PASSED: ("✓", "+", "green"),
    TaskState.WRONG: ("✗", "x", "red"),
    TaskState.CRASHED: ("!", "!", "red"),
    TaskState.NOT_STARTED: ("○", "o", "cyan"),
    TaskState.SKIPPED: ("–", "-", "dim"),
}
STATE_WIDTH = max(map(len, LOOKS))
NOTE_INDENT = 31  # below the title


@dataclass(frozen=True)
class Board:
    """Prints what a run found; ``lessons`` are the days that were asked for, ``options`` what to repeat when
    a command is suggested ("--backend mlx")."""

    course: Course
    manifest: Manifest
    lessons: tuple[Lesson, ...]
    report: Report
    options: str
    console: Console
    borrowed: frozenset[str] = frozenset()
    """Names of the tasks whose code is the reference's: they earn nothing."""
    every_failure: bool = False
    """Show every failing test, not only the first."""

    @cached_property
    def screen(self) -> Screen:
        return Screen(self.console, self.options)

    def show(self) -> None:
        """Print the board."""
        tasks = self.report.tasks
        for lesson in self.lessons:
            ran = [task for task in lesson.tasks if task.name in tasks]
            if ran:
                self._show_lesson(lesson, [(task, tasks[task.name]) for task in ran])
        self.show_points()
        self._show_shortcuts()
        for error in self.report.errors:
            self.screen.print()
            self.screen.print(f"{error['where']} can't be read:", style="bold red")
            self.screen.block(error["message"], indent=2)
        self.show_next()

    def _show_lesson(self, lesson: Lesson, tasks: list[tuple[Task, TaskResult]]) -> None:
        self.screen.print()
        self.screen.print(f"Week {lesson.week} Day {lesson.day}  {lesson.title}", style="bold")
        for task, result in tasks:
            self.show_task(task, result)

    def show_task(self, task: Task, result: TaskResult) -> None:
        """Print the line of one task."""
        symbol, plain, colour = LOOKS[result.state]
        points = (
            f"{self._earned(task, result)}/{task.points}"
            if result.state != TaskState.SKIPPED
            else f"–/{task.points}"
        )
        line = Text("  ")
        line.append(f"{symbol if self.screen.unicode else plain} {result.state:<{STATE_WIDTH}}", style=colour)
        line.append(f"  {self.screen.plain(points):>5}  {task.name}  {task.title}")
        note = self._note(result)
        fits = line.cell_len + len(note) + 4 <= self.console.width
        if note and fits:
            line.append(f"  ({note})", style="dim")
        self.screen.print(line)
        if not fits:
            self.screen.block(f"({note})", indent=NOTE_INDENT, style="dim")

    def _note(self, result: TaskResult) -> str:
        if result.state == TaskState.SKIPPED:
            return result.tests[0].message
        if result.name in self.borrowed:
            return "borrowed from the reference"
        needs = next(
            (test.needs for test in result.tests if test.state == TaskState.NOT_STARTED and test.needs), ""
        )
        if result.state == TaskState.NOT_STARTED and needs:
            return f"needs {needs} first"
        if not result.complete:
            return f"{len(result.tests)} of its {result.planned} tests ran"
        passed, skipped = result.count(TaskState.PASSED), result.count(TaskState.SKIPPED)
        if result.state != TaskState.PASSED and (passed or skipped):
            return f"{passed} of {len(result.tests)} tests pass" + (f", {skipped} not run" if skipped else "")
        return ""

    def _earned(self, task: Task, result: TaskResult) -> int:
        return 0 if task.name in self.borrowed else earned(task, result)

    def show_points(self) -> None:
        """Print the sum of the points."""
        results = self.report.tasks
        tasks = [task for lesson in self.lessons for task in lesson.tasks if task.name in results]
        counted = [task for task in tasks if results[task.name].state != TaskState.SKIPPED]
        if not counted:
            return
        got = sum(self._earned(task, results[task.name]) for task in counted)
        self.screen.print()
        self.screen.print(f"{got} of {sum(task.points for task in counted)} points")

    def _show_shortcuts(self) -> None:
        """Say, kindly, which passed tasks leave their work to a call."""
        for name, result in self.report.tasks.items():
            if result.state == TaskState.PASSED and result.shortcuts:
                calls = " and ".join(result.shortcuts)
                self.screen.print()
                self.screen.block(
                    f"Note: in {name} your code calls {calls}, which can do this task's work. The task counts as "
                    "passed; you learn what it is about by writing it without that call.",
                    indent=0,
                    style="yellow",
                )

    def show_next(self) -> None:
        """Print the first thing to look at, and the next commands to type."""
        if self.report.interrupted:
            self.screen.print("\ninterrupted: the rest did not run", style="yellow")
            return
        if self.report.errors:
            return
        failing = first_failing(self.report)
        if failing is not None:
            self._show_failure(self.manifest.task(failing.name))
            return
        missing = self._first(TaskState.NOT_STARTED)
        if missing is not None:
            self._show_to_write(self._needed(*missing))
            return
        self._show_done()

    def _first(self, state: TaskState) -> tuple[Task, TaskResult] | None:
        for name, result in self.report.tasks.items():
            if result.state == state:
                return self.manifest.task(name), result
        return None

    def _show_failure(self, task: Task) -> None:
        lesson = self.manifest.lesson(f"{task.week}.{task.day}")
        if self.every_failure:
            show_all(self.screen, [self.manifest.task(name) for name in self.report.tasks], self.report)
        else:
            show_first(self.screen, lesson, task, self.report)
        self.screen.commands(
            (task.test_command, "when you have changed it"), (f"hint {task.name}", "for a hint")
        )

    def _needed(self, task: Task, result: TaskResult) -> Task:
        """The task to write first: another one, where this one's tests reached its stub."""
        for test in result.tests:
            if test.needs:
                return self.manifest.task(test.needs.split(" ")[0])
        return task

    def _show_to_write(self, task: Task) -> None:
        package = Backend(self.report.backend).package
        lesson = self.manifest.lesson(f"{task.week}.{task.day}")
        refs = unwritten(self.course, package, task) or task.implements
        self.screen.print()
        self.screen.print(f"Next to write: {task.name} {task.title}", style="bold")
        for file in dict.fromkeys(ref.file for ref in refs):
            names = ", ".join(ref.qualname for ref in refs if ref.file == file)
            place = f"src/{home(self.course, package, file)}/{file}"
            self.screen.block(f"open {place}: {names}", indent=2)
        self.screen.block(f"read {lesson.read_command}  (book/src/{lesson.chapter})", indent=2)
        self.screen.commands((task.test_command, "to test it"), (f"hint {task.name}", "for a hint"))

    def _show_done(self) -> None:
        partly = [lesson for lesson in self.lessons if not self._is_whole(lesson)]
        if partly:
            self.screen.commands((partly[0].test_command, "for the rest of the day"))
            return
        names = name_days(self.lessons, self.manifest)
        lent = [lesson for lesson in self.lessons if any(task.name in self.borrowed for task in lesson.tasks)]
        if lent:
            self._show_borrowed(lent)
            return
        self.screen.print()
        self.screen.print(f"Done: {'Day' if len(self.lessons) == 1 else 'Days'} {names}.", style="bold green")
        if self.report.impl == Impl.SOLUTION:
            return
        after = self._lesson_after()
        if after is None:
            self.screen.print("There is no further day in the course yet.")
            return
        self.screen.block(f"Next is Day {after.name}, {after.title}: {after.goal}", indent=0)
        self.screen.block(f"read {after.read_command}  (book/src/{after.chapter})", indent=2)
        self.screen.commands((after.test_command, "to see its tasks"))

    def _show_borrowed(self, lent: list[Lesson]) -> None:
        """Offer the stubs of borrowed code: it passes, and it isn't the learner's."""
        names = name_days(tuple(lent), self.manifest)
        days = "Day" if len(lent) == 1 else "Days"
        self.screen.print()
        self.screen.print(f"All tests pass; {days} {names} with borrowed code.", style="bold green")
        first = lent[0].name
        commands = [(f"reset {first} --borrowed", f"to write Day {first} yourself: puts its stubs back")]
        after = self._lesson_after()
        if after is not None:
            commands.append((after.test_command, "to go on to the next day"))
        self.screen.commands(*commands)

    def _is_whole(self, lesson: Lesson) -> bool:
        tasks = self.report.tasks
        return all(task.name in tasks and tasks[task.name].complete for task in lesson.tasks)

    def _lesson_after(self) -> Lesson | None:
        """The next day that the track of this run covers."""
        days, package = self.manifest.lessons, Backend(self.report.backend).package
        following = days[days.index(self.lessons[-1]) + 1 :]
        return next((each for each in following if covers(self.course, package, each)), None)


def earned(task: Task, result: TaskResult) -> int:
    """The points of a task: all of them when every test of it that ran passed, or none."""
    return task.points if result.state == TaskState.PASSED and result.complete else 0
