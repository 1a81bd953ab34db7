from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from connectors import history
from connectors.command import Ask, Query
from connectors.history import Event, Events, Kind, Own, Span
from connectors.trouble import CommandFailed, NotUnderstood
from runbooks import Check, Host, Instant, Refused, Report, Table

_USUAL = timedelta(days=1)
_LONGEST = timedelta(days=92)
# Rows that people read; a window with more is asked for in parts.
_MOST = 200


@dataclass(frozen=True)
class Happened:
    """All events of a window, and the sources that could not be read, each with the reason.

    own: what Keyturn knows of itself. ahead: how far its clock is ahead of the host's.
    """

    since: datetime
    events: Events
    silent: tuple[tuple[str, str], ...]
    own: Own = field(default_factory=Own)
    ahead: timedelta = timedelta(0)


class HostChanges(
    Check[Happened], words="host changes", example="web1 2026-03-01T08:00Z 2026-03-01T09:30Z"
):
    """See who did what on a host: by Keyturn, by hand and by its packages, newest first.

    What a run of Keyturn did with sudo is counted beside the run.
    """

    host: Host
    since: Annotated[
        Instant | None,
        Field(description="From when on, such as 2026-03-01T08:00Z; the day before, if left out"),
    ] = None
    until: Annotated[
        Instant | None,
        Field(description="Up to when, such as 2026-03-01T09:30Z; now, if left out"),
    ] = None
    kind: Annotated[
        Kind | None, Field(description="Only logins, starts, uses of sudo, packages or runs")
    ] = None
    who: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_.$-]{0,64}$",
            description="Only what this person or account did",
        ),
    ] = ""
    each: Annotated[
        bool, Field(description="List each use of sudo by Keyturn instead of counting them by run")
    ] = False

    def read(self, ask: Ask) -> Happened:
        now = ask(self.host, history.clock())
        since = self.since or (self.until or now) - _USUAL
        if since > now or now - since > _LONGEST:
            raise Refused(
                f"on {self.host} it is {now:%Y-%m-%d %H:%M} UTC: give a moment of the last "
                f"{_LONGEST.days} days"
            )
        if self.until is not None and self.until < since:
            raise Refused(f"{self.until:%Y-%m-%d %H:%M} UTC is before the beginning: turn them")
        own = ask(self.host, history.ours(since))
        events = [*own.events]
        silent: list[tuple[str, str]] = []
        for source, query in _sources(since):
            try:
                events += ask(self.host, query)
            except (CommandFailed, NotUnderstood) as trouble:
                silent.append((source, str(trouble)))
        if len(silent) == len(_sources(since)):
            raise CommandFailed("; ".join(f"{source}: {why}" for source, why in silent))
        within = (one for one in events if self.until is None or one.at <= self.until)
        ahead = own.now - now if own.now else timedelta(0)
        in_order = tuple(sorted(within, key=lambda one: one.at))
        return Happened(since, in_order, tuple(silent), own, ahead)

    def report(self, happened: Happened) -> Report:
        events = [one for one in self._events(happened) if self._is_wanted(one)]
        people = sorted({event.who for event in events if event.who})
        findings = [f"{source} are not known: {why}" for source, why in happened.silent]
        if len(events) > _MOST:
            findings.append(
                f"only the last {_MOST} of {len(events)} are shown: ask for less time, or with "
                "kind= or who="
            )
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M}"
        return Report(
            f"{len(events)} thing{'' if len(events) == 1 else 's'} happened on {self.host} since "
            f"{happened.since:%Y-%m-%d %H:%M}{until} UTC"
            + (f", by {', '.join(people)}" * bool(people)),
            healthy=not happened.silent,
            findings=findings,
            table=Table(("when (UTC)", "what kind", "who", "what"), [*_rows(events[-_MOST:])]),
        )

    def _events(self, happened: Happened) -> Sequence[Event]:
        if self.each:
            return happened.events
        return sorted(_by_run(happened), key=lambda one: one.at)

    def _is_wanted(self, event: Event) -> bool:
        return self.kind in (None, event.kind) and self.who in ("", event.who)


def _by_run(happened: Happened) -> Iterator[Event]:
    """Yield the events with Keyturn's uses of sudo counted by run.

    Those at a time without a run are counted by their command: each of them is still seen.
    """
    own = happened.own
    of_runs: dict[int, list[Event]] = {}
    stray: dict[str, list[Event]] = {}
    others: list[Event] = []
    for event in happened.events:
        if event.kind != "sudo" or event.who not in own.accounts:
            others.append(event)
        elif span := _span_at(own.spans, event.at + happened.ahead):
            of_runs.setdefault(span.run, []).append(event)
        else:
            stray.setdefault(event.what, []).append(event)
    for event in others:
        used = of_runs.pop(event.run, [])
        yield replace(event, what=f"{event.what}; {_uses(used)}") if used else event
    about = {span.run: span for span in own.spans}
    for number, used in of_runs.items():
        what = f"{about[number].what}; {_uses(used)}"
        yield Event(used[0].at, "keyturn", about[number].who, what, number)
    for what, used in stray.items():
        often = f", {len(used)} times since {used[0].at:%Y-%m-%d %H:%M}" if len(used) > 1 else ""
        yield replace(used[-1], what=f"{what} (by Keyturn's login, in none of its runs{often})")


def _span_at(spans: Sequence[Span], at: datetime) -> Span | None:
    return next((span for span in spans if span.begins <= at <= span.ends), None)


def _uses(used: Sequence[Event]) -> str:
    return "1 use of sudo" if len(used) == 1 else f"{len(used)} uses of sudo"


def _sources(since: datetime) -> Sequence[tuple[str, Query[Events]]]:
    return (
        ("logins", history.logins(since)),
        ("uses of sudo", history.sudo(since)),
        ("packages", history.packages(since)),
    )


def _rows(events: Sequence[Event]) -> Iterator[tuple[str, ...]]:
    for event in reversed(events):
        yield f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind, event.who or "-", event.what
