"""What a second replica gains, and routing by prefix: `python -m examples.ray_serve.measure`, run in the root."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import ray
import typer
from ray import serve
from ray.serve.handle import DeploymentHandle
from rich.console import Console
from rich.table import Table

from benchmarks.week_2 import TEXT
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from examples.ray_serve.app import engines

PREFIXES = 8
PREFIX = 150  # words of a system prompt, about 200 tokens
NUM_PAGES = 80  # of a replica: enough for half of the prefixes, and for the requests that run
AT_ONCE = 8
TOKENS = 8
WAYS = {
    "one replica": {"replicas": 1},
    "two, at random": {"replicas": 2, "by_prefix": False},
    "two, by prefix": {"replicas": 2},
}


def make_prompts(requests: int, seed: int) -> list[str]:
    """Questions behind one of some long prefixes, in any order."""
    dice = random.Random(seed)
    words = (TEXT.split() * 4)[: PREFIXES * 20 + PREFIX]
    prefixes = [f"Part {number}. {' '.join(words[20 * number :][:PREFIX])}" for number in range(PREFIXES)]
    return [f"{dice.choice(prefixes)}\n\nQuestion {dice.randrange(10**6)}:" for _ in range(requests)]


async def ask_all(handle: DeploymentHandle, prompts: Sequence[str], at_once: int) -> list[dict[str, Any]]:
    """Ask for all answers, so many at a time."""
    seats = asyncio.Semaphore(at_once)

    async def ask(prompt: str) -> dict[str, Any]:
        async with seats:
            answer: dict[str, Any] = await handle.complete.remote(prompt, max_tokens=TOKENS, ignore_end=True)
            return answer

    return await asyncio.gather(*map(ask, prompts))


def measure(way: dict[str, Any], prompts: Sequence[str], app: str) -> dict[str, float]:
    """Start replicas, ask them, and stop them; nothing is cached at the start.

    Args:
        way: arguments of :func:`engines`.
        prompts: what to ask.
        app: a name that was not used before: under an old one, Ray goes on with the old router.
    """
    handle = serve.run(engines(num_pages=NUM_PAGES, **way), name=app, route_prefix=None)
    asyncio.run(ask_all(handle, [f"warm up {number}" for number in range(AT_ONCE)], AT_ONCE))
    started = time.perf_counter()
    answers = asyncio.run(ask_all(handle, prompts, AT_ONCE))
    seconds = time.perf_counter() - started
    serve.delete(app)
    usages = [answer["usage"] for answer in answers]
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    return {
        "requests_per_second": len(prompts) / seconds,
        "hits": cached / sum(usage["prompt_tokens"] for usage in usages),
    }


def main(impl: Impl = Impl.SOLUTION, requests: int = 32, rounds: int = 3) -> None:
    """Measure each way in turns, and print the medians."""
    choose_implementation(Course.find(), impl)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for number in range(rounds):
        prompts = make_prompts(requests, number)
        for place, (name, way) in list(enumerate(WAYS.items()))[:: -1 if number % 2 else 1]:
            found[name].append(measure(way, prompts, f"round-{number}-way-{place}"))
            print(f"round {number + 1}: {name}: {found[name][-1]}", flush=True)
    table = Table("", "requests/s", "× first", "cached, %", box=None)
    first = statistics.median(run["requests_per_second"] for run in found["one replica"])
    for name, runs in found.items():
        speed = statistics.median(run["requests_per_second"] for run in runs)
        hits = statistics.median(run["hits"] for run in runs)
        table.add_row(name, f"{speed:.2f}", f"{speed / first:.2f}", f"{hits:.0%}")
    Console(width=100).print(table)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    typer.run(main)
