"""Clockwork: schedules in many zones, in a process whose clock jumps as it likes.

libfaketime has the process, and SQLite in it, read the time from a file; the process writes it.
`python -m tests.chaos.clockwork DIRECTORY SEED FROM DAYS ZONE…` prints as JSON what came of it.
"""

import json
import os
import random
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from sqlalchemy import select

from bot.db import tables
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, Harness, ManualDispatcher
from tests.bot.model.test_schedule import first_at
from tests.policies import a_policy
from tests.toy import RUNBOOKS, SetSwitch, ToyFleet

_HOUR, _SECOND = 3600, 1_000_000
# At half past two, where clocks are changed, a time may come twice, or not at all.
_CRON, _AT = "30 2 * * *", (2, 30)
_YEAR = 400 * 86_400 * _SECOND
CLOCK = "FAKETIME_TIMESTAMP_FILE"


class Clockwork:
    """begin: seconds since 1970. fires: moments that were fired, by schedule."""

    def __init__(self, directory: Path, seed: int, begin: float, zones: Sequence[str]) -> None:
        self._file = Path(os.environ[CLOCK])
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._zones, self.now = zones, begin
        self._set(begin)
        fleet = ToyFleet()
        fleet.hosts["lb1"] = {f"z{n}": "off" for n in range(len(zones))}
        fleet.before_send = lambda _host, _words: self._jump_in_between()
        policies = a_policy(directory / "policy")
        database = create_sqlite_database(directory / "keyturn.db")
        queue = ManualDispatcher()
        parts = WorkflowContext(
            database, policies, fleet, queue, runbooks=RUNBOOKS, schedule_lifetime=_YEAR
        )
        self.harness = Harness(KeyturnService(parts), parts, fleet, queue, policies)
        self.numbers = [self._begin(n, zone) for n, zone in enumerate(zones)]

    def _begin(self, n: int, zone: str) -> int:
        what = SetSwitch(host="lb1", name=f"z{n}", value="on")
        timing = ScheduleTiming(zone, parse_cron(_CRON, zone))
        run = self.harness.service.schedules.request_schedule(
            [what], host_pattern="", person="dora", origin=WEB, timing=timing
        )
        self.harness.run_queued_work()
        self.harness.approve(self.harness.get_run(run.id))
        with self.harness.database.reading() as tx:
            query = select(tables.schedule.c.id).where(tables.schedule.c.run == run.id)
            return tx.sql.execute(query).scalar_one()

    def go_through(self, moments: Sequence[float]) -> None:
        """Let every moment come, and the clock jump before, after and while it fires."""
        for moment in moments:
            self._set(moment - _HOUR / 2)
            for jump in self._chance.choice(([], [-_HOUR], [_HOUR], [_HOUR, -_HOUR, _HOUR])):
                with self._jumped(jump):
                    self._look()
            self._set(moment + 1)
            self._look()
            for jump in self._chance.choice(([], [-_HOUR], [_HOUR, -_HOUR])):
                with self._jumped(jump):
                    self._look()
            self._look()

    def _look(self) -> None:
        for switches in self.harness.fleet.hosts.values():
            for name in switches:
                switches[name] = "off"
        self.harness.service.recover_expired_leases()
        self.harness.service.fire_due_schedules()
        self.harness.service.wake_stalled_runs()
        self.harness.run_queued_work()

    def _jump_in_between(self) -> None:
        """Let the clock jump while a command runs."""
        if self._chance.random() < 0.5:
            self._set(self.now + self._chance.choice((-_HOUR, _HOUR)))

    @contextmanager
    def _jumped(self, seconds: float) -> Generator[None]:
        before = self.now
        self._set(before + seconds)
        yield
        self._set(before)

    def _set(self, now: float) -> None:
        self.now = now
        at = datetime.fromtimestamp(now, UTC)
        # In one go: a clock that is half written is none.
        part = self._file.with_name("part")
        part.write_text(f"{at:%Y-%m-%d %H:%M:%S}\n")
        part.rename(self._file)

    def list_fires(self) -> dict[str, list[list[object]]]:
        """Return by zone each moment that was decided, its outcome and how its run ended."""
        of, run = tables.fire.c, tables.run.c
        fires: dict[str, list[list[object]]] = {}
        for number, zone in zip(self.numbers, self._zones, strict=True):
            query = (
                select(of.due_at, of.outcome, run.state)
                .join_from(tables.fire, tables.run, of.run == run.id, isouter=True)
                .where(of.schedule == number)
                .order_by(of.due_at)
            )
            with self.harness.database.reading() as tx:
                fires[zone] = [list(row) for row in tx.sql.execute(query)]
        return fires


def moments(zone: str, begin: date, days: int) -> list[float]:
    """Return when it is half past two there, by the calendar alone."""
    every = (begin + timedelta(days=n) for n in range(days))
    return [first_at(day, *_AT, ZoneInfo(zone)).timestamp() for day in every]


def main() -> None:
    directory, seed, begin, days, *zones = sys.argv[1:]
    first = date.fromisoformat(begin)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(days=2)
    work = Clockwork(Path(directory), int(seed), start.timestamp(), zones)
    work.go_through(sorted({m for zone in zones for m in moments(zone, first, int(days))}))
    print(json.dumps(work.list_fires()))


if __name__ == "__main__":
    main()
