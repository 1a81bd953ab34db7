"""The condition of the service: its database, log, witnesses, clock, work and keys, in findings.

Unlike the doctor it asks no host and no chat: it can be looked at as often as one likes.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.audit import change_log
from bot.db import leases, procrastinate_queue, schedules, stats
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.schedules import ScheduleState
from bot.hosts import reachability
from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)

_SECOND = 1_000_000
# A clock that is further off than this tells of trouble with its source.
_SKEW_SECONDS = 2.0
_SLOW_MILLISECONDS = 500
_LATE_SECONDS = 120
# Workers look every second: what has waited so long is seen by none.
_UNATTENDED_SECONDS = 15
_OLD_KEY_DAYS = 366


def _none() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True)
class ServiceHealth:
    """unwitnessed: by witness, how many entries it was not told of. spool: the file for what could
    not be logged. keys: files by what they are for. clock: seconds since 1970.
    """

    database: Database
    unwitnessed: Callable[[], Mapping[str, int]] = _none
    spool: Path | None = None
    keys: Mapping[str, Path] = field(default_factory=dict[str, Path])
    clock: Callable[[], float] = time.time

    def findings(self) -> list[CheckResult]:
        """Look at all of it, the database first: without it the rest is not to be seen."""
        began = time.monotonic()
        try:
            with self.database.reading() as tx:
                took = round((time.monotonic() - began) * 1000)
                found = [*self._database(took), *self._told(tx)]
            found += self._witnesses()
        except StoreUnavailable as trouble:
            found = [
                create_error_result("Database", f"{trouble}: nothing can be done until it answers")
            ]
        return [*found, *self._spool(), *self._keys()]

    def _database(self, took: int) -> Iterator[CheckResult]:
        kind = "SQLite" if self.database.embedded else "PostgreSQL"
        well = took < _SLOW_MILLISECONDS
        said = f"{kind} answers within {took} ms"
        yield (
            create_ok_result("Database", said)
            if well
            else create_warning_result("Database", f"{said}: what slows it down?")
        )
        trouble = self.database.error
        if trouble:
            yield create_error_result(
                "Change log", f"cannot be written, so nothing runs: {trouble}"
            )

    def _told(self, tx: Transaction) -> Iterator[CheckResult]:
        seq, digest = change_log.get_head(tx)
        yield create_ok_result(
            "Change log", f"{_many(seq, 'entry', 'entries')}, head {digest[:12] or 'none'}"
        )
        yield self._skew(tx)
        yield from _schedules(tx)
        yield from _work(tx)
        if not self.database.embedded:
            yield check_sites(tx)
        yield from _hosts(tx)

    def _skew(self, tx: Transaction) -> CheckResult:
        off = self.clock() - tx.now / _SECOND
        if abs(off) <= _SKEW_SECONDS:
            return create_ok_result("Clock", f"agrees with the database's to {abs(off):.1f} s")
        said = f"is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the database's"
        return create_error_result("Clock", f"{said}: look after the time service of this machine")

    def _witnesses(self) -> Iterator[CheckResult]:
        behind = self.unwitnessed()
        if not behind:
            said = "none: with KEYTURN_WITNESS or KEYTURN_SYSLOG a log that is cut off shows"
            yield create_warning_result("Witnesses", said)
        for name, entries in behind.items():
            told = "knows all"
            if entries:
                told = f"was not told of {_many(entries, 'entry', 'entries')} yet"
            yield create_ok_result(f"Witness {name}", told)

    def _spool(self) -> Iterator[CheckResult]:
        if self.spool is None:
            return
        if self.spool.exists() and self.spool.stat().st_size:
            yield create_error_result(
                "Spool", "holds what could not be logged: it is merged once that can be"
            )
        else:
            yield create_ok_result("Spool", "is empty")

    def _keys(self) -> Iterator[CheckResult]:
        for about, file in self.keys.items():
            if not file.exists():
                yield create_error_result(
                    about, f"{file.name} is not there: put it back from its copy"
                )
                continue
            days = int((self.clock() - file.stat().st_mtime) // 86_400)
            said = f"{days} days old" if days != 1 else "1 day old"
            old = days > _OLD_KEY_DAYS
            yield (
                create_warning_result(about, f"{said}: consider a new one")
                if old
                else create_ok_result(about, said)
            )


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _schedules(tx: Transaction) -> Iterator[CheckResult]:
    active = [one for one in schedules.list_schedules(tx) if one.state is ScheduleState.ACTIVE]
    late = [one for one in active if one.due_at and one.due_at < tx.now - _LATE_SECONDS * _SECOND]
    missed = sum(schedules.count_missed(tx, days=7).values())
    if late:
        names = ", ".join(one.timing.name for one in late[:5])
        yield create_error_result(
            "Schedules", f"{len(late)} are overdue, such as {names}: is the clock at work?"
        )
    elif missed:
        yield create_warning_result("Schedules", f"{missed} missed in the last 7 days")
    else:
        yield create_ok_result(
            "Schedules", f"{_many(len(active), 'fires', 'fire')}, none is overdue"
        )


def _work(tx: Transaction) -> Iterator[CheckResult]:
    stand = stats.count_open_work(tx)
    workers = leases.list_workers(tx)
    waits = f"{_many(stand.queued, 'run waits', 'runs wait')} for their turn"
    said = f"{waits}; at work: {', '.join(workers) or 'nobody'}"
    if stand.stalled:
        yield create_error_result(
            "Work", f"{stand.stalled} runs have given no sign for a while; {said}"
        )
    else:
        yield create_ok_result("Work", said)
    unknown = stats.count_unknown_outcomes(tx)
    if unknown:
        yield create_warning_result(
            "Unknown runs", f"{unknown} wait for an owner to say how they ended"
        )
    to_tell = f"{_many(stand.news, 'run is', 'runs are')} to be told of"
    if stand.failed_news:
        yield create_warning_result("Outbox", f"{to_tell}, {stand.failed_news} were in vain")
    else:
        yield create_ok_result("Outbox", to_tell)


def check_sites(tx: Transaction) -> CheckResult:
    """Say whether each site has a worker, as far as something waits for it. On PostgreSQL only."""
    alone = procrastinate_queue.list_unattended_sites(tx, seconds=_UNATTENDED_SECONDS)
    if not alone:
        return create_ok_result("Sites", "nothing waits at a site without a worker")
    said = [f"{one.site} ({one.waiting} wait, the first for {one.seconds} s)" for one in alone]
    start = " ".join(f"--site {one.site}" for one in alone[:5])
    return create_error_result(
        "Sites", f"no worker is heard of at {_listed(said)}: keyturn worker {start}"
    )


def _hosts(tx: Transaction) -> Iterator[CheckResult]:
    met = reachability.list_contacts(tx).values()
    changed = sorted(one.host for one in met if one.kind == "key")
    away = sorted(one.host for one in met if one.kind == "unreachable")
    if changed:
        yield create_error_result(
            "Host keys", f"others were shown by {_listed(changed)}: find out who answers"
        )
    if away:
        yield create_warning_result("Hosts", f"not reached last time: {_listed(away)}")
    elif met:
        yield create_ok_result("Hosts", f"{len(met)} were met, none was out of reach")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
