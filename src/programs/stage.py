"""What a stage of the engine is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from programs.cores import warm_up
from programs.golden import GoldenDocuments
from programs.loaded import LoadedModel
from programs.seats import Observe

if TYPE_CHECKING:
    from tiny_llm.request import Request


@dataclass(frozen=True)
class Limits:
    """What a program allows a stage."""

    seats: int  # requests that run together at most
    chunk: int  # tokens of a prompt per step at most; from S6 on tokens of all requests per step
    attention: str = "auto"  # the way to attend, for stages that leave the choice


Run = Callable[[LoadedModel, "Sequence[Request]", Limits, Observe], None]
"""Brings requests to their ends. A request that can't run gets its ``error`` set."""

Answer = Callable[[LoadedModel, Limits, Sequence[GoldenDocuments], Sequence[int]], list[list[int]]]
"""The tokens of some questions about documents, with a limit for each."""


@dataclass(frozen=True)
class Stage:
    """One way to run the engine."""

    number: str
    name: str  # what --stage knows it by
    day: tuple[int, int]  # the week and the day that bring it
    title: str
    run: Run
    attention: str | None = None  # the way to attend on pages; "auto": the program may choose another
    short_prompts: bool = False  # too slow for long ones
    samples: bool = True  # whether each request's own sampler is used; otherwise it is greedy
    shares: bool = False  # whether requests share pages
    documents: Answer | None = None  # answers questions about documents, if it can
    others: tuple[tuple[str, Run], ...] = ()  # other ways to the same engine, and what they are called
    in_threads: bool = False  # the day's code runs where no stub would be recognized
    own_samplers: bool = False  # of the requests' samplers, it takes the settings
    scarce: bool = False  # it has too few pages on purpose: nothing to answer with as fast as can be

    def prepare(self, loaded: LoadedModel, limits: Limits) -> None:
        """Do what has to be done once and is not to be measured: compile the attention kernel."""
        if self.attention == "auto":
            warm_up(limits.attention, loaded.model)
