"""200 clients at once, a thousand requests: some are cancelled, some clients are gone in the middle."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from http_site import NAME, Site, ToyModel, events_of, toy_llm
from week_3.patience import limit

from tiny_llm.engine.params import SamplingParams

CLIENTS, REQUESTS = 200, 1000
SLACK = 4000  # objects: five for each of the 800 answers; an answer that is kept holds many more


@dataclass(frozen=True)
class Asked:
    """A request, and what its client does."""

    prompt: str
    settings: dict[str, Any]
    stream: bool
    leaves: int | None  # goes away after so many bytes of the answer; None: stays to the end

    @property
    def key(self) -> str:
        """Equal for requests with the same answer."""
        return json.dumps([self.prompt, self.settings])


def live_objects() -> int:
    """How many objects that can hold others are there."""
    gc.collect()
    return len(gc.get_objects())


def some_requests() -> list[Asked]:
    chosen = random.Random(4600)
    prompts = [
        f"{word} {number}" * 3
        for word in ("cat", "dog", "a shared prefix that is long")
        for number in range(9)
    ]
    asked = []
    for number in range(REQUESTS):
        sampled = {"temperature": 1.2, "seed": number % 3} if chosen.random() < 0.5 else {"temperature": 0}
        settings = {**sampled, "max_tokens": chosen.choice((3, 8))}
        leaves = chosen.choice((0, 1, 300)) if chosen.random() < 0.3 else None
        asked.append(Asked(chosen.choice(prompts), settings, chosen.random() < 0.5, leaves))
    return asked


async def ask(port: int, asked: Asked) -> str | None:
    """The text of an answer over a connection of its own; None if the client has gone away."""
    body = {"model": NAME, "prompt": asked.prompt, "stream": asked.stream, "user": "u", **asked.settings}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        asking = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
        writer.write(f"{asking}Connection: close\r\nContent-Type: application/json\r\n\r\n".encode() + data)
        if asked.leaves is not None:
            await reader.read(asked.leaves)
            writer.transport.abort()
            return None
        answer = await reader.read()
    finally:
        writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer[:500]
    if not asked.stream:
        return str(json.loads(content)["choices"][0]["text"])
    return "".join(each["choices"][0]["text"] for each in events_of(unchunked(content))[:-1])


def unchunked(content: bytes) -> str:
    """A body that came in chunks."""
    whole = b""
    while content:
        size, _, content = content.partition(b"\r\n")
        whole, content = whole + content[: int(size, 16)], content[int(size, 16) + 2 :]
    return whole.decode()


async def ask_all(port: int, requests: list[Asked]) -> list[str | None]:
    """All of them, so many at a time as there are clients."""
    room = asyncio.Semaphore(CLIENTS)

    async def one(asked: Asked) -> str | None:
        async with room:
            return await ask(port, asked)

    return await asyncio.wait_for(asyncio.gather(*map(one, requests)), limit() * 12)


@pytest.mark.timeout(400)
def test_under_load_no_page_is_lost_memory_is_flat_and_answers_are_those_alone() -> None:
    requests = some_requests()
    with toy_llm(ToyModel(), max_queue=REQUESTS) as engine:
        # One by one: no request shares a step with another.
        texts = {
            each.key: engine.generate(each.prompt, SamplingParams(**each.settings))[0].text
            for each in requests
        }
    with Site(max_queue=REQUESTS) as site:
        port = int(site.url.rpartition(":")[2])
        got = asyncio.run(ask_all(port, requests[:CLIENTS]))
        site.until_at_rest()
        before = live_objects()
        got += asyncio.run(ask_all(port, requests[CLIENTS:]))
        site.until_at_rest()
        held = live_objects() - before
        stats = site.llm.batcher.stats()
    outcomes = Counter(
        "left" if text is None else "same" if text == texts[each.key] else "other"
        for text, each in zip(got, requests, strict=True)
    )
    left = sum(each.leaves is not None for each in requests)
    assert outcomes == {"left": left, "same": REQUESTS - left}
    assert stats.failed == stats.refused == 0
    assert stats.cancelled > 0, "no client has left before its answer was complete"
    assert held < SLACK, f"{held:,} objects are held after {REQUESTS - CLIENTS} more requests"
