"""What a server is told when it starts (Day 4.6, given code)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

MOST_BODY = 8 * 2**20


@dataclass(frozen=True)
class Settings:
    """Who may call a server, and what it says about itself.

    Raises:
        ValueError: the server would be open to other machines without a key, the key or the name is empty, or
            ``max_body`` is below 1.
    """

    model_name: str = "smollm2-135m"  # what clients call the model
    host: str = "127.0.0.1"  # the address that the server listens on
    api_key: str | None = None  # every client has to send it; None: no key is asked for
    allow_open: bool = False  # whether other machines may call without a key
    cors: tuple[
        str, ...
    ] = ()  # origins whose pages may call from a browser, such as https://example.org; * is any
    max_body: int = MOST_BODY  # bytes of a request's body at most

    def __post_init__(self) -> None:
        """Refuse settings that are a mistake."""
        if not self.model_name:
            raise ValueError("the model's name is empty: clients have to call it something")
        if self.max_body < 1:
            raise ValueError(f"max_body is {self.max_body}; it must be 1 or more")
        if self.api_key is not None and not self.api_key.strip():
            raise ValueError("the API key is empty: give one that can't be guessed, or none")
        if self.api_key is None and not self.allow_open and not is_loopback(self.host):
            raise ValueError(
                f"on {self.host} other machines can reach the server: set an API key, or allow it to be open"
            )

    @property
    def local(self) -> bool:
        """Whether only programs on this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address always means this machine."""
    name = host.removeprefix("[").removesuffix("]").lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
