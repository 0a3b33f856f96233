"""Reads an engine between two steps, on the thread that runs them: any engine core from Day 3.6 on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from window.notes import State, TreeNode

if TYPE_CHECKING:
    from tiny_llm.engine_core import EngineCore
    from tiny_llm.paged.running import Running
    from tiny_llm.prefix.trie_cache import Node
    from tiny_llm.request import Request

MOST_NODES = 400
"""Of the tree, so many nodes are shown at most."""


@dataclass(frozen=True)
class Before:
    """A request before a step."""

    running: Running
    length: int
    decoding: bool


class Look:
    """What an engine shows of itself: its requests, their pages, and the tree."""

    def __init__(self, core: EngineCore) -> None:
        """Any engine; its parts are looked at each time anew."""
        self._core: Any = core

    def running(self) -> list[Running]:
        """What has pages, or a seat at least."""
        if hasattr(self._core, "scheduler"):
            return list(self._core.scheduler.running)
        return [running for _, running in self._core.state.line]

    def waiting(self) -> list[Any]:
        """What waits in the engine itself."""
        return list(self._core.scheduler.waiting) if hasattr(self._core, "scheduler") else []

    def states(self) -> Iterator[tuple[Running, State]]:
        """What is in the engine, and how it goes with it."""
        for running in self.running():
            yield running, State.RUNNING
        for waiting in self.waiting():
            yield waiting, State.PREEMPTED if waiting.resumes else State.WAITING

    def before(self) -> dict[Request, Before]:
        """All requests before a step."""
        known = {
            each.request: Before(each, each.sequence.length, each.decoding and each.sequence.length > 0)
            for each in self.running()
        }
        return known | {each.request: Before(each, 0, False) for each in self.waiting()}

    @property
    def free(self) -> int:
        """How many pages are free."""
        return len(self._core.allocator.free_pages)

    @property
    def evicted(self) -> int:
        """How many pages were evicted so far."""
        cache = self._cache
        return 0 if cache is None else cache.evicted

    @property
    def reused(self) -> int:
        """How many tokens were found and not computed so far."""
        return self._core.scheduler.reused if hasattr(self._core, "scheduler") else 0

    def cached(self) -> list[int]:
        """The pages in the tree that no request holds."""
        return [node.page for node in getattr(self._cache, "unheld", ())]

    def tree(self) -> list[TreeNode]:
        """The nodes of the tree, those near the root first."""
        root: Node | None = getattr(self._cache, "root", None)
        found: list[TreeNode] = []
        references = self._core.allocator.references
        level = [] if root is None else [root]
        while level and len(found) < MOST_NODES:
            # One of the references to a page is the tree's own.
            found += [
                TreeNode(node.page, parent.page, node.key, references[node.page] - 1)
                for parent in level
                for node in parent.children.values()
            ]
            level = [node for parent in level for node in parent.children.values()]
        del found[MOST_NODES:]
        return found

    @property
    def _cache(self) -> Any:
        return self._core.scheduler.cache if hasattr(self._core, "scheduler") else None


def members(running: Running) -> list[Running]:
    """What a question about documents consists of; any other request is its only member."""
    return list(getattr(running.sequence, "members", (running,)))


def num_tokens(running: Running) -> int:
    """How many tokens a request has so far: prompt, with all documents, and output."""
    return sum(len(each.request.token_ids) for each in members(running))


def prompt_len(running: Running) -> int:
    """How many of these are the prompt's."""
    return sum(each.request.prompt_len for each in members(running))
