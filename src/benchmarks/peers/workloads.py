"""The columns of the table: which requests every engine gets, the same for all."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coursekit.errors import CourseError

FIRST_TOKEN, LAST_TOKEN = 256, 49_151
"""The ids that prompts are made of: SmolLM2's, without those that control a chat."""
REQUESTS, QUICK_REQUESTS = 32, 8
WARM_UP_PROMPT, WARM_UP_TOKENS = 64, 4


@dataclass(frozen=True)
class PeerRequest:
    """Token ids to continue greedily by exactly so many tokens."""

    prompt: Sequence[int]
    max_tokens: int

    def to_json(self) -> dict[str, Any]:
        """As an engine's process reads it."""
        return {"prompt": list(self.prompt), "max_tokens": self.max_tokens}


@dataclass(frozen=True)
class Workload:
    """Requests that come all at once; lengths lie between two numbers, both included."""

    name: str
    title: str
    requests: int
    prompts: tuple[int, int]  # how many tokens a prompt has of its own
    outputs: tuple[int, int]
    common: int = 0  # tokens that all prompts begin with
    counts_prompts: bool = False  # whether it is measured in prompt tokens, not in output tokens

    @property
    def room(self) -> int:
        """The most tokens that a request can have, prompt and output."""
        return self.common + self.prompts[1] + self.outputs[1]

    def count(self, quick: bool) -> int:
        """How many requests come."""
        return min(self.requests, QUICK_REQUESTS) if quick else self.requests

    def described(self, quick: bool) -> str:
        """In a few words, such as "chat: 32 requests, short prompts, output tokens"."""
        count, unit = self.count(quick), "prompt" if self.counts_prompts else "output"
        return f"{self.name}: {count} request{'s' if count > 1 else ''}, {self.title}, {unit} tokens"

    def make(self, seed: int, turn: str, quick: bool = False) -> list[PeerRequest]:
        """The requests of a turn: no prompt begins like one of another turn, so nothing of it is cached.

        Args:
            seed: chooses tokens and lengths.
            turn: the name of the turn, such as "round 1".
            quick: fewer requests, at most 8.
        """
        dice = random.Random(f"{seed} {self.name} {turn}")
        # Lengths are the same in all turns: the turns differ by the machine's mood, not by their work.
        lengths = random.Random(f"{seed} {self.name}")
        common = _tokens(dice, self.common)
        return [
            PeerRequest(
                [*common, *_tokens(dice, lengths.randint(*self.prompts))], lengths.randint(*self.outputs)
            )
            for _ in range(self.count(quick))
        ]

    def warm_up(self, seed: int, quick: bool = False) -> list[PeerRequest]:
        """As many requests, but short ones; a single prompt that is measured for itself has its whole length."""
        longest = self.prompts[1] if self.counts_prompts else WARM_UP_PROMPT
        return [
            PeerRequest(each.prompt[:longest], min(WARM_UP_TOKENS, each.max_tokens))
            for each in self.make(seed, "warm-up", quick)
        ]

    def counted(self, requests: Sequence[PeerRequest]) -> int:
        """The tokens that are divided by the seconds."""
        if self.counts_prompts:
            return sum(len(each.prompt) for each in requests)
        return sum(each.max_tokens for each in requests)


def _tokens(dice: random.Random, count: int) -> list[int]:
    return [dice.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]


WORKLOADS: Mapping[str, Workload] = {
    each.name: each
    for each in (
        Workload("single", "a short prompt", 1, (64, 64), (128, 128)),
        Workload("chat", "short prompts", REQUESTS, (20, 120), (16, 128)),
        Workload("mixed", "short and long prompts", REQUESTS, (30, 900), (16, 128)),
        Workload("shared", "prompts that begin alike", REQUESTS, (20, 60), (16, 64), common=512),
        Workload("prefill", "a prompt of 2,048", 1, (2048, 2048), (1, 1), counts_prompts=True),
    )
}


def choose_workloads(only: str | None) -> list[Workload]:
    """The workloads in "chat,single", in the table's order; all where nothing is given.

    Raises:
        CourseError: there is none of that name.
    """
    if only is None:
        return list(WORKLOADS.values())
    names = {name.strip() for name in only.split(",")}
    for name in sorted(names - set(WORKLOADS)):
        raise CourseError(f"--only names {name!r}; there are: {', '.join(WORKLOADS)}")
    return [each for each in WORKLOADS.values() if each.name in names]
