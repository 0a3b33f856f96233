"""What may happen to a page cache, as hypothesis draws it: arrivals that begin alike, steps, failures, endings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from .arrivals import Arrivals

COMMON = ([0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0], [1] * 12)
prompts = st.builds(
    lambda common, count, rest: [*common[:count], *rest],
    st.sampled_from(COMMON),
    st.one_of(st.integers(0, 12), st.integers(9, 12)),
    st.lists(st.integers(0, 1), min_size=1, max_size=3),
)
chunks = st.lists(st.sampled_from([1, 2, 2, 3, 4, 5, 20]), min_size=1, max_size=4)
events = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), prompts, st.integers(0, 5)),
        st.tuples(st.just("arrive"), prompts, st.integers(0, 5)),
        st.tuples(st.just("step"), chunks, st.just(False)),
        st.tuples(st.just("step"), chunks, st.just(False)),
        st.tuples(st.just("step"), chunks, st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("evict"), st.integers(0, 3)),
        st.tuples(st.just("other"), st.integers(0, 3)),
    ),
    min_size=15,
    max_size=50,
)

HELLO = COMMON[0][:9]
LATE: list[tuple[Any, ...]] = [
    ("arrive", HELLO, 2),
    ("arrive", HELLO, 2),
    ("step", [2], False),
    ("step", [2], False),  # the first publishes page 1, the second has one of its own with the same tokens
    ("end", 0),
    ("evict", 1),
    ("step", [3], True),  # the second publishes its page 1 late: it stays; page 2 is taken back
    ("arrive", HELLO, 0),
    ("step", [3], False),
]
"""A page that is published in a later step than it was computed, and a step that fails."""


def play(arrivals: Arrivals, happens: Sequence[tuple[Any, ...]]) -> None:
    """Let these events happen, then end all requests."""
    __tracebackhide__ = True
    for name, *arguments in happens:
        getattr(arrivals, name)(*arguments)
    arrivals.finish()
