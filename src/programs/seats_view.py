"""The live view of `pdm run batch-main`: what each seat is doing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from programs.answers import Answer

SECONDS_BETWEEN = 0.12
"""The picture changes no more often than this: calmer to look at, and it takes little from the engine."""
SECONDS_BEFORE_GUESSING = 2.0
"""Before that, the speed of the start says little about the rest."""
BAR_WIDTH = 20


class SeatsView:
    """Shows the seats while they work: in a terminal a table that stays in place, elsewhere a line per answer."""

    def __init__(self, console: Console, answers: Sequence[Answer], max_tokens: int) -> None:
        self._console = console
        self._answers = answers
        self._max_tokens = max_tokens
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._shown_at = 0.0
        self._begun: set[Answer] = set()  # in a seat, or prefilled, at least once
        self._done: set[Answer] = set()
        self._prefilling: Answer | None = None
        self._computed = 0  # tokens of its prompt, one step ago
        self._preempted: Sequence[Answer] = ()
        self._counts: Mapping[str, int] = {}

    def __enter__(self) -> SeatsView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def step(
        self,
        seats: Sequence[Answer | None],
        prefilling: Answer | None,
        finished: set[Answer],
        preempted: Sequence[Answer] = (),
        counts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Show the state after one step of the engine.

        Args:
            seats: the request in each seat.
            prefilling: the one whose prompt is being computed, or that waits for a seat.
            finished: all that have their whole answer.
            preempted: those that had a seat, and wait for one again.
            counts: what else the engine has counted so far, by name.
        """
        self._preempted, self._counts = preempted, counts
        self._begun.update(answer for answer in (*seats, prefilling) if answer is not None)
        new, self._done = finished - self._done, finished
        waits = self._waits(prefilling)
        if self._live is None:
            for answer in sorted(new, key=lambda each: each.number):
                self._console.print(self._line(answer), highlight=False, soft_wrap=True, markup=False)
        elif time.perf_counter() - self._shown_at >= SECONDS_BETWEEN:
            self._live.update(self._table(seats, prefilling, waits), refresh=True)
            self._shown_at = time.perf_counter()

    def _waits(self, prefilling: Answer | None) -> bool:
        """Whether this step has computed nothing of the prompt whose turn it was: its last chunk waits for a seat."""
        before = self._computed if prefilling is self._prefilling else 0
        self._prefilling = prefilling
        self._computed = 0 if prefilling is None else prefilling.computed
        return self._computed == before

    def _line(self, answer: Answer) -> str:
        seconds = answer.timing.arrivals[-1] - answer.timing.started
        count = len(answer.output)
        tokens = "1 token" if count == 1 else f"{count} tokens"
        done = f"{len(self._done)} of {len(self._answers)} answered"
        return f"{done}: number {answer.number}, {tokens}, after {seconds:.1f} s{self._left()}"

    def _left(self) -> str:
        """How long the rest takes, counted in tokens of prompts and outputs; nothing at the start, and at the end."""
        seconds = time.perf_counter() - self._answers[0].timing.started
        open_answers = [answer for answer in self._answers if answer not in self._done]
        done = sum(answer.computed + len(answer.output) for answer in self._answers)
        rest = sum(
            len(each.prompt_ids) + self._max_tokens - each.computed - len(each.output)
            for each in open_answers
        )
        if not (done and rest) or seconds < SECONDS_BEFORE_GUESSING:
            return ""
        left = rest * seconds / done
        return f" · about {left:.0f} s left" if left < 100 else f" · about {left / 60:.0f} minutes left"

    def _table(
        self, seats: Sequence[Answer | None], prefilling: Answer | None, waits: bool
    ) -> RenderableType:
        table = Table(box=None, pad_edge=False, show_header=False, expand=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for width in (len("waits for a seat"), BAR_WIDTH, len("1234 of 1234")):
            table.add_column(no_wrap=True, min_width=width)  # so that nothing shifts from step to step
        for number, answer in enumerate(seats, start=1):
            self._add_decoding(table, number, answer)
        self._add_prefilling(table, None if prefilling in seats else prefilling, waits)
        return Group(table, self._summary())

    def _add_decoding(self, table: Table, number: int, answer: Answer | None) -> None:
        name = Text(f"seat {number}", "bold")
        if answer is None:
            table.add_row(name, Text("idle", "dim"))
            return
        total = len(answer.prompt_ids)
        if answer.computed < total:
            bar = _bar(answer.computed / total, "magenta")
            state, count = Text("prefilling", "magenta"), Text(f"{answer.computed} of {total}")
            table.add_row(name, _title(answer), state, bar, count)
            return
        done = answer in self._done
        state = Text("done", "green") if done else Text("decoding", "cyan")
        share = 1.0 if done else len(answer.output) / self._max_tokens
        table.add_row(name, _title(answer), state, _bar(share, "cyan"), Text(f"{len(answer.output)} tokens"))

    def _add_prefilling(self, table: Table, answer: Answer | None, waits: bool) -> None:
        name = Text("next", "bold")
        if answer is None:
            self._add_preempted(table, name)
            return
        total = len(answer.prompt_ids)
        state = Text("waits for a seat", "yellow") if waits else Text("prefilling", "magenta")
        bar = _bar(answer.computed / total, "magenta")
        table.add_row(name, _title(answer), state, bar, Text(f"{answer.computed} of {total}"))

    def _add_preempted(self, table: Table, name: Text) -> None:
        """The request that was preempted first of those that wait again, if there is one."""
        if not self._preempted:
            table.add_row(name, Text("–", "dim"))
            return
        answer = self._preempted[0]
        tokens = Text(f"{len(answer.output)} tokens")
        table.add_row(name, _title(answer), Text("preempted", "yellow"), Text(""), tokens)

    def _summary(self) -> Text:
        tokens = sum(len(answer.output) for answer in self._answers)
        seconds = time.perf_counter() - self._answers[0].timing.started
        waiting = len(self._answers) - len(self._begun) + len(self._preempted)
        again = f" ({len(self._preempted)} preempted)" if self._preempted else ""
        counted = f"\n{describe(self._counts)}" if self._counts else ""
        return Text(
            f"{waiting} waiting{again} · {len(self._done)} of {len(self._answers)} answered · "
            f"{tokens} tokens · {tokens / seconds:.0f} tokens/s{self._left()}{counted}",
            "dim",
        )


def describe(counts: Mapping[str, int]) -> str:
    """What was counted: "tokens reused: 1,344 · pages evicted: 2"."""
    return " · ".join(f"{name}: {count:,}" for name, count in counts.items())


def _title(answer: Answer) -> Text:
    first_line = answer.prompt.partition("\n")[0]
    return Text(f"{answer.number}. {first_line}", overflow="ellipsis", no_wrap=True)


def _bar(share: float, colour: str) -> ProgressBar:
    return ProgressBar(
        total=1.0, completed=share, width=BAR_WIDTH, complete_style=colour, finished_style="green"
    )
