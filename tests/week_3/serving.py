"""What Day 3.7's tests serve with: a tokenizer of letters, three engines, and batchers over each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from week_2.continuous import prompt_of
from week_2.reading_model import V, alone

from coursekit.check import check_equal

from .batch_model import RaggedModel, runner_of
from .beside_threads import tickets_of
from .pages import check_all_free
from .patience import hangs, limit
from .toy_engine import toy_engine

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = 26  # the token that ends an answer
HALVES = (27, 28)  # the two bytes of "é"


class Letters:
    """A tokenizer whose tokens are the letters, an end token, and two that are half a character each.

    Any other character is a token too, by its number in Unicode. `<end>` is the end token, unless the text may hold
    no control tokens. A chat is the message between two z.
    """

    vocab_size = V
    end_ids = (END,)
    longest_token = 5  # <end>

    def encode(self, text: str, control_tokens: bool = True) -> list[int]:
        if control_tokens and "<end>" in text:
            before, after = text.split("<end>", 1)
            return [*self.encode(before), END, *self.encode(after)]
        return [LETTERS.index(c) if c in LETTERS else ord(c) % 26 for c in text]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        check_equal([message["role"] for message in messages], ["user"], name="the roles of the conversation")
        return [25, *self.encode(messages[0]["content"], control_tokens=False), 25]

    def decode(self, ids: Sequence[int], skip_control_tokens: bool = True) -> str:
        halves = dict(zip(HALVES, (b"\xc3", b"\xa9"), strict=True))
        end = b"" if skip_control_tokens else b"<end>"
        parts = [end if i == END else halves[i] if i in halves else LETTERS[i].encode() for i in ids]
        return b"".join(parts).decode("utf-8", errors="replace")


def paged_engine(lab: Any, *, seats: int = 3, pages: int = 40, budget: int = 8, P: int = 3) -> Any:
    """Day 3.2's engine, over a model that reads the pool token by token."""
    runner, allocator = runner_of(lab, RaggedModel(lab), pages, P)
    return lab.paged.batch.PagedBatch(runner, allocator, seats, max(1, budget + 1 - seats))


def ragged_engine(lab: Any, *, seats: int = 3, pages: int = 40, budget: int = 8, P: int = 3) -> Any:
    """Day 3.6's engine, over the same model."""
    runner, allocator = runner_of(lab, RaggedModel(lab), pages, P)
    state = lab.ragged.decode_state.DecodeState(allocator, P, seats, pages - 1)
    return lab.ragged.batch.RaggedBatch(runner, state, budget)


ENGINES: dict[str, Callable[..., Any]] = {
    "a toy engine": toy_engine,
    "PagedBatch": paged_engine,
    "RaggedBatch": ragged_engine,
}


def let_step_fail(core: Any, at: int, error: Exception) -> None:
    """The engine's step number `at`, counted from 1, is to raise an error."""
    if not hasattr(core.__class__, "toy_fail"):
        runner, usual = core.runner, core.runner.model.hidden

        def hidden(*arguments: Any) -> Any:
            if len(runner.model.runs) == at - 1:
                runner.model.hidden = usual
                raise error
            return usual(*arguments)

        runner.model.hidden = hidden
    else:
        core.toy_fail("step", at, error)


def batcher_of(lab: Any, kind: Any = None, core: Any = None, max_queue: int = 50, **options: Any) -> Any:
    """A batcher that was not started; its engine is a toy, with these options, if no other is given."""
    core = toy_engine(lab, **options) if core is None else core
    return (kind or lab.ragged.batcher.Batcher)(core, max_queue)


