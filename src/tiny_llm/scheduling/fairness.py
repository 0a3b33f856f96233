"""Which client's turn it is: the one that was served least (Day 4.3)."""

from __future__ import annotations

from collections.abc import Collection

PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2
"""What a token costs its client: an output token takes a step of its own, prompt tokens share theirs."""


class VirtualTokens:
    """How much service each client has got, counted in tokens: a clock for each client, which runs when it is served.

    A client that comes, or comes back, starts no lower than the clients that are there. Otherwise it could save up
    its claims while it asks for nothing, and then shut the others out.

    Source: Sheng et al. 2024, "Fairness in Serving Large Language Models" (arXiv 2401.00588), the virtual token
    counter.
    """

    def __init__(self) -> None:
        """Start without clients."""
        # The counter of each client that is here, and of those worth remembering.
        self.served: dict[str, int] = {}
        self.floor = 0  # no client that arrives starts below this

    def arrive(self, client: str, present: Collection[str]) -> None:
        """Note that a client comes with its first request; one that is present already is left as it is.

        Its counter is the one that it left with, but at least that of the least served client that is present. If no
        client is present, it is at least that of the client that left last. Counters of other clients that are not
        present are forgotten where they are not above this least.

        Args:
            client: the client that comes.
            present: the clients that have requests here, before this one.
        """
        raise NotImplementedError("Week 4 Day 3 Task 4: Fair to clients")

    def depart(self, client: str, present: Collection[str]) -> None:
        """Note that a client has no request here any more.

        Args:
            client: who leaves.
            present: the clients that still have requests here.
        """
        raise NotImplementedError("Week 4 Day 3 Task 4: Fair to clients")

    def charge(self, client: str, prompt: int, output: int) -> None:
        """Note that so many prompt tokens and output tokens of a client that is present were computed."""
        raise NotImplementedError("Week 4 Day 3 Task 4: Fair to clients")
