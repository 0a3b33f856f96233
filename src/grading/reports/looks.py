"""How the state of a task looks on every page: a sign, a shape and a color, so that none of them is needed alone."""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.task_state import TaskState

SIGNS = {
    TaskState.PASSED: "✓",
    TaskState.WRONG: "✗",
    TaskState.CRASHED: "!",
    TaskState.NOT_STARTED: "○",
    TaskState.SKIPPED: "–",
}

FAILED = (TaskState.WRONG, TaskState.CRASHED)


@dataclass(frozen=True)
class Look:
    """``css`` is the class of the style sheet, ``sign`` the character beside the state's name."""

    state: TaskState
    sign: str
    css: str


def look(state: TaskState) -> Look:
    """The sign and the color of a state."""
    return Look(state, SIGNS[state], state.value.replace(" ", "-"))


LOOKS = tuple(look(state) for state in SIGNS)
