"""Parts of tests that must run in the process in which the learner's code runs.

Usually that is the tests' own process. Where a grader keeps the code in another one, these parts run there: they may
look at compiled functions, or watch memory. What they return says nothing yet about right and wrong: that is the
test's to judge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from coursekit import lab

P = ParamSpec("P")
R = TypeVar("R")


def beside(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of a module run beside the learner's code.

    In a grader's worker its module must be one of `coursekit`, or a file `beside_….py` next to a day's tests: only
    these are there. A lab whose modules are in another process has a method `run_beside`: it takes the place of the
    function as "module:name", its arguments as a tuple, and those with names as a dict.
    """

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        active = lab.active_or_none()
        apart = getattr(type(active), "run_beside", None)  # of the class: a lab imports any other name
        if apart is None:
            return function(*arguments, **options)
        place = f"{function.__module__}:{function.__qualname__}"
        return cast(R, apart(active, place, arguments, dict(options)))

    return run
