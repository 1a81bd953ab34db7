from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from connectors import clock, history
from connectors.amounts import format_count
from connectors.command import Query, QueryRunner
from connectors.errors import CommandError, ParseError
from connectors.history import EventKind, Events, HostEvent, KeyturnHistory, RunSpan
from connectors.rows import Rows
from runbooks import Check, Host, Instant, Refused, Report, Table

_USUAL = timedelta(days=1)
_LONGEST = timedelta(days=92)
# The most rows in one report.
_MOST = 200


@dataclass(frozen=True)
class HostHistory:
    """All events in a time range."""

    since: datetime
    events: tuple[HostEvent, ...]
    unread_sources: tuple[tuple[str, str], ...]
    """The sources that could not be read, each with the reason."""
    keyturn: KeyturnHistory = field(default_factory=KeyturnHistory)
    """Keyturn's own runs."""
    clock_lead: timedelta = timedelta(0)
    """How far Keyturn's clock is ahead of the host's."""


class HostChanges(
    Check[HostHistory],
    words="host changes",
    also_called=("who changed", "who logged in", "history", "audit"),
    example="web1 2026-03-01T08:00Z 2026-03-01T09:30Z",
    columns=("time (UTC)", "kind", "who", "event"),
):
    """List who did what on a host: with Keyturn, by hand and by packages, newest first.

    The uses of sudo by a run of Keyturn are counted beside the run.
    """

    host: Host
    since: Annotated[
        Instant | None,
        Field(description="Start, such as 2026-03-01T08:00Z; one day ago if left empty"),
    ] = None
    until: Annotated[
        Instant | None,
        Field(description="End, such as 2026-03-01T09:30Z; now if left empty"),
    ] = None
    kind: Annotated[
        EventKind | None, Field(description="Only logins, starts, uses of sudo, packages or runs")
    ] = None
    who: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_.$-]{0,64}$",
            description="Only events of this person or account",
        ),
    ] = ""
    each: Annotated[
        bool, Field(description="List each use of sudo by Keyturn instead of counting them by run")
    ] = False

    def read(self, run_query: QueryRunner) -> HostHistory:
        now = run_query(self.host, clock.query_clock())
        since = self.since or (self.until or now) - _USUAL
        if since > now or now - since > _LONGEST:
            raise Refused(
                f"on {self.host} it is {now:%Y-%m-%d %H:%M} UTC: enter a time within the last "
                f"{_LONGEST.days} days"
            )
        if self.until is not None and self.until < since:
            raise Refused(f"{self.until:%Y-%m-%d %H:%M} UTC is before the start: swap the times")
        keyturn = run_query(self.host, history.query_keyturn(since))
        events = [*keyturn.events]
        unread: list[tuple[str, str]] = []
        for source, query in _list_sources(since):
            try:
                events += run_query(self.host, query)
            except (CommandError, ParseError) as error:
                if (
                    source == "logins"
                    and (found := self._read_journal(run_query, since)) is not None
                ):
                    events += found
                else:
                    unread.append((source, str(error)))
        if len(unread) == len(_list_sources(since)):
            raise CommandError("; ".join(f"{source}: {why}" for source, why in unread))
        within = (one for one in events if self.until is None or one.time <= self.until)
        ahead = keyturn.clock - now if keyturn.clock else timedelta(0)
        in_order = Rows(sorted(within, key=lambda one: one.time))
        return HostHistory(since, in_order, tuple(unread), keyturn, ahead)

    def _read_journal(self, run_query: QueryRunner, since: datetime) -> Events | None:
        """Return logins from the journal of a host without `last`; None if it has no journal."""
        try:
            return run_query(self.host, history.query_journal_logins(since))
        except (CommandError, ParseError):
            return None

    def report(self, past: HostHistory) -> Report:
        events = [one for one in self._list_events(past) if self._is_wanted(one)]
        people = sorted({event.account for event in events if event.account})
        findings = [
            f"{source} could not be read: {reason}" for source, reason in past.unread_sources
        ]
        if len(events) > _MOST:
            findings.append(
                f"only the last {_MOST} of {len(events)} are shown: request a shorter time, or "
                "use kind= or who="
            )
        until = "" if self.until is None else f" UTC until {self.until:%Y-%m-%d %H:%M}"
        return Report(
            f"{format_count(len(events), 'event')} on {self.host} since "
            f"{past.since:%Y-%m-%d %H:%M}{until} UTC"
            + (f", by {', '.join(people)}" * bool(people)),
            healthy=not past.unread_sources,
            findings=findings,
            table=Table(self.columns, [*_list_rows(events[-_MOST:])]),
        )

    def _list_events(self, past: HostHistory) -> Sequence[HostEvent]:
        if self.each:
            return past.events
        return sorted(_count_by_run(past), key=lambda one: one.time)

    def _is_wanted(self, event: HostEvent) -> bool:
        return self.kind in (None, event.kind) and self.who in ("", event.account)


def _count_by_run(past: HostHistory) -> Iterator[HostEvent]:
    """Yield the events with Keyturn's uses of sudo counted by run.

    Uses of sudo outside of a run are counted by command, so that each command is shown.
    """
    keyturn = past.keyturn
    of_runs: dict[int, list[HostEvent]] = {}
    stray: dict[str, list[HostEvent]] = {}
    others: list[HostEvent] = []
    for event in past.events:
        if event.kind != "sudo" or event.account not in keyturn.accounts:
            others.append(event)
        elif span := _find_span(keyturn.spans, event.time + past.clock_lead):
            of_runs.setdefault(span.run, []).append(event)
        else:
            stray.setdefault(event.description, []).append(event)
    for event in others:
        used = of_runs.pop(event.run, [])
        yield (
            replace(event, description=f"{event.description}; {_format_uses(used)}")
            if used
            else event
        )
    about = {span.run: span for span in keyturn.spans}
    for number, used in of_runs.items():
        what = f"{about[number].description}; {_format_uses(used)}"
        yield HostEvent(used[0].time, "keyturn", about[number].requester, what, number)
    for what, used in stray.items():
        often = f", {len(used)} times since {used[0].time:%Y-%m-%d %H:%M}" if len(used) > 1 else ""
        yield replace(
            used[-1], description=f"{what} (by Keyturn's login, outside of its runs{often})"
        )


def _find_span(spans: Sequence[RunSpan], at: datetime) -> RunSpan | None:
    return next((span for span in spans if span.started_at <= at <= span.ended_at), None)


def _format_uses(used: Sequence[HostEvent]) -> str:
    return format_count(len(used), "use of sudo", "uses of sudo")


def _list_sources(since: datetime) -> Sequence[tuple[str, Query[Events]]]:
    return (
        ("logins", history.query_logins(since)),
        ("uses of sudo", history.query_sudo(since)),
        ("packages", history.query_packages(since)),
    )


def _list_rows(events: Sequence[HostEvent]) -> Iterator[tuple[str, ...]]:
    for event in reversed(events):
        yield (
            f"{event.time:%Y-%m-%d %H:%M:%S}",
            event.kind,
            event.account or "-",
            event.description,
        )
