"""A profile in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.profiling.machine_limits import MachineLimits
from benchmarks.profiling.measuring import Profiled
from benchmarks.profiling.spans import HOST, KINDS, PROFILE, Piece, seconds_of, totals
from benchmarks.profiling.verdicts import Verdict
from benchmarks.report import print_whole

MOST = 10
"""Operations that are listed."""
DOUBTFUL = 1.3
"""A recorded step that takes so many times the time of one that nobody looks at was disturbed."""


def print_profile(console: Console, profiled: Profiled, found: Sequence[Verdict]) -> None:
    """What one step consists of, its most expensive operations, and what they achieve."""
    pieces = profiled.shown.pieces
    print_whole(console, kinds_table(profiled.title, pieces))
    print_whole(console, operations_table(pieces))
    for line in (*(each.line() for each in found), *notes(profiled)):
        console.print(escape(line), soft_wrap=True)
    console.print()


def kinds_table(title: str, pieces: Sequence[Piece]) -> Table:
    """A row for each kind, and the whole step."""
    made = _table(title.capitalize(), ("ms", "per cent", "calls"))
    whole = seconds_of(pieces)
    for kind in KINDS:
        seconds = seconds_of(pieces, kind)
        calls = sum(each.calls for each in totals(pieces) if each.kind == kind)
        made.add_row(
            kind, f"{1e3 * seconds:.2f}", f"{100 * seconds / whole:.1f}", "" if kind == HOST else str(calls)
        )
    made.add_row("the step", f"{1e3 * whole:.2f}", "100.0", "", style="bold")
    return made


def operations_table(pieces: Sequence[Piece]) -> Table:
    """The operations that take the most time, all calls with the same shapes together."""
    made = _table("The most expensive operations", ("kind", "calls", "ms", "µs each", "per cent"))
    whole = seconds_of(pieces)
    for each in totals(pieces)[:MOST]:
        name = f"{each.name} {_short(each.detail)}".strip()
        share, single = 100 * each.seconds / whole, 1e6 * each.seconds / each.calls
        cells = each.kind, str(each.calls), f"{1e3 * each.seconds:.2f}", f"{single:.1f}", f"{share:.1f}"
        made.add_row(escape(name), *cells)
    return made


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _table(title: str, headings: Sequence[str]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.title, made.title_style, made.title_justify = title, "bold", "left"
    made.add_column("", min_width=20)
    for heading in headings:
        made.add_column(heading, justify="left" if heading == "kind" else "right")
    return made


def notes(profiled: Profiled) -> list[str]:
    """How far the recorded step can be trusted: the same step measured in another way."""
    pieces = profiled.shown.pieces
    whole, added = 1e3 * seconds_of(pieces), 1e3 * seconds_of(pieces, PROFILE)
    plain = 1e3 * profiled.plain
    doubt = []
    if whole > DOUBTFUL * plain:
        doubt = [
            "The recorded step is much longer than the same step without recording: don't trust its shares."
        ]
    if not profiled.opened:
        return [*doubt, f"Recorded: {whole:.2f} ms; the same step without recording: {plain:.2f} ms."]
    return [
        *doubt,
        f"{', '.join(profiled.opened)}: run part by part from Python, to see inside. Recorded like this: "
        f"{whole + added:.2f} ms, of which {added:.2f} ms are the calls of the parts, left out above; "
        f"{whole:.2f} ms remain. The same step with whole kernels, without recording: {plain:.2f} ms.",
    ]


def print_limits(console: Console, limits: MachineLimits) -> None:
    """What the machine gives."""
    rates = " · ".join(f"{name} {rate / 1e9:,.0f} GOP/s" for name, rate in limits.arithmetic.items())
    console.print(f"This machine: memory {limits.bandwidth / 1e9:.1f} GB/s · {rates}", "", soft_wrap=True)


def document(
    profiles: Sequence[Profiled], found: dict[str, list[Verdict]], limits: MachineLimits
) -> dict[str, Any]:
    """The numbers, ready for JSON."""
    return {
        "machine_gives": {"bytes_per_second": limits.bandwidth, "operations_per_second": limits.arithmetic},
        "steps": [_document(each, found[each.name]) for each in profiles],
    }


def _document(profiled: Profiled, found: Sequence[Verdict]) -> dict[str, Any]:
    pieces = profiled.shown.pieces
    return {
        "name": profiled.name,
        "title": profiled.title,
        "seconds": seconds_of(pieces),
        "seconds_added_by_the_profile": seconds_of(pieces, PROFILE),
        "seconds_without_recording": profiled.plain,
        "run_part_by_part": profiled.opened,
        "kinds": {kind: seconds_of(pieces, kind) for kind in KINDS},
        "operations": [vars(each) for each in totals(pieces)],
        "verdicts": [
            {
                "kind": each.kind,
                "operations": each.cost.operations,
                "bytes": each.cost.bytes,
                "share": each.share,
                "text": each.line(),
            }
            for each in found
        ],
    }
