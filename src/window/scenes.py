"""Example scenes: requests like any others, chosen so that something can be seen in the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from programs.passages import BREAD, CANAL_LOCK, ISLAND_LETTER, LIBRARY_NOTICE, WATER_REPORT
from programs.prompts import PROMPTS

if TYPE_CHECKING:
    from tiny_llm.engine.generation import Generation
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.params import SamplingParams
    from tiny_llm.engine.prompts import Encoded

PASSAGES = (BREAD, CANAL_LOCK, ISLAND_LETTER, LIBRARY_NOTICE, WATER_REPORT)
MOST_TOKENS = 64
CROWD = 16
LONG = 8
"""How many long prompts compete for the pages, where there are seats for so many."""
SHORT_ANSWER = 32
ABOUT_LIBRARY = (
    "When is the library open on Fridays?",
    "How long may I keep a book?",
    "What does it cost to be late?",
    "May I bring a dog?",
    "Who may use the reading room?",
    "How do I join?",
    "Name one rule.",
    "Summarise the notice in one sentence.",
)
ABOUT_DOCUMENTS = (
    "When must the dough rest, and how does a lock begin to fill?",
    "Which of these texts is a letter?",
    "What do these texts have in common?",
)

Asked = list[tuple["Encoded", "SamplingParams"]]
"""Prompts, and how each is to be answered."""


class SceneRunning(Exception):
    """A scene can't start: the one before it still runs."""


@dataclass(frozen=True)
class Scene:
    """What a button on the page starts."""

    name: str
    title: str
    about: str  # in a sentence


class Director(Protocol):
    """Starts scenes, one at a time."""

    @property
    def scenes(self) -> Sequence[Scene]:
        """Those that there are."""

    def start(self, name: str) -> None:
        """Start a scene; it may take a second.

        Raises:
            KeyError: there is none of that name.
            SceneRunning: the one before it still runs.
            Exception: whatever submitting its requests raises; none of them goes on then.
        """

    def close(self) -> None:
        """Cancel the scene that runs, and start no more."""


class Scenes:
    """Scenes that submit their requests to an :class:`LLM`, beside those of other callers."""

    def __init__(self, llm: LLM, max_tokens: int = MOST_TOKENS) -> None:
        """Start none yet; an engine without documents has no scene about them.

        Args:
            llm: the engine.
            max_tokens: how many tokens each answer has at most, but in the scene of long ones.
        """
        self._llm = llm
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._running: list[Generation] = []
        self._closed = False
        self._known = {scene.name: (scene, ask) for scene, ask in SCENES}
        if not llm.reader.enable_chunk_aware:
            del self._known["documents"]

    @property
    def scenes(self) -> list[Scene]:
        """Those that there are."""
        return [scene for scene, _ in self._known.values()]

    def start(self, name: str) -> None:
        """Submit the requests of a scene, all of them or none; errors as for :meth:`Director.start`."""
        _, ask = self._known[name]
        with self._lock:
            if self._closed or not all(each.done() for each in self._futures()):
                raise SceneRunning
            self._running = []
            try:
                for prompt, params in ask(self._llm, self._max_tokens):
                    self._running.append(self._llm.begin(prompt, params))
            except BaseException:
                self._cancel()
                raise

    def close(self) -> None:
        """Cancel the scene that runs, and start no more."""
        with self._lock:
            self._closed = True
            self._cancel()

    def _futures(self) -> list[Future[list[int]]]:
        return [future for generation in self._running for future in generation.futures]

    def _cancel(self) -> None:
        for generation in self._running:
            generation.cancel()


def ask_crowd(llm: LLM, max_tokens: int) -> Asked:
    """Prompts of very different lengths, all at once."""
    params = _params(max_tokens)
    return [(_chat(llm, prompt), params) for prompt in PROMPTS[:CROWD]]


def ask_prefix(llm: LLM, max_tokens: int) -> Asked:
    """Questions behind the same long system prompt."""
    return [(_chat(llm, question, system=LIBRARY_NOTICE), _params(max_tokens)) for question in ABOUT_LIBRARY]


def ask_pages(llm: LLM, max_tokens: int) -> Asked:
    """Prompts that nearly fill the pool, with answers for which no pages are left, however long others are.

    The first answer must not end before the last prompt is computed: it takes twice as many steps.
    """
    limits = llm.limits
    room = limits.num_pages * limits.page_size
    share = room // max(2, min(LONG, limits.num_seats))
    answer = max(1, min(share * 3 // 4, max(SHORT_ANSWER, 2 * room // limits.token_budget)))
    length = max(1, min(share - answer // 2, llm.core.max_positions - answer))
    count = room // (length + answer // 2)
    text = "\n\n".join(PASSAGES)
    asked: Asked = []
    for number in range(1, min(count, limits.num_seats) + 1):
        begin = llm.tokenizer.encode(f"Text {number}. ")
        body = llm.tokenizer.encode(text)
        ids = (begin + body * (1 + length // len(body)))[:length]
        asked.append((ids, _params(answer, ignore_end=True)))
    return asked


def ask_documents(llm: LLM, max_tokens: int) -> Asked:
    """Questions about the same documents, which are computed once."""
    documents = (BREAD, CANAL_LOCK, ISLAND_LETTER)
    return [
        (llm.reader.read_chat([_user(question)], documents), _params(max_tokens))
        for question in ABOUT_DOCUMENTS
    ]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _chat(llm: LLM, text: str, system: str | None = None) -> Encoded:
    before = [] if system is None else [{"role": "system", "content": system}]
    return llm.reader.read_chat([*before, _user(text)])


def _params(max_tokens: int, ignore_end: bool = False) -> SamplingParams:
    from tiny_llm.engine.params import SamplingParams

    return SamplingParams(max_tokens=max_tokens, ignore_end=ignore_end)


SCENES: tuple[tuple[Scene, Callable[[LLM, int], Asked]], ...] = (
    (
        Scene("crowd", "16 prompts at once", "Short and long prompts share the budget of each step."),
        ask_crowd,
    ),
    (
        Scene("prefix", "Shared prefix", "Eight questions behind one system prompt: its pages are shared."),
        ask_prefix,
    ),
    (
        Scene(
            "pages", "Too few pages", "The answers need more pages than there are: requests are preempted."
        ),
        ask_pages,
    ),
    (
        Scene("documents", "Documents", "Three questions about three documents, each computed once."),
        ask_documents,
    ),
)
"""The scenes and what they ask, in the order of their buttons."""
