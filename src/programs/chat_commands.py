"""What may be typed in `pdm run chat` instead of a message: /help and the others."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from coursekit.errors import CourseError
from programs.chat_screen import Screen
from programs.conversation import Conversation
from programs.document_files import read_documents
from programs.safe_text import safe


@dataclass(frozen=True)
class Slash:
    """One command."""

    wants: str  # what stands behind it; empty: nothing
    does: str
    run: Callable[[str], None]


class Commands:
    """The commands of one chat."""

    def __init__(self, conversation: Conversation, screen: Screen) -> None:
        """Remember what the commands change, and where they show it."""
        self.conversation = conversation
        self.screen = screen
        self.left = False  # whether /quit was typed
        self.all = {
            "/system": Slash(
                "TEXT", "from now on, this is the system message; without TEXT, none", self._system
            ),
            "/documents": Slash(
                "FILE…",
                "from now on, messages are about these files or folders; without FILE, none",
                self._documents,
            ),
            "/stats": Slash("", "what the last answer took, and what the engine holds", self._stats),
            "/reset": Slash("", "forget the conversation; system message and documents stay", self._reset),
            "/help": Slash("", "this list", self._help),
            "/quit": Slash("", "leave, as Ctrl-D does", self._quit),
        }

    def run(self, line: str) -> bool:
        """Run the command in a line that begins with a slash; whether there is one that could run."""
        name, _, argument = line.strip().partition(" ")
        command = self.all.get(name)
        if command is None:
            self.screen.note(
                f"there is no command {name}; there are: {', '.join(self.all)}. A message that begins with a slash "
                "needs a space before it."
            )
            return False
        if argument and not command.wants:
            self.screen.note(f"{name} stands alone: {argument.strip()!r} has no meaning there")
            return False
        try:
            command.run(argument.strip())
        except CourseError as error:
            self.screen.note(str(error))
            return False
        return True

    def _system(self, text: str) -> None:
        self.conversation.system = text or None
        self.screen.note(
            "from the next message on" if text else "the system message is the chat form's own again"
        )

    def _documents(self, text: str) -> None:
        try:
            paths = [Path(each).expanduser() for each in shlex.split(text)]
        except (ValueError, RuntimeError) as error:  # a quote that isn't closed; a home that isn't known
            raise CourseError(f"{error}: put quotes around a name with spaces") from None
        found = read_documents(paths)
        self.conversation.documents = found
        if not found:
            self.screen.note("messages are about no documents any more")
        for number, document in enumerate(found, start=1):
            self.screen.note(f"document {number}: {document.name}, {len(document.text):,} characters")

    def _stats(self, text: str) -> None:
        self.screen.show(stats_table(self.conversation))

    def _reset(self, text: str) -> None:
        self.conversation.forget()
        self.screen.note("a new conversation")

    def _help(self, text: str) -> None:
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, command in self.all.items():
            table.add_row(Text(f"{name} {command.wants}".strip()), command.does)
        table.add_row("Ctrl-C", "stop the answer; what was answered so far stays in the conversation")
        self.screen.show(table)

    def _quit(self, text: str) -> None:
        self.left = True


def stats_table(conversation: Conversation) -> Table:
    """What the last answer took, how long the conversation is, and what the engine holds."""
    table = Table(box=None, show_header=False, pad_edge=False)
    stats = conversation.llm.batcher.stats()
    if conversation.turns:
        turn = conversation.turns[-1]
        timing = turn.timing
        found = f"{turn.cached_tokens:,} of them found in pages"
        table.add_row("last prompt", f"{turn.prompt_tokens:,} tokens, {found}")
        speed = f"first after {timing.first_token:.2f} s · {timing.tokens_per_second:.1f} tokens/s"
        table.add_row("last answer", f"{len(timing.arrivals):,} tokens · {speed}")
    most = conversation.llm.core.max_positions
    table.add_row(
        "conversation", f"{len(conversation.turns)} answers; the model has {most:,} positions for it"
    )
    if conversation.system is not None:
        table.add_row("system message", Text(safe(conversation.system)))
    for document in conversation.documents:
        table.add_row("document", Text(safe(document.name)))
    used = stats.pages - stats.free_pages
    size = conversation.llm.limits.page_size
    table.add_row("pages", f"{used:,} of {stats.pages:,} hold tokens, {size} each at most")
    return table
