"""Recognising a stub: what the starter leaves where the learner's code will stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coursekit.lessons.outline import STUB_MESSAGE

RAISED = re.compile(r'^\s*raise NotImplementedError\("(.*)"\)$', re.MULTILINE)
"""The line of a stub, as Triton's compiler cites it: it can't compile a `raise`, so it never runs it."""


@dataclass(frozen=True)
class Stub:
    """The task whose stub was reached."""

    week: int
    day: int
    number: int
    title: str

    @property
    def task(self) -> str:
        """The task's name, "1.3.2"."""
        return f"{self.week}.{self.day}.{self.number}"

    @property
    def message(self) -> str:
        """What the stub raises, "Week 1 Day 3 Task 2: Grouped-query attention"."""
        return f"Week {self.week} Day {self.day} Task {self.number}: {self.title}"


def reached_stub(error: BaseException) -> Stub | None:
    """The stub that ``error`` comes from, looking through causes, contexts and groups; ``None`` if there is none."""
    for link in chain(error):
        match = STUB_MESSAGE.fullmatch(_message(link))
        if match:
            week, day, number = (int(part) for part in match.groups()[:3])
            return Stub(week, day, number, match[4])
    return None


def _message(error: BaseException) -> str:
    """What a stub says, if ``error`` comes from one right away."""
    if isinstance(error, NotImplementedError):
        return str(error)
    cited = RAISED.search(str(error)) if type(error).__module__.startswith("triton.") else None
    return cited[1] if cited else ""


def chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and every exception that led to it, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, None if link.__suppress_context__ else link.__context__]
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions
