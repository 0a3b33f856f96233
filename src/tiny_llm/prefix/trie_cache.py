"""Pages that several requests share: a tree in which every node is a full page (Day 4.1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.prefix.check_trie import check_trie
from tiny_llm.prefix.page_cache import BasePageCache

Key = tuple[int, ...]
"""The P tokens of a full page."""


@dataclass(eq=False)
class Node:
    """A full page, and the tokens in it. Its keys and values are right behind exactly the tokens of its ancestors."""

    page: int
    key: Key
    parent: Node | None = field(repr=False)
    depth: int  # pages from the root to this node, this one included; the root has 0
    children: dict[Key, Node] = field(default_factory=dict, repr=False)


class TrieCache(BasePageCache):
    """A page cache that keeps full pages after their request has ended, and finds them for requests that begin alike.

    The path from the root to a node spells the tokens of a prefix, a page per node. The tree has one reference to
    the page of each node; each sequence that holds the page has another. A sequence holds a path: if it holds a node,
    it holds all its ancestors. So a node that no sequence holds has no descendant that is held, and may be evicted
    after its descendants. No search is needed for the next one: the front of ``unheld`` always is a leaf.

    Source: RadixAttention (Zheng et al. 2024, arXiv 2312.07104), with whole pages.
    """

    def __init__(self, allocator: PageAllocator, page_size: int) -> None:
        """Start with a tree that has only its root, which has no page."""
        super().__init__(allocator, page_size)
        self.root = Node(NULL_PAGE, (), None, 0)
        # The last node on the path of each sequence; a sequence that is missing here has the root. The pages of the
        # path are the first pages of the sequence.
        self.tips: dict[PagedSequence, Node] = {}
        # The nodes that no sequence holds, in the order in which they may be evicted: the least recently used first,
        # and every node behind its descendants.
        self.unheld: OrderedDict[Node, None] = OrderedDict()
        self.planned: list[Node] = []  # published, and computed only in the step that is being planned

    @property
    def available(self) -> int:
        """How many pages :meth:`acquire` can find: those that are free, and those of the nodes that are not held."""
        raise NotImplementedError("Week 4 Day 1 Task 4: Release and evict")

    def tip(self, sequence: PagedSequence) -> Node:
        """The last node that a sequence holds; the root if it holds none (given code)."""
        return self.tips.get(sequence, self.root)

    def key(self, token_ids: Sequence[int], depth: int) -> Key:
        """The tokens of the page that follows ``depth`` others (given code)."""
        return tuple(token_ids[depth * self.page_size : (depth + 1) * self.page_size])

    def match(self, sequence: PagedSequence, token_ids: Sequence[int]) -> int:
        """Let a sequence go on with pages of the tree that hold its next tokens already.

        It takes a reference to each page that it finds, at once: from then on the page can't be evicted. At least one
        token is left to compute, since the next token is sampled from the logits of the last one. A page that was
        published in this step is found, too: each layer writes the keys of the whole step before it reads any.

        A sequence that has a page behind its path, full or not, finds nothing: what it has computed itself it keeps.
        Nor does one whose path has pages that it has published in this step: its length ends before them. The path
        ends at the last page found (:meth:`_move`).

        Args:
            sequence: the sequence. The search begins behind its path, so that a prompt that is half computed may
                still find what another request has computed meanwhile.
            token_ids: all tokens of its request.

        Returns:
            how many tokens were found: the sequence's pages and its length have grown by these.
        """
        raise NotImplementedError("Week 4 Day 1 Task 2: Find a prefix")

    def acquire(self, sequence: PagedSequence, count: int) -> None:
        """Give a sequence the pages that it lacks for ``count`` more tokens: all of them or none.

        Free pages come first. Only what they lack is evicted.

        Raises:
            OutOfPages: fewer pages are available: the error of :meth:`require_available`, whose message says how many
                it lacks and how many are available. Nothing has changed.
        """
        raise NotImplementedError("Week 4 Day 1 Task 4: Release and evict")

    def publish(self, sequence: PagedSequence, token_ids: Sequence[int], stop: int) -> None:
        """Add the pages of a sequence that will be full after this step to the tree, behind its path.

        Where the tree has a page with the same tokens in this place, that page stays, and the sequence keeps its own
        for itself, with all pages behind it: a sequence holds the pages of its path, and no others of the tree.

        Args:
            sequence: the sequence, with pages for its tokens up to ``stop``.
            token_ids: all tokens of its request.
            stop: how many of its tokens the pool holds after the step that is being planned.
        """
        raise NotImplementedError("Week 4 Day 1 Task 3: Publish, and take it back")

    def release(self, sequence: PagedSequence, keep: int = 0) -> None:
        """Give up a sequence's pages, all but those of its first ``keep`` tokens; so many tokens are left in it.

        Pages of the tree stay there, as the most recently used: the end of the path is evicted before its beginning.
        The path keeps only pages that end at ``keep`` or before it; a page kept in part is the sequence's own again.

        Args:
            sequence: the sequence.
            keep: how many of its tokens stay: none, or those that it had before this step. A page with some of them
                stays, too.
        """
        raise NotImplementedError("Week 4 Day 1 Task 4: Release and evict")

    def evict(self, count: int) -> None:
        """Free the pages of ``count`` nodes that no sequence holds: each time the first of ``unheld``.

        It always is a leaf, and of the leaves that no sequence holds the least recently used.

        Args:
            count: at most as many as there are such nodes; nothing happens if it is below 1.
        """
        raise NotImplementedError("Week 4 Day 1 Task 4: Release and evict")

    def frees(self, sequence: PagedSequence) -> bool:
        """Whether a page becomes available if this sequence alone is released (Day 4.3).

        The last page of a sequence is held by no more sequences than those before it. If it is in the tree, the tree
        has one of its references.
        """
        raise NotImplementedError("Week 4 Day 3 Task 1: Levels and victims")

    def commit(self) -> None:
        """Note that the model has run: all that was published is computed."""
        self.planned.clear()

    def withdraw(self) -> None:
        """Take the nodes that were published and never computed out of the tree: the model has failed.

        Before it is called, every sequence of the step is released to the tokens that it had.
        """
        raise NotImplementedError("Week 4 Day 1 Task 3: Publish, and take it back")

    def _move(self, sequence: PagedSequence, node: Node) -> None:
        """Note where the path of a sequence ends (given code)."""
        if node is self.root:
            self.tips.pop(sequence, None)
        else:
            self.tips[sequence] = node

    def _cut(self, node: Node) -> None:
        """Take a leaf out of the tree, and give up the tree's reference to its page (given code).

        Raises:
            RuntimeError: it is no leaf; nothing has changed.
        """
        assert node.parent is not None, "the root has no page"
        if node.children:
            raise RuntimeError(f"page {node.page} has children in the tree: cut them first")
        del node.parent.children[node.key]
        self.allocator.free([node.page])

    def nodes(self) -> Iterator[Node]:
        """All nodes except the root, every node before its children (given code)."""
        rest = list(self.root.children.values())
        while rest:
            node = rest.pop()
            yield node
            rest += node.children.values()

    def check(self, sequences: Collection[PagedSequence]) -> None:
        """Prove that allocator, tree and sequences agree (given code): :func:`check_trie`, between two steps."""
        check_trie(self, sequences)
