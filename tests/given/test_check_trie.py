"""The check of a tree of pages finds each fault in the books and names the page; where all is right, it is silent."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.prefix.trie_cache import Node, TrieCache

P = 3
TEXT = list(range(1, 12))


class Books:
    """Page 1 and 2 are in the tree, held by `first`; 3 only by the tree; `second` holds 1 and, behind it, 4 and 5.

    Pages 4 and 5 have no node; 5 is filled in part. Page 6 belongs to `own`, which isn't on any path.
    """

    def __init__(self) -> None:
        self.cache = TrieCache(PageAllocator(12), P)
        self.first, self.second, self.own = self.sequences = [
            PagedSequence(self.cache.allocator, P) for _ in range(3)
        ]
        self.compute(self.first, TEXT[:9])
        self.nodes = [self.cache.tip(self.first)]
        while self.nodes[0].depth > 1:
            self.nodes.insert(0, self.nodes[0].parent or self.cache.root)
        self.cache.release(self.first)
        self.cache.match(self.first, TEXT[:7])
        self.cache.match(self.second, TEXT[:5])
        self.second.reserve(5)
        self.second.advance(5)
        self.own.reserve(1)

    def compute(self, sequence: PagedSequence, token_ids: list[int]) -> None:
        """A step for one sequence."""
        self.cache.acquire(sequence, len(token_ids))
        self.cache.publish(sequence, token_ids, len(token_ids))
        sequence.advance(len(token_ids))
        self.cache.commit()


def _lost(books: Books) -> int:
    return books.cache.allocator.free_pages.pop()


def _reference_too_many(books: Books) -> int:
    books.cache.allocator.share([6])
    return 6


def _reference_too_few(books: Books) -> int:
    books.cache.allocator.references[2] -= 1
    return 2


def _not_the_trees(books: Books) -> int:
    books.cache.allocator.free([1])
    return 1


def _not_told(books: Books) -> int:
    books.sequences.remove(books.own)
    return 6


def _in_the_tree_twice(books: Books) -> int:
    key = (7, 7, 7)
    books.cache.root.children[key] = Node(2, key, books.cache.root, 1)
    books.cache.allocator.share([2])
    return 2


def _under_another_key(books: Books) -> int:
    children = books.nodes[1].children
    children[9, 9, 9] = children.pop(books.nodes[2].key)
    return 3


def _of_another_parent(books: Books) -> int:
    books.nodes[2].parent = books.nodes[0]
    return 3


def _without_parent(books: Books) -> int:
    books.nodes[2].parent = None
    return 3


def _of_wrong_depth(books: Books) -> int:
    books.nodes[2].depth = 2
    return 3


def _of_too_few_tokens(books: Books) -> int:
    node = books.nodes[2]
    del books.nodes[1].children[node.key]
    node.key = node.key[:2]
    books.nodes[1].children[node.key] = node
    return 3


def _held_more_often_than_its_parent(books: Books) -> int:
    books.first.pages.remove(1)
    books.cache.allocator.free([1])
    books.second.pages.insert(1, 2)
    books.cache.allocator.share([2])
    return 1


def _path_too_short(books: Books) -> int:
    books.cache.tips[books.first] = books.nodes[0]
    return 2


def _path_forgotten(books: Books) -> int:
    del books.cache.tips[books.second]
    return 1


def _path_too_long(books: Books) -> int:
    books.cache.tips[books.second] = books.nodes[1]
    return 2


def _path_not_computed(books: Books) -> int:
    books.first.length = 5
    return 5


def _pages_in_another_order(books: Books) -> int:
    books.first.pages.reverse()
    return 2


def _evicted_while_held(books: Books) -> int:
    books.cache.evict(1)
    books.cache._cut(books.nodes[1])
    return 2


def _more_tokens_than_room(books: Books) -> int:
    books.own.length = 4
    return 4


def _negative_length(books: Books) -> int:
    books.own.length = -1
    return -1


def _held_may_be_evicted(books: Books) -> int:
    books.cache.unheld[books.nodes[1]] = None
    return 2


def _not_held_may_not_be_evicted(books: Books) -> int:
    del books.cache.unheld[books.nodes[2]]
    return 3


def _evicted_twice(books: Books) -> int:
    books.cache.unheld[Node(9, (1, 1, 1), books.cache.root, 1)] = None
    return 9


def _parent_before_child(books: Books) -> int:
    books.cache.release(books.first)
    books.cache.unheld.move_to_end(books.nodes[2])
    return 2


def _parent_before_its_second_child(books: Books) -> int:
    [page], key = books.cache.allocator.allocate(1), (20, 21, 22)
    books.cache.release(books.first)
    second = Node(page, key, books.nodes[1], 3)
    books.nodes[1].children[key] = second
    books.cache.unheld[second] = None
    return 2


def _waits_for_ever(books: Books) -> int:
    books.cache.planned.append(books.nodes[1])
    return 2


BROKEN: dict[str, Callable[[Books], int]] = {
    "a page that is neither free nor in use": _lost,
    "a reference too many": _reference_too_many,
    "a reference too few": _reference_too_few,
    "a node without a reference of the tree": _not_the_trees,
    "a sequence that check was not told of": _not_told,
    "a page that two nodes have": _in_the_tree_twice,
    "a node that hangs under another key": _under_another_key,
    "a node that names another parent": _of_another_parent,
    "a node that names no parent": _without_parent,
    "a node with the depth of its parent": _of_wrong_depth,
    "a node with too few tokens": _of_too_few_tokens,
    "a node that is held more often than its parent": _held_more_often_than_its_parent,
    "a path that ends too early": _path_too_short,
    "a path that was forgotten": _path_forgotten,
    "a path that goes on behind the sequence's pages": _path_too_long,
    "a path with tokens that the sequence doesn't have": _path_not_computed,
    "a sequence with its pages in another order": _pages_in_another_order,
    "a node that was evicted while a sequence held it": _evicted_while_held,
    "more tokens than the pages have room for": _more_tokens_than_room,
    "a negative length": _negative_length,
    "a held node that may be evicted": _held_may_be_evicted,
    "a node that no sequence holds and that may not be evicted": _not_held_may_not_be_evicted,
    "a node that may be evicted and is not in the tree": _evicted_twice,
    "a node that is evicted before one that continues it": _parent_before_child,
    "a node that is evicted before the second of those that continue it": _parent_before_its_second_child,
    "a node that waits for its step for ever": _waits_for_ever,
}


@pytest.mark.parametrize("what", BROKEN, ids=BROKEN)
def test_each_fault_is_found_and_the_page_or_the_length_is_named(what):
    books = Books()
    number = BROKEN[what](books)
    with pytest.raises(RuntimeError) as raised:
        books.cache.check(books.sequences)
    assert re.search(rf"(?<![\w-]){number}\b", str(raised.value)), f"{number}: {raised.value}"


def test_sound_books_are_accepted_and_not_changed():
    books = Books()
    cache = books.cache
    before = [list(cache.allocator.references), list(cache.unheld), dict(cache.tips), list(cache.nodes())]
    cache.check(books.sequences)
    cache.check(tuple(books.sequences))
    assert [
        list(cache.allocator.references),
        list(cache.unheld),
        dict(cache.tips),
        list(cache.nodes()),
    ] == before
    for sequence in books.sequences:
        cache.release(sequence)
        cache.check(books.sequences)
    assert len(cache.unheld) == 3
    cache.evict(3)
    cache.check([])
    TrieCache(PageAllocator(2), 1).check([])
