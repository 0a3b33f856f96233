"""A question and the branches that it joins, as the scheduler sees them (Day 4.5, given code)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiny_llm.documents.bundle import Bundle, SaltedSequence
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.request import Request
from tiny_llm.scheduling.standing import Standing


class BranchRequest(Request):
    """The tokens of a branch, for the scheduler. It never gets an output."""

    def __init__(self, owner: DocumentRequest, document: tuple[int, ...]) -> None:
        """Have the tokens of the owner's system prompt, and of one document."""
        super().__init__(owner.segments.system + document, 1, priority=owner.priority, client=owner.client)
        self.owner = owner


@dataclass(eq=False)
class Branch(Standing):
    """The system prompt and one document: an ordinary sequence, of which nothing is sampled."""

    fork: int = 0  # tokens of the system prompt
    start: int = 0  # the document's first position; with shared positions it is equal to ``fork``

    def next_positions(self, count: int) -> list[int]:
        """Where the next ``count`` tokens that are due stand."""
        shift = self.start - self.fork
        return [p if p < self.fork else p + shift for p in super().next_positions(count)]


@dataclass(eq=False)
class Question(Standing):
    """A question, and what is generated behind it, in pages of its own. It attends to the branches, too."""

    branches: tuple[Branch, ...] = ()
    start: int = 0  # the question's first position

    def next_positions(self, count: int) -> list[int]:
        """Where the next ``count`` tokens that are due stand."""
        return [self.start + p for p in super().next_positions(count)]


@dataclass(eq=False)
class Join(Standing):
    """A question and its branches. To the scheduler they are one; what it plans are chunks of its members."""

    sequence: Bundle
    question: Question = field(kw_only=True)

    @property
    def due(self) -> int:
        """How many tokens of its members the pool doesn't hold yet."""
        return sum(each.due for each in self.sequence.members)

    @property
    def decoding(self) -> bool:
        """Whether the newest token that was generated is all that is due."""
        return self.due == 1 and self.question.decoding


def make_join(standing: Standing, request: DocumentRequest) -> Join:
    """The join of a document request, with a branch for each document that has tokens.

    Where there is none, the system prompt is the only branch, if it has tokens.

    Args:
        standing: where the request stands, as the scheduler has put it down, with an empty sequence.
        request: the request.
    """
    system, pool = request.segments.system, (standing.sequence.allocator, standing.sequence.page_size)
    place, fork = (standing.rank, standing.level), len(request.segments.system)
    branches = []
    for start, document in request.documents or ([(fork, ())] if system else []):
        # Where the document does not stand right behind the system prompt, its keys are turned by other angles.
        sequence = PagedSequence(*pool) if start == fork else SaltedSequence(*pool, fork, start)
        branches.append(Branch(BranchRequest(request, document), sequence, *place, fork=fork, start=start))
    own = SaltedSequence(*pool, 0, request.digest)
    question = Question(request, own, *place, branches=tuple(branches), start=request.start)
    return Join(request, Bundle([*branches, question]), *place, question=question)
