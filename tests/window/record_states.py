"""Records `states.json`: real snapshots of the reference engine on the real model, for tests of the page.

python tests/window/record_states.py, with `solutions` and `src` on PYTHONPATH.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tiny_llm.engine.limits import Limits
from tiny_llm.engine.llm import LLM
from window.scenes import SCENES, Scenes
from window.snapshot import Snapshots
from window.watched import WatchedCore, watch_batcher

STATES = Path(__file__).parent / "states.json"
LIMITS = Limits(num_seats=8, num_pages=96, page_size=16, token_budget=96)
KEPT = 5  # snapshots of each scene, and a few more that are worth seeing
MOST_SECONDS = 90


def record(llm: LLM, watched: WatchedCore, name: str) -> list[dict[str, Any]]:
    """Some snapshots of a scene, the last one when it has ended."""
    snapshots, scenes, seen = Snapshots(llm.tokenizer, llm.limits.token_budget), Scenes(llm), []
    first, version = watched.ledger.steps, watched.version
    scenes.start(name)
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until and (watched.ledger.steps == first or watched.core.requests):
        if watched.version != version:
            version, note = watched.version, watched.latest
            seen.append(snapshots.build(note, watched.gate.mode, note.time))
        time.sleep(0.002)
    scenes.close()
    time.sleep(0.3)
    seen.append(snapshots.build(watched.latest, watched.gate.mode, watched.latest.time))
    preempting = [index for index, each in enumerate(seen) if each["counts"]["preempted"]]
    chosen = {1, 2, len(seen) - 1, *preempting[:2]} | {len(seen) * part // KEPT for part in range(KEPT)}
    return [seen[index] for index in sorted(chosen) if index < len(seen)]


def main() -> None:
    """Record all scenes, each on an engine of its own."""
    states = {}
    for scene, _ in SCENES:
        with LLM(limits=LIMITS, enable_chunk_aware=True, around=WatchedCore) as llm:
            watched = llm.batcher.core
            assert isinstance(watched, WatchedCore)
            watch_batcher(watched, llm.batcher)
            watched.watchers = 1
            states[scene.name] = record(llm, watched, scene.name)
    lines = [
        f'"{name}": [\n' + ",\n".join(json.dumps(each, separators=(",", ":")) for each in some) + "\n]"
        for name, some in states.items()
    ]
    STATES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
