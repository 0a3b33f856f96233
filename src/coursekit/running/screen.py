"""The terminal as the board uses it: folded lines, plain text where there is no Unicode, commands to type next."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

NARROWEST = 40


@dataclass(frozen=True)
class Screen:
    """A console, and the options of this run ("--backend mlx") that a suggested command must repeat."""

    console: Console
    options: str = ""

    @property
    def unicode(self) -> bool:
        return self.console.encoding.lower().startswith("utf")

    @property
    def width(self) -> int:
        return max(self.console.width, NARROWEST)

    def plain(self, text: str) -> str:
        """The text with what the terminal can't show replaced, so that printing never fails."""
        return text.encode(self.console.encoding, "replace").decode(self.console.encoding)

    def print(self, text: str | Text = "", style: str | None = None) -> None:
        shown = Text(self.plain(text), style=style or "") if isinstance(text, str) else text
        self.console.print(shown, soft_wrap=True)

    def line(self, text: str, style: str | None = None) -> None:
        """Print one line, cut off where the terminal ends."""
        end = "…" if self.unicode else "..."
        self.print(text if len(text) <= self.width else text[: self.width - len(end)] + end, style)

    def block(self, text: str, indent: int, style: str | None = None) -> None:
        """Print lines, folded to the terminal's width; a folded line goes on two columns further in."""
        for line in text.splitlines() or [""]:
            own = len(line) - len(line.lstrip())
            start = " " * (indent + own)
            folded = textwrap.fill(
                line.strip(),
                self.width,
                initial_indent=start,
                subsequent_indent=start + "  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            self.print(folded, style)

    def commands(self, *commands: tuple[str, str]) -> None:
        """Print commands to type next, each with its purpose."""
        shown = [(self.command(command), purpose) for command, purpose in commands]
        width = max(len(command) for command, _ in shown)
        self.print()
        for position, (command, purpose) in enumerate(shown):
            line = Text("Next  " if position == 0 else "      ", style="bold")
            line.append(f"{command:<{width}}", style="not bold green")
            line.append(f"   {purpose}", style="not bold dim")
            self.print(line)

    def command(self, command: str) -> str:
        """The full command; one that runs tests has the options of this run."""
        full = command if command.startswith("pdm run ") else f"pdm run {command}"
        takes_options = full.startswith(("pdm run test", "pdm run reset"))
        return f"{full} {self.options}" if self.options and takes_options else full
