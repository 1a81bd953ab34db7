"""The worker of a site: carries out what is asked for its hosts, wherever it is asked."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence

import click

from bot import app
from bot.app import Foundation, build_foundation, lock_database, lock_shared_directory
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.procrastinate_worker import ProcrastinateWorker
from bot.execution.scheduler import Scheduler
from bot.model.redaction import Redactor
from bot.observability import set_up_logging
from bot.policy import NoPolicyError, Policy, PolicyProblem
from bot.settings import Settings
from runbooks import list_own_digests

log = logging.getLogger(__name__)

# A step that is under way when the process ends may take so long, and what is cut off then.
_FINISH_SECONDS, _GIVE_UP_SECONDS = 18.0, 4.0


def run_worker(settings: Settings, *, sites: Sequence[str], concurrency: int) -> None:
    """Work until interrupted. Raises NoPolicy, StoreUnavailable, AlreadyRunning and ValueError."""
    if settings.engine != "distributed":
        raise ValueError(
            "keyturn serve does all the work itself: workers need KEYTURN_ENGINE=distributed, for "
            "them and for keyturn serve"
        )
    redactor = Redactor(settings.secrets)
    set_up_logging(redactor, settings.log)
    app.export_spans(settings)
    with lock_shared_directory(settings.data) as beside, lock_database(settings) as tenure:
        served = frozenset(sites)
        ground = build_foundation(
            settings,
            ProcrastinateDispatcher(),
            redactor,
            sites=served,
            beside=beside,
            tenure=tenure,
        )
        _check_sites(ground.policies.get_policy(), served)
        ground.house.take_up()
        ground.house.note_own_runbooks(list_own_digests())
        looks = max(2, concurrency * 3 // 4)
        url = settings.database_url
        crew = ProcrastinateWorker(
            url, sites=sorted(served), threads=concurrency, check_threads=looks
        )
        click.echo(f"Working for {', '.join(sorted(served))} as {ground.worker.name}")
        ended = asyncio.run(_until_told(ground, crew))
        ground.house.end()
        ground.database.close()
    if not ended:
        # Threads that nothing ends would keep the process: what they had is unknown by now.
        log.critical("what did not end in time was left behind")
        os._exit(1)


def _check_sites(policy: Policy, sites: frozenset[str]) -> None:
    known = sorted({host.site for host in policy.inventory.hosts.values()})
    for site in sorted(sites - {*known}):
        there = f"there are {', '.join(known)}" if known else "it has no hosts yet"
        raise NoPolicyError(
            PolicyProblem(f"no host of the inventory is at site {site!r}: {there}")
        )


async def _until_told(ground: Foundation, crew: ProcrastinateWorker) -> bool:
    """Work until a signal comes, and end in good order; False if something did not end."""
    told = asyncio.Event()

    def end() -> None:
        # Nothing further begins from this moment on: no step, no run, no look.
        ground.workflow.close()
        crew.close()
        told.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    ground.worker.start_heartbeat(ground.database)
    crew.start(ground.workflow.advance_run)
    clock = _clock(ground)
    clock.start()
    await told.wait()
    clock.stop()
    ended = await asyncio.to_thread(crew.stop, _FINISH_SECONDS)
    # What still runs on hosts ends as interrupted, and its run as unknown.
    ground.fleet.close()
    ended = ended or await asyncio.to_thread(crew.stop, _GIVE_UP_SECONDS)
    await asyncio.to_thread(ground.worker.end_leases, ground.database)
    return ended


def _clock(ground: Foundation) -> Scheduler:
    """Return what a worker does by time alone; what fires is the business of those that serve."""
    return Scheduler(
        [
            ground.workflow.recover_expired_leases,
            ground.house.keep,
            ground.contacts.write_contacts,
        ],
        fire_due_schedules=lambda: None,
        list_timetables=dict,
        slow_duties=[ground.workflow.run_due_follow_ups],
    )
