"""What every engine on pages offers to the code that drives it, and the plainest driver (Day 3.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.request import Request


@dataclass(frozen=True)
class Step:
    """What one step did."""

    issued: list[tuple[Request, int]]  # the requests that took part, and how many tokens each brought
    finished: list[Request]  # those of them that are complete now, and gone from the engine
    preempted: list[Request] = field(default_factory=list)  # have lost their pages, and wait again (Day 4.3)


class EngineCore(ABC):
    """Requests that run together on the pages of one pool, a step at a time.

    Engines differ in their policy: which request may begin, how many tokens each brings to a step, and which pages it
    may take. Code that drives an engine needs only what stands here. It is not safe to use from several threads.

    An engine has these attributes:

    - ``allocator``, of its pages;
    - ``max_positions``: how many positions prompt and output of a request together may use;
    - ``num_seats``: how many requests run together at most;
    - ``token_budget``: how many tokens all requests together bring to a step at most.
    """

    allocator: PageAllocator
    max_positions: int
    num_seats: int
    token_budget: int

    @property
    @abstractmethod
    def idle(self) -> int:
        """How many requests may be pushed now."""

    @property
    @abstractmethod
    def requests(self) -> list[Request]:
        """The requests that were pushed and are neither finished nor aborted, in the order in which they came."""

    @abstractmethod
    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None. It changes nothing, and may be asked from any thread."""

    @abstractmethod
    def push(self, request: Request) -> None:
        """Take a request in. Tokens that it has generated already are kept: it goes on behind them.

        Raises:
            ValueError: the request can't ever run here, is finished, is in the engine already, or ``idle`` is 0.
                Nothing has changed.
        """

    def require_entry(self, request: Request) -> None:
        """Refuse a request that may not be pushed now (given code, for :meth:`push`).

        Raises:
            ValueError: as :meth:`push` says.
        """
        reason = self.refusal(request)
        if reason is None and request.finished(self.max_positions):
            reason = "the request is finished: it has no token to compute"
        if reason is None and request in self.requests:
            reason = "the request is in the engine already"
        if reason is None and self.idle == 0:
            reason = f"{len(self.requests)} requests are in the engine, and it has room for no more"
        if reason is not None:
            raise ValueError(reason)

    @abstractmethod
    def step(self) -> Step:
        """Run the model once over the tokens that the policy chooses, then sample where no token is due any more.

        Requests that are complete then give their pages back and leave. If the model fails, no token counts as
        computed. After any other error, :meth:`abort` the requests that run.

        Returns:
            what was done; nothing if no request had any token due, and then the model was not run.
        """

    @abstractmethod
    def abort(self, requests: Collection[Request]) -> None:
        """Let some requests leave, unfinished, and give their pages back.

        Requests that are not in the engine are passed over.
        """


def generate_all(
    core: EngineCore, requests: Sequence[Request], observe: Callable[[Step], None] = lambda step: None
) -> list[list[int]]:
    """Bring all requests to their ends: a request is pushed as soon as the engine has room for it.

    Args:
        core: without requests; without requests again at the end, however that comes: the last token, an error, or
            Ctrl-C.
        requests: what to generate, each once. The ``error`` of each is set anew, before any of them runs: the
            engine's reason for a request that can't ever run, which gets no token, and None for the others. A request
            that is finished already gets no token either.
        observe: called after each step.

    Returns:
        the output of each request, in the order of ``requests``.

    Raises:
        OutOfPages: a request has to wait for pages, and no request runs that will free any. Any other error of the
            engine or of ``observe`` comes through, too.
    """
    for request in requests:
        request.error = core.refusal(request)
    waiting = deque(each for each in requests if each.error is None and not each.finished(core.max_positions))
    try:
        while waiting or core.requests:
            while waiting and core.idle:
                core.push(waiting.popleft())
            observe(core.step())
    finally:
        core.abort(core.requests)
    return [request.output for request in requests]
