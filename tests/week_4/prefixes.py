"""Page caches as the tests handle them: trees planted by hand, and all that a cache knows as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from week_3.pages import allocator_of, pages_needed

from coursekit.check import CheckFailed, check_equal

from .beside_prefixes import prefixes

PAGE_SIZES = (3, 1, 16)


def base_of(lab: Any, num_pages: int = 9, P: int = 3) -> Any:
    return lab.prefix.page_cache.BasePageCache(allocator_of(lab, num_pages), P)


def trie_of(lab: Any, num_pages: int = 13, P: int = 3) -> Any:
    return lab.prefix.trie_cache.TrieCache(allocator_of(lab, num_pages), P)


def text(count: int, seed: int = 0) -> list[int]:
    """Token ids, no two alike; those of two seeds have none in common."""
    return list(range(100 * seed + 1, 100 * seed + 1 + count))


def sequence_with(lab: Any, cache: Any, length: int = 0, pages: int | None = None) -> Any:
    """A sequence that has computed so many tokens in pages of its own: as many as they need, or more."""
    sequence = lab.paged.sequence.PagedSequence(cache.allocator, cache.page_size)
    compute(sequence, length, pages)
    return sequence


def compute(sequence: Any, count: int, pages: int | None = None) -> None:
    """By hand: a sequence takes pages for tokens (or so many more) and computes the tokens; none is published."""
    P = sequence.page_size
    wanted = pages_needed(sequence.length + count, P) - len(sequence.pages) if pages is None else pages
    sequence.pages += sequence.allocator.allocate(wanted)
    sequence.length += count


def plant(lab: Any, cache: Any, token_ids: Sequence[int]) -> list[Any]:
    """By hand: the nodes of the full pages of a text, as if a request with it had ended just now."""
    node, path, P = cache.root, list[Any](), cache.page_size
    for start in range(0, len(token_ids) - P + 1, P):
        key = tuple(token_ids[start : start + P])
        if key not in node.children:
            (page,) = cache.allocator.allocate(1)
            node.children[key] = lab.prefix.trie_cache.Node(page, key, node, node.depth + 1)
        node = node.children[key]
        path.append(node)
    for node in reversed(path):
        if cache.allocator.references[node.page] == 1:
            cache.unheld.pop(node, None)
            cache.unheld[node] = None
    return path


def hold(cache: Any, sequence: Any, path: Sequence[Any]) -> None:
    """By hand: a sequence without pages behind its path goes on with these nodes."""
    for node in path:
        cache.allocator.share([node.page])
        cache.unheld.pop(node, None)
        sequence.pages.append(node.page)
        sequence.length += cache.page_size
        cache.tips[sequence] = node


def drop(cache: Any, sequence: Any, keep: int = 0) -> None:
    """By hand: what `release` does; for the tests of the tasks before it."""
    pages, node = pages_needed(keep, cache.page_size), cache.tip(sequence)
    cache.allocator.free(sequence.pages[pages:])
    sequence.pages, sequence.length = sequence.pages[:pages], keep
    while node.depth * cache.page_size > keep:
        if cache.allocator.references[node.page] == 1:
            cache.unheld[node] = None
        node = node.parent
    cache.tips.pop(sequence, None)
    if node is not cache.root:
        cache.tips[sequence] = node


def cut(cache: Any, node: Any) -> None:
    """By hand: a leaf that no sequence holds is evicted."""
    cache.unheld.pop(node)
    del node.parent.children[node.key]
    cache.allocator.free([node.page])


def computed(lab: Any, cache: Any, token_ids: list[int]) -> Any:
    """A sequence that has found what it could, computed the rest and published its full pages."""
    sequence = sequence_with(lab, cache)
    cache.match(sequence, token_ids)
    compute(sequence, 0, pages_needed(len(token_ids), cache.page_size) - len(sequence.pages))
    cache.publish(sequence, token_ids, len(token_ids))
    cache.commit()
    sequence.length = len(token_ids)
    return sequence


def fails(cache: Any, had: dict[Any, int]) -> None:
    """The step has failed: its sequences are released by hand, then `withdraw` is called."""
    for sequence, keep in had.items():
        drop(cache, sequence, keep)
    cache.withdraw()


def words(token_ids: Sequence[int], P: int) -> str:
    """Tokens as text, page by page: "1 2 3 | 4 5 6"."""
    pages = [token_ids[start : start + P] for start in range(0, len(token_ids), P)]
    return " | ".join(" ".join(map(str, page)) for page in pages)


def tree(cache: Any) -> dict[str, int]:
    """The same, with the tokens as text, sorted."""
    return {words(prefix, cache.page_size): page for prefix, page in sorted(prefixes(cache).items())}


def tree_of(*texts: tuple[Sequence[int], Sequence[int]], P: int = 3) -> dict[str, int]:
    """What `tree` should give: for each text the pages of its full pages, in order."""
    found = dict[tuple[int, ...], int]()
    for token_ids, pages in texts:
        for number, page in enumerate(pages, start=1):
            found[tuple(token_ids[: number * P])] = page
    return {words(prefix, P): page for prefix, page in sorted(found.items())}


def pages_in(nodes: Any) -> list[int]:
    return [node.page for node in nodes]


def books(cache: Any, sequences: Sequence[Any] = ()) -> dict[str, Any]:
    """All that a cache, its allocator and some sequences know: two of these are equal where nothing has changed."""
    found: dict[str, Any] = {
        "the pages of each sequence": [list(sequence.pages) for sequence in sequences],
        "the length of each sequence": [sequence.length for sequence in sequences],
    }
    if hasattr(cache, "root"):
        found |= {
            "the tree (tokens: page)": tree(cache),
            "the last page on the path of each sequence": [
                cache.tip(sequence).page for sequence in sequences
            ],
            "how many sequences have a path (`tips`; the root is none)": len(cache.tips),
            "the pages that may be evicted, in this order (`unheld`)": pages_in(cache.unheld),
            "the pages in `planned`": pages_in(cache.planned),
        }
    return found | {
        "the references of the pages": dict(enumerate(cache.allocator.references)),
        "the free pages": sorted(cache.allocator.free_pages),
        "how many pages were evicted so far (`evicted`)": cache.evicted,
    }


def check_books(cache: Any, sequences: Sequence[Any], before: dict[str, Any], when: str) -> None:
    """Each part is as it was; the failure shows the part that isn't."""
    __tracebackhide__ = True
    for part, now in books(cache, sequences).items():
        check_equal(now, before[part], name=f"{part} {when}")


