"""The grader's connection to the scheduler of a Dask cluster."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import CancelledError, Client, Future, KilledWorker

from coursekit.errors import CourseError

CONNECT_SECONDS = 15.0
RESULT_SECONDS = 60.0
"""How long the marks of one submission may take on their way."""
CLOSE_SECONDS = 5.0


class Gone(Exception):
    """The scheduler doesn't answer any more."""


class Lost(Exception):
    """A task that no worker has finished: its worker has ended."""


@dataclass(frozen=True)
class Worker:
    """A worker that the scheduler knows: its address, its name, how many tasks it does at the same time."""

    address: str
    name: str
    threads: int

    def __str__(self) -> str:
        return self.address if self.name in ("", self.address) else f"{self.address} ({self.name})"


class Link:
    """A connection; every task of it runs at the worker that it was given to, and nowhere else."""

    def __init__(self, client: Client, address: str) -> None:
        self.address = address
        self._client = client
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()

    def workers(self) -> dict[str, Worker]:
        """The workers that are there now, by their addresses.

        Raises:
            Gone: the scheduler doesn't answer.
        """
        self._check()
        try:
            known = self._client.scheduler_info(n_workers=-1)["workers"]
        except KeyError:  # this is how Dask says that nothing is known
            raise Gone from None
        return {
            address: Worker(address, str(about["name"]), about["nthreads"])
            for address, about in known.items()
        }

    def give(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Future:
        """Have a worker call a function; the future comes out of ``wait`` when it has.

        Raises:
            Gone: the scheduler doesn't answer.
        """
        self._check()
        future = self._client.submit(function, *arguments, workers=[worker], pure=False)
        future.add_done_callback(self._ended.put)
        return future

    def wait(self, seconds: float) -> Future | None:
        """A task that has ended in some way, or ``None`` where there is none for so long.

        Raises:
            Gone: the scheduler doesn't answer.
        """
        with suppress(queue.Empty):
            return self._ended.get(timeout=seconds)
        self._check()
        return None

    def result(self, future: Future) -> Any:
        """What the function gave, of a task that has ended.

        Raises:
            Gone: the scheduler doesn't answer.
            Lost: its worker has ended.
            Exception: the function has raised it.
        """
        self._check()
        if future.status not in ("finished", "error"):
            raise Lost
        try:
            return future.result(timeout=RESULT_SECONDS)
        except (TimeoutError, CancelledError, KilledWorker) as error:
            self._check()
            raise Lost from error

    def drop(self, future: Future) -> None:
        """A task isn't wanted any more: its worker ends it.

        Raises:
            Gone: the scheduler doesn't answer.
        """
        self._check()
        self._client.cancel([future])

    def _check(self) -> None:
        # The client would connect again, but the scheduler forgets the tasks of one whose connection has ended.
        if self._client.status != "running":
            raise Gone


@contextmanager
def connected(address: str) -> Iterator[Link]:
    """A link to a scheduler; at its end all tasks that were given out are taken back.

    Raises:
        CourseError: there is no scheduler at the address.
    """
    # What it has to say about a connection that ends is said in fewer words here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    for name in ("client", "core", "comm", "batched"):
        logging.getLogger(f"distributed.{name}").setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError, RuntimeError) as error:
        told = " ".join(str(error).split())
        raise CourseError(
            f"can't reach a scheduler at {address}: {told}; `pdm run dask scheduler` starts one and shows its address"
        ) from error
    try:
        yield Link(client, address)
    finally:
        with suppress(
            Exception
        ):  # nothing is lost with it: the scheduler takes tasks back when a client has gone
            client.close(timeout=CLOSE_SECONDS)
