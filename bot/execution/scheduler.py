"""The clock: does what is due by time alone, in every process that serves.

APScheduler wakes it; what fires is settled in the database, so any number of clocks fire once.
Its jobs are kept in memory only and are made anew from the database.
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

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 5
# A wake-up is never dropped for being late: what it finds due is due.
_JOB_OPTIONS: Mapping[str, Any] = {
    "misfire_grace_time": None,
    "coalesce": True,
    "max_instances": 1,
}
_SECOND = 1_000_000


class CronTrigger(BaseTrigger):
    """Wakes at the moments of a timetable."""

    def __init__(self, cron_expression: CronExpression) -> None:
        self._timetable = cron_expression

    def get_next_fire_time(  # pyright: ignore[reportIncompatibleMethodOverride] - the library has no types
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        """Return the moment after the last one; None if there is no other."""
        after = previous_fire_time or now
        due = next(self._timetable.iterate_due_times(round(after.timestamp() * _SECOND)), None)
        return None if due is None else datetime.fromtimestamp(due / _SECOND, UTC)


class Scheduler:
    """duties: done every few seconds, one after the other; aside: those that may take long, so
    that none waits for another. fire: done at each schedule's moments.

    timetables: of the schedules that fire now, by their numbers. All are called in threads.
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
        """Begin to tick in the running event loop."""
        often: Mapping[str, Any] = {"seconds": _INTERVAL_SECONDS, **_JOB_OPTIONS}
        now = datetime.now(UTC)
        self._scheduler.add_job(self._run_duties, "interval", next_run_time=now, **often)
        for duty in self._slow_duties:
            self._scheduler.add_job(
                _run_duty, "interval", args=(duty,), next_run_time=now, **often
            )
        self._scheduler.start()

    def stop(self) -> None:
        """Tick no more; a duty under way comes to its end."""
        self._scheduler.shutdown(wait=False)

    async def _run_duties(self) -> None:
        for duty in (*self._duties, self._fire_due_schedules, self._update_jobs):
            await _run_duty(duty)

    async def _fire_now(self) -> None:
        await _run_duty(self._fire_due_schedules)

    def _update_jobs(self) -> None:
        """Wake at the moments of the schedules as they are now."""
        wanted = dict(self._list_timetables())
        for number in [n for n, known in self._scheduled.items() if wanted.get(n) != known]:
            # One that never fires again is gone already.
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
    """Do one duty; what becomes of it never stops the clock."""
    try:
        await asyncio.to_thread(duty)
    except (StoreUnavailable, OSError) as trouble:
        log.critical("the clock could not do its work: %s", trouble)
    except Exception:
        log.exception("the clock could not do its work")
