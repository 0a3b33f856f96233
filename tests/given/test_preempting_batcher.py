"""The batcher of Day 3.7 drives the scheduler of Day 4.3, and passes priority and client on."""

from __future__ import annotations

from functools import partial

from week_2.reading_model import alone
from week_4.short_of_pages import ShortOfPages, ids

from coursekit.check import check_equal, check_raises
from coursekit.lab import Lab


def test_the_batcher_drives_it_and_passes_priority_and_client_on():
    lab = Lab()
    engine = ShortOfPages(lab, pages=9, fair=True)
    request = lab.request.Request(ids(3), 2, priority=2, client="someone")
    ticket = lab.ragged.ticket.Ticket(request, lambda token: None, lab.ragged.metrics.Metrics())
    check_equal(
        (ticket.request.priority, ticket.request.client),
        (2, "someone"),
        name="priority and client of a ticket's copy",
    )
    batcher = lab.ragged.batcher.Batcher(engine.core)
    bad = lab.request.Request(ids(3), 2, priority=7)
    check_raises(
        ValueError, partial(batcher.submit, bad), name="submitting a priority of 7", match="priority"
    )
    requests = [lab.request.Request(ids(5, n), 9, priority=n % 4, client="AB"[n % 2]) for n in range(8)]
    futures = [batcher.submit(each) for each in requests]
    batcher.start()
    try:
        outputs = [future.result(timeout=30) for future in futures]
    finally:
        batcher.stop(drain=False, timeout=30)
    for each, output in zip(requests, outputs, strict=True):
        check_equal(
            output,
            alone(each.prompt_ids, 9),
            name=f"the output of a request with the prompt {each.prompt_ids}",
        )
    assert engine.scheduler.preemptions, "nobody was preempted in a pool that is too small for all"
