"""What `bench isolation` found: numbers for each kind of question, how sure they are, tables, and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.isolation import Findings, Row, Way
from benchmarks.questions import KINDS

RESAMPLES = 4000
ALL = "all"


@dataclass(frozen=True)
class Score:
    """What one way made of some questions, of which there is at least one."""

    items: int
    right: int
    perplexity: float

    def __str__(self) -> str:
        return f"{self.right} ({self.right / self.items:.0%})"


@dataclass(frozen=True)
class Comparison:
    """A way beside another one, on the same questions."""

    way: Way
    other: Way
    only_way: int  # questions that only this way got right
    only_other: int
    p: float  # how often a fair coin would part at least so unevenly
    ratio: float  # of the perplexities
    low: float  # 95 % of the resampled question sets lie between these two ratios
    high: float

    def __str__(self) -> str:
        return (
            f"{self.way.label} beside {self.other.label}: {self.only_way} right only this way, "
            f"{self.only_other} only the other way (sign test: p = {self.p:.2f}); perplexity × {self.ratio:.2f} "
            f"(95 % interval {self.low:.2f} to {self.high:.2f})"
        )


def score(rows: Sequence[Row], way: Way) -> Score:
    """The perplexity is that of all tokens of the given answers together."""
    answers = [row.answers[way.name] for row in rows]
    tokens = sum(each.tokens for each in answers)
    mean = sum(each.nll for each in answers) / tokens
    return Score(len(answers), sum(each.right for each in answers), math.exp(mean))


def scores(findings: Findings) -> dict[str, dict[str, Score]]:
    """For each kind of which there are questions, then for all together, each way's score by its name."""
    rows = findings.complete
    groups = {kind: [row for row in rows if row.item.kind == kind] for kind in KINDS} | {ALL: rows}
    return {
        kind: {way.name: score(group, way) for way in findings.ways}
        for kind, group in groups.items()
        if group
    }


def compare(rows: Sequence[Row], way: Way, other: Way) -> Comparison:
    """Question by question: some are hard for each way, so only the differences say something about the ways."""
    pairs = [(row.answers[way.name], row.answers[other.name]) for row in rows]
    only_way = sum(ours.right and not theirs.right for ours, theirs in pairs)
    only_other = sum(theirs.right and not ours.right for ours, theirs in pairs)
    more = np.array([ours.nll - theirs.nll for ours, theirs in pairs])
    tokens = np.array([ours.tokens for ours, _ in pairs])
    drawn = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    ratios = np.exp(more[drawn].sum(axis=1) / tokens[drawn].sum(axis=1))
    low, high = np.quantile(ratios, [0.025, 0.975])
    ratio = math.exp(more.sum() / tokens.sum())
    p = sign_test(only_way, only_other)
    return Comparison(way, other, only_way, only_other, p, ratio, float(low), float(high))


def sign_test(a: int, b: int) -> float:
    """The probability that a fair coin, thrown a + b times, parts at least as unevenly as a and b, either way."""
    n = a + b
    tail = sum(math.comb(n, k) for k in range(min(a, b) + 1)) / 2**n
    return min(1.0, 2 * tail)


def comparisons(findings: Findings) -> list[Comparison]:
    """Every way beside the first one; none while no question has been answered in all ways."""
    rows = findings.complete
    return [compare(rows, way, findings.ways[0]) for way in findings.ways[1:] if rows]


def print_isolation(console: Console, findings: Findings) -> None:
    """Two tables, what is sure about them, and what was left out."""
    found = scores(findings)
    for title, show in (
        ("Right answers", str),
        ("Perplexity of the given answer", lambda score: f"{score.perplexity:.2f}"),
    ):
        made = Table(box=None, pad_edge=False, header_style="bold")
        made.title, made.title_style, made.title_justify = title, "bold", "left"
        made.add_column("", min_width=20)
        made.add_column("questions", justify="right")
        for way in findings.ways:
            made.add_column(way.label.replace(" ", "\n"), justify="right", min_width=10)
        for kind, by_way in found.items():
            count = next(iter(by_way.values())).items
            made.add_row(KINDS.get(kind, kind), str(count), *map(show, by_way.values()))
        console.print(made, "")
    for each in comparisons(findings):
        console.print(str(each), soft_wrap=True)
    for label, message in findings.missing.items():
        console.print(f"left out: {label}: not written yet ({message})", style="yellow", markup=False)


def isolation_document(findings: Findings, **about: Any) -> dict[str, Any]:
    """All that was measured, answer by answer, ready for JSON; `about` says how and where."""
    return {
        **about,
        "ways": {way.name: way.label for way in findings.ways},
        "scores": {
            kind: {
                name: {"items": each.items, "right": each.right, "perplexity": round(each.perplexity, 4)}
                for name, each in by_way.items()
            }
            for kind, by_way in scores(findings).items()
        },
        "comparisons": [
            {
                "way": each.way.name,
                "other": each.other.name,
                "only_way": each.only_way,
                "only_other": each.only_other,
                "p": round(each.p, 4),
                "ratio": round(each.ratio, 4),
                "interval": [round(each.low, 4), round(each.high, 4)],
            }
            for each in comparisons(findings)
        ],
        "missing": findings.missing,
        "questions": [
            {
                "kind": row.item.kind,
                "question": row.item.question,
                "answer": row.item.answer,
                **{
                    name: {
                        "text": each.text,
                        "right": each.right,
                        "nll": round(each.nll, 4),
                        "tokens": each.tokens,
                    }
                    for name, each in row.answers.items()
                },
            }
            for row in findings.rows
        ],
    }
