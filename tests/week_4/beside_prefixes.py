"""The tree of a page cache, read where it is."""

from __future__ import annotations

from typing import Any

from coursekit.beside import beside


@beside
def prefixes(cache: Any) -> dict[tuple[int, ...], int]:
    """The tokens from the root to each node, and its page; a cache without a tree has none."""
    found, rest = dict[tuple[int, ...], int](), [((), cache.root)] if hasattr(cache, "root") else []
    while rest:
        prefix, node = rest.pop()
        for key, child in node.children.items():
            found[*prefix, *key] = child.page
            rest.append(((*prefix, *key), child))
    return found
