"""What `bench quality` found: a table, bars, and JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.quality.forms import BASE
from benchmarks.quality.measuring import Findings, Predictions
from benchmarks.report import print_whole

WITHIN = 0.01
"""How far from float32's the perplexity may be."""
AGREEING = 0.97
"""At how many positions the greedy token must be float32's, at least."""


@dataclass(frozen=True)
class Score:
    """A form beside float32."""

    perplexity: float
    change: float  # of the perplexity, relative to float32's
    same: float  # the share of positions with float32's greedy token
    lead: float | None  # of float32's token at the other positions, in the median; None if there are none

    @property
    def near(self) -> bool:
        """Whether the perplexity is near enough."""
        return abs(self.change) <= WITHIN

    @property
    def agrees(self) -> bool:
        """Whether the greedy tokens are the same often enough."""
        return self.same >= AGREEING


def perplexity(predictions: Predictions) -> float:
    """e to the mean negative log-likelihood of the tokens."""
    return math.exp(fmean(predictions.nll))


def score(predictions: Predictions, base: Predictions) -> Score:
    """A form beside another one, on the same pieces."""
    same = [ours == theirs for ours, theirs in zip(predictions.greedy, base.greedy, strict=True)]
    leads = [lead for agrees, lead in zip(same, base.lead, strict=True) if not agrees]
    found = perplexity(predictions)
    change = found / perplexity(base) - 1
    return Score(found, change, fmean(same), median(leads) if leads else None)


def print_quality(console: Console, findings: Findings, with_bars: bool = True) -> None:
    """The table, whether the bars are met, and what was left out."""
    base, scores = findings.base, [(form, score(each, findings.base)) for form, each in findings.forms]
    print_whole(console, _table(base, [(form.label, each) for form, each in scores]))
    for form, each in scores if with_bars else []:
        near = f"perplexity within {WITHIN:.0%} of float32's: {each.change:+.2%}"
        agrees = f"float32's greedy token at {AGREEING:.0%} of the positions, at least: {each.same:.1%}"
        for met, text in ((each.near, near), (each.agrees, agrees)):
            mark = "[green]✓[/green]" if met else "[red]✗[/red]"
            console.print(f"{mark} {form.label}: {text}", soft_wrap=True)
    for label, message in findings.missing.items():
        console.print(f"left out: {label}: not written yet ({message})", style="yellow", markup=False)


def _table(base: Predictions, scores: list[tuple[str, Score]]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.title = f"Predicting {len(base.nll):,} tokens, given those before each"
    made.title_style, made.title_justify = "bold", "left"
    made.add_column("", min_width=20)
    for heading in ("perplexity", "beside float32", "same greedy token", "float32's lead elsewhere"):
        made.add_column(heading, justify="right")
    made.add_row(BASE.label, f"{perplexity(base):.3f}", "", "", "")
    for label, each in scores:
        lead = "" if each.lead is None else f"{each.lead:.3f}"
        made.add_row(label, f"{each.perplexity:.3f}", f"{each.change:+.2%}", f"{each.same:.1%}", lead)
    return made


def quality_document(findings: Findings, **about: Any) -> dict[str, Any]:
    """All that was found, ready for JSON; `about` says how and where."""
    scores = [(form, score(each, findings.base)) for form, each in findings.forms]
    return {
        **about,
        "positions": len(findings.base.nll),
        "perplexity": round(perplexity(findings.base), 5),
        "forms": [
            {
                "name": form.name,
                "label": form.label,
                "perplexity": round(each.perplexity, 5),
                "change": round(each.change, 6),
                "same": round(each.same, 6),
                "lead": None if each.lead is None else round(each.lead, 5),
                "met": {"perplexity": each.near, "same": each.agrees},
            }
            for form, each in scores
        ],
        "missing": findings.missing,
    }
