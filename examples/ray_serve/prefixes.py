"""Which replica has computed which prefix."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection

LENGTH = 256
"""How many characters of a prompt are its prefix: prompts that share a long beginning agree in these."""
MOST = 10_000
"""How many prefixes are remembered: the pages of older ones are evicted anyway."""


class Prefixes:
    """Gives each prefix to one replica, and all replicas about as many prefixes.

    Source: SGLang's router and Ray's PrefixCacheAffinityRouter go by the longest prefix that a replica has; prefixes
    of one length are what is simplest, and enough for system prompts.
    """

    def __init__(self, length: int = LENGTH, most: int = MOST) -> None:
        """Start without prefixes."""
        self._length = length
        self._most = most
        self._homes: OrderedDict[str, str] = OrderedDict()  # the one that was asked for last is the last

    def home(self, prompt: str, replicas: Collection[str]) -> str:
        """The replica for a prompt: the one that had its prefix before, else the one that has the fewest.

        Args:
            prompt: the text.
            replicas: the names of those that run now, at least one.
        """
        prefix = prompt[: self._length]
        home = self._homes.pop(prefix, "")
        if home not in replicas:
            counts = Counter(self._homes.values())
            home = min(replicas, key=lambda replica: (counts[replica], replica))
        self._homes[prefix] = home
        if len(self._homes) > self._most:
            self._homes.popitem(last=False)
        return home
