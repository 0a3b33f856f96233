"""What a program shows while its user waits: a line that turns in a terminal, one line elsewhere if it is long."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from programs import waiting as module
from programs.waiting import waiting


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=60, legacy_windows=False)


def written(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def wait_for(to: Console, text: str) -> None:
    ends = time.monotonic() + 60
    while text not in written(to) and time.monotonic() < ends:
        time.sleep(0.01)


def test_in_a_terminal_the_line_says_what_is_done_and_is_gone_at_the_end() -> None:
    to = console(terminal=True)
    with waiting("reading", to) as say:
        wait_for(to, "reading")
        say("compiling")
        wait_for(to, "compiling")
    assert re.search(r"reading.*0:00:00", written(to))
    assert "compiling" in written(to)
    assert written(to).endswith("\x1b[2K"), "the line is still there"
    assert "\x1b[?25h" in written(to), "the cursor is still hidden"


def test_in_a_file_a_short_wait_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    to = console(terminal=False)
    with waiting("reading", to):
        pass
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    with waiting("reading", to, only_in_terminal=True):
        time.sleep(0.05)
    assert written(to) == ""


def test_in_a_file_a_long_wait_is_one_line_that_names_what_is_done_just_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.5)
    to = console(terminal=False)
    with waiting("reading", to) as say:
        say("compiling [once]")
        wait_for(to, "\n")
        say("done")
        time.sleep(0.05)
    assert written(to) == "compiling [once]\n"
