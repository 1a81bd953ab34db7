"""Metrics for Prometheus, computed for each scrape from the change log and the database."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bot.api import errors
from bot.api.auth import (
    InsufficientScopeError,
    InvalidTokenError,
    RateLimitError,
    authenticate,
)
from bot.api.deps import ApiParts
from bot.audit import change_log, events
from bot.db import stats
from bot.db.database import StoreUnavailable
from bot.integrations import webhook_queue
from bot.integrations.witnesses import WitnessState
from bot.model.run import State
from bot.policy import NoPolicyError

_ANSWERS = {
    events.Approved.kind: "yes",
    events.Denied.kind: "no",
    events.ApprovalRefused.kind: "refused",
}
_KINDS = (*events.FINAL_KINDS, events.Approved.kind, events.ApprovalRefused.kind)
_WAIT_BUCKETS = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400)
_DURATION_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400)
_DELIVERY_GAUGES = (
    ("keyturn_deliveries_pending", "Webhook deliveries that are still to be sent.", 0),
    ("keyturn_deliveries_failed", "Webhook deliveries that failed for good.", 1),
)


@dataclass(frozen=True)
class Gauges:
    """Figures of other parts of the process, read for each scrape."""

    ssh_connections: Callable[[], int] = lambda: 0
    """Open SSH connections."""
    unwitnessed_entries: Callable[[], Mapping[str, int]] = field(default=dict[str, int])
    """Change log entries that a witness does not have yet, by witness."""
    http_connections: Callable[[], int] = lambda: 0
    """Open HTTP connections."""
    closed_http_connections: Callable[[], Mapping[str, int]] = field(default=dict[str, int])
    """HTTP connections that Keyturn closed itself, by reason."""
    closed_ssh_connections: Callable[[], int] = lambda: 0
    """SSH connections that Keyturn closed because the host flooded it or broke the protocol."""
    witness_states: Callable[[], Sequence[WitnessState]] = tuple
    """What is known of the witnesses of the log."""


class Metrics:
    """The metrics of one process. Counters start at zero with it, as Prometheus expects."""

    def __init__(self, parts: ApiParts, gauges: Gauges) -> None:
        self._parts, self._lock = parts, threading.Lock()
        self._registry = CollectorRegistry()
        # No namespace, subsystem or unit, and a registry of our own instead of the global one.
        registration = ("", "", "", self._registry)
        self._runs = Counter(
            "keyturn_runs_ended",
            "Runs that have ended; a run on several hosts counts once.",
            ["state", "runbook"],
            *registration,
        )
        self._decisions = Counter(
            "keyturn_decisions",
            "Approvals (yes), denials (no), and attempts of people who may not decide (refused).",
            ["answer", "runbook"],
            *registration,
        )
        self._waits = Histogram(
            "keyturn_waiting_seconds",
            "Time from the plan to the first command, of runs that have ended.",
            ["runbook"],
            *registration,
            buckets=_WAIT_BUCKETS,
        )
        self._durations = Histogram(
            "keyturn_run_seconds",
            "Time from the first command to the verification, of runs that have ended.",
            ["runbook"],
            *registration,
            buckets=_DURATION_BUCKETS,
        )
        self._registry.register(_CurrentState(parts, gauges))
        self._health = CollectorRegistry()
        self._health.register(_Health(parts))
        with parts.database.reading() as tx:
            self._counted = change_log.get_head(tx)[0]

    def render_all(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        with self._lock:
            # keyturn_database_up reports a database that does not answer.
            with suppress(StoreUnavailable):
                self._count_new_entries()
            return self.render_health() + generate_latest(self._registry)

    def render_health(self) -> bytes:
        """Return only the metrics of policy, change log and database."""
        return generate_latest(self._health)

    def _count_new_entries(self) -> None:
        while True:
            with self._parts.database.reading() as tx:
                found, until = stats.list_counted_entries(tx, _KINDS, after=self._counted)
                head = change_log.get_head(tx)[0]
            for entry in found:
                self._count_entry(entry)
            self._counted = until
            if until >= head:
                return

    def _count_entry(self, entry: stats.CountedEntry) -> None:
        if entry.kind in _ANSWERS:
            self._decisions.labels(_ANSWERS[entry.kind], entry.runbook).inc()
        if entry.kind not in events.FINAL_KINDS or entry.is_child:
            return
        self._runs.labels(entry.kind, entry.runbook).inc()
        if entry.waited is not None:
            self._waits.labels(entry.runbook).observe(entry.waited)
        if entry.took is not None:
            self._durations.labels(entry.runbook).observe(entry.took)


class _Health(Collector):
    """Gauges of policy, change log and database."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "keyturn_policy_broken",
            "1 while the policy is not valid, so every request is refused.",
            float(self._is_policy_invalid()),
        )
        yield GaugeMetricFamily(
            "keyturn_log_broken",
            "1 while the change log cannot be written, so nothing runs.",
            float(bool(self._parts.database.error)),
        )
        yield GaugeMetricFamily(
            "keyturn_database_up",
            "1 while the database answers.",
            float(self._is_database_up()),
        )

    def _is_policy_invalid(self) -> bool:
        try:
            self._parts.policies.get_policy()
        except (NoPolicyError, StoreUnavailable):
            return True
        return False

    def _is_database_up(self) -> bool:
        try:
            with self._parts.database.reading() as tx:
                change_log.get_head(tx)
        except StoreUnavailable:
            return False
        return True


