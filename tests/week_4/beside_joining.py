"""What joins and steps of Day 4.5 are like, read where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coursekit.beside import beside

NAMES = "ABCDEFGH"


@beside
def member_name(member: Any) -> str:
    """What a member of a join is called here; an ordinary request is called by its client."""
    request = member.request
    if hasattr(member, "branches"):
        return "the question"
    if not hasattr(request, "owner"):
        return request.client or "a request"
    body = request.token_ids[member.fork :]
    return f"document {NAMES[body[0] // 100 - 1]}" if body else "the system prompt"


@beside
def shares(plan: Sequence[Any]) -> list[tuple[str, int, int]]:
    """For each chunk: which member, tokens found, tokens to compute."""
    return [(member_name(chunk.running), chunk.found, chunk.count) for chunk in plan]


@beside
def due_behind(plan: Sequence[Any]) -> list[list[str]]:
    """For each chunk of a question: the branches of which tokens are due when the step has run."""
    found = []
    for chunk in plan:
        branches = getattr(chunk.running, "branches", ())
        after = {branch: branch.due for branch in branches}
        after |= {other.running: other.running.due - other.count for other in plan}
        found.append([member_name(branch) for branch in branches if after[branch]])
    return found


@beside
def ran(scheduler: Any) -> None:
    """By hand: the model has run. A question with no token due gets one, or leaves."""
    plan = scheduler.planned
    for chunk in plan:
        chunk.running.sequence.advance(chunk.count)
    scheduler.commit()
    finished = []
    for request, member in [(chunk.running.request, chunk.running) for chunk in plan]:
        if not hasattr(request, "owner") and member.due == 0:
            request.token_ids.append(7)
            if request.finished(scheduler.max_positions):
                finished.append(request)
    scheduler.remove(finished)


@beside
def sequences_that_run(scheduler: Any) -> list[Any]:
    """The sequences of the ordinary requests that run, and those of the members of joins that run."""
    plain = [each for each in scheduler.running if each not in scheduler.joins]
    joins = [each for each in scheduler.running if each in scheduler.joins]
    members = [member for join in joins for member in (*join.question.branches, join.question)]
    return [each.sequence for each in (*plain, *members)]
