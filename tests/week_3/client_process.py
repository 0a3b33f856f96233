"""A client of the loopback server in a process of its own, which a test can kill or stop for a while."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from .serving_grpc import Loopback, message_of

SCRIPT = Path(__file__).with_name("beside_killed_client.py")


@contextlib.asynccontextmanager
async def killed_client(client: Loopback, **fields: Any) -> AsyncIterator[Popen[bytes]]:
    """A process that calls Stream of the same server, with a request of these fields; killed in the end."""
    message = message_of(client.lab, **fields).SerializeToString()
    method = f"/{client.lab.ragged.grpc_server.SERVICE}/Stream"
    command = [sys.executable, str(SCRIPT), client.server.address, method, message.hex()]
    process = Popen(command, stdout=PIPE)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)


async def next_line(process: Popen[bytes]) -> bytes:
    """What the process says next; it says something when a piece of its answer has come."""
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.readline)
