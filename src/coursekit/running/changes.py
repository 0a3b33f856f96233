"""What a run found that the run before it did not."""

from __future__ import annotations

from coursekit.running.board import Board
from coursekit.running.failing import first_failing
from coursekit.running.results import Report, TaskResult
from coursekit.task_state import TaskState


def show_changes(board: Board, before: Report) -> None:
    """Print the tasks that stand otherwise than before; the first failure, too, unless it was shown already."""
    tasks, screen = board.report.tasks, board.screen
    changed = [name for name, result in tasks.items() if _essence(result) != _essence(before.tasks.get(name))]
    screen.print()
    if not changed:
        failing = first_failing(board.report)
        passed = sum(task.state == TaskState.PASSED for task in tasks.values())
        still = f"; {failing.name} is {failing.state} for the same reason" if failing else ""
        screen.print(f"Nothing changed: {passed} of {len(tasks)} tasks pass{still}.")
        return
    for name in changed:
        board.show_task(board.manifest.task(name), tasks[name])
    board.show_points()
    failing = first_failing(board.report)
    if failing is None or _essence(failing) != _essence(first_failing(before)):
        board.show_next()


def _essence(result: TaskResult | None) -> tuple[object, ...]:
    """What a learner would call the same: the task, its state, how many tests pass, what is wrong first."""
    if result is None:
        return ()
    first = result.first_failure
    reason = (first.id, first.message, first.needs) if first else ()
    return (result.name, result.state, result.count(TaskState.PASSED), len(result.tests), *reason)
