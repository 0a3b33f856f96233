"""Whether the code that a bench needs is written, where no stub could be reported when it runs."""

from __future__ import annotations

from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs.implementation import require_written


def require_day(day: tuple[int, int]) -> None:
    """Raise the stub of the first task that a day's code needs: on an engine's own thread no stub could be reported.

    Args:
        day: its week and its number there.

    Raises:
        NotImplementedError: as the first of the stubs would raise it.
    """
    import tiny_llm

    course = Course.find()
    learners = next(iter(tiny_llm.__path__)) == str(course.starter())
    require_written(course, Impl.LEARNER if learners else Impl.SOLUTION, day)