def watched(lab: Any) -> Any:
    """A kind of Batcher that proves after each step that tickets and engine agree, and remembers all futures.

    `until` waits for a moment at which its figures meet a condition.
    """

    class Watched(lab.ragged.batcher.Batcher):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.futures: list[Future[list[int]]] = []
            self.progress = threading.Condition()
            self.given_up = False

        def submit(self, *arguments: Any, **options: Any) -> Any:
            future = super().submit(*arguments, **options)
            self.futures.append(future)
            self._tell()
            return future

        def admit(self) -> None:
            super().admit()
            check_tickets(self, "admit")
            self._tell()

        def retire(self, finished: Any) -> None:
            super().retire(finished)
            check_tickets(self, "retire")
            self._tell()

        def until(self, condition: Callable[[Any], bool], what: str) -> None:
            with self.progress:
                met = self.progress.wait_for(lambda: self.given_up or condition(self.stats()), limit())
            if not met:
                raise hangs(f"{what}: this has not come within {limit():g} s; the figures are {self.stats()}")

        def give_up(self) -> None:
            """Something has gone wrong: no test needs to wait any more."""
            give_up(self.core)
            self.given_up = True
            self._tell()

        def _tell(self) -> None:
            with self.progress:
                self.progress.notify_all()

    return Watched


def give_up(core: Any) -> None:
    if hasattr(core.__class__, "toy_give_up"):
        core.toy_give_up()


def let_go(core: Any) -> None:
    """Let all steps go on, if this is an engine whose steps can be held up."""
    if hasattr(core.__class__, "toy_open"):
        core.toy_open()


def check_tickets(batcher: Any, after: str) -> None:
    """`tickets` has the ticket of each request in the engine, and of no other."""
    __tracebackhide__ = True
    there, have, same, own = tickets_of(batcher)
    assert same, (
        f"after `{after}` the engine has {there} requests, and `tickets` has {have}: "
        "`tickets` has each request in the engine, and no other"
    )
    assert own, f"after `{after}` a ticket is in `tickets` under another one's request"


def check_at_rest(batcher: Any, futures: Sequence[Future[Any]] = ()) -> None:
    """No request waits or runs, all pages are free, and every future is settled."""
    __tracebackhide__ = True
    left = sum(not future.done() for future in futures)
    assert not left, f"{left} of {len(futures)} futures are not settled: their callers wait for ever"
    assert not batcher.request_queue, f"{len(batcher.request_queue)} requests are still in the queue"
    kept = len(batcher.core.requests)
    assert not kept, f"every future is settled, and {kept} requests are still in the engine"
    assert not batcher.tickets, f"no request is in the engine, and {len(batcher.tickets)} are in `tickets`"
    check_all_free(batcher.core.allocator, when="when every future is settled")


def seat(batcher: Any, *requests: Any, on_token: Callable[[int], Any] = lambda token: None) -> list[Any]:
    """Submit requests, and put them into the engine by hand, with their tickets: the tickets."""
    for request in requests:
        batcher.submit(request, on_token)
    tickets = list(batcher.request_queue)
    batcher.request_queue.clear()
    for ticket in tickets:
        batcher.core.push(ticket.request)
        batcher.tickets[ticket.request] = ticket
    return tickets


def queued(batcher: Any) -> list[list[int]]:
    """The prompts of the requests in the queue, in their order."""
    return [list(ticket.request.prompt_ids) for ticket in batcher.request_queue]


def running(batcher: Any) -> list[list[int]]:
    """The prompts of the requests in the engine, in the order in which they came."""
    return [list(request.prompt_ids) for request in batcher.core.requests]


def outcome(future: Future[list[int]]) -> Any:
    """How a future has ended, in a word, or its output. What a test's own model objects to is raised."""
    if not future.done():
        return "pending"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    if isinstance(error, AssertionError):
        raise error
    return future.result() if error is None else type(error).__name__


def outcomes(futures: Sequence[Future[list[int]]]) -> list[Any]:
    return [outcome(future) for future in futures]


def new_request(
    lab: Any, prompt: Sequence[int], max_tokens: int, end_ids: Sequence[int] = (), **options: Any
) -> Any:
    return lab.request.Request(prompt, max_tokens, end_ids, **options)


def some(lab: Any, count: int, longest: int = 6) -> list[Any]:
    """Requests of different lengths, each with a prompt of its own."""
    return [new_request(lab, prompt_of(n % 7 + 1, seed=n), n * 5 % longest + 1, (END,)) for n in range(count)]


def wanted(request: Any, limit: int = 64) -> list[int]:
    """What a request must get, whatever other requests there are."""
    return alone(request.prompt_ids, request.max_tokens, request.end_ids, limit)
