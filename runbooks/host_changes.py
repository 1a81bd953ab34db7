from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from connectors import history
from connectors.command import Ask, Query
from connectors.history import Event, Events
from connectors.trouble import CommandFailed, NotUnderstood
from runbooks import Check, Host, Instant, Refused, Report, Table

_USUAL = timedelta(days=1)
_LONGEST = timedelta(days=92)
# Rows that people read; a window with more is asked for in parts.
_MOST = 200


@dataclass(frozen=True)
class Happened:
    """All events of a window, and the sources that could not be read, each with the reason."""

    since: datetime
    events: Events
    silent: tuple[tuple[str, str], ...]


class HostChanges(
    Check[Happened], words="host changes", example="web1 2026-03-01T08:00Z 2026-03-01T09:30Z"
):
    """See who did what on a host: by Keyturn, by hand and by its packages, newest first."""

    host: Host
    since: Annotated[
        Instant | None,
        Field(description="From when on, such as 2026-03-01T08:00Z; the day before, if left out"),
    ] = None
    until: Annotated[
        Instant | None,
        Field(description="Up to when, such as 2026-03-01T09:30Z; now, if left out"),
    ] = None

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
        events: list[Event] = []
        silent: list[tuple[str, str]] = []
        for source, query in _sources(since):
            try:
                events += ask(self.host, query)
            except (CommandFailed, NotUnderstood) as trouble:
                silent.append((source, str(trouble)))
        # Of itself Keyturn always knows: the host has to know something too.
        if len(silent) >= len(_sources(since)) - 1:
            raise CommandFailed("; ".join(f"{source}: {why}" for source, why in silent))
        within = (one for one in events if self.until is None or one.at <= self.until)
        return Happened(since, tuple(sorted(within, key=lambda one: one.at)), tuple(silent))

    def report(self, happened: Happened) -> Report:
        events = happened.events
        people = sorted({event.who for event in events if event.who})
        findings = [f"{source} are not known: {why}" for source, why in happened.silent]
        if len(events) > _MOST:
            findings.append(f"only the last {_MOST} of {len(events)} are shown: ask for less time")
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M}"
        return Report(
            f"{len(events)} things happened on {self.host} since "
            f"{happened.since:%Y-%m-%d %H:%M}{until} UTC"
            + (f", by {', '.join(people)}" * bool(people)),
            healthy=not happened.silent,
            findings=findings,
            table=Table(("when (UTC)", "what kind", "who", "what"), [*_rows(events[-_MOST:])]),
        )


def _sources(since: datetime) -> Sequence[tuple[str, Query[Events]]]:
    return (
        ("runs of Keyturn", history.ours(since)),
        ("logins", history.logins(since)),
        ("uses of sudo", history.sudo(since)),
        ("packages", history.packages(since)),
    )


def _rows(events: Events) -> Iterator[tuple[str, ...]]:
    for event in reversed(events):
        yield f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind, event.who or "-", event.what
