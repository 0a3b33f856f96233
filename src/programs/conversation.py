"""One conversation with the model: what `pdm run chat` keeps, and an answer that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from programs.document_files import Document
from programs.loaded import Timing

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.output import Delta, FinishReason
    from tiny_llm.engine.params import SamplingParams
    from tiny_llm.engine.prompts import Encoded
    from tiny_llm.tokenizer import Message


class Stopped(Exception):
    """The one who has asked wants no more of the answer."""


@dataclass
class Turn:
    """One message and what was answered."""

    prompt_tokens: int  # of the whole conversation up to the answer, documents included
    cached_tokens: int = 0  # how many of these were found in the page cache
    text: str = ""
    timing: Timing = field(default_factory=Timing)  # with an arrival per token
    finish: FinishReason | None = None  # None: it was stopped, or has failed


class Conversation:
    """The messages so far, and how the next one is answered."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None = None) -> None:
        """Begin without messages.

        Args:
            llm: the engine; for documents it must be chunk-aware.
            params: how to answer, for all messages.
            system: the system message; None: what the model's chat form has itself.
        """
        self.llm = llm
        self.params = params
        self.system = system
        self.documents: Sequence[Document] = ()  # what each message is asked about
        self.messages: list[Message] = []  # without the system message
        self.turns: list[Turn] = []
        self._deltas: SimpleQueue[Delta] = SimpleQueue()

    def answer(self, text: str, show: Callable[[str], object]) -> Turn:
        """Answer a message, which then belongs to the conversation with what was answered.

        An answer that was stopped, or has failed, stays as far as it has come. Without any text neither it nor the
        message belongs to the conversation.

        Args:
            text: the message.
            show: called with each piece of the answer.

        Raises:
            ValueError: the conversation with this message can't run here.
            WeightsError: the model's template refuses these messages.
            Whatever the answer has failed of.
        """
        self._deltas = SimpleQueue()
        question = {"role": "user", "content": text}
        generation = self.llm.begin(self._encode(question), self.params, self._deltas.put)
        turn = Turn(generation.prompt_tokens)
        try:
            for delta in generation.deltas(self._deltas):
                for _ in delta.token_ids:
                    turn.timing.stamp()
                turn.text += delta.text
                turn.finish = delta.finish_reason
                show(delta.text)
        except Stopped:
            pass
        finally:
            turn.cached_tokens = generation.cached_tokens if turn.timing.arrivals else 0
            if turn.text:
                self.messages += [question, {"role": "assistant", "content": turn.text}]
                self.turns.append(turn)
        return turn

    def stop(self) -> None:
        """Stop the answer that is under way, if any. It may be called by a signal's handler."""
        from tiny_llm.engine.output import Delta

        self._deltas.put(Delta(0, error=Stopped()))  # `put` may interrupt any other call of the queue

    def forget(self) -> None:
        """Begin anew; system message and documents stay."""
        self.messages.clear()
        self.turns.clear()

    def _encode(self, question: Message) -> Encoded:
        """The token ids of the conversation with a new message; an empty line ends each document."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        documents = [f"{each.text}\n\n" for each in self.documents]
        return self.llm.reader.read_chat([*system, *self.messages, question], documents)
