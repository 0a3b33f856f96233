"""Answers that grow by hand, token by token: a tokenizer with awkward pieces, and what must come out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from week_1.scripted import SpaceDroppingTokenizer

from coursekit.check import check_equal

from .beside_coroutines import new_future

END, EOT = b"<end>", b"<eot>"
SMILE = (b"\xf0", b"\x9f", b"\x99\x82")  # one emoji, spread over three tokens
HAN = (b"\xe6", b"\xbc\xa2")  # one Chinese character, spread over two
PIECES = (b"zero", b" the", b" cat", b" ", b"#", b"##", b" # ", b"ab", b"abc", b"a", b"b", b"c")
VOCABULARY = (*PIECES, *SMILE, *HAN, END, EOT)
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Pieces(SpaceDroppingTokenizer):
    """A tokenizer that drops a space in front, and writes out its two end tokens, unlike real ones."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY)
        self.end_ids = tuple(self.ids(END, EOT))


def whole_text(tokens: Sequence[int], stops: Sequence[str], end_ids: Sequence[int]) -> tuple[str, str | None]:
    """The text of an answer, and the stop string that is in it: from all tokens at once."""
    ids = list(tokens[:-1] if tokens and tokens[-1] in end_ids else tokens)
    text = Pieces().decode(ids)
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def settled(tokens: Sequence[int] = ()) -> Any:
    """A future with an output."""
    future = new_future()
    future.set_result(list(tokens))
    return future


def failed(error: BaseException) -> Any:
    """A future whose request has failed."""
    future = new_future()
    future.set_exception(error)
    return future


def cancelled() -> Any:
    """A future that its caller has cancelled."""
    future = new_future()
    future.cancel()
    future.set_running_or_notify_cancel()
    return future


class Growing:
    """A completion, and the deltas that it has delivered so far. Tokens are given as their bytes."""

    def __init__(self, lab: Any, index: int = 0, **settings: Any) -> None:
        self.tokenizer = Pieces()
        if "stop_token_ids" in settings:
            settings["stop_token_ids"] = self.tokenizer.ids(*settings["stop_token_ids"])
        self.deltas = list[Any]()
        params = lab.engine.params.SamplingParams(**settings)
        self.completion = lab.engine.completion.Completion(
            params, self.tokenizer, 3, index, self.deltas.append
        )

    def push(self, *pieces: bytes) -> list[str]:
        """Push tokens: the texts of the deltas that came, one for each token."""
        __tracebackhide__ = True
        before = len(self.deltas)
        for count, token in enumerate(self.tokenizer.ids(*pieces), start=1):
            self.completion.push(token)
            name = f"deltas delivered after {count} tokens"
            check_equal(len(self.deltas), before + count, name=name)
        return [delta.text for delta in self.deltas[before:]]

    def finish(self, future: Any = None) -> Any:
        """Finish: the one delta that came with it."""
        __tracebackhide__ = True
        before = len(self.deltas)
        self.completion.finish(settled(self.completion.token_ids) if future is None else future)
        check_equal(len(self.deltas) - before, 1, name="deltas delivered by `finish`")
        return self.deltas[-1]

    @property
    def joined(self) -> str:
        """The texts of all deltas, one behind the other."""
        return "".join(delta.text for delta in self.deltas)

    @property
    def reasons(self) -> tuple[str, Any]:
        """Why it has ended, and with which stop string or token."""
        return str(self.completion.finish_reason), self.completion.stop_reason


class Generating:
    """A generation whose answers are ended by hand; their deltas go into `queue`, if there is one."""

    def __init__(self, lab: Any, count: int = 1, prompt_tokens: int = 10, **settings: Any) -> None:
        self.growing = [Growing(lab, index, **settings) for index in range(count)]
        self.futures = [new_future() for _ in range(count)]
        self.generation = lab.engine.generation.Generation(prompt_tokens)
        self.generation.completions += [each.completion for each in self.growing]
        self.generation.futures += self.futures

    def deliver(self, put: Callable[[Any], Any]) -> None:
        """Give each delta to `put` from now on."""
        for each in self.growing:
            each.completion.deliver = put

    def push(self, index: int, *pieces: bytes) -> None:
        """The next tokens of an answer."""
        for token in self.growing[index].tokenizer.ids(*pieces):
            self.growing[index].completion.push(token)

    def end(self, index: int, *pieces: bytes) -> None:
        """The last tokens of an answer; then its future is settled, and it has ended."""
        self.push(index, *pieces)
        self.futures[index].set_result(list(self.growing[index].completion.token_ids))
        self.settle(index)

    def fail(self, index: int, error: BaseException) -> None:
        """An answer fails."""
        self.futures[index].set_exception(error)
        self.settle(index)

    def settle(self, index: int) -> None:
        """What the callback of the future does."""
        self.growing[index].completion.settle(self.futures[index])

    @property
    def cancelled(self) -> list[bool]:
        """Which of the futures were cancelled."""
        return [future.cancelled() for future in self.futures]
