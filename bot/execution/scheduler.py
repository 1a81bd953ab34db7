"""The scheduler of a process: runs periodic duties, and wakes at the due times of schedules.

The database decides what fires, so any number of processes fire each due time once. The jobs of
APScheduler are kept in memory only, and created again from the database.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from bot.db.database import StoreUnavailable
from bot.model.schedule import CronExpression
from bot.model.times import SECOND, to_datetime

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 5
# A late wake-up is never dropped: what is due then is still fired.
_JOB_OPTIONS: Mapping[str, Any] = {
    "misfire_grace_time": None,
    "coalesce": True,
    "max_instances": 1,
}


class CronTrigger(BaseTrigger):
    """Wakes at the due times of a cron expression."""

    def __init__(self, cron_expression: CronExpression) -> None:
        self._cron_expression = cron_expression

    def get_next_fire_time(  # pyright: ignore[reportIncompatibleMethodOverride] - the library has no types
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        """Return the due time after the last one; None if there is no other."""
        after = previous_fire_time or now
        due = next(
            self._cron_expression.iterate_due_times(round(after.timestamp() * SECOND)), None
        )
        return None if due is None else to_datetime(due)


class Scheduler:
    """Calls functions periodically and at the due times of schedules, in threads.

    Args:
        duties: Called every few seconds, one after the other.
        fire_due_schedules: Called at each due time, too.
        list_timetables: Returns the cron expressions of the active schedules, by their numbers.
        slow_duties: Called every few seconds, each independently of the others.
    """

    def __init__(
        self,
        duties: Sequence[Callable[[], object]],
        *,
        fire_due_schedules: Callable[[], object],
        list_timetables: Callable[[], Mapping[int, CronExpression]],
        slow_duties: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._duties, self._fire_due_schedules, self._list_timetables = (
            duties,
            fire_due_schedules,
            list_timetables,
        )
        self._slow_duties = slow_duties
        self._scheduled: dict[int, CronExpression] = {}
        self._scheduler = AsyncIOScheduler(timezone=UTC)

    def start(self) -> None:
        """Start in the running event loop."""
        often: Mapping[str, Any] = {"seconds": _INTERVAL_SECONDS, **_JOB_OPTIONS}
        now = datetime.now(UTC)
        self._scheduler.add_job(self._run_duties, "interval", next_run_time=now, **often)
        for duty in self._slow_duties:
            self._scheduler.add_job(
                _run_duty, "interval", args=(duty,), next_run_time=now, **often
            )
        self._scheduler.start()

    def stop(self) -> None:
        """Stop. A duty under way finishes."""
        self._scheduler.shutdown(wait=False)

    async def _run_duties(self) -> None:
        for duty in (*self._duties, self._fire_due_schedules, self._update_jobs):
            await _run_duty(duty)

    async def _fire_now(self) -> None:
        await _run_duty(self._fire_due_schedules)

    def _update_jobs(self) -> None:
        """Create and remove jobs to match the active schedules."""
        wanted = dict(self._list_timetables())
        for number in [n for n, known in self._scheduled.items() if wanted.get(n) != known]:
            # The job of a schedule without another due time is already gone.
            if self._scheduler.get_job(str(number)) is not None:
                self._scheduler.remove_job(str(number))
            del self._scheduled[number]
        for number, timetable in wanted.items():
            if number not in self._scheduled:
                self._scheduler.add_job(
                    self._fire_now, CronTrigger(timetable), id=str(number), **_JOB_OPTIONS
                )
                self._scheduled[number] = timetable


async def _run_duty(duty: Callable[[], object]) -> None:
    """Call one duty and log its errors, which never stop the scheduler."""
    try:
        await asyncio.to_thread(duty)
    except (StoreUnavailable, OSError) as error:
        log.critical("a periodic duty failed: %s", error)
    except Exception:
        log.exception("a periodic duty failed")
