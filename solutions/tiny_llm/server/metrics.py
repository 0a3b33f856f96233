"""A server's figures in the form that Prometheus reads (Day 4.6, given code)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tiny_llm.engine.llm import LLM
from tiny_llm.prefix.trie_cache import TrieCache
from tiny_llm.ragged.metrics import Metrics
from tiny_llm.scheduling.preemption import PreemptiveScheduler

FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60)
BETWEEN_TOKENS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
"""The upper ends of the histograms' buckets, in seconds."""


class TimedMetrics(Metrics):
    """A batcher's counts and recent times, which are also counted in histograms over the server's whole life."""

    def __init__(self) -> None:
        """Start with nothing counted, in a registry of its own."""
        super().__init__()
        self.registry = CollectorRegistry()
        self.first_token = Histogram(
            "tiny_llm_time_to_first_token_seconds",
            "From the arrival of a request to its first token",
            buckets=FIRST_TOKEN,
            registry=self.registry,
        )
        self.between_tokens = Histogram(
            "tiny_llm_inter_token_seconds",
            "Between two tokens of one request",
            buckets=BETWEEN_TOKENS,
            registry=self.registry,
        )

    def token(self, since: float, first: bool) -> float:
        """Note a token, as :meth:`Metrics.token` does."""
        now = super().token(since, first)
        (self.first_token if first else self.between_tokens).observe(now - since)
        return now


class Figures(Collector):
    """Reads the figures of an engine when they are asked for."""

    def __init__(self, llm: LLM) -> None:
        """Read those of this engine."""
        self.batcher = llm.batcher
        scheduler = llm.core.scheduler
        assert isinstance(scheduler, PreemptiveScheduler)
        assert isinstance(scheduler.cache, TrieCache)
        self.scheduler, self.cache = scheduler, scheduler.cache

    def collect(self) -> Iterator[Metric]:
        """All figures that aren't histograms."""
        stats, scheduler = self.batcher.stats(), self.scheduler
        running = len(scheduler.running)
        waiting = stats.waiting + len(scheduler.waiting)
        yield GaugeMetricFamily("tiny_llm_requests_waiting", "Requests without a seat", waiting)
        yield GaugeMetricFamily("tiny_llm_requests_running", "Requests that have a seat", running)
        yield self._pages(stats.pages)
        yield _counter("tiny_llm_reused_tokens", "Prompt tokens found in the page cache", scheduler.reused)
        yield _counter(
            "tiny_llm_preemptions", "Requests that lost their pages to another", scheduler.preemptions
        )
        yield _counter("tiny_llm_evicted_pages", "Cached pages that had to make room", self.cache.evicted)
        yield _counter("tiny_llm_generated_tokens", "Tokens generated", stats.tokens)
        yield _counter("tiny_llm_steps", "Runs of the model", stats.steps)
        requests = CounterMetricFamily(
            "tiny_llm_requests", "Requests that have ended, by how", labels=["outcome"]
        )
        for outcome in ("finished", "cancelled", "failed", "refused"):
            requests.add_metric([outcome], getattr(stats, outcome))
        yield requests

    def _pages(self, total: int) -> Metric:
        free, cached = len(self.cache.allocator.free_pages), len(self.cache.unheld)
        pages = GaugeMetricFamily("tiny_llm_pages", "Pages, by what they are used for", labels=["state"])
        for state, count in {"free": free, "cached": cached, "held": total - free - cached}.items():
            pages.add_metric([state], count)
        return pages


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value)


def watch(llm: LLM) -> CollectorRegistry:
    """Let an engine's metrics be of a kind that Prometheus can read; they must not have counted anything before.

    Returns:
        the registry to be shown.
    """
    if not isinstance(llm.batcher.metrics, TimedMetrics):
        llm.batcher.metrics = TimedMetrics()
        llm.batcher.metrics.registry.register(Figures(llm))
    return llm.batcher.metrics.registry
