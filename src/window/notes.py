"""What is noted of an engine between two steps: copies, which no later step changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

RATE_SECONDS = 60
"""For how long the tokens of each second are kept."""


class State(StrEnum):
    """How it goes with a request."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # it has lost its pages, and waits again
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDED = (State.FINISHED, State.CANCELLED, State.FAILED)


@dataclass(frozen=True)
class Part:
    """What one request brought to a step."""

    number: int  # the request's
    tokens: int  # computed in this step
    start: int  # where these begin in the request; right before them stand those that were found
    found: int  # how many of its tokens the page cache has found in this step
    decode: bool


@dataclass(frozen=True)
class RequestNote:
    """A request, as it was between two steps."""

    number: int
    name: str  # what a server calls its answer; "" where it is not known
    state: State
    prompt_ids: Sequence[int]  # of a question about documents those of the question alone
    prompt: int  # tokens of the prompt; with documents those of all branches and of the question
    computed: int  # of its tokens, how many are in the pool, or were at the end
    output: int  # tokens generated
    tail: str | Sequence[int]  # the end of the answer, as text where it is known, or else its last token ids
    pages: Sequence[int]  # each once; with documents those of all branches and of the question
    waited: float  # seconds until it first ran, or so far
    preemptions: int
    priority: int
    client: str
    chunks: Sequence[tuple[int, int, int, int]]  # step, start, tokens, found


class TreeNode(NamedTuple):
    """A page in the tree. There are many of them in each note: a tuple is made sooner than anything else."""

    page: int
    parent: int  # a page, or 0 for the root
    key: Sequence[Any]  # the tokens; in a salted page one may be a pair of the salt and the token
    held: int  # by how many sequences


@dataclass(frozen=True)
class Note:
    """An engine between two steps."""

    step: int = 0
    time: float = 0.0  # seconds since the watch began
    batch: Sequence[Part] = ()
    requests: Sequence[RequestNote] = ()  # all that are there, and the last ones that ended
    free: int = 0  # pages
    cached: Sequence[int] = ()  # pages in the tree that no request holds
    tree: Sequence[TreeNode] = ()  # every node behind its parent
    counts: dict[str, int] = field(default_factory=dict)
    tokens_at: dict[int, int] = field(default_factory=dict)  # seconds since the watch began -> output tokens

    def rate(self, now: float) -> list[int]:
        """The output tokens of each of the last seconds, the newest last.

        Args:
            now: seconds since the watch began.
        """
        return [self.tokens_at.get(int(now) - ago, 0) for ago in reversed(range(RATE_SECONDS))]
