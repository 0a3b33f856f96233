"""Whose code the window shows, and of which stage: the learner's if it works, else the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from coursekit.running.stubs import reached_stub
from programs.cores import warm_up
from programs.implementation import WHOSE, require_written
from programs.loaded import LoadedModel
from programs.source import Source
from window.stages import WatchedStage, try_out


@dataclass(frozen=True)
class Choice:
    """What is shown."""

    impl: Impl
    stage: WatchedStage
    loaded: LoadedModel

    @property
    def what(self) -> str:
        """It in words."""
        whose, folder = WHOSE[self.impl]
        return f"{self.stage.title}, run by {whose}, {folder}"


def choose(
    course: Course, impl: Impl, stages: Sequence[WatchedStage], source: Source, console: Console
) -> Choice:
    """Try the stages, the best first, with the learner's code; then, where none works, the reference.

    Each time that the learner's code doesn't work, the reason is printed.

    Raises:
        CourseError: the model can't be had, or the reference doesn't work here.
    """
    if impl is Impl.LEARNER:
        found = _first_that_works(course, impl, stages, source, console)
        if found is not None:
            return found
        console.print("so the reference runs instead of your code", style="yellow")
        choose_implementation(course, Impl.SOLUTION)
    loaded = _load(course, Impl.SOLUTION, source)
    try_out(stages[0], loaded, source.attention)
    return Choice(Impl.SOLUTION, stages[0], loaded)


def _load(course: Course, impl: Impl, source: Source) -> LoadedModel:
    """Load the model, and compile the kernel that attends."""
    loaded = source.load(course, impl)
    warm_up(source.attention, loaded.model)
    return loaded


def _first_that_works(
    course: Course, impl: Impl, stages: Sequence[WatchedStage], source: Source, console: Console
) -> Choice | None:
    loaded: LoadedModel | None = None
    for stage in stages:
        try:
            for day in stage.days:
                require_written(course, impl, day)
            loaded = loaded or _load(course, impl, source)
            try_out(stage, loaded, source.attention)
            return Choice(impl, stage, loaded)
        except NotImplementedError as error:
            stub = reached_stub(error)
            if stub is None:
                raise
            console.print(
                f"{stage.title} needs code that you have not written yet ({stub.message})",
                style="dim",
                soft_wrap=True,
                markup=False,
            )
        except CourseError as error:
            if loaded is None:  # the model can't be had, whoever asks for it
                raise
            console.print(f"your code: {error}", style="yellow", soft_wrap=True, markup=False)
    return None
