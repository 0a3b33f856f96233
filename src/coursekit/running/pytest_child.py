"""The process in which the tests run: it starts quickly, ends with its parent, and leaves at once.

`python -m coursekit.running.pytest_child [--pipe] [--few-plugins] PYTEST ARGUMENTS`. With `--pipe`, standard input is
a pipe of which the parent holds the other end: the system closes it, whatever way the parent ends. With
`--few-plugins`, pytest loads only the plugins that the tests of the days need.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import NoReturn

PIPE, FEW_PLUGINS = "--pipe", "--few-plugins"
ENDED_WITH_PARENT = 1
DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG."""


def main() -> NoReturn:
    """Run pytest and leave with its exit code: threads that the tests left behind are not waited for."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to tell yet
    arguments = sys.argv[1:]
    if PIPE in arguments:
        arguments.remove(PIPE)
        _end_with_parent()
    import pytest

    if FEW_PLUGINS in arguments:
        arguments.remove(FEW_PLUGINS)
        arguments = [*_few_plugins(arguments), *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = int(pytest.main(arguments))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _few_plugins(arguments: list[str]) -> list[str]:
    """Options that keep out what other packages install for pytest: to import it takes about a second."""
    import pytest

    if pytest.version_tuple < (8, 4):
        return []
    asked = any(argument.startswith("--hypothesis-") for argument in arguments)
    names = ["pytest_timeout", *(["_hypothesis_pytestplugin"] if asked else [])]
    # To find exceptions that nobody saw, pytest would collect garbage at the end, several times through all of torch.
    names.append("no:unraisableexception")
    return ["--disable-plugin-autoload", *(part for name in names for part in ("-p", name))]


def _end_with_parent() -> None:
    """End this process as soon as the parent has ended, and take standard input away from the tests."""
    if sys.platform == "linux":
        # Where compiled code holds the interpreter, the thread below can't run: so the system sends a signal, too.
        import ctypes

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_at_end_of, args=(pipe,), name="parent", daemon=True).start()


def _end_at_end_of(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(ENDED_WITH_PARENT)


if __name__ == "__main__":
    main()
