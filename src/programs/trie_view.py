"""The tree of pages that requests share, as text: `pdm run batch-main --trie`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

if TYPE_CHECKING:
    from tiny_llm.prefix.trie_cache import Node, TrieCache

LETTERS = 36
"""How many letters of a page's text are shown."""
MOST_RANGES = 3
"""Of numbers; what lies between them and the last one is left out."""


@dataclass(frozen=True)
class Known:
    """What is known of one request."""

    number: int
    token_ids: Sequence[int]  # prompt and output
    pages: Sequence[int] = ()  # that it holds


def draw_trie(cache: TrieCache, requests: Sequence[Known], decode: Callable[[Sequence[int]], str]) -> Tree:
    """The tree, a line per page: the requests that begin so, those that hold it, its number, the first words in it.

    Pages that follow one another for the same requests are one line.

    Args:
        cache: the pages.
        requests: in the order of their numbers.
        decode: gives the text of token ids.
    """
    nodes = list(cache.nodes())
    held = sum(node not in cache.unheld for node in nodes)
    tree = Tree(
        f"the tree: {len(nodes)} of {cache.allocator.num_pages - 1} pages of {cache.page_size} tokens; "
        f"{held} are held"
    )
    through = _through(cache, requests)
    holders = {node.page: [each.number for each in requests if node.page in each.pages] for node in nodes}

    def kind(node: Node) -> tuple[list[int], list[int]]:
        return through.get(node.page, []), holders[node.page]

    def draw(branch: Tree, children: Collection[Node]) -> None:
        for child in sorted(children, key=kind):
            chain = list(_chain(child, kind))
            line = Text(_line(chain, *kind(child), decode), no_wrap=True, overflow="ellipsis")
            draw(branch.add(line), chain[-1].children.values())

    draw(tree, cache.root.children.values())
    return tree


def _through(cache: TrieCache, requests: Sequence[Known]) -> dict[int, list[int]]:
    """For each page the requests whose tokens lead through it."""
    found: dict[int, list[int]] = {}
    for each in requests:
        node: Node | None = cache.root
        while node is not None:
            node = node.children.get(cache.key(each.token_ids, node.depth))
            if node is not None:
                found.setdefault(node.page, []).append(each.number)
    return found


def _chain(node: Node, kind: Callable[[Node], object]) -> Iterator[Node]:
    """A node and those behind it, as long as there is one way only and they are of its kind."""
    yield node
    while len(node.children) == 1:
        (child,) = node.children.values()
        if kind(child) != kind(node):
            return
        node = child
        yield node


def _line(
    chain: Sequence[Node],
    numbers: Sequence[int],
    holders: Sequence[int],
    decode: Callable[[Sequence[int]], str],
) -> str:
    pages = [node.page for node in chain]
    what = f"page {pages[0]}" if len(pages) == 1 else f"{len(pages)} pages, {ranges(pages)}"
    words = " ".join(decode(chain[0].key).split())
    text = words if len(words) <= LETTERS else f"{words[: LETTERS - 1]}…"
    whose = f"{'request' if len(numbers) == 1 else 'requests'} {ranges(numbers)}" if numbers else "no request"
    by = f", held by {ranges(holders)}" if holders else ""
    return f"{whose}{by}: {what}: {text}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in their order, runs of them as one: "1-3, 7"; of many the first and the last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    parts = ["-".join(map(str, run)) for run in runs]
    if len(parts) > MOST_RANGES + 1:
        parts[MOST_RANGES:-1] = ["…"]
    return ", ".join(parts)
