"""Metrics for Prometheus: how long requests wait and take, and how good the answers are."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

MEDIA_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GAPS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
ITEMS = (10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # times of creation would double the text
        own = self._registry = CollectorRegistry()
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        self.request_seconds = Histogram(
            "railsearch_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route", "method", "status"],
            registry=own,
            buckets=SECONDS,
        )
        self.queue_seconds = Histogram(
            "railsearch_queue_seconds", "Time that a search waits.", ["index"], registry=own, buckets=SECONDS
        )
        self.queue_depth = Gauge("railsearch_queue_depth", "Queries that wait.", registry=own)
        self.batch_queries = Histogram(
            "railsearch_batch_queries", "Queries that are searched at once.", ["index"], registry=own, buckets=QUERIES
        )
        self.search_seconds = Histogram(
            "railsearch_search_seconds",
            "Time of one search of a batch.",
            ["index", "strategy"],
            registry=own,
            buckets=SECONDS,
        )
        self.rejected = Counter(
            "railsearch_rejected", "Requests that were answered with a problem, by its type.", ["reason"], registry=own
        )
        self.results = Counter(
            "railsearch_results",
            "Queries that were answered: exact, bounded by a gap, or unbounded.",
            ["index", "exactness"],
            registry=own,
        )
        self.gap = Histogram("railsearch_gap", "Finite gaps of answers.", ["index"], registry=own, buckets=GAPS)
        self.items_scored = Histogram(
            "railsearch_items_scored", "Items scored for a query.", ["index"], registry=own, buckets=ITEMS
        )
        self.index_version = Gauge("railsearch_index_version", "The version that is served.", ["index"], registry=own)
        self.index_items = Gauge("railsearch_index_items", "Items of that version.", ["index"], registry=own)

    def to_text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
