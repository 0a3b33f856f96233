"""What Day 3.7's tests serve with: a model that can be made to wait, a tokenizer of letters, batchers over both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from week_2.continuous import new_request, prompt_of
from week_2.reading_model import LAYERS, V, alone

from coursekit.check import check_equal

from .batch_model import RaggedModel
from .pages import spoil

LIMIT = 5.0
"""Seconds after which a test takes what it waits for to hang."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = 26  # the token that ends an answer
HALVES = (27, 28)  # the two bytes of "é"


class ServedModel(RaggedModel):
    """RaggedModel as Day 3.5's `forward` runs it.

    While `gate` is a semaphore, each run waits there; `begun` counts those that have come so far. After `bound` runs
    each one fails: an endless loop ends.
    """

    def __init__(self, lab: Any, max_positions: int = 64, bound: int = 4000) -> None:
        super().__init__(lab, max_positions)
        self.bound = bound
        self.gate: threading.Semaphore | None = None
        self.begun = threading.Semaphore(0)

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        self.begun.release()
        if self.gate is not None:
            assert self.gate.acquire(timeout=LIMIT), (
                f"the test has let no run through for {LIMIT:g} s: does something wait for the model that must not?"
            )
        assert len(self.runs) < self.bound, f"{self.bound} runs of the model, and still no end"
        return super().hidden(tokens, positions, caches)

    def close(self) -> None:
        """From now on each run waits until it is let through."""
        self.begun, self.gate = threading.Semaphore(0), threading.Semaphore(0)

    def await_run(self) -> None:
        """Wait until one more run has begun."""
        assert self.begun.acquire(timeout=LIMIT), f"the model was not run for {LIMIT:g} s"

    def give_up(self) -> None:
        """Something has gone wrong: nobody needs to wait for a run any more."""
        self.begun.release(1000)

    def let(self, runs: int) -> None:
        """Let so many runs through."""
        assert self.gate is not None
        self.gate.release(runs)

    def open(self) -> None:
        """Let all through, also those that wait."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.release(1000)

    def _accept(self, caches: Any) -> None:
        assert caches is not None, "the model was run without the caches"
        assert len(caches) == LAYERS, f"{len(caches)} caches were given for {LAYERS} layers"


class Letters:
    """A tokenizer whose tokens are the letters, an end token, and two that are half a character each.

    What is no letter is a token too, by its number in Unicode. `<end>` is the end token, unless the text may hold no
    control tokens. A chat is the message between two z.
    """

    vocab_size = V
    end_ids = (END,)

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


def batcher_of(
    lab: Any,
    model: Any = None,
    kind: Any = None,
    *,
    slots: int = 3,
    pages: int = 40,
    P: int = 3,
    capacity: int = 8,
    max_queue: int = 50,
) -> Any:
    """A batcher that was not started, over a pool full of NaN."""
    model = model or ServedModel(lab)
    pool = lab.paged.pool.KvPool(model.config, pages, P, device=lab.device)
    spoil(pool)
    decode_state = lab.ragged.decode_state.DecodeState(pool, slots, pages - 1, model.read)
    state = lab.ragged.sampling_state.SamplingState(decode_state, model.config.max_positions)
    return (kind or lab.ragged.batcher.Batcher)(model, state, capacity, max_queue)


def watched(lab: Any) -> Any:
    """A kind of Batcher that proves after each step that slots and pages agree, and remembers all futures.

    `until` waits for a moment at which its figures are so.
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

        def join(self) -> None:
            super().join()
            self._tell()

        def leave(self) -> None:
            super().leave()
            self.state.pages.check()
            check_slots(self)
            self._tell()

        def until(self, condition: Callable[[Any], bool], what: str) -> None:
            with self.progress:
                met = self.progress.wait_for(lambda: self.given_up or condition(self.stats()), LIMIT)
            assert met, f"{what}: this did not come to be within {LIMIT:g} s; it is {self.stats()}"

        def give_up(self) -> None:
            """Something has gone wrong: nobody needs to wait any more."""
            self.model.give_up()
            self.given_up = True
            self._tell()

        def _tell(self) -> None:
            with self.progress:
                self.progress.notify_all()

    return Watched


def check_slots(batcher: Any) -> None:
    """The ticket in each slot is the one whose request runs there."""
    __tracebackhide__ = True
    for slot, (ticket, request) in enumerate(zip(batcher.tickets, batcher.state.requests, strict=True)):
        own = None if ticket is None else ticket.request
        assert own is request, (
            f"slot {slot}: `tickets` and the sampling state don't have the same request there"
        )


def check_at_rest(batcher: Any, futures: Sequence[Future[Any]] = ()) -> None:
    """Nobody waits or runs, all pages are free, and every future is settled."""
    __tracebackhide__ = True
    state = batcher.state
    state.pages.check()
    check_slots(batcher)
    kept = [slot for slot, request in enumerate(state.requests) if request is not None]
    assert not kept, f"nobody is to run any more, and slots {kept} are still taken"
    total, free = state.pages.num_pages - 1, len(state.pages.available_page_indices)
    assert free == total, f"nobody runs any more, and only {free} of {total} pages are free"
    assert not batcher.request_queue, f"{len(batcher.request_queue)} requests are still in the queue"
    left = sum(not future.done() for future in futures)
    assert not left, (
        f"{left} of {len(futures)} futures are not settled: those who wait for them wait for ever"
    )


def queued(batcher: Any) -> list[list[int]]:
    """The prompts of those that wait, in their order."""
    return [list(ticket.request.prompt_ids) for ticket in batcher.request_queue]


def seated(batcher: Any) -> list[list[int] | None]:
    """By slot, the prompt of whoever has it."""
    return [None if ticket is None else list(ticket.request.prompt_ids) for ticket in batcher.tickets]


def some(lab: Any, count: int, longest: int = 6) -> list[Any]:
    """Requests of different lengths, each with a prompt of its own."""
    return [new_request(lab, prompt_of(n % 7 + 1, seed=n), n * 5 % longest + 1, (END,)) for n in range(count)]


def wanted(request: Any, limit: int = 64) -> list[int]:
    """What a request must get, whoever else is there."""
    return alone(request.prompt_ids, request.max_tokens, request.end_ids, limit)
