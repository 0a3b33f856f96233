"""The figures that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_site import NAME, PAGES, Site
from prometheus_client.parser import text_string_to_metric_families

from tiny_llm.server.app import make_app


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


def figures(site: Site) -> dict[Any, float]:
    """By name, or by name and label where there is one."""
    answer = site.http.get(f"{site.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found: dict[Any, float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = list(sample.labels.values())
            found[(sample.name, *labels) if labels else sample.name] = sample.value
    return found


def until_ended(site: Site, outcome: str, count: int) -> None:
    """Wait until so many requests were counted; an answer is out before its request is."""
    name = ("tiny_llm_requests_total", outcome)
    site.until(lambda: figures(site)[name] >= count, f"{count} requests are {outcome}")
    assert figures(site)[name] == count


def test_a_server_at_rest_has_all_of_its_figures(site: Site) -> None:
    found = figures(site)
    for name in (
        "tiny_llm_requests_waiting",
        "tiny_llm_requests_running",
        "tiny_llm_reused_tokens_total",
        "tiny_llm_preemptions_total",
        "tiny_llm_evicted_pages_total",
        "tiny_llm_generated_tokens_total",
        "tiny_llm_steps_total",
        "tiny_llm_time_to_first_token_seconds_count",
        "tiny_llm_inter_token_seconds_count",
    ):
        assert found[name] == 0, name
    assert found["tiny_llm_pages", "free"] == PAGES
    for outcome in ("finished", "cancelled", "failed", "refused"):
        assert found["tiny_llm_requests_total", outcome] == 0


def test_tokens_are_counted_in_two_histograms(site: Site) -> None:
    site.complete(max_tokens=5, n=3, ignore_eos=True)
    found = figures(site)
    assert found["tiny_llm_time_to_first_token_seconds_count"] == 3
    assert found["tiny_llm_inter_token_seconds_count"] == 12
    assert found["tiny_llm_time_to_first_token_seconds_bucket", "+Inf"] == 3
    assert found["tiny_llm_generated_tokens_total"] == 15
    until_ended(site, "finished", 3)
    assert site.llm.batcher.stats().tokens == 15


def test_pages_are_free_or_cached_or_held(site: Site) -> None:
    site.complete(prompt="a" * 40, max_tokens=1)
    found = figures(site)
    assert found["tiny_llm_pages", "cached"] == 10
    assert found["tiny_llm_pages", "free"] == PAGES - 10
    site.complete(prompt="a" * 40, max_tokens=1)
    assert figures(site)["tiny_llm_reused_tokens_total"] == 36
    site.hold()
    with site.client() as client:
        body = {"model": NAME, "prompt": "b" * 20, "stream": True}
        with client.stream("POST", "/v1/completions", json=body):
            site.until_running()
            site.let(1)
            site.until(lambda: figures(site)["tiny_llm_pages", "held"] >= 5, "the prompt's pages are held")
            found = figures(site)
            assert (found["tiny_llm_requests_running"], found["tiny_llm_requests_waiting"]) == (1, 0)
    site.model.open.set()
    site.until_at_rest()
    assert figures(site)["tiny_llm_pages", "held"] == 0
    until_ended(site, "cancelled", 1)


def test_requests_without_a_seat_wait_wherever_they_are(site: Site) -> None:
    site.llm.core.max_requests = 12
    site.hold()
    with site.client() as client:
        body = {"model": NAME, "prompt": "b", "stream": True, "n": 20, "max_tokens": 9}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            site.until_there(20)
            site.let(1)  # those that came while the first step ran come in
            site.until(lambda: site.llm.batcher.stats().waiting == 8, "12 requests are in the engine")
            site.let(1)
            site.until(lambda: figures(site)["tiny_llm_requests_running"] == 8, "all seats are taken")
            assert figures(site)["tiny_llm_requests_waiting"] == 12
            site.model.open.set()
            answer.read()


def test_preemptions_and_evictions_are_counted(site: Site) -> None:
    for start in range(8):
        site.complete(prompt=[[start * 20 + i] * 60 for i in range(8)], max_tokens=100, ignore_eos=True)
    found = figures(site)
    assert found["tiny_llm_preemptions_total"] > 0
    assert found["tiny_llm_evicted_pages_total"] > 0


def test_a_request_that_fails_and_one_that_is_refused_are_counted(site: Site) -> None:
    site.model.failure = KeyError("as the test wants it")
    body = {"model": NAME, "prompt": "a", "stream": True}
    assert site.post("/v1/completions", {**body, "stream": False}).status_code == 500
    until_ended(site, "failed", 1)
    site.llm.batcher.max_queue = 1
    site.hold()
    with site.client() as client, client.stream("POST", "/v1/completions", json=body):
        site.until_running()
        with client.stream("POST", "/v1/completions", json=body):
            site.until_there(2)
            assert site.post("/v1/completions", body).status_code == 429
            until_ended(site, "refused", 1)


def test_a_second_app_of_the_same_engine_goes_on_counting(site: Site) -> None:
    site.complete(max_tokens=1)
    make_app(site.llm)
    until_ended(site, "finished", 1)
