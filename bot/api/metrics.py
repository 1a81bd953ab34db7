"""Metrics: what Prometheus is told, counted when it comes and never beside the work."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bot.api import errors
from bot.api.auth import NotForThat, NoToken, TooFast, recognised
from bot.api.deps import ApiParts
from bot.audit import change_log
from bot.db import stats
from bot.db.database import StoreUnavailable
from bot.model.run import ENDED_STATES, State
from bot.policy import NoPolicyError
from bot.webhooks import webhook_queue

_VOTES = {"approved": "yes", "denied": "no", "approval refused": "refused"}
_ENDINGS = {state.value for state in ENDED_STATES}
_KINDS = (*_ENDINGS, "approved", "approval refused")
_WAITS = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400)
_TAKES = (0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400)
_TELLINGS = (
    ("keyturn_deliveries_waiting", "What subscriptions are still to be told.", 0),
    ("keyturn_deliveries_dead", "What subscriptions could not be told, and was given up.", 1),
)


@dataclass(frozen=True)
class Gauges:
    """What is known elsewhere, looked at whenever Prometheus comes.

    sessions: SSH connections that are open. unwitnessed: entries of the log that a witness has
    not been told of yet, by the witness. connections: HTTP connections that are open. cut: how
    many of these Keyturn closed itself, by reason. ssh_cuts: SSH connections that it closed, since
    their hosts flooded it or broke the protocol.
    """

    sessions: Callable[[], int] = lambda: 0
    unwitnessed: Callable[[], Mapping[str, int]] = field(default=dict[str, int])
    connections: Callable[[], int] = lambda: 0
    cut: Callable[[], Mapping[str, int]] = field(default=dict[str, int])
    ssh_cuts: Callable[[], int] = lambda: 0


class Metrics:
    """Every figure begins when the process does: Prometheus knows that counters begin anew."""

    def __init__(self, parts: ApiParts, gauges: Gauges) -> None:
        self._parts, self._lock = parts, threading.Lock()
        self._registry = CollectorRegistry()
        # No namespace, no subsystem, no unit: the names say it all. And not the one of everybody.
        self._place = ("", "", "", self._registry)
        self._runs = Counter(
            "keyturn_runs_ended",
            "Runs that have ended; of several hosts, the request as a whole.",
            ["state", "runbook"],
            *self._place,
        )
        self._votes = Counter(
            "keyturn_votes",
            "Approvals (yes), denials (no), and tries of people who may not decide (refused).",
            ["answer", "runbook"],
            *self._place,
        )
        self._waits = Histogram(
            "keyturn_waiting_seconds",
            "From being shown to people to the first command, of runs that have ended.",
            ["runbook"],
            *self._place,
            buckets=_WAITS,
        )
        self._takes = Histogram(
            "keyturn_run_seconds",
            "From the first command to the proof, of runs that have ended.",
            ["runbook"],
            *self._place,
            buckets=_TAKES,
        )
        self._registry.register(_Now(parts, gauges))
        self._health = CollectorRegistry()
        self._health.register(_Health(parts))
        with parts.database.reading() as tx:
            self._counted = change_log.get_head(tx)[0]

    def told(self) -> bytes:
        """Return everything in Prometheus' text format."""
        with self._lock:
            # Of a database that does not answer, a gauge tells.
            with suppress(StoreUnavailable):
                self._count()
            return self.health() + generate_latest(self._registry)

    def health(self) -> bytes:
        """Return only whether policy, change log and database work."""
        return generate_latest(self._health)

    def _count(self) -> None:
        while True:
            with self._parts.database.reading() as tx:
                found, until = stats.list_counted_entries(tx, _KINDS, after=self._counted)
                head = change_log.get_head(tx)[0]
            for one in found:
                self._note(one)
            self._counted = until
            if until >= head:
                return

    def _note(self, one: stats.CountedEntry) -> None:
        if one.kind in _VOTES:
            self._votes.labels(_VOTES[one.kind], one.runbook).inc()
        if one.kind not in _ENDINGS or one.part:
            return
        self._runs.labels(one.kind, one.runbook).inc()
        if one.waited is not None:
            self._waits.labels(one.runbook).observe(one.waited)
        if one.took is not None:
            self._takes.labels(one.runbook).observe(one.took)


