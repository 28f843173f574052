"""What the server counts, in Prometheus's text format."""

import os
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from langchain_reasc_server.wire import Json
from langchain_reasc_server.workers import METRICS

__all__ = ["Metrics"]

_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """Counters of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        given: Any = {"registry": self._registry}
        self.requests = Counter("reasc_requests", "Requests answered", ["way", "status"], **given)
        self.seconds = Histogram(
            "reasc_request_seconds", "Until a request is answered", ["way"], buckets=_SECONDS, **given
        )
        self.running = Gauge(
            "reasc_requests_running", "Requests that are answered now, or wait", multiprocess_mode="livesum", **given
        )
        self._samples = Counter("reasc_samples", "Samples drawn for votes", **given)
        self._tokens = Counter("reasc_tokens", "Tokens of votes, prompt and generated", ["kind"], **given)
        self._stops = Counter("reasc_stops", "Why votes have ended", ["reason"], **given)
        self._upstream = Counter("reasc_upstream_errors", "Requests that the upstream failed", ["status"], **given)

    def record_vote(self, account: Json) -> None:
        """Count a vote by its account."""
        self._samples.inc(account["samples"])
        self._stops.labels(account["stop"]).inc()
        for kind, tokens in account["tokens"].items():
            self._tokens.labels(kind).inc(tokens)

    def record_failure(self, status: int) -> None:
        """Count a request that the upstream failed."""
        self._upstream.labels(str(status)).inc()

    def total(self, name: str, **labels: str) -> int:
        """Return the sum of the counters of this name that have these labels."""
        found = (sample for metric in self._all.collect() for sample in metric.samples)
        values = (one.value for one in found if one.name == name and labels.items() <= one.labels.items())
        return round(sum(values))

    @property
    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._all)

    @property
    def _all(self) -> CollectorRegistry:
        """What all workers have counted, where there are several."""
        if METRICS not in os.environ:
            return self._registry
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together
