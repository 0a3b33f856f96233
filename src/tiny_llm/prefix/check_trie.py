"""Proves that a tree of pages, its allocator and the sequences on it agree (Day 4.1, given code)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from tiny_llm.paged.sequence import PagedSequence

if TYPE_CHECKING:
    from tiny_llm.prefix.trie_cache import Node, TrieCache


def check_trie(cache: TrieCache, sequences: Collection[PagedSequence]) -> None:
    """Prove that the books of a :class:`TrieCache` balance. It changes nothing, and takes time: it is for tests.

    - The allocator's own books balance: free pages, and pages in use, are all pages.
    - Each page has one reference for each sequence that holds it, and one more if it is in the tree.
    - Each node hangs in the tree where its tokens say; no page is in the tree twice.
    - The first pages of each sequence are those of its path, which is in the tree; no page behind them is there.
    - No node is held by fewer sequences than one of its children.
    - The nodes that no sequence holds, and only these, may be evicted; each comes after its children.
    - No node waits for its step to run.

    Args:
        cache: between two steps.
        sequences: all that hold pages.

    Raises:
        RuntimeError: something doesn't agree; the message names the page.
    """
    cache.allocator.check()
    holders = Counter(page for sequence in sequences for page in sequence.pages)
    nodes = list(cache.nodes())
    in_tree = Counter(node.page for node in nodes)
    for page, references in enumerate(cache.allocator.references):
        if references != holders[page] + in_tree[page] or in_tree[page] > 1:
            raise RuntimeError(
                f"page {page} has {references} references, where sequences hold it {holders[page]} times and the "
                f"tree has it {in_tree[page]} times"
            )
    for node in nodes:
        _check_node(cache, node, holders)
    for sequence in sequences:
        _check_path(cache, sequence, in_tree)
    _check_order(cache, [node for node in nodes if not holders[node.page]])
    if cache.planned:
        raise RuntimeError(f"page {cache.planned[0].page} still waits for its step to run")


def _check_node(cache: TrieCache, node: Node, holders: Counter[int]) -> None:
    """Its place in the tree is right, and it is held no more often than its parent."""
    parent = node.parent
    if parent is None or parent.children.get(node.key) is not node or node.depth != parent.depth + 1:
        raise RuntimeError(f"the node of page {node.page} does not hang where it says")
    if len(node.key) != cache.page_size:
        raise RuntimeError(
            f"page {node.page} is in the tree with {len(node.key)} of {cache.page_size} tokens"
        )
    if parent is not cache.root and holders[parent.page] < holders[node.page]:
        raise RuntimeError(
            f"page {parent.page} is held {holders[parent.page]} times, its child {node.page} "
            f"{holders[node.page]} times"
        )


def _check_path(cache: TrieCache, sequence: PagedSequence, in_tree: Counter[int]) -> None:
    """The path is the beginning of the sequence, and all that it has of the tree."""
    node, path = cache.tip(sequence), list[int]()
    while node.parent is not None:
        path.insert(0, node.page)
        node = node.parent
    if sequence.pages[: len(path)] != path or sequence.length < len(path) * cache.page_size:
        raise RuntimeError(
            f"a sequence with {sequence.length} tokens in the pages {sequence.pages} has the path {path}"
        )
    for page in path:
        if not in_tree[page]:
            raise RuntimeError(f"page {page} is on the path {path} of a sequence, and no longer in the tree")
    for page in sequence.pages[len(path) :]:
        if in_tree[page]:
            raise RuntimeError(f"page {page} is in the tree, and a sequence holds it behind its path {path}")
    if not 0 <= sequence.length <= len(sequence.pages) * cache.page_size:
        raise RuntimeError(f"a sequence has {sequence.length} tokens in the pages {sequence.pages}")


def _check_order(cache: TrieCache, unheld: list[Node]) -> None:
    """The nodes that may be evicted are those that no sequence holds, every node after its children."""
    order = {node: number for number, node in enumerate(cache.unheld)}
    for node in unheld:
        if node not in order:
            raise RuntimeError(
                f"page {node.page} is in the tree, no sequence holds it, and `unheld` lacks it"
            )
    for node in order.keys() - set(unheld):
        raise RuntimeError(f"page {node.page} is in `unheld`; a sequence holds it, or it is not in the tree")
    for node in unheld:
        if any(order[child] > order[node] for child in node.children.values()):
            raise RuntimeError(f"page {node.page} would be evicted before a page that continues it")
