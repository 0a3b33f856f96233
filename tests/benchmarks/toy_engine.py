"""An engine for `bench peers` that gives numbers of tokens and nothing else, well or badly, as its settings say.

It is a program of its own, and a module of the tests that start it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wire import Answer, Request, Run

    from benchmarks.peers.measuring import Engine


def start(settings: dict[str, Any]) -> Run:
    """Load nothing; note the process in a file if one is named."""
    if "note" in settings:
        with open(settings["note"], "a", encoding="utf-8") as note:
            print(os.getpid(), file=note)
    print("loading", settings["fault"])  # libraries print what they like
    if settings["fault"] == "never ready":
        time.sleep(600)
    if settings["fault"] == "no start":
        sys.exit("no such model")
    return Toy(settings).run


class Toy:
    """Takes its time for each request."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.runs = 0
        self.child: subprocess.Popen[bytes]

    def run(self, requests: list[Request], room: int) -> list[Answer]:
        """Answer; the first run is the warm-up, which goes well."""
        from wire import Answer

        self.runs += 1
        if self.runs > 1:
            self._fail(self.settings["fault"])
        if self.runs == 2 and "child" in self.settings:
            self.child = _child(self.settings["child"])
        elif self.runs == 3 and "child" in self.settings:
            self.child.kill()
            self.child.wait()
        assert all(len(each.prompt) + each.max_tokens <= room for each in requests)
        time.sleep(self.settings.get("seconds", 0.001))
        short = self.runs > 1 and self.settings["fault"] == "too few tokens"
        return [Answer(each.max_tokens - short, self._first()) for each in requests]

    def _first(self) -> float | None:
        return time.perf_counter() if self.settings.get("streams", True) else None

    def _fail(self, fault: str) -> None:
        if fault == "dies":
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(7)
        if fault == "hangs":
            time.sleep(600)
        if fault == "garbage":
            os.write(3 if os.name == "nt" else _bench_descriptor(), b"Segmentation fault, or so\n")


def _child(megabytes: int) -> subprocess.Popen[bytes]:
    """A process that has so much memory, once it says so."""
    program = f"import time; kept = bytearray(b'x') * {megabytes}_000_000; print(); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _bench_descriptor() -> int:
    """Where the messages go: the only pipe that is written to, besides standard output and standard error."""
    import fcntl

    for number in range(3, 20):
        try:
            if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                return number
        except OSError:
            continue
    raise AssertionError("there is no such pipe")


def toy(name: str, fault: str = "", **settings: Any) -> Engine:
    """Such an engine, ready to be started by the bench."""
    import benchmarks.peers
    from benchmarks.peers.engine_process import EngineCommand
    from benchmarks.peers.measuring import Engine

    runners = Path(benchmarks.peers.__file__).parent / "runners"
    words = [sys.executable, __file__, json.dumps({"fault": fault, **settings})]
    return Engine(name, f"the {name}", EngineCommand(words, {**os.environ, "PYTHONPATH": str(runners)}))


if __name__ == "__main__":
    from wire import serve

    serve(start)