class _CurrentState(Collector):
    """Gauges of the current state."""

    def __init__(self, parts: ApiParts, gauges: Gauges) -> None:
        self._parts, self._gauges = parts, gauges

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "keyturn_ssh_connections", "Open SSH connections.", self._gauges.ssh_connections()
        )
        yield GaugeMetricFamily(
            "keyturn_http_connections", "Open HTTP connections.", self._gauges.http_connections()
        )
        closed = CounterMetricFamily(
            "keyturn_http_connections_closed",
            "HTTP connections that Keyturn closed, by reason.",
            labels=["reason"],
        )
        for reason, count in self._gauges.closed_http_connections().items():
            closed.add_metric([reason], count)
        yield closed
        yield CounterMetricFamily(
            "keyturn_ssh_connections_closed",
            "SSH connections closed because the host flooded Keyturn or broke the protocol.",
            self._gauges.closed_ssh_connections(),
        )
        yield from self._collect_stored()
        lag = GaugeMetricFamily(
            "keyturn_log_unwitnessed_entries",
            "Change log entries that a witness does not have yet.",
            labels=["witness"],
        )
        for witness, entries in self._gauges.unwitnessed_entries().items():
            lag.add_metric([witness], entries)
        yield lag
        up = GaugeMetricFamily(
            "keyturn_witness_up",
            "1 while a witness has the change log; 0 before its first answer.",
            labels=["witness"],
        )
        for state in self._gauges.witness_states():
            up.add_metric([state.name], float(state.level == "ok"))
        yield up

    def _collect_stored(self) -> Iterator[Metric]:
        try:
            with self._parts.database.reading() as tx:
                work = stats.count_open_work(tx)
                deliveries = webhook_queue.count_deliveries(tx)
                added = [one for collect in self._parts.metrics for one in collect(tx)]
        except StoreUnavailable:
            return
        runs = GaugeMetricFamily(
            "keyturn_runs",
            "Runs that have not ended; a run on several hosts counts once.",
            labels=["state", "runbook"],
        )
        for state, runbook, count in work.open_runs:
            runs.add_metric([state, runbook], count)
        yield runs
        yield from added
        for name, description, n in _DELIVERY_GAUGES:
            gauge = GaugeMetricFamily(name, description, labels=["subscription"])
            for subscription, counts in deliveries.items():
                gauge.add_metric([subscription], counts[n])
            yield gauge
        for name, description, value in _list_figures(work):
            yield GaugeMetricFamily(name, description, value)


def _list_figures(work: stats.OpenWork) -> Iterator[tuple[str, str, float]]:
    unknown = sum(count for state, _, count in work.open_runs if state == State.UNKNOWN)
    yield (
        "keyturn_unknown_runs",
        "Runs with an unknown outcome, which an owner must resolve.",
        unknown,
    )
    yield (
        "keyturn_stalled_runs",
        f"Active runs without a log entry for {stats.STALLED_SECONDS // 60} min.",
        work.stalled,
    )
    yield "keyturn_queue_depth", "Runs that wait for a host lock or a worker.", work.queued
    yield (
        "keyturn_oldest_pending_seconds",
        "Age of the oldest request that needs approval.",
        work.waiting_seconds,
    )
    yield "keyturn_outbox_backlog", "Runs with chat messages still to be sent.", work.undelivered
    yield (
        "keyturn_outbox_failing",
        "Runs with chat messages that could not be sent.",
        work.failed_deliveries,
    )
    yield "keyturn_locked_hosts", "Hosts that are locked by a change.", work.locks
    yield "keyturn_log_entries", "Number of the newest change log entry.", work.log_entries


def build_metrics_endpoint(parts: ApiParts, gauges: Gauges) -> Callable[[Request], Response]:
    """Return the endpoint of /metrics, for tokens with the scope metrics."""
    metrics = Metrics(parts, gauges)

    def get_metrics(request: Request) -> Response:
        try:
            authenticate(request, parts).require_scope("metrics")
            body = metrics.render_all()
        except (NoPolicyError, StoreUnavailable):
            # Tokens cannot be verified now. /readyz returns the same facts without a token.
            body = metrics.render_health()
        except (InvalidTokenError, InsufficientScopeError, RateLimitError) as error:
            return errors.build_error_response(request, error) or errors.build_problem(
                request, 500, "internal-error"
            )
        return Response(
            body,
            media_type=CONTENT_TYPE_PLAIN_0_0_4,
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )

    return get_metrics
