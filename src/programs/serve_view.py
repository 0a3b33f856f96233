"""What `pdm run serve` shows."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

if TYPE_CHECKING:
    from tiny_llm.ragged.metrics import Stats

BAR_WIDTH = 30
NOTHING = "–"


class ServeView:
    """Says where the server is and how it ended; in between, if wanted, what it is doing.

    In a terminal that is a table that stays in place, elsewhere a line each time that requests have come or gone.
    """

    def __init__(self, console: Console, watch: bool) -> None:
        self._console = console
        self._watch = watch
        self._live: Live | None = None
        self._last: tuple[int, ...] = ()
        if watch and console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> ServeView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, address: str, command: str, stats: Stats) -> None:
        """Where it listens, and one command to try."""
        print_ = self._console.print
        print_(f"serving on [bold]{address}[/bold]: {stats.seats} seats, {stats.pages:,} pages")
        print_(f"try it, in another terminal: {command}", soft_wrap=True, markup=False)
        print_("Ctrl-C lets what runs finish, then stops", style="dim")

    def show(self, stats: Stats) -> None:
        """How things stand."""
        if self._live is not None:
            self._live.update(table(stats), refresh=True)
        elif self._watch and _requests(stats) != self._last:
            self._last = _requests(stats)
            self._console.print(line(stats), soft_wrap=True)

    def stopping(self, stats: Stats, grace: float) -> None:
        """What it still has to finish."""
        left = stats.running + stats.waiting
        if left:
            what = "1 request" if left == 1 else f"{left} requests"
            self._console.print(f"finishing {what}, {grace:g} s at most; Ctrl-C again stops at once")

    def left(self, stats: Stats) -> None:
        """What it has not finished, being told again to stop."""
        if self._live is not None:
            self._live.stop()
        left = stats.running + stats.waiting
        self._console.print(f"stopped at once: {left} not finished, {_counts(stats)}")

    def stopped(self, stats: Stats) -> None:
        """What it has done."""
        self._console.print(f"stopped: {_counts(stats)}, {stats.tokens:,} tokens in {stats.steps:,} steps")


def table(stats: Stats) -> Table:
    """All that is known, a line each."""
    made = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left", "left"):
        made.add_column(justify=justify)
    used = stats.pages - stats.free_pages
    occupancy = stats.occupancy
    made.add_row("waiting", str(stats.waiting), "", "requests in the queue")
    made.add_row("running", str(stats.running), _bar(stats.running, stats.seats), f"of {stats.seats} seats")
    made.add_row("pages in use", f"{used:,}", _bar(used, stats.pages), f"of {stats.pages:,}")
    made.add_row(
        "a step's tokens",
        NOTHING if occupancy is None else f"{occupancy:.0%}",
        _bar(occupancy or 0.0, 1.0),
        "of the token budget",
    )
    made.add_row(
        "first token after", _seconds(stats.first_token), "", f"95 % by {_seconds(stats.first_token_95)}"
    )
    made.add_row("then one every", _seconds(stats.per_token), "", f"{stats.tokens:,} tokens so far")
    made.add_row("requests", "", "", _counts(stats))
    return made


def line(stats: Stats) -> str:
    """The same in a line."""
    return (
        f"waiting {stats.waiting} · running {stats.running}/{stats.seats} · "
        f"pages {stats.pages - stats.free_pages}/{stats.pages} · first token {_seconds(stats.first_token)} · "
        f"then every {_seconds(stats.per_token)} · {_counts(stats)}"
    )


def _requests(stats: Stats) -> tuple[int, ...]:
    return (stats.waiting, stats.running, stats.finished, stats.cancelled, stats.failed, stats.refused)


def _counts(stats: Stats) -> str:
    others = {"cancelled": stats.cancelled, "failed": stats.failed, "turned away": stats.refused}
    return ", ".join(
        [f"{stats.finished} finished", *(f"{count} {what}" for what, count in others.items() if count)]
    )


def _bar(value: float, total: float) -> ProgressBar:
    return ProgressBar(total=total, completed=value, width=BAR_WIDTH)


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f} s"
