"""`pdm run bench` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def bench(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "bench", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100", **variables},
        timeout=100,
    )
