"""The server's metrics for Prometheus."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from langchain_reasc.calibration import Observations
from langchain_reasc.calibration.drift import ALARM
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import Json

METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which workers share their counts."""
_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_SHARES: Final = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)


class Metrics:
    """Metrics of one process. No label has a value that a client can choose."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        given: Any = {"registry": self._registry}
        self.requests = Counter(
            "reasc_requests", "Requests answered", ["way", "status"], **given
        )
        self.seconds = Histogram(
            "reasc_request_seconds",
            "Until a request is answered",
            ["way"],
            buckets=_SECONDS,
            **given,
        )
        self.first_byte = Histogram(
            "reasc_first_byte_seconds",
            "Until the first byte of a reply's body",
            ["way"],
            buckets=_SECONDS,
            **given,
        )
        self.running = Gauge(
            "reasc_requests_running",
            "Requests that are answered now, or wait",
            multiprocess_mode="livesum",
            **given,
        )
        self.waiting = Gauge(
            "reasc_requests_waiting",
            "Requests that wait in the queue",
            multiprocess_mode="livesum",
            **given,
        )
        self._samples = Counter("reasc_samples", "Samples drawn for votes", **given)
        self._tokens = Counter(
            "reasc_tokens", "Tokens of votes, prompt and generated", **given
        )
        saved = "Tokens that max_samples responses to each request would have cost more"
        self._saved = Counter("reasc_saved_tokens", saved, **given)
        alone = "Tokens that one response to each request would have cost"
        self._of_one_response = Counter("reasc_one_response_tokens", alone, **given)
        self._stops = Counter(
            "reasc_stops", "Why votes have ended", ["reason"], **given
        )
        self._cut_off = Counter(
            "reasc_cut_off", "Votes whose answer reached the limit of tokens", **given
        )
        self._agreement = Histogram(
            "reasc_agreement_ratio",
            "Winner's share of the votes, where there were several",
            buckets=_SHARES,
            **given,
        )
        self._answered = Counter(
            "reasc_answered_by",
            "Votes by the model whose answer it is",
            ["model"],
            **given,
        )
        self._failed = Counter(
            "reasc_model_failures",
            "Votes in which all samples of a model failed",
            ["model", "reason"],
            **given,
        )
        self._shadowed = Counter(
            "reasc_shadowed", "Questions that both models were asked, to learn", **given
        )
        of_model = "Tokens of votes by model, prompt and generated"
        self._of_model = Counter(
            "reasc_model_tokens", of_model, ["model", "kind"], **given
        )
        cost = "Cost of votes by model: in dollars, or in tokens of the smaller model, as --price-ratio says"
        self._cost = Counter("reasc_model_cost", cost, ["model"], **given)
        self._errors = Counter(
            "reasc_errors",
            "Requests that were refused or failed here",
            ["code"],
            **given,
        )
        self._upstream = Counter(
            "reasc_upstream_errors",
            "Requests that the upstream refused or failed",
            ["status"],
            **given,
        )
        self.dropped_lines = Counter(
            "reasc_log_lines_dropped",
            "Lines of the log that were dropped, because stderr was not read",
            **given,
        )
        self._healthy = Gauge(
            "reasc_upstream_healthy",
            "Whether a server gets its share of votes",
            ["server"],
            multiprocess_mode="mostrecent",
            **given,
        )

        latest: Any = {"multiprocess_mode": "mostrecent", **given}
        self._questions = Gauge(
            "reasc_questions_learned",
            "Questions learned from since all was forgotten",
            **latest,
        )
        self._alarms = Gauge(
            "reasc_drift_alarms",
            "How often all was forgotten, for it no longer held",
            **latest,
        )
        self._evidence = Gauge(
            "reasc_drift_evidence",
            f"Evidence of each monitor; at {ALARM:,} all is forgotten",
            ["monitor"],
            **latest,
        )

    def record_health(self, healthy: Mapping[str, bool]) -> None:
        """Set whether each upstream server is healthy."""
        for server, is_healthy in healthy.items():
            self._healthy.labels(server).set(is_healthy)

    def record_learning(self, known: Observations) -> None:
        """Set how much was learned, and the evidence of drift."""
        self._questions.set(known.seen)
        self._alarms.set(len(known.restarts))
        for monitor, evidence in known.evidence.items():
            self._evidence.labels(monitor).set(evidence)

    def record_vote(self, account: Json, *, cut_off: bool = False) -> None:
        """Count a vote by its account, and whether its answer is ``cut_off``."""
        self._cut_off.inc(cut_off)
        self._samples.inc(account["launched"])
        self._stops.labels(account["stop"]).inc()
        tokens = account["tokens"]
        self._tokens.inc(tokens["spent"])
        self._saved.inc(tokens["saved"] or 0)
        self._of_one_response.inc(tokens["one_response"])
        for model, told in account.get("models", {}).items():
            self._cost.labels(model).inc(told["cost"])
            for kind in ("input", "output"):
                self._of_model.labels(model, kind).inc(told[kind])
        if (model := account.get("answered_by")) is not None:
            self._answered.labels(model).inc()
            self._shadowed.inc(account.get("shadowed", False))
        if (
            model != "large"
            and account["samples"] > 1
            and (votes := account["votes"].values())
        ):
            self._agreement.observe(max(votes) / sum(votes))

    def record_model_failure(self, model: str, reason: str) -> None:
        """Count a vote in which all samples of a model failed, for a reason in a word."""
        self._failed.labels(model, reason).inc()

    def record_error(self, refused: Refused) -> None:
        """Count a request that got an error, of the upstream or of this server."""
        if refused.from_upstream:
            self.record_upstream_error(refused.status)
        else:
            self._errors.labels(refused.error["code"] or str(refused.status)).inc()

    def record_upstream_error(self, status: int) -> None:
        """Count a request that the upstream refused or failed."""
        self._upstream.labels(str(status)).inc()

    def total(self, name: str, **labels: str) -> int:
        """Return the sum of the counters with this name and these labels."""
        found = (sample for metric in self._all.collect() for sample in metric.samples)
        values = (
            one.value
            for one in found
            if one.name == name and labels.items() <= one.labels.items()
        )
        return round(sum(values))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type: Prometheus's text format, or
        OpenMetrics if that is accepted.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._all), content_type

    @property
    def _all(self) -> CollectorRegistry:
        """The metrics of this process, or of all workers if there are several."""
        if METRICS not in os.environ:
            return self._registry
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together


def forget_dead_workers() -> None:
    """Drop the gauges of workers that have ended. Their counters stay."""
    for path in Path(os.environ[METRICS]).glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
