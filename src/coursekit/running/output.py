"""Shows the board, after Ctrl-C also where the program behind the pipe was interrupted, too."""

from __future__ import annotations

import sys

from coursekit.running.board import Board
from coursekit.streams import OutputLost, drop_output


def show(board: Board, in_a_line: bool) -> None:
    """Print the board; of an interrupted run on standard error where standard output is lost.

    With ``in_a_line`` something stands in the line already: the marks of tests of a run that was ended.
    """
    with board.console.capture() as captured:
        board.show()
    text = "\n" * in_a_line + captured.get()
    try:
        print(text, end="", flush=True)
    except OutputLost:
        if not board.report.interrupted:
            raise
        drop_output()
        print(text, end="", file=sys.stderr)
