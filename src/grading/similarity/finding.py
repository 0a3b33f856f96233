"""Finds the pairs of submissions that share more than the starter, the reference and the class explain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coursekit.manifest import FunctionRef
from grading.similarity.reading import Unread, Written, all_tokens, written
from grading.similarity.winnowing import run_hashes

SMALLEST_CLASS = 5
"""From so many submissions on, what more than half of them have is nobody's own."""
LEAST_SHARED = 4
"""A pair with fewer fingerprints in common is never listed: that much is chance."""
LEAST_SHARE = 0.3
MOST_PAIRS = 200

Key = tuple[FunctionRef, int]
Holders = Mapping[Key, Sequence[int]]


@dataclass(frozen=True)
class SharedFunction:
    """One function that both wrote: how many fingerprints they share, both texts, the lines that are shared."""

    ref: FunctionRef
    shared: int
    first: Written
    second: Written
    first_lines: frozenset[int]
    second_lines: frozenset[int]


@dataclass(frozen=True)
class Pair:
    """Two submissions that share ``shared`` fingerprints: that share of the first's own, and that of the second's."""

    first: str
    second: str
    shared: int
    first_share: float
    second_share: float
    functions: tuple[SharedFunction, ...]


@dataclass(frozen=True)
class Similarity:
    """``pairs`` has the most alike first; ``left_out`` counts those beyond ``MOST_PAIRS``.

    ``own`` is the number of fingerprints of each submission that are left after the subtraction: a submission with
    few of them can't be judged.
    """

    pairs: tuple[Pair, ...]
    left_out: int
    own: Mapping[str, int]
    unread: tuple[Unread, ...]


def find_similar(
    packages: Mapping[str, Path],
    starter: Path,
    functions: Collection[FunctionRef],
    reference: Path | None = None,
    least_share: float = LEAST_SHARE,
) -> Similarity:
    """Compare the functions of the tasks, each with the same function of every other submission.

    What the starter or the reference has in the same file doesn't count, nor, in a class of ``SMALLEST_CLASS`` or
    more, what more than half of the submissions have. The work grows with the fingerprints that submissions share.

    Args:
        packages: the folder of each submission's package, by its name.
        starter: the package that everybody began with.
        functions: what the tasks ask for; nothing else is compared.
        reference: the package of the reference, where its code is to be subtracted too.
        least_share: pairs of which neither has this share in common are left out, 0 to 1.

    Raises:
        CourseError: the starter or the reference isn't Python. A submission's file never raises: it is in ``unread``.
    """
    names, refs = list(packages), list(dict.fromkeys(functions))
    read = [written(name, packages[name], refs) for name in names]
    given = [package for package in (starter, reference) if package is not None]
    holders = _holders([found for found, _ in read], _given(given, refs))
    own, counts = _count(holders, len(names))
    alike = [pair for pair in _pairs(counts) if _share(pair, counts, own) >= least_share]
    alike.sort(key=lambda pair: (-_share(pair, counts, own), -counts[pair], pair))
    shared = _shared_keys(alike[:MOST_PAIRS], holders)
    pairs = [
        Pair(
            first=names[first],
            second=names[second],
            shared=int(counts[first, second]),
            first_share=float(counts[first, second] / own[first]),
            second_share=float(counts[first, second] / own[second]),
            functions=_functions(shared[first, second], read[first][0], read[second][0]),
        )
        for first, second in alike[:MOST_PAIRS]
    ]
    return Similarity(
        pairs=tuple(pairs),
        left_out=len(alike) - len(pairs),
        own={name: int(own[index]) for index, name in enumerate(names)},
        unread=tuple(each for _, unread in read for each in unread),
    )


def _given(packages: Iterable[Path], refs: Sequence[FunctionRef]) -> Mapping[str, set[int]]:
    """By file every hash, kept by winnowing or not, of what isn't a learner's."""
    hashes: dict[str, set[int]] = defaultdict(set)
    for package in packages:
        for file, rows in all_tokens(package, refs).items():
            for row in rows:
                hashes[file].update(run_hashes(row).tolist())
    return hashes


def _holders(read: Sequence[Mapping[FunctionRef, Written]], given: Mapping[str, set[int]]) -> Holders:
    """The inverted index: who has a fingerprint in a function, without those that are nobody's own."""
    index: dict[Key, list[int]] = defaultdict(list)
    for number, found in enumerate(read):
        for ref, function in found.items():
            for each in function.hashes - given.get(ref.file, set()):
                index[ref, each].append(number)
    most = len(read) / 2 if len(read) >= SMALLEST_CLASS else len(read)
    return {key: holders for key, holders in index.items() if len(holders) <= most}


def _count(holders: Holders, size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """How many fingerprints each submission has, int[size], and how many each two share, int[size, size]."""
    own, counts = np.zeros(size, np.int64), np.zeros((size, size), np.int64)
    # Fingerprints that the same submissions hold, for example all of a copied function, are added at once.
    groups: dict[tuple[int, ...], int] = defaultdict(int)
    for who in holders.values():
        groups[tuple(who)] += 1
    for group, times in groups.items():
        members = np.array(group)
        own[members] += times
        if len(group) > 1:
            counts[np.ix_(members, members)] += times
    return own, counts


def _pairs(counts: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    firsts, seconds = np.nonzero(np.triu(counts, 1) >= LEAST_SHARED)
    return [(int(first), int(second)) for first, second in zip(firsts, seconds, strict=True)]


def _share(pair: tuple[int, int], counts: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> float:
    """The greater of the two shares: who copies a little into much is found by the other's."""
    return float(counts[pair] / min(own[pair[0]], own[pair[1]]))


def _shared_keys(pairs: Sequence[tuple[int, int]], holders: Holders) -> Mapping[tuple[int, int], list[Key]]:
    """Which fingerprints each of the pairs shares."""
    partners: dict[int, list[int]] = defaultdict(list)
    for first, second in pairs:
        partners[first].append(second)
    shared: dict[tuple[int, int], list[Key]] = defaultdict(list)
    for key, who in holders.items():
        there = set(who)
        for first in there & partners.keys():
            for second in partners[first]:
                if second in there:
                    shared[first, second].append(key)
    return shared


def _functions(
    keys: Iterable[Key], first: Mapping[FunctionRef, Written], second: Mapping[FunctionRef, Written]
) -> tuple[SharedFunction, ...]:
    """The functions in which the shared fingerprints lie, those with the most first."""
    hashes: dict[FunctionRef, set[int]] = defaultdict(set)
    for ref, each in keys:
        hashes[ref].add(each)
    found = [
        SharedFunction(
            ref, len(common), first[ref], second[ref], _lines(first[ref], common), _lines(second[ref], common)
        )
        for ref, common in hashes.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.shared, each.ref)))


def _lines(function: Written, hashes: set[int]) -> frozenset[int]:
    return frozenset(
        line
        for each in function.prints
        if each.hash in hashes
        for line in range(each.first_line, each.last_line + 1)
    )
