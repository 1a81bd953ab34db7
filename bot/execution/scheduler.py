"""The scheduler of a process: calls its periodic duties."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bot.db.database import StoreUnavailable

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5
# A late wake-up is never dropped: what is due then is still fired.
JOB_OPTIONS: Mapping[str, Any] = {
    "misfire_grace_time": None,
    "coalesce": True,
    "max_instances": 1,
}


class Scheduler:
    """Calls functions periodically, in threads.

    Args:
        duties: Called every few seconds, one after the other.
        slow_duties: Called every few seconds, each independently of the others.
    """

    def __init__(
        self,
        duties: Sequence[Callable[[], object]],
        slow_duties: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._duties, self._slow_duties = duties, slow_duties
        self._scheduler = AsyncIOScheduler(timezone=UTC)

    def start(self) -> None:
        """Start in the running event loop."""
        often: Mapping[str, Any] = {"seconds": INTERVAL_SECONDS, **JOB_OPTIONS}
        now = datetime.now(UTC)
        self._scheduler.add_job(self._call_duties, "interval", next_run_time=now, **often)
        for duty in self._slow_duties:
            self._scheduler.add_job(run_duty, "interval", args=(duty,), next_run_time=now, **often)
        self._scheduler.start()

    def stop(self) -> None:
        """Stop. A duty under way finishes."""
        self._scheduler.shutdown(wait=False)

    async def _call_duties(self) -> None:
        for duty in self._duties:
            await run_duty(duty)


async def run_duty(duty: Callable[[], object]) -> None:
    """Call one duty and log its errors, which never stop the scheduler."""
    try:
        await asyncio.to_thread(duty)
    except (StoreUnavailable, OSError) as error:
        log.critical("a periodic duty failed: %s", error)
    except Exception:
        log.exception("a periodic duty failed")
