"""A step with questions, in numbers: what `attend_joined` gets, and dense attention over all that a question sees."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from shared.numbers import normal
from week_1.numpy_model import HKV, D, H
from week_3.pages import pages_needed

SCALE = 0.31
PARTS = ("own", "system", "pages", "loose")
NO_KEYS = (
    "the log-sum-exp over no keys is −inf, and −inf less −inf is NaN; or a place was read that holds no token of "
    "this question's past (the test has put NaN into all such places)"
)


class Row(NamedTuple):
    """One sequence of the step: a question with its past, or another one without."""

    new: int  # tokens that it brings
    own: int  # tokens in its own pages, with the new ones
    past: tuple[int, int, int] | None = None  # tokens of the system prompt, full pages, loose tokens


class JoinedStep:
    """Random queries, keys and values; every place that no token of the step is to read holds NaN."""

    def __init__(self, rows: Sequence[Row], page_size: int = 3, seed: int = 0) -> None:
        self.rows, self.page_size = rows, page_size
        T = sum(row.new for row in rows)
        self.starts = [0]
        for row in rows:
            self.starts.append(self.starts[-1] + row.new)
        sizes = [(row.own, *(row.past or (0, 0, 0))) for row in rows]
        N = 2 + sum(
            pages_needed(own, page_size) + pages_needed(system, page_size) + full + loose
            for own, system, full, loose in sizes
        )
        numbers = list(range(1, N))
        random.Random(seed).shuffle(numbers)
        take = lambda count: [numbers.pop() for _ in range(count)]  # noqa: E731
        self.query = normal(seed, T, H, D)
        filled_keys, filled_values = normal(seed + 1, 2, N * page_size, HKV, D)
        self.keys, self.values = np.full((2, N * page_size, HKV, D), np.nan)
        self.own: list[list[int]] = []  # the places of each sequence's own tokens
        self.past: list[dict[str, list[int]]] = []  # and of its past
        self.tables: list[dict[str, list[int]]] = []
        for own, system, full, loose in sizes:
            mine, systems, pages = (
                take(pages_needed(own, page_size)),
                take(pages_needed(system, page_size)),
                take(full),
            )
            singles = [page * page_size + n % page_size for n, page in enumerate(take(loose))]
            place = lambda table, count: [  # noqa: E731
                table[n // page_size] * page_size + n % page_size for n in range(count)
            ]
            self.own.append(place(mine, own))
            self.past.append(
                {"system": place(systems, system), "pages": place(pages, full * page_size), "loose": singles}
            )
            self.tables.append({"own": mine, "system": systems, "pages": pages, "loose": singles})
            read = [*self.own[-1], *(p for part in self.past[-1].values() for p in part)]
            self.keys[read], self.values[read] = filled_keys[read], filled_values[read]
        self.questions = [b for b, row in enumerate(rows) if row.past is not None]

    def rounded(self, lab: Any, dtype: str) -> JoinedStep:
        """Itself, with all numbers rounded to what a dtype holds."""
        for name in ("query", "keys", "values"):
            array = lab.array(getattr(self, name), dtype)
            setattr(self, name, lab.numpy(array).astype(np.float64))
        return self

    def arrays(self, lab: Any) -> tuple[Any, Any, Any]:
        """The query [T, H, D], and a layer's pages, keys and values [N, P, Hkv, D]."""
        paged = (-1, self.page_size, HKV, D)
        return (
            lab.array(self.query),
            lab.array(self.keys.reshape(paged)),
            lab.array(self.values.reshape(paged)),
        )

    def join(self, lab: Any) -> Any:
        """The metadata, as Task 1 gives them."""
        rows = [t for b in self.questions for t in range(self.starts[b], self.starts[b + 1])]
        counts = [self.rows[b].new for b in self.questions]
        parts = {}
        for part in ("system", "pages", "loose"):
            tables = [self.tables[b][part] for b in self.questions]
            parts[part] = meta_of(lab, tables, [len(self.past[b][part]) for b in self.questions], counts)
        return lab.documents.past.JoinMeta(rows=lab.array(np.array(rows), "int64"), **parts)

    def attended(
        self,
        temperature: float = 1.0,
        scale: float = 1.0,
        parts: Sequence[str] = PARTS,
        hot: Sequence[str] = ("pages", "loose"),
        scaled: Sequence[Sequence[str]] = (("pages", "loose"),),
        causal: Sequence[str] = (),
    ) -> tuple[np.ndarray, np.ndarray]:
        """All tokens over all that they see: the output [T, H, D] and the log-sum-exp [T, H], in float64.

        The temperature divides the scores of the ``hot`` parts; the log-sum-exp of each group of ``scaled`` parts is
        multiplied by the scale. A part that ``parts`` names twice counts twice; one that ``causal`` names is
        seen by the causal rule, as a mistake.
        """
        out, lse = np.zeros(self.query.shape), np.full(self.query.shape[:2], -np.inf)
        alone = [(part,) for part in PARTS if not any(part in group for group in scaled)]
        for b, row in enumerate(self.rows):
            for i, h in np.ndindex(row.new, H):
                t, groups = self.starts[b] + i, list[tuple[np.ndarray, np.ndarray, float]]()
                for group in [*scaled, *alone]:
                    found = [
                        self._scores(b, i, h, part, causal, temperature if part in hot else 1.0)
                        for part in group
                        for _ in range(list(parts).count(part))
                    ]
                    if sum(len(scores) for scores, _ in found):
                        scores, values = (np.concatenate(both) for both in zip(*found, strict=True))
                        groups.append((scores, values, scale if group in scaled else 1.0))
                if groups:
                    out[t, h], lse[t, h] = merged(groups)
        return out, lse

    def _scores(
        self, b: int, i: int, h: int, part: str, causal: Sequence[str], temperature: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The scores of one token and head over one part [S], and the values there [S, D]."""
        row = self.rows[b]
        places = self.own[b] if part == "own" else self.past[b][part]
        if part == "own" or part in causal:
            places = places[: max(0, len(places) - row.new + i + 1)]
        head = h // (H // HKV)
        scores = self.keys[places, head] @ self.query[self.starts[b] + i, h] * SCALE / temperature
        return scores, self.values[places, head]


def merged(groups: Sequence[tuple[np.ndarray, np.ndarray, float]]) -> tuple[np.ndarray, float]:
    """One output from groups of scores [S] and values [S, D], the log-sum-exp of each times a factor."""
    sums, outs = [], []
    for scores, values, factor in groups:
        weights = np.exp(scores - scores.max())
        sums.append(factor * (scores.max() + np.log(weights.sum())))
        outs.append(weights @ values / weights.sum())
    shares = np.exp(np.array(sums) - max(sums))
    return shares @ np.array(outs) / shares.sum(), max(sums) + np.log(shares.sum())


def meta_of(lab: Any, tables: Sequence[Sequence[int]], kv_lens: Sequence[int], counts: Sequence[int]) -> Any:
    """Metadata of some sequences over any pages; positions and places of new tokens are not looked at."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    width = max([1, *map(len, tables)])
    table = [[*pages, *[0] * (width - len(pages))] for pages in tables]
    nothing = lab.array(np.zeros(starts[-1]), "int64")
    return lab.paged.metadata.ForwardMeta(
        positions=nothing,
        slot_mapping=nothing,
        cu_seqlens_q=lab.array(np.array(starts), "int32"),
        seq_lens_kv=lab.array(np.array(kv_lens), "int32"),
        block_table=lab.array(np.array(table), "int32"),
        last_rows=lab.array(np.array(starts[1:]) - 1, "int64"),
        starts=starts,
        kv_lens=list(kv_lens),
    )


def mistaken(step: JoinedStep, temperature: float, scale: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What the usual mistakes give."""
    both, documents = ("own", "system"), ("pages", "loose")
    wrong = {
        "the questions see their own tokens alone": step.attended(parts=("own",)),
        "the system prompt was left out": step.attended(temperature, scale, parts=("own", *documents)),
        "the full pages of documents were left out": step.attended(
            temperature, scale, parts=(*both, "loose")
        ),
        "the loose tokens of documents were left out": step.attended(
            temperature, scale, parts=(*both, "pages")
        ),
        "the questions' own tokens were left out": step.attended(
            temperature, scale, parts=("system", *documents)
        ),
        "the system prompt is counted twice": step.attended(temperature, scale, parts=(*PARTS, "system")),
    }
    for part, name in (
        ("system", "the system prompt"),
        ("pages", "the full pages of documents"),
        ("loose", "the loose tokens of documents"),
    ):
        why = f"the causal rule was used for {name}: all of the past stands before the question"
        wrong[why] = step.attended(temperature, scale, causal=(part,))
    wrong["the causal rule was used for the past: all of it stands before the question"] = step.attended(
        temperature, scale, causal=("system", "pages", "loose")
    )
    if temperature != 1:
        wrong |= {
            "the temperature was left out": step.attended(1.0, scale),
            "the scores were multiplied by the temperature: it divides them": step.attended(
                1 / temperature, scale
            ),
            "the temperature divides the scores of the system prompt, too": step.attended(
                temperature, scale, hot=("system", *documents)
            ),
            "the temperature divides the scores of the full pages alone": step.attended(
                temperature, scale, hot=("pages",)
            ),
        }
    if scale != 1:
        each = tuple((part,) for part in documents)
        wrong |= {
            "the scale was left out": step.attended(temperature, 1.0),
            "the documents' parts were scaled one by one: merge them first": step.attended(
                temperature, scale, scaled=each
            ),
            "the scale multiplies the system prompt's log-sum-exp, too": step.attended(
                temperature, scale, scaled=(documents, ("system",))
            ),
            "the scale multiplies the log-sum-exp of the past as a whole": step.attended(
                temperature, scale, scaled=(("system", *documents),)
            ),
        }
    return wrong
