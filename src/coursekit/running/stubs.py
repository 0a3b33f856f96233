"""Recognising a stub: what the starter leaves where the learner's code will stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coursekit.lessons.outline import STUB_MESSAGE


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
        if isinstance(link, NotImplementedError):
            match = STUB_MESSAGE.fullmatch(str(link))
            if match:
                week, day, number = (int(part) for part in match.groups()[:3])
                return Stub(week, day, number, match[4])
    return None


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
