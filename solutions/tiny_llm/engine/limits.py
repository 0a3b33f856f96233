"""How large an engine is (given code)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The sizes of an engine."""

    num_seats: int = 32  # requests that run together at most
    num_pages: int = 1024  # of all requests together, and of what is cached
    page_size: int = 16  # tokens per page
    token_budget: int = 256  # tokens that all requests bring to a step at most

    def __post_init__(self) -> None:
        """Refuse sizes below 1.

        Raises:
            ValueError: the message names the size.
        """
        for name, value in vars(self).items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number, 1 or more")
