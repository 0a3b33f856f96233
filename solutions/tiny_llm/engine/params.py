"""What a caller may ask of an answer (Day 4.6, given code)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_llm import sampling_params
from tiny_llm.scheduling.levels import HIGHEST

MOST_COMPLETIONS = 128
MOST_STOPS, LONGEST_STOP = 16, 256
"""How many stop strings a request may have, and how many characters each: all are looked for at each token."""
MOST_LOGPROBS = 20


@dataclass(frozen=True)
class SamplingParams(sampling_params.SamplingParams):
    """The settings of one request: those of Day 1.7, how the answer ends, and how the request is served.

    Raises:
        ValueError: a value is out of range or of another type; the message gives the field, its value and the range.
    """

    presence_penalty: float = (
        0.0  # subtracted from the scores of all tokens that are in the output; from -2 to 2
    )
    frequency_penalty: float = 0.0  # the same, once for each time that the token is there; from -2 to 2
    max_tokens: int | None = 128  # how many tokens to generate at most; None: as many as there is room for
    stop: Sequence[
        str
    ] = ()  # texts that end the answer, and aren't part of its text; one string is a list of one
    stop_token_ids: Sequence[int] = ()  # ids that end the answer beside the model's own; without text, too
    ignore_end: bool = False  # whether the model's own end tokens are tokens like any other
    logprobs: int | None = None  # report these of each token, and of so many best ones; None: nothing
    n: int = 1  # how many answers to give
    priority: int = 0  # requests with a higher one are served first
    client: str = ""  # whose request it is: clients get equal shares
    documents: Sequence[str] = ()  # texts that the prompt asks about; the engine must be chunk-aware

    def __post_init__(self) -> None:
        """Refuse every value out of range or of another type; keep lists as tuples."""
        super().__post_init__()
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            self._require(
                name, sampling_params._is_number(value) and -2 <= value <= 2, "a number from -2 to 2"
            )
        self._require(
            "max_tokens", self.max_tokens is None or self._whole(self.max_tokens, 1), "1 or more, or None"
        )
        self._require("ignore_end", isinstance(self.ignore_end, bool), "True or False")
        allowed = self.logprobs is None or self._whole(self.logprobs, 0, MOST_LOGPROBS)
        self._require("logprobs", allowed, f"a whole number from 0 to {MOST_LOGPROBS}, or None")
        self._require(
            "n", self._whole(self.n, 1, MOST_COMPLETIONS), f"a whole number from 1 to {MOST_COMPLETIONS}"
        )
        self._require(
            "priority", self._whole(self.priority, 0, HIGHEST), f"a whole number from 0 to {HIGHEST}"
        )
        self._require("client", isinstance(self.client, str), "a string")
        self._keep_tuples()

    def _keep_tuples(self) -> None:
        """Check the lists, and keep copies of them that can't change."""
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name, kind in (("stop", str), ("stop_token_ids", int), ("documents", str)):
            value = getattr(self, name)
            fits = isinstance(value, (list, tuple)) and all(type(each) is kind for each in value)
            self._require(name, fits, f"a list of {'whole numbers' if kind is int else 'strings'}")
            object.__setattr__(self, name, tuple(value))
        if len(self.stop) > MOST_STOPS:
            raise ValueError(f"stop has {len(self.stop)} strings; at most {MOST_STOPS} are allowed")
        if not all(0 < len(each) <= LONGEST_STOP for each in self.stop):
            raise ValueError(f"stop has a string that is empty, or longer than {LONGEST_STOP} characters")

    @staticmethod
    def _whole(value: object, least: int, most: int | None = None) -> bool:
        """Whether this is an int in a range, and not a bool."""
        return type(value) is int and value >= least and (most is None or value <= most)
