"""Shows the board, after Ctrl-C also where the program behind the pipe was interrupted, too."""

from __future__ import annotations

import sys

from coursekit.running.board import Board
from coursekit.streams import OutputLost, drop_output


def show(board: Board) -> None:
    """Print the board; of an interrupted run on standard error where standard output is lost."""
    with board.console.capture() as captured:
        board.show()
    try:
        print(captured.get(), end="", flush=True)
    except OutputLost:
        if not board.report.interrupted:
            raise
        drop_output()
        print(captured.get(), end="", file=sys.stderr)
