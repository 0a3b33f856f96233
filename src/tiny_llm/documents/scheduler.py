"""Plans questions together with the branches that they join (Day 4.5)."""

from __future__ import annotations

from typing import Any

from tiny_llm.documents.bundle import Bundle
from tiny_llm.documents.join import Join, make_join
from tiny_llm.documents.page_cache import DocumentCache
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.request import Request
from tiny_llm.scheduling.preemption import PreemptiveScheduler
from tiny_llm.scheduling.standing import Chunk, Standing


class DocumentScheduler(PreemptiveScheduler):
    """A preemptive scheduler whose requests may be joins: a question, and a branch for each document.

    Its page cache is a :class:`DocumentCache`. A join takes one seat, and runs, waits and is preempted as one. Its
    branches are planned as ordinary requests are: chunk by chunk, several in a step, sharing pages. They keep their
    pages as long as the join runs.
    """

    def __init__(self, cache: DocumentCache, max_positions: int, **limits: Any) -> None:
        """Start without requests (given code).

        Args:
            cache: where pages come from.
            max_positions: how many positions a request may use, wherever its question starts.
            limits: the other arguments of :class:`PreemptiveScheduler`, by name.

        Raises:
            ValueError: as for :class:`PreemptiveScheduler`.
        """
        super().__init__(cache, max_positions, **limits)
        # Of each member of each join: how many tokens it had in the pool before this step.
        self.had_before: dict[Standing, int] = {}

    @property
    def joins(self) -> list[Join]:
        """All joins, running and waiting (given code)."""
        return [each for each in self.running + self.waiting if isinstance(each, Join)]

    def push(self, request: Request) -> None:
        """Let a request wait; a document request waits as a join (given code)."""
        super().push(request)
        if isinstance(request, DocumentRequest):
            self.waiting[-1] = make_join(self.waiting[-1], request)

    def plan(self) -> list[Chunk]:
        """Choose what each request brings to the next step, and note what the joins had before it (given code)."""
        bundles = [join.sequence for join in self.joins]
        self.had_before = {each: each.sequence.length for bundle in bundles for each in bundle.members}
        for bundle in bundles:
            bundle.pinned = False
        return super().plan()

    def lower(self, waiting: Standing) -> set[Standing]:
        """The requests that run at lower levels, none of whose members is in this step yet (given code)."""
        return {
            each
            for each in super().lower(waiting)
            if not (isinstance(each.sequence, Bundle) and each.sequence.pinned)
        }

    def add(self, running: Standing, found: int = 0) -> None:
        """Plan what a request brings: of a join, a chunk of each branch that has tokens due, and one of the question.

        The question is planned only if no token of a branch is due after this step. It need not wait for the next
        step: each layer writes the keys of the whole step before it reads any. All branches get their turn, also
        behind one that can't be completed in this step.

        A join that begins first gives back what was found for its members: each searches again when it is planned.

        Args:
            running: a request that runs, and is not in the step yet.
            found: how many tokens the cache has found for it in this step already, of a join for all members.
        """
        raise NotImplementedError("Week 4 Day 5 Task 5: Planning a join")

    def completes(self, join: Join, member: Standing) -> bool:
        """Plan a chunk of a member of a join, if it has tokens due.

        First it gets the join's ``level``: a member stands where its join stands by now. If it is in the step then,
        the join's bundle is ``pinned``: it can't be preempted in this step any more.

        Args:
            join: the join.
            member: a branch, or the question.

        Returns:
            whether none of its tokens is due after this step.
        """
        raise NotImplementedError("Week 4 Day 5 Task 5: Planning a join")

    def commit(self) -> None:
        """Note that the model has run on the step that was planned (given code)."""
        super().commit()
        self.had_before = {}

    def undo(self) -> None:
        """Forget the step that was planned, as :meth:`Scheduler.undo` does.

        First each member of each join is released to what it had before the step (``had_before``, which is empty at
        the end); the rest is as for any request, and comes after that. So nothing is left of a join that has lost its
        pages in this step, or has begun in it.
        """
        raise NotImplementedError("Week 4 Day 5 Task 4: The life of the pages")
