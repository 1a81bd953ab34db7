"""Schedules in many zones, in a process whose clock jumps.

libfaketime makes the process, and SQLite in it, read the time from a file, which the process
writes. `python -m tests.chaos.jumping_clock DIRECTORY SEED FROM DAYS ZONE…` prints as JSON which
moments fired.
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
from bot.features import load_hooks
from bot.features.schedules import runner
from bot.model.run import RequestTerms
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, Harness, ManualDispatcher
from tests.bot.model.test_schedule import first_at
from tests.policies import write_policy
from tests.toy import RUNBOOKS, SetSwitch, ToyFleet

_HOUR, _SECOND = 3600, 1_000_000
# When clocks are changed, half past two may come twice, or not at all.
_CRON, _TIME = "30 2 * * *", (2, 30)
_YEAR = 400 * 86_400 * _SECOND
# libfaketime's variable for the file with the time.
CLOCK_VARIABLE = "FAKETIME_TIMESTAMP_FILE"


class ScheduleSimulation:
    """A schedule for each zone, and a clock that jumps. begin: in seconds since 1970."""

    def __init__(self, directory: Path, seed: int, begin: float, zones: Sequence[str]) -> None:
        self._clock_file = Path(os.environ[CLOCK_VARIABLE])
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._zones, self.now = zones, begin
        self._set_clock(begin)
        fleet = ToyFleet()
        fleet.hosts["lb1"] = {f"z{n}": "off" for n in range(len(zones))}
        fleet.before_send = lambda _host, _words: self._jump_during_command()
        policies = write_policy(directory / "policy")
        database = create_sqlite_database(directory / "keyturn.db")
        dispatcher = ManualDispatcher()
        context = WorkflowContext(
            database,
            policies,
            fleet,
            dispatcher,
            runbooks=RUNBOOKS,
            schedule_lifetime=_YEAR,
            hooks=load_hooks(),
        )
        self.harness = Harness(KeyturnService(context), context, fleet, dispatcher, policies)
        self.schedule_ids = [self._create_schedule(n, zone) for n, zone in enumerate(zones)]

    def _create_schedule(self, n: int, zone: str) -> int:
        runbook = SetSwitch(host="lb1", name=f"z{n}", value="on")
        timing = ScheduleTiming(zone, parse_cron(_CRON, zone))
        run = self.harness.service.request_on_hosts(
            [runbook], RequestTerms("dora", WEB, timing=timing), host_pattern=""
        )
        self.harness.run_queued_work()
        self.harness.approve(self.harness.get_run(run.id))
        with self.harness.database.reading() as tx:
            query = select(tables.schedule.c.id).where(tables.schedule.c.run == run.id)
            return tx.sql.execute(query).scalar_one()

    def pass_moments(self, moments: Sequence[float]) -> None:
        """Let each moment come, with jumps of the clock before, during and after it fires."""
        for moment in moments:
            self._set_clock(moment - _HOUR / 2)
            for jump in self._random.choice(([], [-_HOUR], [_HOUR], [_HOUR, -_HOUR, _HOUR])):
                with self._jump(jump):
                    self._run_scheduler()
            self._set_clock(moment + 1)
            self._run_scheduler()
            for jump in self._random.choice(([], [-_HOUR], [_HOUR, -_HOUR])):
                with self._jump(jump):
                    self._run_scheduler()
            self._run_scheduler()

    def _run_scheduler(self) -> None:
        for switches in self.harness.fleet.hosts.values():
            for name in switches:
                switches[name] = "off"
        self.harness.service.advancer.recover_expired_leases()
        self.harness.service.bind(runner.fire_due_schedules)
        self.harness.service.advancer.wake_stalled_runs()
        self.harness.run_queued_work()

    def _jump_during_command(self) -> None:
        if self._random.random() < 0.5:
            self._set_clock(self.now + self._random.choice((-_HOUR, _HOUR)))

    @contextmanager
    def _jump(self, seconds: float) -> Generator[None]:
        before = self.now
        self._set_clock(before + seconds)
        yield
        self._set_clock(before)

    def _set_clock(self, now: float) -> None:
        self.now = now
        at = datetime.fromtimestamp(now, UTC)
        # Atomically: libfaketime may read it at any time.
        part = self._clock_file.with_name("part")
        part.write_text(f"{at:%Y-%m-%d %H:%M:%S}\n")
        part.rename(self._clock_file)

    def list_fires(self) -> dict[str, list[list[object]]]:
        """Return by zone each decided moment, its outcome, and the state of its run."""
        fire, run = tables.fire.c, tables.run.c
        fires: dict[str, list[list[object]]] = {}
        for schedule_id, zone in zip(self.schedule_ids, self._zones, strict=True):
            query = (
                select(fire.due_at, fire.outcome, run.state)
                .join_from(tables.fire, tables.run, fire.run == run.id, isouter=True)
                .where(fire.schedule == schedule_id)
                .order_by(fire.due_at)
            )
            with self.harness.database.reading() as tx:
                fires[zone] = [list(row) for row in tx.sql.execute(query)]
        return fires


def list_moments(zone: str, begin: date, days: int) -> list[float]:
    """Return when it is half past two in *zone* on each day, by the calendar alone."""
    dates = (begin + timedelta(days=n) for n in range(days))
    return [first_at(day, *_TIME, ZoneInfo(zone)).timestamp() for day in dates]


def main() -> None:
    directory, seed, begin, days, *zones = sys.argv[1:]
    first = date.fromisoformat(begin)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(days=2)
    simulation = ScheduleSimulation(Path(directory), int(seed), start.timestamp(), zones)
    moments = {moment for zone in zones for moment in list_moments(zone, first, int(days))}
    simulation.pass_moments(sorted(moments))
    print(json.dumps(simulation.list_fires()))


if __name__ == "__main__":
    main()