class _Health(Collector):
    """Whether policy, change log and database work."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield _gauge(
            "keyturn_policy_broken",
            "1 while there is no valid policy, and so nobody may do anything.",
            float(self._policy_broken()),
        )
        yield _gauge(
            "keyturn_log_broken",
            "1 while the change log cannot be written, and so nothing runs.",
            float(bool(self._parts.database.error)),
        )
        yield _gauge(
            "keyturn_database_up",
            "1 while the database answers.",
            float(self._database_answers()),
        )

    def _policy_broken(self) -> bool:
        try:
            self._parts.policies.get_policy()
        except (NoPolicyError, StoreUnavailable):
            return True
        return False

    def _database_answers(self) -> bool:
        try:
            with self._parts.database.reading() as tx:
                change_log.get_head(tx)
        except StoreUnavailable:
            return False
        return True


class _Now(Collector):
    """What holds at the moment."""

    def __init__(self, parts: ApiParts, gauges: Gauges) -> None:
        self._parts, self._gauges = parts, gauges

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield _gauge("keyturn_ssh_sessions", "SSH connections open.", self._gauges.sessions())
        yield _gauge(
            "keyturn_http_connections", "HTTP connections open.", self._gauges.connections()
        )
        cut = CounterMetricFamily(
            "keyturn_http_connections_closed",
            "HTTP connections that Keyturn closed, by reason.",
            labels=["reason"],
        )
        for reason, count in self._gauges.cut().items():
            cut.add_metric([reason], count)
        yield cut
        yield CounterMetricFamily(
            "keyturn_ssh_cuts",
            "SSH connections cut, since their hosts flooded us or broke the protocol.",
            self._gauges.ssh_cuts(),
        )
        yield from self._stored()
        lag = GaugeMetricFamily(
            "keyturn_log_unwitnessed_entries",
            "Entries of the change log that a witness was not told of yet.",
            labels=["witness"],
        )
        for witness, entries in self._gauges.unwitnessed().items():
            lag.add_metric([witness], entries)
        yield lag

    def _stored(self) -> Iterator[Metric]:
        try:
            with self._parts.database.reading() as tx:
                seen = stats.count_open_work(tx)
                tellings = webhook_queue.count_deliveries(tx)
        except StoreUnavailable:
            return
        runs = GaugeMetricFamily(
            "keyturn_runs",
            "Runs that are not over; of several hosts, the request as a whole.",
            labels=["state", "runbook"],
        )
        for state, words, count in seen.open_runs:
            runs.add_metric([state, words], count)
        yield runs
        for name, meaning, n in _TELLINGS:
            told = GaugeMetricFamily(name, meaning, labels=["subscription"])
            for subscription, counted in tellings.items():
                told.add_metric([subscription], counted[n])
            yield told
        for name, meaning, value in _figures(seen):
            yield _gauge(name, meaning, value)


def _figures(seen: stats.OpenWork) -> Iterator[tuple[str, str, float]]:
    unknown = sum(count for state, _, count in seen.open_runs if state == State.UNKNOWN)
    yield "keyturn_unknown_runs", "Runs whose end nobody saw: an owner resolves them.", unknown
    yield (
        "keyturn_stalled_runs",
        f"Runs at work of which the log has not told for {stats.STALLED_SECONDS // 60} min.",
        seen.stalled,
    )
    yield "keyturn_queue_depth", "Runs that wait for their turn.", seen.queued
    yield (
        "keyturn_oldest_waiting_seconds",
        "How long the oldest request waits for its approvals.",
        seen.waiting_seconds,
    )
    yield "keyturn_outbox_backlog", "Runs with news that chat was not told of yet.", seen.news
    yield "keyturn_outbox_failing", "Those of them that were tried and failed.", seen.failed_news
    yield "keyturn_locked_hosts", "Hosts that a change holds.", seen.locks
    yield "keyturn_log_entries", "The number of the change log's newest entry.", seen.log_entries


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def endpoint(parts: ApiParts, gauges: Gauges) -> Callable[[Request], Response]:
    """Return what answers /metrics to a token with the scope metrics."""
    metrics = Metrics(parts, gauges)

    def answer(request: Request) -> Response:
        try:
            recognised(request, parts).must_be_for("metrics")
            told = metrics.told()
        except (NoPolicyError, StoreUnavailable):
            # The token cannot be looked up now, which /readyz tells everybody too.
            told = metrics.health()
        except (NoToken, NotForThat, TooFast) as no:
            return errors.answer(request, no) or errors.problem(request, 500, "fault")
        return Response(
            told,
            media_type=CONTENT_TYPE_PLAIN_0_0_4,
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )

    return answer
