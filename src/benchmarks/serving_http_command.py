"""`pdm run bench serving --http`: staggered arrivals at a server, its own or any OpenAI-compatible one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.keeping import keep, require_places
from benchmarks.load import Service, find_service
from benchmarks.own_server import own_server
from benchmarks.progress import run_showing
from benchmarks.rounds import Record, Samples, take_turns
from benchmarks.serving_http import Plan, cases, ladder, parse_rates, warm_up
from coursekit.errors import CourseError
from coursekit.interrupts import leaving_when_terminated
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from programs.implementation import require_written

DAY = (4, 6)
"""Whose code the server needs."""


@dataclass(frozen=True)
class HttpOptions:
    """The options that belong to it."""

    http: bool = False
    url: str | None = None  # None: the course's own server, in a process of its own
    rates: str | None = None
    requests: int | None = None
    seed: int | None = None
    api_key: str | None = None

    def over_http(self, what: Sequence[str]) -> bool:
        """Whether this bench is asked for.

        Raises:
            CourseError: another one is, with options of this one.
        """
        if self.http or self.url is not None:
            if list(what) == ["serving"]:
                return True
            raise CourseError("--http and --url are for serving, alone: pdm run bench serving --http")
        for name in ("rates", "requests", "seed"):
            if getattr(self, name) is not None:
                raise CourseError(f"--{name} is for serving over HTTP: pdm run bench serving --http")
        return False

    def plan(self, quick: bool) -> Plan:
        """Which requests come; what isn't given is as usual.

        Raises:
            CourseError: as :func:`parse_rates` says.
        """
        usual = Plan()
        return Plan(
            usual.rates if self.rates is None else parse_rates(self.rates),
            self.requests or usual.requests,
            self.seed or usual.seed,
            usual.tokens // 2 if quick else usual.tokens,
        )


@contextmanager
def asked_service(course: Course, impl: Impl, options: HttpOptions) -> Iterator[Service]:
    """The server that is asked, while it can be asked.

    Raises:
        CourseError: as :func:`own_server` and :func:`find_service` say.
    """
    if options.url is not None:
        yield find_service(options.url, options.api_key)
        return
    require_written(course, impl, DAY)
    with own_server(impl) as url:
        yield find_service(url, None)


def bench_serving_http(
    course: Course,
    about: dict[str, Any],
    target: Path,
    impl: Impl,
    options: HttpOptions,
    repeats: int,
    console: Console,
    progress: Console,
) -> None:
    """Measure, print and keep; Ctrl-C stops early and keeps the rates that were measured.

    Args:
        course: its folder is left out of the names of the files that are kept.
        about: how and where it is measured: at least "machine" and "quick".
        target: the JSON file to write.
        impl: whose server is started, if none is given.
        options: which server is asked what.
        repeats: how many rounds.
        console: where the table goes.
        progress: where it says how far it is.
    """
    require_places(target)
    plan = options.plan(about["quick"])
    record, finished = Record(), False
    try:
        with leaving_when_terminated(), asked_service(course, impl, options) as service:
            about |= {"model": service.model, "url": options.url, "seed": plan.seed, "repeats": repeats}
            warm_up(service, plan)
            record.samples = [Samples(case) for case in cases(service, plan)]
            run_showing(take_turns(record.samples, repeats), len(plan.rates) * repeats, progress)
            finished = True
    finally:
        if record.measured:
            keep(console, course, target, record, [ladder(plan.requests)], [], about | {"finished": finished})