def check_sound(cache: Any, sequences: Sequence[Any], when: str) -> None:
    """`check()` finds no fault."""
    __tracebackhide__ = True
    with told_as_unsound(when):
        cache.check(sequences)


@contextmanager
def told_as_unsound(when: str) -> Iterator[None]:
    """A fault that a cache finds in its books is a failure of the test."""
    __tracebackhide__ = True
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, NotImplementedError):
            raise
        raise CheckFailed(f"{when}, the books don't balance: {error}") from error


def check_held(
    cache: Any, expected: dict[int, int], when: str, suspects: dict[str, dict[int, int]] | None = None
) -> None:
    """These pages have so many references, and no other page has any."""
    __tracebackhide__ = True
    found = {page: count for page, count in enumerate(cache.allocator.references) if count}
    name = f"the pages in use (page: references) {when}"
    check_equal(found, dict(sorted(expected.items())), name=name, suspects=suspects)


def check_unheld(cache: Any, expected: Sequence[int], when: str, **suspects: Sequence[int]) -> None:
    """`unheld` lists these pages in this order."""
    __tracebackhide__ = True
    name = f"the pages that may be evicted, in this order (`unheld`), {when}"
    known = {mistake.replace("_", " "): list(pages) for mistake, pages in suspects.items()}
    check_equal(pages_in(cache.unheld), list(expected), name=name, suspects=known)
