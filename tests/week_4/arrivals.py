"""An engine without a model: random arrivals, chunks, failures and endings on a page cache, checked at every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from week_3.pages import pages_needed

from coursekit.check import CheckFailed, check_equal
from coursekit.checking.objects import values_of

from .arrival_records import Books, Planned, Request
from .beside_arrivals import acquire, advance, check, match, places, publish, release
from .beside_prefixes import prefixes
from .prefixes import told_as_unsound, tree, words

POISON = -1  # what a run that failed leaves in the places of its tokens


class Arrivals:
    """Requests on one cache. The pool is a dictionary: place -> the token whose keys and values would be there."""

    def __init__(self, lab: Any, cache: Any) -> None:
        self.lab, self.cache = lab, cache
        self.P, self.allocator, self.num_pages = cache.page_size, cache.allocator, cache.allocator.num_pages
        self.sequence, self.refusal = lab.paged.sequence.PagedSequence, lab.paged.allocator.OutOfPages
        self.other_user = self.sequence(self.allocator, self.P)
        self.pool: dict[int, int] = {}
        self.requests: list[Request] = []
        self.others: list[int] = []  # pages of another user of the same allocator
        self.arrived = self.computed = self.found = 0

    def arrive(self, prompt: Sequence[int], more: int) -> None:
        """A request comes, which will generate some tokens."""
        sequence = self.sequence(self.allocator, self.P)
        self.arrived += 1
        script = [*prompt, *(prompt[-1] ^ n & 1 for n in range(more))]
        self.requests.append(Request(f"request {self.arrived}", sequence, list(prompt), script))

    def step(self, chunks: Sequence[int], fails: bool) -> None:
        """Plan a step in which each request takes part that gets its pages, and run it."""
        __tracebackhide__ = True
        lengths = values_of([request.sequence for request in self.requests], "length")
        had = [(request, length) for request, (length,) in zip(self.requests, lengths, strict=True)]
        plan, new = list[Planned](), set[int]()
        for number, (request, _) in enumerate(had):
            planned = self._plan(request, chunks[number % len(chunks)], new)
            plan += [planned] if planned else []
        if fails:
            self._fail(plan, had, new)
        else:
            self._run(plan)
        self.check("after a step that failed" if fails else "after a step")

    def end(self, number: int) -> None:
        """A request is ended by its client."""
        __tracebackhide__ = True
        if self.requests:
            request = self.requests.pop(number % len(self.requests))
            self._release(request)
            self.check(f"after {request.name} was ended")

    def evict(self, count: int) -> None:
        __tracebackhide__ = True
        if hasattr(self.cache, "evict"):
            count = min(count, self.cache.available - len(self.allocator.free_pages))
            size = len(prefixes(self.cache))
            self.cache.evict(count)
            left = len(prefixes(self.cache))
            check_equal(left, size - count, name=f"nodes in the tree after evict({count})")
            self.check(f"after evict({count})")

    def other(self, count: int) -> None:
        """Another user of the allocator gives its pages back and takes some that are free."""
        __tracebackhide__ = True
        self.allocator.free(self.others)
        self.others = self.allocator.allocate(min(count, len(self.allocator.free_pages)))
        self.check("after another user of the allocator took pages")

    def finish(self) -> None:
        """All requests end; then every page can be had that no other user has."""
        __tracebackhide__ = True
        while self.requests:
            self.end(0)
        self.arrive([0], 0)
        rest = self.num_pages - 1 - len(self.others)
        check_equal(
            self.cache.available, rest, name="how many pages are available when all requests have ended"
        )
        self._acquire(self.requests[0], rest * self.P)
        check_equal(len(prefixes(self.cache)), 0, name="nodes in the tree when one request has all pages")
        self.end(0)

    def check(self, when: str) -> None:
        """The books balance, and each page in the tree holds the tokens that its path says."""
        __tracebackhide__ = True
        sequences = [request.sequence for request in self.requests]
        with told_as_unsound(when):
            found = check(self.cache, self.other_user, self.others, sequences)
        for prefix, page in found.items():
            held = [self.pool.get(page * self.P + offset) for offset in range(self.P)]
            if held != list(prefix[-self.P :]):
                raise CheckFailed(
                    f"{when}, page {page} is in the tree for the tokens {words(prefix, self.P)}, of which it should "
                    f"hold the last {self.P}; it holds {_shown(held)}"
                )

    def _plan(self, request: Request, chunk: int, new: set[int]) -> Planned | None:
        """`match`, `acquire`, `publish`; None if there are too few pages."""
        __tracebackhide__ = True
        token_ids = request.token_ids
        length = self._match(request)
        count = min(chunk, len(token_ids) - length)
        if not self._acquire(request, count):
            return None
        stop = length + count
        before, after, length = publish(self.cache, request.sequence, tuple(token_ids), stop)
        new.update(page for prefix, page in after.items() if prefix not in before and len(prefix) > length)
        return Planned(request, length, stop)

    def _match(self, request: Request) -> int:
        """How many of its tokens are in the pool then."""
        __tracebackhide__ = True
        token_ids = request.token_ids
        known, (length, pages), found, (now, now_pages) = match(self.cache, request.sequence, token_ids)
        expected = list(pages)
        if len(pages) * self.P == length and all(
            known.get(tuple(token_ids[: end * self.P])) == page for end, page in enumerate(pages, start=1)
        ):
            while (len(expected) + 1) * self.P < len(token_ids):
                page = known.get(tuple(token_ids[: (len(expected) + 1) * self.P]))
                if page is None:
                    break
                expected.append(page)
        name = (
            f"match for the tokens {words(token_ids, self.P)}, {length} of them computed in the pages {pages}"
        )
        check_equal(now_pages, expected, name=f"the sequence's pages after {name}")
        check_equal(found, (len(expected) - len(pages)) * self.P, name=f"what {name} gives")
        check_equal(now, length + found, name=f"the sequence's length after {name}")
        self.found += found
        return now

    def _acquire(self, request: Request, count: int) -> bool:
        """Whether there were enough pages, which `acquire` must agree with."""
        __tracebackhide__ = True
        first, refused, last = acquire(self.cache, request.sequence, count, self.refusal)
        before, after = Books(*first), Books(*last)
        lacking = pages_needed(before.length + count, self.P) - len(before.pages)
        free, available = before.free, before.available
        name = f"acquire, where {lacking} pages are lacking, {free} are free and {available} available"
        if refused is not None:
            if lacking <= available:
                raise CheckFailed(f"{name}: OutOfPages was raised: {refused}")
            check_equal(after.pages, before.pages, name=f"the sequence's pages after {name}")
            check_equal(after.evicted, before.evicted, name=f"pages evicted so far, after {name}")
            return False
        if lacking > available:
            raise CheckFailed(f"{name}: should be refused with OutOfPages")
        held = len(before.pages)
        check_equal(len(after.pages), held + lacking, name=f"how many pages the sequence has after {name}")
        check_equal(after.pages[:held], before.pages, name=f"the pages that it had before {name}")
        check_equal(after.evicted - before.evicted, max(0, lacking - free), name=f"pages evicted by {name}")
        return True

    def _run(self, plan: Sequence[Planned]) -> None:
        """As each layer does: write the new tokens of all requests, then let each request read all of its own."""
        __tracebackhide__ = True
        self._write(plan)
        whole = places([(planned.request.sequence, 0, planned.stop) for planned in plan])
        for planned, own in zip(plan, whole, strict=True):
            token_ids, read = (
                planned.request.token_ids[: planned.stop],
                [self.pool.get(place) for place in own],
            )
            if read != token_ids:
                raise CheckFailed(
                    f"{planned.request.name} has the tokens {token_ids} in the pages "
                    f"{planned.request.sequence.pages} of {self.P}, "
                    f"and read there {_shown(read)}"
                )
        advance(self.cache, [(planned.request.sequence, planned.stop - planned.start) for planned in plan])
        self.computed += sum(planned.stop - planned.start for planned in plan)
        lengths = values_of([planned.request.sequence for planned in plan], "length")
        for planned, (length,) in zip(plan, lengths, strict=True):
            self._sample(planned.request, length)

    def _sample(self, request: Request, length: int) -> None:
        """A request whose tokens are all computed gets its next one, or ends."""
        if length < len(request.token_ids):
            return
        if len(request.token_ids) == len(request.script):
            self.requests.remove(request)
            self._release(request)
        else:
            request.token_ids.append(request.script[len(request.token_ids)])

    def _fail(self, plan: Sequence[Planned], had: Sequence[tuple[Request, int]], new: set[int]) -> None:
        """The model has written half of what it should; every request goes back to the tokens that it had."""
        __tracebackhide__ = True
        self._write(plan, failed=True)
        expected = {tokens: page for tokens, page in tree(self.cache).items() if page not in new}
        for request, length in had:
            self._release(request, length)
        self.cache.withdraw()
        check_equal(tree(self.cache), expected, name="the tree (tokens: page) after a step that failed")

    def _release(self, request: Request, keep: int = 0) -> None:
        __tracebackhide__ = True
        (_, before), (length, pages) = release(self.cache, request.sequence, keep)
        name = f"release(keep={keep})"
        wanted = before[: pages_needed(keep, self.P)]
        check_equal(pages, wanted, name=f"the sequence's pages after {name}")
        check_equal(length, keep, name=f"the sequence's length after {name}")

    def _write(self, plan: Sequence[Planned], failed: bool = False) -> None:
        """The pool holds the new tokens, or after a run that failed something else."""
        own = places([(planned.request.sequence, planned.start, planned.stop) for planned in plan])
        for planned, some in zip(plan, own, strict=True):
            tokens = planned.request.token_ids[planned.start : planned.stop]
            self.pool.update(zip(some, [POISON] * len(tokens) if failed else tokens, strict=True))


def _shown(tokens: Sequence[int | None]) -> str:
    """Tokens; what isn't one by name."""
    names = {None: "nothing", POISON: "what a failed step left"}
    return "[" + ", ".join(names.get(token, str(token)) for token in tokens) + "]"
