"""The most frequent first failures of a class: messages that differ only in numbers are one group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from grading.marks import Marks, TaskMark
from grading.reports.looks import FAILED, Look, look
from grading.reports.names import in_order
from grading.reports.text import MESSAGE_LIMIT, block, line

GROUPS_SHOWN = 12
_LINES, _CHARACTERS = 8, 800
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|[-−+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class FailureGroup:
    """``count`` learners fail at one task with one message; ``message``, ``checks`` and ``where`` are the first's."""

    task: str
    title: str
    look: Look
    count: int
    message: str
    checks: str
    where: str


def without_numbers(message: str) -> str:
    """The message with ``#`` for each number and one space for each run of white space."""
    return re.sub(r"\s+", " ", _NUMBER.sub("#", message[:MESSAGE_LIMIT])).strip()


def group_failures(graded: Iterable[Marks], shown: int = GROUPS_SHOWN) -> tuple[FailureGroup, ...]:
    """The groups of the most learners first; where they are equal, the earlier task in the course first."""
    first: dict[tuple[str, str], TaskMark] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for marks in graded:
        for task in (task for day in marks.days for task in day.tasks if task.state in FAILED):
            key = task.name, without_numbers(task.failure)
            first.setdefault(key, task)
            counts[key] += 1
    common = sorted(counts, key=lambda key: (-counts[key], in_order(key[0]), key[1]))[:shown]
    return tuple(_group(first[key], counts[key]) for key in common)


def _group(task: TaskMark, count: int) -> FailureGroup:
    return FailureGroup(
        task=line(task.name),
        title=line(task.title),
        look=look(task.state),
        count=count,
        message=block(task.failure, _CHARACTERS, _LINES) or "(no message)",
        checks=line(task.sentence, 300),
        where=line(task.where, 200),
    )
